"""The memory of each step, as the trace's allocator rows have it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretrace.knowledge.allocator_rows import CPU, LITTLE_ON_CPU
from foretrace.model.report import Report
from foretrace.model.trace_memory import Allocating, DeviceMemory, Intermediates, StepMemory
from foretrace.model.words import UNKNOWN, count, listed, mebibytes, number
from foretrace.report.clock import more, short_label
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, line, note
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["memory", "peak_place", "peak_without", "summary"]

_OPERATORS = 6
_DEVICES = 2  # on the first screen
# Cells that a table gives to the second name of a row before it does without it.
_WITHIN = 24
_NUMBER = re.compile(r"_\d+$")  # nn.Module frames are named by class and order: Linear_4


def memory(report: Report, view: View) -> list[Line]:
    """Each device's steps, and of the step with the highest peak: what was alive, allocated, and could be fused."""
    if report.memory is None:
        return note(
            "The trace holds no allocator rows; foretrace run --memory (profile_memory=True) records them.", view.width
        )
    lines: list[Line] = []
    devices = report.memory.devices
    beside_gpu = any(device.device != CPU for device in devices)
    for place, device in enumerate(devices):
        lines += [[]] if lines else []
        if beside_gpu and _is_little(device):
            lines += _little(device, view)
            continue
        # Beside a GPU the CPU, which stands last, is the lesser part.
        lines += _device(device, view, detailed=place == 0 or device.device != CPU)
    return lines


def summary(report: Report, view: View) -> list[Line]:
    """The memory in a line for the first screen, a line for each of the fullest GPUs; empty where none was recorded."""
    if report.memory is None:
        return []
    devices = [device for device in report.memory.devices if device.device != CPU] or report.memory.devices
    ranked = [(step, device) for device in devices if (step := _worst(device)) is not None]
    ranked.sort(key=lambda item: -(item[0].peak_bytes or 0))
    lines: list[Line] = []
    for place, (step, device) in enumerate(ranked[:_DEVICES]):
        said = _peak(step, device)
        if len(ranked) > 1:
            said = f"{_name(device)} {said}"
        if place == min(len(ranked), _DEVICES) - 1:
            left = len(ranked) - _DEVICES
            said += f" ({f'{left} more: ' if left > 0 else ''}--section memory)"
        lead = Span("MEMORY  ", "section") if place == 0 else Span(" " * len("MEMORY  "))
        lines += paragraph(said, view.width, lead=lead, indent=0)
    return lines


def _peak(step: StepMemory, device: DeviceMemory) -> str:
    """The peak of a step, of how much reserved, and at which operator."""
    where = "" if len(device.steps) == 1 else f" in step {short_label(step.label)}"
    if step.peak_bytes is None:
        return f"{mebibytes(step.allocated_bytes)} allocated in all{where}, the peak is not known"
    of = ""
    # What was reserved is known of the step's end; by then the cache may have been emptied.
    if step.reserved_bytes is not None and step.reserved_bytes >= step.peak_bytes:
        of = f" of {mebibytes(step.reserved_bytes)} reserved"
    elif device.device == CPU:
        of = " on the CPU since the profiler began"
    if step.peak_event is None:
        return f"peak {mebibytes(step.peak_bytes)}{of}{where}, at its start"
    place = step.peak_within or step.peak_op
    return f"peak {mebibytes(step.peak_bytes)}{of}{where}, " + (f"at {place}" if place else "outside of operators")


def _worst(device: DeviceMemory) -> StepMemory | None:
    """The step with the highest peak."""
    return max(device.steps, key=lambda step: (step.peak_bytes or 0, step.allocated_bytes), default=None)


def _name(device: DeviceMemory) -> str:
    return device.device + ("" if device.process is None else f" of process {device.process}")


def _is_little(device: DeviceMemory) -> bool:
    most = max((step.allocated_bytes for step in device.steps), default=0)
    return device.device == CPU and most < LITTLE_ON_CPU


def _little(device: DeviceMemory, view: View) -> list[Line]:
    most = max((step.allocated_bytes for step in device.steps), default=0)
    lines = [
        line(
            "  ",
            Span(_name(device), "section"),
            Span(f"  {count(device.rows, 'allocator row')}, at most {mebibytes(most)} allocated in a step", "dim"),
        )
    ]
    return lines + [
        row for name, why in device.missing.items() if name != "start_bytes" for row in note(why, view.width)
    ]


def _device(device: DeviceMemory, view: View, *, detailed: bool) -> list[Line]:
    lines = [
        line("  ", Span(_name(device), "section"), Span(f"  {count(device.rows, 'allocator row')}", "dim")),
    ]
    limit = view.rows()
    lines += _steps(device.steps[:limit], view.width) + more(len(device.steps), limit, "step")
    for reason in device.missing.values():
        lines += note(reason, view.width)
    worst = _worst(device)
    if worst is not None and worst.allocations and (detailed or view.everything):
        lines += _in_detail(worst, view, alone=len(device.steps) == 1)
    return lines


