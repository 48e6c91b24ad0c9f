"""The concluding table: a line a setup, what it changed against the baseline, what stayed the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from foretrace.comparison.kinship import DRIFT_OF_RUNS, DRIFT_OF_TWINS
from foretrace.knowledge.kernels import is_stand_in
from foretrace.knowledge.limits import SHOWN_KINDS
from foretrace.model.comparison import Change, Conclusion, Copy, Metric, OperatorChange, Pair, Place, Side
from foretrace.model.words import bytes_of, first_of, signed, time, whole

__all__ = ["conclude"]

_KINDS_NAMED = 5
_TIMES = (("gpu_time", "GPU time"), ("cpu_time", "CPU time"), ("end_to_end", "end to end"))


def conclude(sides: Sequence[Side], metrics: Sequence[Metric], pairs: Sequence[Pair]) -> list[Conclusion]:
    """One line for each trace but the baseline; what an unrelated trace changed is not said."""
    table = {metric.name: metric for metric in metrics}
    lines = []
    somewhere = any(_compiled(pair) for pair in pairs)
    for pair in pairs:
        setup = sides[pair.b].label
        if pair.related:
            profiled = not (sides[pair.a].predicted or sides[pair.b].predicted)
            changed, same = (tell(pair, table, profiled=profiled) for tell in (_changed, _same))
            if pair.withheld is not None and not changed and not same:
                changed = [f"not told: {pair.withheld}"]
            lines.append(Conclusion(setup=setup, changed=changed, same=same))
            if somewhere and not _compiled(pair):
                lines[-1].same.append("no lookup, guard or prologue rows of torch.compile")
        else:
            lines.append(Conclusion(setup=setup, changed=["unrelated to the baseline: nothing is compared"], same=[]))
    return lines


def _compiled(pair: Pair) -> bool:
    """Whether the other trace, or the baseline, shows that one of them alone ran compiled code."""
    return any(change.role == "compile" for change in pair.operators)


def _changed(pair: Pair, metrics: dict[str, Metric], *, profiled: bool) -> list[str]:
    said = []
    explained = {(copy.name, copy.op) for copy in pair.copies if copy.why}
    for category in ("fused", "split", "replaced", "removed", "added"):
        places = [place for place in pair.places if place.category == category]
        if category == "added":
            places = [p for p in places if (p.b[0].short_name, p.b[0].op) not in explained]
        said += _places(category, places)
    said += [_copy(copy) for copy in pair.copies if copy.why]
    said += [_unlike_predicted(place) for place in pair.places if place.off is not None]
    said += _host(pair.operators, profiled=profiled)
    for name, words in (("launches", "launches"), ("synchronizations", "synchronizations")):
        change = metrics[name].changes[pair.b]
        if change is not None and change.direction in ("less", "more"):
            before, after = (metrics[name].values[i].median for i in (pair.a, pair.b))
            said.append(f"{words} {whole(before)} → {whole(after)}")
    for name, words in _TIMES:
        change = metrics[name].changes[pair.b]
        if change is not None and change.direction in ("less", "more") and change.absolute:
            percent = f" ({signed(change.relative)})" if change.relative else ""
            if not _drifts(change):
                said.append(f"{_called(words, profiled)} {_times(metrics[name], pair)}{percent}{_caution(change)}")
    return said


def _drifts(change: Change) -> bool:
    """Whether a change is no more than drift between two runs of one program."""
    return (change.reason or "").startswith(DRIFT_OF_TWINS)


def _caution(change: Change) -> str:
    return f": {DRIFT_OF_RUNS}" if (change.reason or "").startswith(DRIFT_OF_RUNS) else ""


def _called(words: str, profiled: bool) -> str:
    """A time by its name; profiling lengthens that of the CPU."""
    return f"{words} (profiled)" if profiled and words == "CPU time" else words


def _times(metric: Metric, pair: Pair) -> str:
    before, after = (metric.values[i].median or 0.0 for i in (pair.a, pair.b))
    return f"{time(before)} → {time(after)}"


def _places(category: str, places: list[Place]) -> list[str]:
    if category in ("removed", "added"):
        return _one_sided(category, places)
    said = [_place(place) for place in places[:SHOWN_KINDS]]
    if len(places) > SHOWN_KINDS:
        rest = places[SHOWN_KINDS:]
        before, after = sum(p.a_us for p in rest), sum(p.b_us for p in rest)
        rows = sum(p.count for p in rest)
        said.append(f"{rows} more {category}: {time(before)} → {time(after)}")
    return said


def _misnamed(place: Place) -> bool:
    """Whether the library took another kernel than the one that was predicted by name."""
    return place.category == "predicted" and not any(is_stand_in(row.name) for row in (*place.a, *place.b))


def _place(place: Place) -> str:
    times = "" if place.count == 1 else f"{place.count}× "
    said = f"{times}{place.title}"
    said += f": {time(place.a_us)} → {time(place.b_us)}"
    if place.bytes_vanished:
        less = "less" if place.bytes_vanished > 0 else "more"
        said += f", {bytes_of(abs(place.bytes_vanished))} {less} through memory"
    elif place.category in ("fused", "split") and place.bytes_vanished is None:
        lacking = list(dict.fromkeys(row.short_name for row in (*place.a, *place.b) if row.bytes is None))
        said += f" (what travels through memory cannot be compared: the bytes of {first_of(lacking, 1)} are unknown)"
    return said


def _unlike_predicted(place: Place) -> str:
    """A row that took another time than it was predicted to take."""
    interval = f"{time(place.predicted_low_us)} to {time(place.predicted_high_us)}"
    return f"{place.off} the predicted {interval}: {_place(place)}"


def _one_sided(category: str, places: list[Place]) -> list[str]:
    if not places:
        return []
    rows = [(row.kind, place.count) for place in places for row in (place.a or place.b)]
    us = sum(max(place.a_us, place.b_us) for place in places)
    if len(places) == 1:
        times = "" if places[0].count == 1 else f"{places[0].count}× "
        return [f"{category}: {times}{places[0].title} ({time(us)})"]
    return [f"{category}: {_counted(rows)} ({time(us)})"]


def _counted(rows: Sequence[tuple[str, int]]) -> str:
    """``3 gemm, 2 elementwise, 2 memset`` from kinds and how often they occur, most first."""
    counts: Counter[str] = Counter()
    for kind, number in rows:
        counts[kind] += number
    shown = [f"{number} {kind}" for kind, number in counts.most_common(_KINDS_NAMED)]
    rest = counts.total() - sum(number for _, number in counts.most_common(_KINDS_NAMED))
    return ", ".join([*shown, f"{rest} more"] if rest else shown)


def _copy(copy: Copy) -> str:
    times = f"{copy.count}× " if copy.count > 1 else ""
    return f"a hidden copy appears: {times}{copy.name} ({time(copy.us)}): {copy.why}"


def _host(changes: Sequence[OperatorChange], *, profiled: bool) -> list[str]:
    said = []
    views = [c for c in changes if c.role == "view"]
    gone = [c for c in views if c.b_calls < c.a_calls]
    come = [c for c in views if c.b_calls > c.a_calls]
    for found, words in ((gone, "fewer"), (come, "more")):
        if found:
            number = sum(abs(c.b_calls - c.a_calls) for c in found)
            noun = "view operator" if number == 1 else "view operators"
            said.append(f"{number} {words} {noun} ({_names(found)})")
    compiled = [c for c in changes if c.role == "compile"]
    appear = [c for c in compiled if not c.a_calls]
    vanish = [c for c in compiled if not c.b_calls]
    for found, words in ((appear, "appear"), (vanish, "vanish")):
        if found:
            times = [change.b_self_us if found is appear else change.a_self_us for change in found]
            known = [us for us in times if us is not None]
            how = ", profiled" if profiled else ""
            cost = f" ({time(sum(known))} of CPU time{how})" if len(known) == len(times) else ""
            said.append(f"rows of torch.compile {words}: {_names(found, len(found))}{cost}")
    return said


def _names(changes: Sequence[OperatorChange], most: int = SHOWN_KINDS) -> str:
    names = [change.name.removeprefix("## ") for change in changes[:most]]
    return ", ".join(names) + (", …" if len(changes) > most else "")


def _same(pair: Pair, metrics: dict[str, Metric], *, profiled: bool) -> list[str]:
    said = []
    alike = {"identical": "identical by name", "predicted": "of the predicted kind and size"}
    for category, words in alike.items():
        same = [place for place in pair.places if place.category == category and place.off is None]
        if same:
            rows = [(row.kind, place.count) for place in same for row in place.a]
            before, after = sum(p.a_us for p in same), sum(p.b_us for p in same)
            said.append(f"{_counted(rows)}, {words} ({time(before)} → {time(after)})")
    if said and all(p.category in alike and p.off is None and not _misnamed(p) for p in pair.places):
        compiled = any(c.role == "compile" and c.b_calls > c.a_calls for c in pair.operators)
        said.append("every kernel" + (": there was nothing to fuse" if compiled else ""))
    for name, words in _TIMES:
        change = metrics[name].changes[pair.b]
        if change is not None and change.direction == "same":
            inside = f" (a difference {change.reason})" if change.absolute else ""
            said.append(f"{_called(words, profiled)} {_times(metrics[name], pair)}{inside}")
        elif change is not None and _drifts(change):
            times = f"{_times(metrics[name], pair)} ({signed(change.relative or 0.0)})"
            said.append(f"{_called(words, profiled)} {times}: {DRIFT_OF_TWINS}")
    return said
