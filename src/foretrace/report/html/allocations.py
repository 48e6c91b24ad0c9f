"""The memory of each step as a section, as the trace's allocator rows have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.model.report import Report
from foretrace.model.trace_memory import Allocating, DeviceMemory, Intermediates, StepMemory
from foretrace.model.words import count, listed, mebibytes
from foretrace.report import trace_memory
from foretrace.report.clock import short_label
from foretrace.report.html.page import Section, section
from foretrace.report.html.tables import Column, Table

__all__ = ["memory"]


@dataclass(frozen=True)
class _Device:
    title: str
    steps: Table
    events: Sequence[int | None]  # of each step's peak
    tables: Sequence[Table]
    missing: Sequence[str]


def memory(report: Report) -> Section | None:
    """Each device's steps and, of the step with the highest peak, who held it; None where nothing was recorded."""
    if report.memory is None:
        return None
    return section(
        "memory", "Memory by step", "memory.html.j2", devices=[_device(device) for device in report.memory.devices]
    )


def _device(device: DeviceMemory) -> _Device:
    of = "" if device.process is None else f" of process {device.process}"
    worst = max(device.steps, key=lambda step: (step.peak_bytes or 0, step.allocated_bytes), default=None)
    tables = [] if worst is None or not worst.allocations else _in_detail(worst)
    return _Device(
        title=f"{device.device}{of}: {count(device.rows, 'allocator row')}",
        steps=_steps(device),
        events=[step.peak_event for step in device.steps],
        tables=tables,
        missing=list(dict.fromkeys([*device.missing.values(), *(w for s in device.steps for w in s.missing.values())])),
    )


def _steps(device: DeviceMemory) -> Table:
    rows = device.steps
    return Table(
        id="memory-steps",
        title="Steps",
        rows=len(rows),
        columns=[
            Column("step", "step", "text", [short_label(step.label) for step in rows]),
            Column("start", "at its start", "mebibytes", [step.start_bytes for step in rows]),
            Column("peak", "peak", "mebibytes", [step.peak_bytes for step in rows]),
            Column("end", "at its end", "mebibytes", [step.end_bytes for step in rows]),
            Column("allocated", "allocated in all", "mebibytes", [step.allocated_bytes for step in rows]),
            Column("allocations", "allocations", "count", [step.allocations for step in rows]),
            Column("reserved", "reserved", "mebibytes", [step.reserved_bytes for step in rows]),
            Column("grown", "newly reserved", "mebibytes", [step.reserved_grown_bytes for step in rows]),
            Column("at", "operator at the peak", "name", [trace_memory.peak_place(step) for step in rows]),
        ],
    )


def _in_detail(step: StepMemory) -> list[Table]:
    label = short_label(step.label)
    tables = []
    if step.alive_at_peak:
        before = step.held_before_bytes
        said = []
        if before:
            said = [
                f"{mebibytes(before)} more were allocated before the recording: {mebibytes(step.peak_bytes)} in all."
            ]
        tables.append(_operators("alive", f"Alive at the peak of {label}, by operator", step.alive_at_peak, said))
    title = f"Largest allocations of {label}, freed again or not"
    tables.append(_operators("largest", title, step.largest, [f"{mebibytes(step.allocated_bytes)} in all."]))
    if step.intermediates is not None:
        tables.append(_intermediates(step.intermediates, step, label))
    return tables


def _operators(id: str, title: str, rows: Sequence[Allocating], remarks: Sequence[str]) -> Table:
    return Table(
        id=f"memory-{id}",
        title=title,
        rows=len(rows),
        columns=[
            Column("op", "operator", "name", [row.op or "outside of operators" for row in rows]),
            Column("within", "in", "name", [row.within or "" for row in rows]),
            Column("phase", "phase", "text", [row.phase for row in rows]),
            Column("modules", "modules", "name", [", ".join(row.modules) for row in rows]),
            Column("allocations", "allocations", "count", [row.allocations for row in rows]),
            Column("bytes", "bytes", "mebibytes", [row.bytes for row in rows]),
        ],
        remarks=remarks,
    )


def _intermediates(found: Intermediates, step: StepMemory, label: str) -> Table:
    rows = found.tensors
    said = f"In all {mebibytes(found.bytes)}"
    if found.kept_bytes:
        said += f", of which the backward pass reads {mebibytes(found.kept_bytes)} again"
    said += trace_memory.peak_without(found, step.peak_bytes)
    return Table(
        id="memory-intermediates",
        title=f"Results of {label} that only elementwise operators read: fused kernels need not write them",
        rows=len(rows),
        columns=[
            Column("role", "what", "text", [row.role for row in rows]),
            Column("op", "operator", "name", [row.op for row in rows]),
            Column("read_by", "read by", "name", [listed(row.read_by) for row in rows]),
            Column("tensors", "tensors", "count", [row.tensors for row in rows]),
            Column("bytes", "bytes", "mebibytes", [row.bytes for row in rows]),
            Column("kept", "kept for the backward", "mebibytes", [row.kept_bytes for row in rows]),
        ],
        remarks=[f"{said}. Who reads what is inferred from shapes, order and lifetimes."],
    )