def _name_cells(width: int) -> int:
    """Cells that the name a row is about gets before other columns go: all of nearly every operator's at 80 columns."""
    return max(14, min(42, width // 2 - 8))


def _steps(steps: Sequence[StepMemory], width: int) -> list[Line]:
    columns = [
        Column("step", left=True, keep=9),
        Column("at its\nstart", keep=7),
        Column("peak", keep=9),
        Column("at its\nend", keep=7),
        Column("allocated\nin all", keep=6),
        Column("alloca-\ntions", keep=3),
        Column("re-\nserved", keep=5),
        Column("newly\nreserved", keep=4),
        Column("operator at the peak", left=True, least=_name_cells(width), keep=8, cut="middle"),
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
            peak_place(step),
        ]
        for step in steps
    ]
    return table(columns, rows, width)


def peak_place(step: StepMemory) -> str:
    """The operator or module in which a step's memory was highest, in words."""
    if step.peak_event is None:
        return "at its start" if step.peak_bytes is not None else UNKNOWN
    return step.peak_within or step.peak_op or "outside of operators"


def _in_detail(step: StepMemory, view: View, *, alone: bool) -> list[Line]:
    of = "" if alone else f" of {short_label(step.label)}"
    lines: list[Line] = []
    if step.alive_at_peak:
        lines += [[], *paragraph(f"Alive at the peak{of}, by the operator that allocated it", view.width)]
        lines += _operators(step.alive_at_peak, view)
    if step.held_before_bytes:
        said = f"{mebibytes(step.held_before_bytes)} more were allocated before the recording"
        lines += note(f"{said}: {mebibytes(step.peak_bytes)} in all.", view.width)
    lines += [[], *paragraph(f"Largest allocations{of}, freed again or not", view.width)]
    lines += _operators(step.largest, view)
    if len(step.largest) > 1:
        lines += note(f"{mebibytes(step.allocated_bytes)} in all.", view.width)
    if step.intermediates is not None:
        said = f"Results{of} that only elementwise operators read: fused kernels need not write them"
        lines += [[], *paragraph(said, view.width)]
        lines += _intermediates(step.intermediates, step.peak_bytes, view)
    return lines


def _shown(there: int, view: View) -> int:
    """Rows of a table whose sum closes; of one too many, the row that sums the others would take its place."""
    limit = view.rows(_OPERATORS)
    return there if limit is None or there <= limit + 1 else limit


def _operators(operators: Sequence[Allocating], view: View) -> list[Line]:
    shown = _shown(len(operators), view)
    columns = [
        Column("operator", left=True, least=_name_cells(view.width), keep=9, cut="middle"),
        Column("in", left=True, least=_WITHIN, keep=5, cut="middle"),
        Column("phase", left=True, keep=7),
        Column("modules", left=True, keep=3),
        Column("alloca-\ntions", keep=6),
        Column("bytes", keep=9),
    ]
    rows = [
        [
            operator.op or "outside of operators",
            operator.within or "",
            operator.phase or UNKNOWN,
            _modules(operator.modules),
            number(operator.allocations),
            mebibytes(operator.bytes),
        ]
        for operator in operators[:shown]
    ]
    left = operators[shown:]
    if left:
        calls, size = sum(each.allocations for each in left), sum(each.bytes for each in left)
        rows.append([f"+ {len(left)} others (--all)", "", "", "", number(calls), mebibytes(size)])
    return table(columns, rows, view.width)


def _modules(names: Sequence[str]) -> str:
    """One module by its name; several by their classes, since the names' numbers tell nothing that the sum is about."""
    if len(names) < 2:
        return "".join(names)
    return ", ".join(dict.fromkeys(_NUMBER.sub("", name) for name in names))


def _intermediates(found: Intermediates, peak: int | None, view: View) -> list[Line]:
    shown = _shown(len(found.tensors), view)
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
        for tensor in found.tensors[:shown]
    ]
    left = found.tensors[shown:]
    if left:
        kept = sum(each.kept_bytes for each in left)
        many, size = sum(each.tensors for each in left), sum(each.bytes for each in left)
        what = f"+ {len(left)} others (--all)"
        rows.append([what, "", "", number(many), mebibytes(size), mebibytes(kept) if kept else ""])
    lines = table(columns, rows, view.width)
    said = f"In all {mebibytes(found.bytes)}"
    if found.kept_bytes:
        said += f", of which the backward pass reads {mebibytes(found.kept_bytes)} again"
    said += peak_without(found, peak)
    return lines + note(f"{said}. Who reads what is inferred from shapes, order and lifetimes.", view.width)


def peak_without(found: Intermediates, peak: int | None) -> str:
    """What the peak would be without the tensors that are not kept, and why that is not less by all of their bytes.

    At the moment of the highest use without them, no more of them than the difference can be alive: with them that
    moment would be above the peak.
    """
    avoided, without = found.bytes - found.kept_bytes, found.peak_without_bytes
    if without is None or peak is None or not avoided:
        return ""
    them = f"the other {mebibytes(avoided)}" if found.kept_bytes else "them"
    less = peak - without
    if less <= 0:
        return f"; without {them} the peak would stay at {mebibytes(peak)}: none of it is alive then"
    said = f"; without {them} the peak would be {mebibytes(without)} instead of {mebibytes(peak)}, all else as it is"
    if less >= avoided:
        return said
    part = "most of it is" if 2 * less < avoided else "a part of it is"
    return f"{said}: {mebibytes(less)} less, since {part} not alive at the peak"
