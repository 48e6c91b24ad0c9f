"""The numbers of each step: times, counts, phases, and what the GPU's idle time is put down to."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis import intervals
from foretrace.analysis.context import Context
from foretrace.analysis.idle import IdleCauses
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.knowledge.limits import CLASSIFIED_GAPS
from foretrace.model.report import Gap, IdleCause, PhaseTime, Step
from foretrace.trace.steps import StepSpan

__all__ = ["gaps_within", "period_end", "step_reports"]

Int64 = NDArray[np.int64]
_LARGEST_GAPS = 20


def step_reports(context: Context) -> tuple[list[Step], list[Gap]]:
    """Every selected step, and the longest idle stretches over all of them."""
    causes = IdleCauses(context)
    steps: list[Step] = []
    gaps: list[Gap] = []
    budget = CLASSIFIED_GAPS
    for span in context.steps:
        if not len(context.trace):
            continue  # an empty recording has no step whose times could be told
        step, found, budget = _report(context, causes, span, budget)
        steps.append(step)
        gaps += found
    gaps.sort(key=lambda gap: -gap.duration_us)
    return steps, gaps[:_LARGEST_GAPS]


def period_end(context: Context, span: StepSpan) -> int:
    """End of a step's period in ns: the next step's start; for the last one, when all it launched is done."""
    following = context.next_start.get(span.index)
    if following is not None:
        return following
    rows = context.attribution.rows_of(context.trace, span.index)
    return max(span.end, int(context.trace.end[rows].max())) if len(rows) else span.end


def gaps_within(context: Context, low: int, high: int) -> tuple[Int64, Int64]:
    """Starts and ends (ns) of the stretches of ``[low, high)`` in which no stream of any device worked."""
    starts, ends = context.busy
    first, last = np.searchsorted(ends, low, side="right"), np.searchsorted(starts, high, side="left")
    return intervals.gaps(starts[first:last], ends[first:last], low, high)


def _report(context: Context, causes: IdleCauses, span: StepSpan, budget: int) -> tuple[Step, list[Gap], int]:
    trace = context.trace
    end = period_end(context, span)
    step = Step(
        index=span.index,
        label=span.label,
        start_us=(span.start - trace.origin) / 1000,
        wall_us=(span.end - span.start) / 1000,
        period_us=(end - span.start) / 1000,
        gpu_busy_us=None,
        gpu_idle_us=None,
        kernels=None,
        memcpys=None,
        memsets=None,
        launches=None,
        kernel_launches=None,
        occupancy_queries=None,
        synchronizations=None,
    )
    _count_calls(context, span, step)
    gaps: list[Gap] = []
    if context.has_gpu:
        rows = context.attribution.rows_of(trace, span.index)
        kinds = trace.kind[rows]
        step.kernels = int((kinds == RowKind.KERNEL).sum())
        step.memcpys = int((kinds == RowKind.MEMCPY).sum())
        step.memsets = int((kinds == RowKind.MEMSET).sum())
        step.gpu_busy_us = intervals.union_ns(trace.start[rows], trace.end[rows]) / 1000
        step.phases = _phases(context, rows)
        starts, ends = gaps_within(context, span.start, end)
        step.gpu_idle_us = int((ends - starts).sum()) / 1000
        step.idle, gaps, budget = _idle(context, causes, span, starts, ends, end, budget)
    return step, gaps, budget


def _count_calls(context: Context, span: StepSpan, step: Step) -> None:
    """Fill the counts of API calls; they stay unknown where the trace recorded no API calls at all."""
    trace = context.trace
    if context.calls_by_step is None:
        return
    inside = context.calls_by_step.get(span.index, np.zeros(0, dtype=np.int64))
    kind = trace.links.call[inside]
    enqueues = trace.links.enqueues[inside]
    copies = np.isin(kind, (Call.MEMCPY, Call.MEMSET))
    step.launches = int(enqueues.sum())
    step.kernel_launches = int((enqueues & ~copies).sum())
    step.occupancy_queries = int((kind == Call.OCCUPANCY).sum())
    syncs = inside[kind == Call.SYNCHRONIZE].tolist()
    step.synchronizations = sum(row not in context.profiler_syncs for row in syncs)


def _phases(context: Context, rows: Int64) -> list[PhaseTime] | None:
    trace = context.trace
    phase = context.attribution.phase
    found: dict[str, list[int]] = {}
    for row in rows.tolist():
        found.setdefault(phase.get(row, "other"), []).append(row)
    if not found or set(found) == {"other"}:
        return None
    return [
        PhaseTime(
            phase=name,
            gpu_us=intervals.union_ns(trace.start[found[name]], trace.end[found[name]]) / 1000,
            kernels=int((trace.kind[found[name]] == RowKind.KERNEL).sum()),
        )
        for name in ("forward", "backward", "optimizer", "other")
        if name in found
    ]


def _idle(
    context: Context,
    causes: IdleCauses,
    span: StepSpan,
    starts: Int64,
    ends: Int64,
    limit: int,
    budget: int,
) -> tuple[list[IdleCause], list[Gap], int]:
    lengths = ends - starts
    order = np.argsort(-lengths, kind="stable")
    looked_at, rest = order[:budget], order[budget:]
    total: dict[tuple[str, str | None], list[int]] = {}
    gaps: list[Gap] = []
    for i in looked_at.tolist():
        for start, end in causes.split(int(starts[i]), int(ends[i])):
            cause = causes.explain(start, end, limit)
            total.setdefault((cause.cause, cause.detail), []).append(end - start)
            if len(gaps) < _LARGEST_GAPS:
                gaps.append(
                    Gap(
                        step=span.index,
                        start_us=(start - context.trace.origin) / 1000,
                        duration_us=(end - start) / 1000,
                        cause=cause.cause,
                        detail=cause.detail,
                    )
                )
    if len(rest):
        key = ("unknown", "short gaps beyond the number that is looked at one by one")
        total[key] = lengths[rest].tolist()
    idle = [
        IdleCause(cause=cause, detail=detail, us=sum(found) / 1000, gaps=len(found))
        for (cause, detail), found in total.items()
    ]
    idle.sort(key=lambda item: -item.us)
    return idle, gaps, budget - len(looked_at)
