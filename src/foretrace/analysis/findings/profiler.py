"""What of the recording is the profiler itself: its rows, its final synchronization, the time it adds."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import pace
from foretrace.knowledge.blocking import is_lazy_loading
from foretrace.knowledge.kineto import RowKind, is_profiler_artifact
from foretrace.knowledge.limits import CPU_PROFILE_FACTOR
from foretrace.knowledge.rules_timeline import PROFILED_KERNELS
from foretrace.model.report import Finding
from foretrace.model.words import share_of, time

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """At most one finding about the profiler's rows and one about the time it adds."""
    yield from _artefacts(facts)
    yield from _overhead(facts)


def _artefacts(facts: Facts) -> Iterable[Finding]:
    trace = facts.context.trace
    own = [
        row
        for row in trace.rows(RowKind.OVERHEAD).tolist()
        if is_profiler_artifact(trace.name(row)) and not is_lazy_loading(trace.name(row))
    ]
    final = sorted(facts.context.profiler_syncs)
    if not own and not final:
        return
    said, titles = [], []
    if own:
        names: dict[str, int] = {}
        for row in own:
            names[trace.name(row)] = names.get(trace.name(row), 0) + int(trace.duration[row])
        ranked = sorted(names.items(), key=lambda item: -item[1])
        parts = ", ".join(f"{name} {time(ns / 1000)}" for name, ns in ranked)
        titles.append(f"{ranked[0][0]} {time(ranked[0][1] / 1000)}")
        if len(ranked) > 1:
            titles.append(f"{len(ranked) - 1} more {time(sum(ns for _, ns in ranked[1:]) / 1000)}")
        idle = sum(item.us for step in facts.steps for item in step.idle if item.cause == "profiler")
        effect = (
            f"The GPU had nothing to do for {time(idle)} because of it"
            if idle
            else "No idle time of the GPU is put down to it"
        )
        said.append(f"{parts}: the profiler made room for its records. {effect}.")
    if final:
        us = int(trace.duration[final].sum()) / 1000
        name = trace.name(final[0])
        titles.append(f"{name} {time(us)}" if own else f"a final {name} {time(us)}")
        said.append(f"The last {name} ({time(us)}) ends the recording; it is counted in no step.")
    # Evidence in order of weight: what is long first.
    rows = sorted([*own, *final], key=lambda row: -int(trace.duration[row]))
    yield facts.finding(
        "profiler_artefact",
        rows,
        what=", ".join(titles),
        said=" ".join(said),
        it="It is" if len(said) == 1 else "Both are",
    )


def _overhead(facts: Facts) -> Iterable[Finding]:
    if not facts.context.has_gpu:
        yield from _cpu_overhead(facts)
        return
    known = facts.once(pace)
    if known is None or known.unprofiled_us is None:
        return
    factor = known.period_us / known.unprofiled_us
    side = facts.context.side
    timing = side.unprofiled if side is not None else None
    rows = [span.row for span in facts.context.steps if span.row >= 0]
    yield facts.finding(
        "profile_overhead",
        rows,
        factor=_factor(factor),
        profiled=time(known.period_us),
        unprofiled=time(known.unprofiled_us),
        runs=timing.runs if timing is not None else 0,
        kernels=PROFILED_KERNELS["slower" if known.slower_profiled else "alike"].format(
            busy=time(known.busy_us),
            share=share_of(known.busy_us / known.unprofiled_us),
            profiled_share=share_of(known.share),
        ),
    )


def _cpu_overhead(facts: Facts) -> Iterable[Finding]:
    """The factor of a trace without GPU work: its annotated steps, else the side file's own timing of them."""
    side = facts.context.side
    if side is None or side.unprofiled is None or side.unprofiled.median_us <= 0:
        return
    spans = [s for s in facts.context.steps if s.row >= 0 and s.index in facts.context.working_steps]
    # Host time of the step itself: what stands between two steps is in the unprofiled timing neither.
    profiled = [(span.end - span.start) / 1000 for span in spans] or side.profiled_steps_us
    if not profiled or median(profiled) < CPU_PROFILE_FACTOR * side.unprofiled.median_us:
        return
    found = facts.finding(
        "cpu_profile_overhead",
        [span.row for span in spans],
        count=len(profiled),
        factor=_factor(median(profiled) / side.unprofiled.median_us),
        profiled=time(median(profiled)),
        unprofiled=time(side.unprofiled.median_us),
        runs=side.unprofiled.runs,
    )
    found.rule = "profile_overhead"
    yield found


def _factor(value: float) -> str:
    """Two digits that count, written out: ``1.4``, ``450``."""
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"
