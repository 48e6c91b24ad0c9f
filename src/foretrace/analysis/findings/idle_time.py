"""GPU idle time by cause: launches that come too slowly, data loading, one large gap that nothing explains."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median_low
from typing import Any

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import listed, pace, per, steps_annotated
from foretrace.analysis.idle import BETWEEN_STEPS, OUTSIDE, IdleCauses
from foretrace.analysis.pace import Pace
from foretrace.analysis.steps import gaps_within, period_end
from foretrace.knowledge.kineto import RowKind, is_data_loading
from foretrace.knowledge.limits import IDLE_SHARE, LARGE_GAP_SHARE
from foretrace.knowledge.rules_timeline import STARVED_PREDICTED, STARVED_PROVEN, STARVED_TIMED
from foretrace.model.report import Finding, Step
from foretrace.model.words import share_of, time

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """Findings about idle time, at most one of each rule."""
    known = facts.once(pace)
    if known is None:
        return
    yield from _starved(facts, known)
    yield from _data_loading(facts, known)
    yield from _largest_gap(facts)


def _timed(facts: Facts) -> list[Step]:
    """The steps that launched GPU work."""
    return [step for step in facts.steps if step.gpu_busy_us]


def _idle(facts: Facts, cause: str) -> tuple[float, dict[str, float], float]:
    """GPU idle time of one cause in the step that has the median of it: µs, detail → µs, the step's period in µs.

    All three are of one step, so that the parts add up to the whole. Gaps in which the launching thread recorded
    nothing are put down to no cause here.
    """
    totals: list[tuple[float, int]] = []
    tables: list[dict[str, float]] = []
    steps = _timed(facts)
    for position, step in enumerate(steps):
        table: dict[str, float] = {}
        for item in step.idle:
            if item.cause == cause and item.detail not in (OUTSIDE, BETWEEN_STEPS):
                name = item.detail or cause
                table[name] = table.get(name, 0.0) + item.us
        totals.append((sum(table.values()), position))
        tables.append(table)
    idle_us, position = median_low(sorted(totals))
    return idle_us, tables[position], steps[position].period_us


def _starved(facts: Facts, known: Pace) -> Iterable[Finding]:
    idle_us, waiting, period_us = _idle(facts, "waiting_for_cpu")
    share = idle_us / period_us
    if known.setter == "gpu" or share < IDLE_SHARE:
        return
    places: dict[str, Any] = {
        "idle": time(idle_us),
        "share": share_of(share),
        "per": per(facts),
        "most": listed(waiting.items()),
        "inflation": f"{known.inflation:.0f}",
    }
    rule, saving = "cpu_starved", None
    if not steps_annotated(facts):
        rule = "cpu_wait_whole"
    elif known.cpu_us is not None:
        places["proof"] = STARVED_PREDICTED.format(
            cpu=time(known.cpu_us), busy=time(known.busy_us), slower=time(known.period_us)
        )
    elif known.unprofiled_us is not None:
        saving = known.without_profiler(idle_us)
        places["proof"] = STARVED_TIMED.format(
            step=time(known.unprofiled_us), busy=time(known.busy_us), saving=time(saving)
        )
    elif known.setter == "cpu":
        places["proof"] = STARVED_PROVEN.format(inflation=places["inflation"], busy=share_of(known.share))
    else:
        rule = "cpu_wait_unproven"
    yield facts.finding(rule, _launches_after_gaps(facts), count=1, saving_us=saving, **places)


def _launches_after_gaps(facts: Facts) -> list[int]:
    """GPU rows that begin after the longest gaps of the steps: what the GPU waited for."""
    context = facts.context
    trace = context.trace
    found: list[tuple[int, int]] = []
    for span in context.steps:
        starts, ends = gaps_within(context, span.start, period_end(context, span))
        lengths = ends - starts
        for i in np.argsort(-lengths, kind="stable")[:4].tolist():
            at = int(np.searchsorted(trace.start[trace.gpu_rows], ends[i]))
            if at < len(trace.gpu_rows):
                found.append((int(lengths[i]), int(trace.gpu_rows[at])))
    return [row for _, row in sorted(found, reverse=True)]


def _data_loading(facts: Facts, known: Pace) -> Iterable[Finding]:
    idle_us, waiting, period_us = _idle(facts, "data_loading")
    if idle_us < IDLE_SHARE * period_us:
        return
    trace = facts.context.trace
    wanted = np.array([is_data_loading(name) for name in trace.names])
    rows = np.flatnonzero(wanted[trace.name_id] & np.isin(trace.kind, (RowKind.OPERATOR, RowKind.ANNOTATION)))
    saving = known.without_profiler(idle_us) if steps_annotated(facts) else None
    yield facts.finding(
        "data_loading",
        rows.tolist(),
        saving_us=saving or None,
        source_row=int(rows[0]) if len(rows) else None,
        idle=time(idle_us),
        share=share_of(idle_us / period_us),
        per=per(facts),
        names=listed(waiting.items()),
    )


def _largest_gap(facts: Facts) -> Iterable[Finding]:
    """The longest gap of all steps, if it is a large part of its step and no row says what the CPU did in it."""
    if not steps_annotated(facts):
        return
    context = facts.context
    trace = context.trace
    best: tuple[int, int, int, int] | None = None
    for span in context.steps:
        end = period_end(context, span)
        starts, ends = gaps_within(context, span.start, end)
        if len(starts):
            i = int(np.argmax(ends - starts))
            length = int(ends[i] - starts[i])
            if length > LARGE_GAP_SHARE * (end - span.start) and (best is None or length > best[1] - best[0]):
                best = int(starts[i]), int(ends[i]), end, span.index
    if best is None:
        return
    start, end, limit, index = best
    cause = IdleCauses(context).explain(start, end, limit)
    if cause.row >= 0 or cause.cause not in ("unknown", "waiting_for_cpu"):
        return
    gpu = trace.gpu_rows
    at = int(np.searchsorted(trace.start[gpu], end))
    ended = gpu[trace.end[gpu] <= start]
    before = int(ended[np.argmax(trace.end[ended])]) if len(ended) else -1
    after = int(gpu[at]) if at < len(gpu) else -1
    step = next(s for s in facts.steps if s.index == index)
    yield facts.finding(
        "idle_gap",
        [row for row in (before, after) if row >= 0],
        count=1,
        gap=time((end - start) / 1000),
        share=share_of((end - start) / 1000 / step.period_us),
        label=step.label,
        at=time((start - trace.origin) / 1000),
        cause=cause.detail or cause.cause,
        around=_around(facts, before, after),
    )


def _around(facts: Facts, before: int, after: int) -> str:
    def said(row: int) -> str:
        name = facts.context.op_name(row)
        short = facts.context.trace.name(row)[:60]
        return f"{name} ({short})" if name else short

    parts = []
    if before >= 0:
        parts.append(f"before it ran {said(before)}")
    if after >= 0:
        parts.append(f"after it runs {said(after)}")
    return ", ".join(parts) or "no GPU work stands on either side"
