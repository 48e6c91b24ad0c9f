"""Where the time of the steps went: a table with a bar for each, idle time by cause, the longest gaps."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.model.report import Report, Step
from foretrace.model.words import UNKNOWN, listed, number, percent, scale_of_times
from foretrace.report import clock
from foretrace.report.html.page import Section, section
from foretrace.report.html.tables import Column, Table, times

__all__ = ["idle", "steps"]


# What is counted in a step, by what its column says.
_COUNTS = (
    ("kernels", "kernels"),
    ("memcpys", "memcpys"),
    ("memsets", "memsets"),
    ("launches", "launches"),
    ("kernel launches", "kernel_launches"),
    ("occupancy queries", "occupancy_queries"),
    ("syncs", "synchronizations"),
)


@dataclass(frozen=True)
class _Bar:
    """Widths in percent of the longest period: the GPU busy, the GPU idle."""

    busy: float
    idle: float


@dataclass(frozen=True)
class _Row:
    step: Step
    label: str
    busy: str  # in percent of the period
    cause: str
    bar: _Bar | None


def steps(report: Report) -> Section:
    """Every step with its counts, and what the phases of each launched."""
    divisor, unit = clock.step_scale(report.steps)
    longest = max((step.period_us for step in report.steps), default=0.0)
    middle = clock.middle_step(report.steps)
    counts = [(title, key) for title, key in _COUNTS if any(getattr(step, key) for step in report.steps)]
    none = [title for title, key in _COUNTS if report.steps and all(getattr(step, key) == 0 for step in report.steps)]
    said = [f"In no step: {listed(none)}." if none else "", clock.phase_line(middle), clock.outside_line(report)]
    if len(report.steps) == 1:
        said.insert(0, clock.idle_line(middle))
    return section(
        "steps",
        "Steps",
        "steps.html.j2",
        count=str(len(report.steps)),
        rows=[_row(step, longest, divisor) for step in report.steps],
        counts=counts,
        unit=unit,
        time=lambda value: UNKNOWN if value is None else number(value / divisor),
        said=[each for each in said if each],
        phases=_phases(report),
    )


def _row(step: Step, longest: float, divisor: float) -> _Row:
    share = step.busy_share
    top = clock.largest(step.idle)
    return _Row(
        step=step,
        label=clock.short_label(step.label),
        busy=percent(share),
        cause="" if top is None else f"{number(top.us / divisor)} {clock.cause_words(top.cause, top.detail)}",
        bar=None
        if share is None or longest <= 0
        else _Bar(busy=100 * share * step.period_us / longest, idle=100 * (1 - share) * step.period_us / longest),
    )


def _phases(report: Report) -> Table | None:
    entries = [(step, phase) for step in report.steps for phase in step.phases or []]
    if not entries:
        return None
    return Table(
        id="phases",
        title="Forward, backward, optimizer",
        rows=len(entries),
        columns=[
            Column("step", "step", "text", [clock.short_label(step.label) for step, _ in entries]),
            Column("phase", "phase", "text", [phase.phase for _, phase in entries]),
            times("gpu", "GPU", [phase.gpu_us for _, phase in entries]),
            Column("kernels", "kernels", "count", [phase.kernels for _, phase in entries]),
        ],
    )


def idle(report: Report) -> Section:
    """Idle time of the GPU by cause, and the longest gaps, each a link into the timeline."""
    causes = [(step, cause) for step in report.steps for cause in sorted(step.idle, key=lambda cause: -cause.us)]
    labels = {step.index: clock.short_label(step.label) for step in report.steps}
    table = Table(
        id="idle-causes",
        title="By cause",
        rows=len(causes),
        columns=[
            Column("step", "step", "text", [labels[step.index] for step, _ in causes]),
            times("idle", "idle", [cause.us for _, cause in causes]),
            Column("gaps", "gaps", "count", [cause.gaps for _, cause in causes]),
            Column("cause", "cause", "text", [clock.cause_words(cause.cause, cause.detail) for _, cause in causes]),
        ],
    )
    start_divisor, start_unit = scale_of_times(gap.start_us for gap in report.gaps)
    divisor, unit = scale_of_times(gap.duration_us for gap in report.gaps)
    return section(
        "idle",
        "GPU idle time and its causes",
        "idle.html.j2",
        table=table,
        gaps=[
            (
                labels.get(gap.step, str(gap.step)),
                number(gap.start_us / start_divisor),
                number(gap.duration_us / divisor),
                clock.cause_words(gap.cause, gap.detail),
                gap,
            )
            for gap in report.gaps
        ],
        start_unit=start_unit,
        unit=unit,
        gpu=report.trace.has.gpu,
    )
