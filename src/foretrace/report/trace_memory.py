"""The memory of each step, as the trace's allocator rows have it."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.report import Report
from foretrace.model.trace_memory import Allocating, DeviceMemory, Intermediates, StepMemory
from foretrace.model.words import UNKNOWN, listed, mebibytes, number
from foretrace.report.clock import more, short_label
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, line, note
from foretrace.report.view import View

__all__ = ["memory"]

_OPERATORS = 6


def memory(report: Report, view: View) -> list[Line]:
    """Each device's steps, and of the step with the highest peak: what was alive, allocated, and could be fused."""
    if report.memory is None:
        return note(
            "The trace holds no allocator rows; foretrace run --memory (profile_memory=True) records them.", view.width
        )
    lines: list[Line] = []
    devices = report.memory.devices
    for place, device in enumerate(devices):
        # Beside a GPU the CPU, which stands last, allocates a few numbers on their way there.
        detailed = place == 0 or device.device != devices[-1].device
        lines += [*([[]] if lines else []), *_device(device, view, detailed=detailed)]
    return lines


def _device(device: DeviceMemory, view: View, *, detailed: bool) -> list[Line]:
    where = device.device + ("" if device.process is None else f" of process {device.process}")
    lines = [line("  ", Span(where, "section"), Span(f"  {number(device.rows)} allocator rows", "dim"))]
    limit = view.rows()
    lines += _steps(device.steps[:limit], view.width) + more(len(device.steps), limit, "step")
    for reason in device.missing.values():
        lines += note(reason, view.width)
    worst = max(device.steps, key=lambda step: (step.peak_bytes or 0, step.allocated_bytes), default=None)
    if worst is not None and worst.allocations and (detailed or view.everything):
        lines += _in_detail(worst, view, alone=len(device.steps) == 1)
    return lines


def _steps(steps: Sequence[StepMemory], width: int) -> list[Line]:
    columns = [
        Column("step", left=True, keep=9),
        Column("at its\nstart", keep=7),
        Column("peak", keep=9),
        Column("at its\nend", keep=7),
        Column("allocated\nin all", keep=6),
        Column("alloca-\ntions", keep=5),
        Column("re-\nserved", keep=4),
        Column("newly\nreserved", keep=6),
        Column("operator at the peak", left=True, least=14, keep=8, cut="middle"),
    ]
    rows = [
        [
            short_label(step.label),
            mebibytes(step.start_bytes),
            mebibytes(step.peak_bytes),
            mebibytes(step.end_bytes),
            mebibytes(step.allocated_bytes),
            number(step.allocations),
            mebibytes(step.reserved_bytes),
            mebibytes(step.reserved_grown_bytes),
            _at_peak(step),
        ]
        for step in steps
    ]
    return table(columns, rows, width)


def _at_peak(step: StepMemory) -> str:
    if step.peak_event is None:
        return "at its start" if step.peak_bytes is not None else UNKNOWN
    return step.peak_within or step.peak_op or "outside of operators"


def _in_detail(step: StepMemory, view: View, *, alone: bool) -> list[Line]:
    of = "" if alone else f" of {short_label(step.label)}"
    lines: list[Line] = []
    if step.alive_at_peak:
        lines += [[], line(f"  Alive at the peak{of}, by the operator that allocated it")]
        lines += _operators(step.alive_at_peak, view)
    if step.held_before_bytes:
        lines += note(f"{mebibytes(step.held_before_bytes)} more were allocated before the recording.", view.width)
    lines += [[], line(f"  Largest allocations{of}, freed again or not"), *_operators(step.largest, view)]
    if step.intermediates is not None:
        lines += [[], line(f"  Results{of} that only elementwise operators read: fused kernels need not write them")]
        lines += _intermediates(step.intermediates, view)
    return lines


def _operators(operators: Sequence[Allocating], view: View) -> list[Line]:
    limit = view.rows(_OPERATORS)
    columns = [
        Column("operator", left=True, least=20, keep=9, cut="middle"),
        Column("in", left=True, least=12, keep=5, cut="middle"),
        Column("phase", left=True, keep=7),
        Column("modules", left=True, least=12, keep=3),
        Column("allocations", keep=6),
        Column("bytes", keep=9),
    ]
    rows = [
        [
            operator.op or "outside of operators",
            operator.within or "",
            operator.phase or UNKNOWN,
            ", ".join(operator.modules),
            number(operator.allocations),
            mebibytes(operator.bytes),
        ]
        for operator in operators[:limit]
    ]
    return table(columns, rows, view.width)


def _intermediates(found: Intermediates, view: View) -> list[Line]:
    limit = view.rows(_OPERATORS)
    columns = [
        Column("what", left=True, keep=9),
        Column("operator", left=True, keep=6),
        Column("read by", left=True, least=10, keep=7),
        Column("tensors", keep=5),
        Column("bytes", keep=9),
        Column("kept for\nthe backward", keep=8),
    ]
    rows = [
        [
            tensor.role,
            tensor.op,
            listed(tensor.read_by),
            number(tensor.tensors),
            mebibytes(tensor.bytes),
            mebibytes(tensor.kept_bytes) if tensor.kept_bytes else "",
        ]
        for tensor in found.tensors[:limit]
    ]
    lines = table(columns, rows, view.width) + more(len(found.tensors), limit, "kind")
    said = f"In all {mebibytes(found.bytes)}"
    if found.kept_bytes:
        said += f", of which the backward pass reads {mebibytes(found.kept_bytes)} again"
    if found.peak_without_bytes is not None:
        them = "the others" if found.kept_bytes else "them"
        said += f"; without {them} the peak would be {mebibytes(found.peak_without_bytes)}, all else as it is"
    return lines + note(f"{said}. Who reads what is inferred from shapes, order and lifetimes.", view.width)
