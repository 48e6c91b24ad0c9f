"""The numbers of a step that are compared, and what each of them was in every step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from foretrace.comparison.kinship import Kinship, in_part
from foretrace.comparison.spread import against_prediction, change_of, counted, measure, unknown
from foretrace.comparison.subject import Subject
from foretrace.knowledge.kernels import KINDS
from foretrace.knowledge.limits import COMPUTE_KINDS, SHOWN_KINDS
from foretrace.model.comparison import Change, Measure, Metric, Unit
from foretrace.model.report import Kernel, Step
from foretrace.model.words import first_of

__all__ = ["METRICS", "compare_metrics", "unit_of"]

_NO_GPU = "no GPU work was recorded"
_NO_CALLS = "no API calls were recorded"


def _of_steps(read: Callable[[Step], float | None], reason: str) -> Callable[[Subject], Measure]:
    def take(subject: Subject) -> Measure:
        found = [value for step in subject.steps if (value := read(step)) is not None]
        return measure(found, reason)

    return take


def _wall(subject: Subject) -> Measure:
    return measure([step.wall_us for step in subject.timed], "the trace holds no step")


def _period(subject: Subject) -> Measure:
    return measure([step.period_us for step in subject.timed], "the trace holds no step")


def _cpu_time(subject: Subject) -> Measure:
    known = subject.host.cpu_us
    found = [known[step.index] for step in subject.timed if step.index in known]
    return measure(found, "a report alone does not tell it, or the trace holds no CPU rows")


def _gpu_time(subject: Subject) -> Measure:
    told = subject.report.prediction
    found = _of_steps(lambda step: step.gpu_busy_us, _NO_GPU)(subject)
    if told is None or found.median is None or len(subject.steps) != 1:
        return found
    return Measure(
        median=found.median,
        low=told.gpu_busy_low_us,
        high=told.gpu_busy_high_us,
        samples=1,
        reason="predicted, with the interval in which about 80 % of measured steps should lie",
    )


def _end_to_end(subject: Subject) -> Measure:
    timing = subject.report.trace.unprofiled
    if timing is None and subject.report.trace.predicted:
        return unknown("it is not predicted; in a loop the slower of GPU time and CPU time sets the pace")
    if timing is None:
        return unknown("no unprofiled timing lies beside the trace (`foretrace run` measures it)")
    if timing.iqr_us is None:
        return Measure(median=timing.median_us, samples=timing.runs, reason="the spread is unknown")
    half = timing.iqr_us / 2
    return Measure(
        median=timing.median_us, low=timing.median_us - half, high=timing.median_us + half, samples=timing.runs
    )


def _peak_memory(subject: Subject) -> Measure:
    known = subject.side.peak_memory_bytes if subject.side is not None else None
    if known is None and subject.report.trace.predicted:
        return unknown("peak memory is not predicted")
    if known is None:
        return unknown("no peak memory lies beside the trace (`foretrace run` measures it)")
    return Measure(median=float(known), samples=1, reason="measured once")


def _operators(subject: Subject) -> Measure:
    calls = subject.host.calls
    if calls is None:
        return unknown("no operators were recorded")
    return Measure(median=float(sum(calls.values())), samples=1, reason="counted in the compared step")


def _kernels(subject: Subject, step: Step) -> list[Kernel]:
    return [row for row in subject.rows.get(step.index, []) if isinstance(row, Kernel)]


def _kind(kind: str) -> Callable[[Subject], Measure]:
    def take(subject: Subject) -> Measure:
        if not subject.report.trace.has.gpu:
            return unknown(_NO_GPU)
        return measure([sum(k.kind == kind for k in _kernels(subject, step)) for step in subject.steps])

    return take


def _summed(
    read: Callable[[Kernel], int | None], wanted: Callable[[Kernel], bool], what: str
) -> Callable[..., Measure]:
    def take(subject: Subject) -> Measure:
        if not subject.report.trace.has.gpu:
            return unknown(_NO_GPU)
        sums, lacking = [], []
        for step in subject.steps:
            kernels = [kernel for kernel in _kernels(subject, step) if wanted(kernel)]
            sums.append(sum(read(kernel) or 0 for kernel in kernels))
            lacking += [kernel for kernel in kernels if read(kernel) is None]
        if not lacking:
            return measure(sums)
        names = list(dict.fromkeys(kernel.short_name for kernel in lacking))
        said = f"the {what} of {first_of(names, SHOWN_KINDS)} are unknown"
        if what == "bytes" and subject.uncounted:
            said += f" ({'; '.join(subject.uncounted[:SHOWN_KINDS])})"
        return Measure(median=None, at_least=float(median(sums)) or None, samples=len(sums), reason=said)

    return take


_TIMES: dict[str, Callable[[Subject], Measure]] = {
    "gpu_time": _gpu_time,
    "gpu_idle": _of_steps(lambda step: step.gpu_idle_us, _NO_GPU),
    "cpu_time": _cpu_time,
    "wall": _wall,
    "period": _period,
    "end_to_end": _end_to_end,
}
_COUNTS: dict[str, Callable[[Subject], Measure]] = {
    "kernels": _of_steps(lambda step: step.kernels, _NO_GPU),
    "memcpys": _of_steps(lambda step: step.memcpys, _NO_GPU),
    "memsets": _of_steps(lambda step: step.memsets, _NO_GPU),
    "launches": _of_steps(lambda step: step.launches, _NO_CALLS),
    "kernel_launches": _of_steps(lambda step: step.kernel_launches, _NO_CALLS),
    "occupancy_queries": _of_steps(lambda step: step.occupancy_queries, _NO_CALLS),
    "synchronizations": _of_steps(lambda step: step.synchronizations, _NO_CALLS),
    "operators": _operators,
    **{kind: _kind(kind) for kind in KINDS},
    "flops": _summed(lambda kernel: kernel.flops, lambda kernel: kernel.kind in COMPUTE_KINDS, "FLOPs"),
}
_BYTES: dict[str, Callable[[Subject], Measure]] = {
    "bytes": _summed(lambda kernel: kernel.bytes, lambda _: True, "bytes"),
    "peak_memory": _peak_memory,
}
_UNITS: dict[str, Unit] = {
    **dict.fromkeys(_TIMES, "us"),
    **dict.fromkeys(_COUNTS, "count"),
    **dict.fromkeys(_BYTES, "bytes"),
}
METRICS = tuple(_UNITS)
# Times that profiling lengthens.
_PROFILED = frozenset({"gpu_idle", "cpu_time", "wall", "period"})
# What was measured beside the trace.
_BESIDE = frozenset({"end_to_end", "peak_memory"})


def unit_of(name: str) -> Unit:
    """The unit of a metric."""
    return _UNITS[name]


def _value(name: str, take: Callable[[Subject], Measure], subject: Subject) -> Measure:
    """The metric of a trace; what was counted in it is unknown where its steps are there in part only."""
    parts = in_part(subject) if name not in _BESIDE else []
    return unknown(parts[0]) if parts else take(subject)


def compare_metrics(subjects: Sequence[Subject], kin: Sequence[Kinship]) -> list[Metric]:
    """Every metric of every trace; ``kin`` judges each trace but the first against the first."""
    metrics = []
    for name, take in {**_TIMES, **_COUNTS, **_BYTES}.items():
        values = [_value(name, take, subject) for subject in subjects]
        changes: list[Change | None] = [None]
        for subject, value, verdict in zip(subjects[1:], values[1:], kin, strict=True):
            if verdict.withheld is not None and (name in _TIMES or not verdict.related or verdict.in_part):
                changes.append(Change(direction="unknown", reason=verdict.withheld))
            elif name == "end_to_end" and (problem := _other_method(subjects[0], subject)):
                changes.append(Change(direction="unknown", reason=problem))
            elif name in _PROFILED and subjects[0].report.trace.has.gpu != subject.report.trace.has.gpu:
                changes.append(Change(direction="unknown", reason="only one of the two traces holds GPU work"))
            elif name in _PROFILED and subjects[0].report.trace.predicted != subject.report.trace.predicted:
                reason = "it was predicted without the profiler and recorded with it"
                changes.append(Change(direction="unknown", reason=reason))
            elif verdict.drifts and (name == "end_to_end" or (name in _PROFILED and verdict.twins)):
                changes.append(_between_runs(change_of(values[0], value), verdict.drifts))
            elif name == "gpu_time" and (subjects[0].report.trace.predicted or subject.report.trace.predicted):
                changes.append(_of_prediction(subjects[0], subject, values[0], value))
            else:
                changes.append((change_of if name in _TIMES else counted)(values[0], value))
        metrics.append(Metric(name=name, unit=_UNITS[name], values=values, changes=changes))
    return metrics


def _between_runs(change: Change, drifts: str) -> Change:
    """A change of times whose spread is that within one process, with what lies between two."""
    if change.direction in ("less", "more"):
        change.reason = drifts if change.reason is None else f"{drifts}; {change.reason}"
    return change


def _of_prediction(a: Subject, b: Subject, one: Measure, other: Measure) -> Change:
    """The change of a GPU time that is predicted on one side or on both."""
    if a.report.trace.predicted and b.report.trace.predicted:
        # Two predictions err to the same side: their intervals say nothing of their difference.
        return change_of(*(msgspec.structs.replace(value, low=None, high=None) for value in (one, other)))
    told, seen = (one, other) if a.report.trace.predicted else (other, one)
    known = None not in (told.low, told.high, seen.median)
    outside = known and not (told.low or 0.0) <= (seen.median or 0.0) <= (told.high or 0.0)
    return against_prediction(one, other, outside=outside)


def _other_method(a: Subject, b: Subject) -> str | None:
    one, other = a.report.trace.unprofiled, b.report.trace.unprofiled
    if one is None or other is None or one.method == other.method:
        return None
    return f"the unprofiled timings were taken in different ways ({one.method}, {other.method})"
