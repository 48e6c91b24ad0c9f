"""What the terminal and the Markdown rendering of a comparison share: its numbers and rows in words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from foretrace.model.comparison import Change, Comparison, Measure, Metric, Pair, Place, Side
from foretrace.model.words import UNKNOWN, bytes_of, flop, listed, number, share_of, signed, time, whole

__all__ = [
    "alarms",
    "change_words",
    "how_words",
    "is_alarming",
    "memory_words",
    "metric_rows",
    "place_words",
    "places_in_order",
    "reasons",
    "setup_words",
    "share_words",
    "speedup_words",
    "value_words",
]

# metric → its words, in the order in which they are shown; those that are zero or unknown everywhere are left out
_METRIC_NAMES = {
    "end_to_end": "end to end",
    "gpu_time": "GPU time",
    "cpu_time": "CPU time (profiled)",
    "period": "period (profiled)",
    "kernels": "kernels",
    "memcpys": "memcpys",
    "memsets": "memsets",
    "launches": "launches",
    "synchronizations": "synchronizations",
    "occupancy_queries": "occupancy queries",
    "operators": "CPU operators",
    "bytes": "bytes of kernels",
    "flops": "FLOPs of products",
    "peak_memory": "peak memory",
}
_PROFILED = " (profiled)"
_PREDICTED = " (predicted)"
_TOLD_ANYWAY = ("end_to_end", "gpu_time", "cpu_time")
_SUMS = ("bytes", "flops")
SAME = "="
# on what ground rows are paired → one word for a narrow column
_HOW = {
    "call path": "path",
    "operator": "operator",
    "kernel name": "name",
    "work": "work",
    "parts in the name": "parts",
    "position": "place",
    "order and kind": "order",
}


def value_words(metric: Metric, value: Measure) -> str:
    """A median with its unit; ``≥`` before the known part of a sum, a dash where nothing is known."""
    if value.median is None and value.at_least is not None:
        return f"≥ {_amount(metric, value.at_least)}"
    return UNKNOWN if value.median is None else _amount(metric, value.median)


def _amount(metric: Metric, value: float) -> str:
    if metric.unit == "us":
        return time(value)
    if metric.unit == "bytes":
        return bytes_of(value)
    return flop(value) if metric.name == "flops" else whole(value)


def change_words(change: Change | None, metric: Metric | None = None) -> str:
    """``-12.4 %``, ``+2`` of what is counted; ``=`` for none beyond the spread; a dash where it is unknown."""
    if change is None:
        return ""
    if change.direction == "unknown":
        return UNKNOWN
    if change.direction == "same":
        return SAME
    if metric is not None and metric.unit == "count" and metric.name != "flops" and change.absolute is not None:
        return f"{'+' if change.absolute > 0 else ''}{whole(change.absolute)}"
    return "new" if change.relative is None else signed(change.relative)


def metric_rows(comparison: Comparison) -> list[tuple[str, Metric]]:
    """The metrics worth a line: those that are known and not zero somewhere, and the three times in any case."""
    table = {metric.name: metric for metric in comparison.metrics}
    rows = []
    for name, words in _METRIC_NAMES.items():
        if name not in table:
            continue
        found = [(words, table[name])]
        if words.endswith(_PROFILED):
            # What a prediction holds was not profiled, so it does not stand in one line with what was.
            found = [
                (words.removesuffix(_PROFILED) + ending, _of_sides(table[name], comparison, predicted=predicted))
                for ending, predicted in ((_PREDICTED, True), (_PROFILED, False))
            ]
        rows += [(said, metric) for said, metric in found if any(v.median or v.at_least for v in metric.values)]
    return rows


def _of_sides(metric: Metric, comparison: Comparison, *, predicted: bool) -> Metric:
    """A metric with the values of the predicted sides alone, or of the recorded ones."""
    kept = [side.predicted == predicted for side in comparison.sides]
    values = [value if keep else Measure(median=None) for value, keep in zip(metric.values, kept, strict=True)]
    # One side alone changes nothing; it is not told from a change that is not known.
    changes = [
        change if change is None or (keep and kept[0]) else Change(direction="unknown")
        for change, keep in zip(metric.changes, kept, strict=True)
    ]
    return msgspec.structs.replace(metric, values=values, changes=changes)


def reasons(comparison: Comparison) -> list[str]:
    """Why an important time is unknown, or its change is not told; each reason once."""
    said: dict[str, list[str]] = {}
    for metric in comparison.metrics:
        if metric.name in _SUMS:
            for side, value in zip(comparison.sides, metric.values, strict=True):
                if value.at_least is not None:
                    said.setdefault(value.reason or "", []).append(side.label)
        if metric.name not in _TOLD_ANYWAY:
            continue
        for side, value in zip(comparison.sides, metric.values, strict=True):
            if value.median is None and value.reason:
                said.setdefault(f"{_METRIC_NAMES[metric.name]} unknown: {value.reason}", []).append(side.label)
        for pair in comparison.pairs:
            change, both = metric.changes[pair.b], (metric.values[pair.a].median, metric.values[pair.b].median)
            # Why no time of a pair is compared is said at the top.
            if change is not None and change.direction == "unknown" and pair.withheld is None and None not in both:
                words = f"{_METRIC_NAMES[metric.name].removesuffix(_PROFILED)} not compared: {change.reason}"
                said.setdefault(words, []).append(comparison.sides[pair.b].label)
    everywhere = len(comparison.sides)
    return [reason if len(labels) == everywhere else f"{listed(labels)}: {reason}" for reason, labels in said.items()]


def setup_words(side: Side, position: int) -> str:
    """What one trace is, in a line."""
    facts = ["baseline"] if position == 0 else []
    if side.predicted:
        facts.append("PREDICTED, not measured")
    gpus = list(dict.fromkeys(side.gpus))
    facts.append(listed(gpus) if gpus else "no GPU named")
    if side.torch_version:
        facts.append(f"torch {side.torch_version}")
    if side.rank is not None:
        facts.append(f"rank {side.rank}")
    if side.step is None:
        facts.append("no step")
    else:
        alike = f"{side.like_steps} of {side.steps} steps alike" if side.steps > 1 else "one step: spread unknown"
        facts.append(f"{alike}, {side.step} compared" if side.steps > 1 else alike)
    if side.cold:
        facts.append(f"CPU times without {side.cold}, which is cold")
    if side.recompiles:
        facts.append("COMPILED WHILE RECORDED")
    return " · ".join(facts)


def places_in_order(pair: Pair) -> list[Place]:
    """What changed before what did not."""
    return sorted(pair.places, key=lambda place: place.category == "identical")


def place_words(place: Place) -> str:
    """``2× gelu + mul → triton_poi gelu·mul``: what stands in a place, and how often the step holds it."""
    return f"{place.count}× {place.title}" if place.count > 1 else place.title


def memory_words(places: Sequence[Place]) -> tuple[str, list[str]]:
    """What travels through memory, in the words of a column and of its cells; which of them, where there is both."""
    known = [place.bytes_vanished for place in places]
    if all(number is None or number >= 0 for number in known):
        return "less through memory", [UNKNOWN if number is None else bytes_of(number) for number in known]
    cells = [
        UNKNOWN if number is None else f"{bytes_of(abs(number))} {'less' if number > 0 else 'more'}" for number in known
    ]
    return "through memory", cells


def how_words(place: Place) -> str:
    """On what ground the rows of a place are paired; a dash for none."""
    return _HOW.get(place.how, UNKNOWN)


def alarms(comparison: Comparison) -> list[str]:
    """What forbids reading the numbers as a comparison of like with like, by trace."""
    several = len(comparison.pairs) > 1
    return [
        f"{comparison.sides[pair.b].label}: {pair.notes[0]}" if several else pair.notes[0]
        for pair in comparison.pairs
        if is_alarming(pair)
    ]


def is_alarming(pair: Pair) -> bool:
    """Whether the first note of a pair is such an alarm."""
    return bool(pair.notes) and (not pair.related or pair.withheld is not None or pair.same_work is False)


def share_words(pair: Pair) -> str:
    """How much of the two steps was aligned."""
    shares = [
        f"{share_of(share)} of {what}"
        for share, what in (
            (pair.aligned_gpu_share, "the GPU time"),
            (pair.shared_operator_share, "the operator calls have equal call paths"),
        )
        if share is not None
    ]
    return f"Aligned: {'; '.join(shares)}." if shares else "Nothing could be aligned."


def speedup_words(comparison: Comparison, pair: Pair) -> list[str]:
    """The ratios that may be quoted, and why the others may not; why a time is unknown is told once (``reasons``)."""
    values = {metric.name: metric.values for metric in comparison.metrics}
    names = {"gpu_time": "GPU time", "end_to_end": "end to end"}
    said = []
    for speedup in pair.speedups:
        name = names.get(speedup.of, speedup.of)
        if any(values[speedup.of][side].median is None for side in (pair.a, pair.b)):
            continue
        if speedup.ratio is not None:
            word = "faster" if speedup.ratio >= 1 else "slower"
            ratio = speedup.ratio if speedup.ratio >= 1 else 1 / speedup.ratio
            rest = f" ({speedup.reason})" if speedup.reason else ""
            said.append(f"{name}: {number(ratio)}× {word}{rest}" if speedup.ratio != 1 else f"{name}: equal")
        else:
            said.append(f"{name}: no speed-up quoted; {speedup.reason}")
    return said
