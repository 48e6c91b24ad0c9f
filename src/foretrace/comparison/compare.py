"""``compare``: the first trace against each of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePath

from foretrace.analysis.explain import report_of
from foretrace.analysis.explained import explained
from foretrace.analysis.findings import compiled
from foretrace.comparison.conclusion import conclude
from foretrace.comparison.gates import judge, parse_condition
from foretrace.comparison.identity import expected_change
from foretrace.comparison.kinship import Kinship, damage, in_part, kinship, recompiles
from foretrace.comparison.metrics import compare_metrics
from foretrace.comparison.operators import copies_that_appear, module_times, operator_changes
from foretrace.comparison.places import Alignment, Predicted, align_steps, categories, folded
from foretrace.comparison.subject import Subject, make_subject
from foretrace.errors import InputError
from foretrace.knowledge.comparing import DRIFT, PREDICTED_SHARE
from foretrace.model.comparison import Change, Comparison, Metric, Pair, Place, Side, Speedup
from foretrace.model.report import Report
from foretrace.model.reportfile import read_report
from foretrace.model.words import number, share_of, time
from foretrace.trace import Trace

__all__ = ["compare", "compare_subjects", "read_subject", "read_with_trace"]

Source = Trace | Report | str | Path

# The one finding that a comparison rests on: whether a trace compiled while it was recorded.
_DETECTORS = [compiled.find]


def compare(traces: Sequence[Source], *, fail_on: Sequence[str] = ()) -> Comparison:
    """Compare traces; the first is the baseline, and the order of the others is the order of the columns.

    Args:
        traces: two or more of: a ``Trace``, a ``Report``, the path of a trace (its side file is then read too) or of
            a report in JSON. A report alone does not tell the order of launches or the CPU time of single steps.
        fail_on: conditions such as ``"gpu_time > +3%"``; their results stand in ``Comparison.gates``.

    Raises:
        TraceReadError: a path holds no readable trace.
        InputError: fewer than two traces, or a condition that cannot be read.
    """
    if len(traces) < 2:
        raise InputError("a comparison needs at least two traces; the first is the baseline")
    for text in fail_on:
        parse_condition(text)  # refused before large traces are read
    return compare_subjects([read_subject(source) for source in traces], fail_on=fail_on)


def compare_subjects(subjects: Sequence[Subject], *, fail_on: Sequence[str] = ()) -> Comparison:
    """Like ``compare`` for traces that are read and reduced already.

    Raises:
        InputError: a condition that cannot be read.
    """
    conditions = [parse_condition(text) for text in fail_on]
    labels = _labels([subject.report.trace.path for subject in subjects])
    kin: list[Kinship] = []
    alignments: list[Alignment] = []
    for other in subjects[1:]:
        first, second = subjects[0].report.trace.predicted, other.report.trace.predicted
        predicted: Predicted = None if first == second else "a" if first else "b"
        # Where one trace alone recorded the GPU, its rows have no counterpart, and none of them was removed or added.
        blind = subjects[0].report.trace.has.gpu != other.report.trace.has.gpu
        # Nor have those of a step that was cut through.
        blind |= bool(in_part(subjects[0]) or in_part(other))
        items = ([], []) if blind else (subjects[0].items, other.items)
        alignments.append(align_steps(*items, predicted=predicted))
        kin.append(kinship(subjects[0], other, alignments[-1]))
    sides = [_side(subject, label) for subject, label in zip(subjects, labels, strict=True)]
    metrics = compare_metrics(subjects, kin)
    pairs = [
        _pair(subjects[0], subjects[at], at, kin[at - 1], alignments[at - 1], metrics) for at in range(1, len(subjects))
    ]
    comparison = Comparison(
        sides=sides, metrics=metrics, pairs=pairs, conclusion=conclude(sides, metrics, pairs), gates=[]
    )
    comparison.gates = judge(comparison, conditions)
    return comparison


def read_subject(source: Source) -> Subject:
    """Read and reduce one of the traces; what is not compared is not kept."""
    return read_with_trace(source)[0]


def read_with_trace(source: Source) -> tuple[Subject, Trace | None]:
    """Like ``read_subject``, with the trace itself; ``None`` for a report, which has none beside it."""
    if isinstance(source, Report):
        return make_subject(source, None, None), None
    if isinstance(source, Trace):
        return make_subject(report_of(source, detectors=_DETECTORS), source, None), source
    if (report := read_report(source)) is not None:
        return make_subject(report, None, None), None
    read = explained(source, detectors=_DETECTORS)
    return make_subject(read.report, read.trace, read.side), read.trace


def _labels(paths: Sequence[str]) -> list[str]:
    """Names to tell the traces apart: the file's, without what every trace file ends in."""
    names = []
    for path in paths:
        name = PurePath(path).name if path != "-" else "standard input"
        for suffix in (".gz", ".json", ".trace", ".pt"):
            name = name.removesuffix(suffix)
        names.append(name or path)
    repeated = {name for name in names if names.count(name) > 1}
    return [f"{name} ({position + 1})" if name in repeated else name for position, name in enumerate(names)]


def _side(subject: Subject, label: str) -> Side:
    info = subject.report.trace
    steps = subject.steps
    return Side(
        label=label,
        path=info.path,
        predicted=info.predicted,
        gpus=[gpu.name or "GPU of unknown model" for gpu in info.gpus],
        torch_version=info.torch_version,
        rank=info.rank,
        steps=len(steps),
        like_steps=len(subject.like),
        step=None if subject.typical is None else steps[subject.typical].label,
        cold=None if subject.cold is None else steps[subject.cold].label,
        recompiles=recompiles(subject),
        warnings=[*damage(subject), *subject.warnings],
    )


