"""A first step that takes much longer than the others, and what it did that they did not."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import listed, steps_annotated, times
from foretrace.analysis.pace import is_cold
from foretrace.knowledge.blocking import is_lazy_loading
from foretrace.knowledge.kineto import Call, RowKind, is_compiling, step_number
from foretrace.knowledge.limits import NAMED_TIME_SHARE, SAME_STEP, SAME_TIME
from foretrace.model.report import Finding, Step
from foretrace.model.words import time

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """At most one finding, where the first recorded step is reported beside others to measure it by."""
    steps = [s for s in facts.steps if s.index in facts.context.working_steps]
    if not steps or not steps_annotated(facts) or steps[0].index != 0:
        return
    first = steps[0]
    # A step that did much less is no measure for the first one.
    others = [s for s in steps[1:] if (s.launches or 0) >= SAME_STEP * (first.launches or 0)]
    if not others:
        return
    usual = median(step.period_us for step in others)
    if not usual or not is_cold(first.period_us, [step.period_us for step in others]):
        return
    extra = _extra_self_time(facts, others)
    gpu = ""
    if first.gpu_busy_us is not None:
        busy = median(step.gpu_busy_us or 0.0 for step in others)
        same = abs(first.gpu_busy_us - busy) <= SAME_TIME * max(busy, 1.0)
        gpu = f" The GPU worked {time(first.gpu_busy_us)} in it, " + (
            "as in the others." if same else f"{time(busy)} in the others."
        )
    rows = [facts.context.trace.steps[0].row]
    yield facts.finding(
        "cold_first_step",
        rows,
        count=1,
        label=first.label,
        ratio=f"{first.period_us / usual:.1f}" if first.period_us < 10 * usual else f"{first.period_us / usual:,.0f}",
        first=time(first.period_us),
        usual=time(usual),
        others=times(len(others), "other step"),
        did=_did(facts) or "No allocation, module load or compilation was recorded in it",
        extra=listed(extra) if extra else "code that no row covers",
        gpu=gpu,
    )


def _did(facts: Facts) -> str:
    """Work of a first time inside the first step, in words; empty if none was recorded."""
    trace = facts.context.trace
    step = facts.context.attribution.step
    said = []
    for kind, word in ((Call.ALLOCATE, "memory allocation"), (Call.MODULE_LOAD, "module load")):
        rows = np.flatnonzero((trace.links.call == kind) & (step == 0))
        if len(rows):
            said.append(f"{times(len(rows), word)} ({time(int(trace.duration[rows].sum()) / 1000)})")
    span = trace.steps[0]
    lazy = [
        row
        for row in trace.rows(RowKind.OVERHEAD).tolist()
        if is_lazy_loading(trace.name(row)) and span.start <= trace.start[row] < span.end
    ]
    if lazy:
        total = time(int(trace.duration[lazy].sum()) / 1000)
        said.append(f"{times(len(lazy), 'first use')} of a kernel that had to be loaded ({total})")
    compiling = [r for r in np.flatnonzero(step == 0).tolist() if is_compiling(trace.name(r))]
    outer = [r for r in compiling if not any(is_compiling(trace.name(up)) for up in trace.forest.ancestors(r))]
    if outer:
        said.append(f"compilation ({time(int(trace.duration[outer].sum()) / 1000)})")
    profiler = _profiler_us(facts)
    if profiler:
        said.append(f"buffer work of the profiler that kept the GPU waiting {time(profiler)}")
    return "It held " + ", ".join(said) if said else ""


def _profiler_us(facts: Facts) -> float:
    return sum(cause.us for cause in facts.steps[0].idle if cause.cause == "profiler")


def _extra_self_time(facts: Facts, others: list[Step]) -> list[tuple[str, float]]:
    """CPU row name → µs of its own that the first step spent more than the others' median; the large ones."""
    trace = facts.context.trace
    host = trace.forest.order
    inside = np.zeros(len(trace), dtype=np.int64)
    nested = host[trace.forest.parent[host] >= 0]
    np.add.at(inside, trace.forest.parent[nested], trace.duration[nested])
    own = np.maximum(trace.duration - inside, 0)
    step = facts.context.attribution.step

    def totals(index: int) -> NDArray[np.float64]:
        rows = host[step[host] == index]
        return np.bincount(trace.name_id[rows], weights=own[rows], minlength=len(trace.names)) / 1000

    usual = np.median([totals(s.index) for s in others], axis=0)
    more = totals(0) - usual
    steps = [i for i, name in enumerate(trace.names) if step_number(name) is not None]
    more[steps] = 0.0
    excess = facts.steps[0].period_us - median(s.period_us for s in others)
    large = np.flatnonzero(more > max(NAMED_TIME_SHARE * excess, 1.0))
    return [(trace.names[i], float(more[i])) for i in large.tolist()]
