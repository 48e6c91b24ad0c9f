"""Where the time of each step went: wall, period, busy and idle, causes of idleness, phases."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.report import IdleCause, Report, Step
from foretrace.model.words import UNKNOWN, count, listed, number, percent, scale_of_times, time
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, line, note
from foretrace.report.trust import unprofiled
from foretrace.report.view import View

__all__ = ["idle", "middle_step", "phases", "step_scale", "step_table", "steps"]

IDLE_CAUSES = 3  # in the line of a report of one step
CAUSE_ROWS = 6  # of each step in the section
CAUSE_STEPS = 6

# causes of the report in the words of a table
_CAUSES = {
    "synchronization": "synchronization",
    "waiting_for_cpu": "CPU",
    "compile": "compilation",
    "graph": "graph launch",
    "data_loading": "data loading",
    "launch_latency": "launch latency",
    "unknown": "cause unknown",
}


def cause_words(cause: str, detail: str | None) -> str:
    """ "CPU: aten::linear", "synchronization: cudaStreamSynchronize", "launch latency"."""
    if detail and detail.startswith("Python in "):
        return detail  # what runs Python is the CPU, and the column is narrow
    words = _CAUSES.get(cause, cause.replace("_", " "))
    return f"{words}: {detail}" if detail else words


def largest(causes: Sequence[IdleCause]) -> IdleCause | None:
    """The cause with the most time, or none."""
    return max(causes, key=lambda cause: cause.us, default=None)


def middle_step(steps: Sequence[Step]) -> Step | None:
    """The step whose period is the (lower) median: one that really ran, unlike an average."""
    return sorted(steps, key=lambda step: step.period_us)[(len(steps) - 1) // 2] if steps else None


def short_label(label: str) -> str:
    """ "#3" of "ProfilerStep#3"; other labels as they are."""
    return "#" + label.rpartition("#")[2] if "#" in label else label


def picked(steps: Sequence[Step], most: int) -> list[tuple[Step, str]]:
    """All steps; of more than ``most`` the first, slowest, fastest, median and last, with that remark."""
    if len(steps) <= most:
        return [(step, "") for step in steps]
    middle = middle_step(steps)
    marked: dict[int, list[str]] = {}
    chosen: dict[int, Step] = {}
    for step, remark in (
        (steps[0], "first"),
        (max(steps, key=lambda step: step.period_us), "slowest"),
        (min(steps, key=lambda step: step.period_us), "fastest"),
        (middle, "median"),
        (steps[-1], "last"),
    ):
        if step is not None:
            marked.setdefault(step.index, []).append(remark)
            chosen[step.index] = step
    return [(chosen[index], ", ".join(marked[index])) for index in sorted(chosen)]


def step_scale(steps: Sequence[Step]) -> tuple[float, str]:
    """Divisor and unit of the times of these steps."""
    return scale_of_times(value for step in steps for value in (step.wall_us, step.period_us, step.gpu_busy_us))


def step_table(
    shown: Sequence[tuple[Step, str]], width: int, *, full: bool = False, causes: bool = False
) -> list[Line]:
    """Rows of steps; all times in one unit (``step_scale``), so that rows and columns compare at a glance."""
    divisor, _ = step_scale([step for step, _ in shown])
    columns = [
        Column("step", left=True, keep=9),
        Column("", left=True, style="dim", keep=7),
        Column("wall", keep=4),
        Column("period", keep=9),
        Column("GPU\nbusy", keep=9),
        Column("GPU\nidle", keep=8),
        Column("busy in\nperiod %", keep=9),
        Column("ker-\nnels", keep=9),
        Column("mem-\ncpys", keep=3),
        Column("mem-\nsets", keep=2),
        Column("laun-\nches", keep=6),
    ]
    if full:
        columns += [Column("kernel\nlaunches", keep=1), Column("occupancy\nqueries", keep=1)]
    columns += [Column("syncs", keep=5)]
    if causes:
        columns += [Column("largest cause\nof idle time", left=True, least=14, keep=6)]

    def times(*values: float | None) -> list[str]:
        return [UNKNOWN if value is None else number(value / divisor) for value in values]

    rows: list[list[str]] = []
    for step, remark in shown:
        row = [short_label(step.label), remark]
        row += times(step.wall_us, step.period_us, step.gpu_busy_us, step.gpu_idle_us)
        row += [percent(step.busy_share)]
        row += [number(n) for n in (step.kernels, step.memcpys, step.memsets, step.launches)]
        if full:
            row += [number(step.kernel_launches), number(step.occupancy_queries)]
        row += [number(step.synchronizations)]
        if causes:
            top = largest(step.idle)
            row += ["" if top is None else f"{number(top.us / divisor)} {cause_words(top.cause, top.detail)}"]
        rows.append(row)
    return table(columns, rows, width)


def steps(report: Report, view: View) -> list[Line]:
    """Every step with all its counts."""
    rows = view.rows(50)
    shown = [(step, "") for step in report.steps]
    lines = note(f"Times in {step_scale(report.steps[:rows])[1]}.", view.width)
    lines += step_table(shown[:rows], view.width, full=True)
    lines += more(len(shown), rows, "step")
    said = unprofiled(report)
    if said:
        lines += note(said, view.width)
    return lines


def more(there: int, shown: int | None, noun: str) -> list[Line]:
    """The line that says how many rows were left out."""
    if shown is None or there <= shown:
        return []
    left = there - shown
    return [line(Span(f"  + {left} more {noun}{'' if left == 1 else 's'} (--all)", "dim"))]


def phases(report: Report, view: View) -> list[Line]:
    """GPU time launched by forward, backward and optimizer, step by step."""
    entries = [(step, phase) for step in report.steps for phase in step.phases or []]
    if not entries:
        return [line("  The trace does not tell forward, backward and optimizer apart.")]
    divisor, unit = scale_of_times(phase.gpu_us for _, phase in entries)
    columns = [
        Column("step", left=True),
        Column("phase", left=True),
        Column(f"GPU {unit}"),
        Column("kernels"),
    ]
    limit = view.rows(30)
    rows = [
        [short_label(step.label), phase.phase, number(phase.gpu_us / divisor), number(phase.kernels)]
        for step, phase in entries[:limit]
    ]
    return table(columns, rows, view.width) + more(len(entries), limit, "row")


def phase_line(step: Step | None) -> str | None:
    """One line for the first screen: the phases of one step."""
    if step is None or not step.phases or len(step.phases) < 2:
        return None
    parts = [f"{phase.phase} {time(phase.gpu_us)} ({phase.kernels})" for phase in step.phases]
    return f"GPU time of step {short_label(step.label)} by phase (kernels): {listed(parts)}."


def outside_line(report: Report) -> str | None:
    """GPU work that no step launched (launch before the recording, between steps, or not recorded)."""
    kernels = [kernel.duration_us for kernel in report.kernels if kernel.step is None]
    others = [row.duration_us for row in report.transfers if row.step is None]
    if not kernels and not others:
        return None
    parts = [count(len(kernels), "kernel")] if kernels else []
    parts += [count(len(others), "copy or memset", "copies and memsets")] if others else []
    total = time(sum(kernels) + sum(others))
    return f"Launched by none of these steps: {listed(parts)}, {total} in all; the tables below count them."


def idle_line(step: Step | None) -> str | None:
    """One line for the first screen: the largest causes of idle GPU time of one step."""
    if step is None or not step.idle:
        return None
    causes = sorted(step.idle, key=lambda cause: -cause.us)[:IDLE_CAUSES]
    parts = "; ".join(f"{cause_words(c.cause, c.detail)} ({time(c.us)})" for c in causes)
    return f"Largest causes of GPU idle: {parts}."


def idle(report: Report, view: View) -> list[Line]:
    """Idle GPU time of each step by cause, and the longest gaps."""
    if not report.gaps and not any(step.idle for step in report.steps):
        return [line("  No idle GPU time was found." if report.trace.has.gpu else "  The trace holds no GPU rows.")]
    each = None if view.everything else view.top or CAUSE_ROWS
    shown = picked(report.steps, len(report.steps) if view.everything else CAUSE_STEPS)
    divisor, unit = scale_of_times(cause.us for step, _ in shown for cause in step.idle)
    columns = [
        Column("step", left=True),
        Column(f"idle {unit}"),
        Column("gaps"),
        Column("cause", left=True, least=20),
    ]
    rows: list[list[str]] = []
    left = 0
    for step, _ in shown:
        causes = sorted(step.idle, key=lambda cause: -cause.us)
        left += len(causes) - len(causes[:each])
        for at, c in enumerate(causes[:each]):
            label = short_label(step.label) if at == 0 else ""
            rows.append([label, number(c.us / divisor), number(c.gaps), cause_words(c.cause, c.detail)])
    lines = table(columns, rows, view.width) + more(len(rows) + left, len(rows), "cause")
    lines += more(len(report.steps), len(shown), "step")
    if report.gaps:
        lines += [[], *note("Longest gaps (start counts from the first event of the trace)", view.width)]
        labels = {step.index: short_label(step.label) for step in report.steps}
        divisor, unit = scale_of_times(gap.duration_us for gap in report.gaps)
        from_divisor, from_unit = scale_of_times(gap.start_us for gap in report.gaps)
        columns = [
            Column("step", left=True),
            Column(f"start {from_unit}"),
            Column(f"idle {unit}"),
            Column("cause", left=True, least=20),
        ]
        limit = view.rows(15)
        rows = [
            [
                labels.get(gap.step, str(gap.step)),
                number(gap.start_us / from_divisor),
                number(gap.duration_us / divisor),
                cause_words(gap.cause, gap.detail),
            ]
            for gap in report.gaps[:limit]
        ]
        lines += table(columns, rows, view.width) + more(len(report.gaps), limit, "gap")
    return lines