def _pair(a: Subject, b: Subject, at: int, kin: Kinship, alignment: Alignment, metrics: Sequence[Metric]) -> Pair:
    if kin.withheld is not None:  # nor is a time held against the interval that it was predicted with
        alignment = replace(alignment, spots=[replace(spot, off=None) for spot in alignment.spots])
    places = folded(alignment)
    if kin.withheld is not None:
        for place in places:
            place.change = Change(direction="unknown", reason=kin.withheld)
    vanished = [place.bytes_vanished for place in places if place.category in ("fused", "split")]
    known = [number for number in vanished if number is not None]
    return Pair(
        a=0,
        b=at,
        related=kin.related,
        same_work=kin.same_work,
        aligned_gpu_share=kin.gpu_share,
        shared_operator_share=kin.operator_share,
        notes=[
            *kin.notes,
            *_error(a, b, at, kin, metrics),
            *_off(places),
            *_communication(places),
            *_drift(a, b, places, kin),
        ]
        if kin.related
        else kin.notes,
        withheld=kin.withheld,
        categories=categories(alignment),
        places=places,
        operators=operator_changes(a, b) if kin.related and not kin.in_part else [],
        copies=copies_that_appear(b, alignment) if kin.related else [],
        modules=module_times(a, b) if kin.related and not kin.in_part else [],
        bytes_vanished=sum(known) if known and len(known) == len(vanished) else None,
        speedups=_speedups(at, kin, metrics),
    )


def _error(a: Subject, b: Subject, at: int, kin: Kinship, metrics: Sequence[Metric]) -> list[str]:
    """How far a prediction of the GPU time is off, or what it promises of another variant than the measured one."""
    (gpu,) = (metric for metric in metrics if metric.name == "gpu_time")
    change, values = gpu.changes[at], (gpu.values[0], gpu.values[at])
    if a.report.trace.predicted == b.report.trace.predicted or change is None or change.direction == "unknown":
        return []
    told, seen = values if a.report.trace.predicted else values[::-1]
    if not told.median or not seen.median:
        return []
    if kin.expected is not None:
        return [expected_change(a, b, kin.expected, *(value.median or 0.0 for value in values))]
    error = told.median / seen.median - 1
    said = f"The predicted GPU time is {share_of(abs(error))} {'below' if error < 0 else 'above'} the measured one"
    if told.low is not None and told.high is not None:
        inside = "inside" if told.low <= seen.median <= told.high else "outside"
        said += f", which is {inside} its interval ({time(told.low)} to {time(told.high)})"
    return [f"{said}."]


def _off(places: Sequence[Place]) -> list[str]:
    """How many measured rows lie outside the interval they were predicted with; the conclusion names them."""
    told = sum(place.count for place in places if place.predicted_low_us is not None)
    off = sum(place.count for place in places if place.off is not None)
    if not off:
        return []
    which = "lies outside its predicted interval" if off == 1 else "lie outside their predicted intervals"
    held = f"meant to hold about {100 * PREDICTED_SHARE:.0f} % of measured calls"
    return [f"{number(off)} of {number(told)} GPU rows {which}, {held}; the conclusion says which."]


def _communication(places: Sequence[Place]) -> list[str]:
    """Communication apart from everything else: it waits for other ranks, the rest does not."""
    sums = {True: [0.0, 0.0], False: [0.0, 0.0]}
    for place in places:
        for side, rows, us in ((0, place.a, place.a_us), (1, place.b, place.b_us)):
            if rows:
                sums[all(row.kind == "communication" for row in rows)][side] += us
    if not all(sums[True]):
        return []
    before, after = (" → ".join(time(us) for us in sums[which]) for which in (True, False))
    return [f"Communication kernels take {before} of the step's GPU rows, everything else {after}."]


def _drift(a: Subject, b: Subject, places: Sequence[Place], kin: Kinship) -> list[str]:
    """Kernels of one name and size do the same work; that they take longer comes from elsewhere."""
    same = [
        place
        for place in places
        # A communication kernel also waits, for as long as the other ranks make it.
        if place.category == "identical" and place.change.direction != "unknown" and place.a[0].kind != "communication"
    ]
    before, after = sum(place.a_us for place in same), sum(place.b_us for place in same)
    moved = any(place.change.direction in ("less", "more") for place in same)
    if kin.other_work is not None or not moved or not before or abs(after / before - 1) < DRIFT:
        return []
    names = [{gpu.name for gpu in subject.report.trace.gpus} for subject in (a, b)]
    if names[0] != names[1]:
        cause = "the GPUs differ"
    elif a.report.trace.predicted and b.report.trace.predicted:
        cause = "what the cache still holds is predicted to differ"
    else:
        cause = "clocks, heat, neighbours or what the cache still held"
    by = f"{share_of(abs(after / before - 1))} {'less' if after < before else 'more'}"
    return [f"Kernels identical by name take {by} for the same work: {cause}."]


def _speedups(at: int, kin: Kinship, metrics: Sequence[Metric]) -> list[Speedup]:
    found = []
    for metric in metrics:
        if metric.name not in ("gpu_time", "end_to_end"):
            continue
        change, before, after = metric.changes[at], metric.values[0].median, metric.values[at].median
        reason = kin.withheld or kin.other_work
        ratio = None
        if reason is None and (change is None or change.direction == "unknown" or not before or not after):
            reason = (change.reason if change is not None else None) or "not measured"
        elif reason is None and change is not None and change.direction == "same" and change.absolute:
            reason = f"the difference is {change.reason}"
        elif reason is None and kin.twins and metric.name == "end_to_end" and change is not None and change.absolute:
            reason = kin.drifts
        elif reason is None and before and after:
            ratio = before / after
            reason = None if change is None else change.reason
        found.append(Speedup(of=metric.name, ratio=ratio, reason=reason))
    return found
