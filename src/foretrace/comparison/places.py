"""Every GPU row of two steps in exactly one place: identical, replaced, fused, split, removed or added."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from foretrace.comparison.align import LAST, Match, match_rows, match_within
from foretrace.comparison.fusions import alike_in_bytes, by_parts, by_place, epilogues
from foretrace.comparison.joins import displaced, joined
from foretrace.comparison.spread import against_prediction, change_of, measure
from foretrace.comparison.subject import Item
from foretrace.knowledge.comparing import PARTS_NAMED
from foretrace.knowledge.kernels import is_stand_in
from foretrace.model.comparison import CATEGORIES, Category, CategoryName, How, Place, Row

__all__ = ["Alignment", "Predicted", "Spot", "align_steps", "categories", "folded"]

Predicted = Literal["a", "b"] | None
Off = Literal["below", "above"] | None


@dataclass(frozen=True)
class Spot:
    """Rows ``a`` of the baseline and rows ``b`` of the other step that do the same work, by position."""

    category: CategoryName
    how: How
    a: tuple[int, ...]
    b: tuple[int, ...]
    off: Off = None  # on which side of its predicted interval the measured time lies


@dataclass(frozen=True, eq=False)
class Alignment:
    """Two steps and where each of their rows went."""

    a: Sequence[Item]
    b: Sequence[Item]
    spots: list[Spot]
    predicted: Predicted = None  # which of the two steps, where one alone is


def align_steps(a: Sequence[Item], b: Sequence[Item], *, predicted: Predicted = None) -> Alignment:
    """Put every row of both steps into one spot, in the order of the other step; what vanished, by the baseline's."""
    matches = match_rows(a, b)
    joins = joined(a, b, matches)
    used_a, used_b = {i for join in joins for i in join.a}, {j for join in joins for j in join.b}
    if joins:  # their rows may have been paired, and what they were paired with finds another partner
        matches = [match for match in matches if match.a not in used_a and match.b not in used_b]
        matches = match_rows(a, b, matches, (used_a, used_b))
    # Pairs that stand in another order: they may cross the others.
    crossing = [Match(join.a[0], join.b[0], "work") for join in joins if len(join.a) == len(join.b) == 1]
    used_a.update(match.a for match in matches)
    used_b.update(match.b for match in matches)
    spots: list[Spot] = []

    def fuse(parts: tuple[int, ...], whole: int, how: How) -> None:
        # A fused kernel with a single part in sight is a pair: the other parts did not run, or elsewhere.
        if len(parts) > 1:
            spots.append(Spot("fused", how, parts, (whole,)))
        else:
            spots.append(_pair(a, b, Match(parts[0], whole, how), predicted))
        used_a.update(parts)
        used_b.add(whole)

    def split(parts: tuple[int, ...], whole: int, how: How) -> None:
        if len(parts) > 1:
            spots.append(Spot("split", how, (whole,), parts))
        else:
            spots.append(_pair(a, b, Match(whole, parts[0], how), predicted))
        used_b.update(parts)
        used_a.add(whole)

    for join in joins:
        if len(join.a) > 1:
            fuse(join.a, join.b[0], "work")
        elif len(join.b) > 1:
            split(join.b, join.a[0], "work")
    for fusion in by_parts(a, b, matches, (used_a, used_b), swapped=False):
        fuse(fusion.parts, fusion.whole, fusion.how)
    for fusion in by_parts(b, a, matches, (used_b, used_a), swapped=True):
        split(fusion.parts, fusion.whole, fusion.how)
    crossing += displaced(a, b, matches, (used_a, used_b))
    used_a.update(match.a for match in crossing)
    used_b.update(match.b for match in crossing)
    paired = [*matches, *crossing]
    taken_in = epilogues(a, b, paired, used_a, swapped=False)
    given_out = epilogues(b, a, paired, used_b, swapped=True)
    for position, match in enumerate(paired):
        if position in taken_in:
            fuse((match.a, *taken_in[position]), match.b, "position")
        elif position in given_out:
            split((match.b, *given_out[position]), match.a, "position")
    grown = taken_in.keys() | given_out.keys()
    spots += [_pair(a, b, m, predicted) for at, m in enumerate(paired) if at not in grown and at >= len(matches)]
    matches = [m for position, m in enumerate(matches) if position not in grown]
    for fusion in by_place(a, b, matches, (used_a, used_b), swapped=False):
        fuse(fusion.parts, fusion.whole, fusion.how)
    for fusion in by_place(b, a, matches, (used_b, used_a), swapped=True):
        if fusion.whole not in used_a and not used_b & set(fusion.parts):
            split(fusion.parts, fusion.whole, fusion.how)
    before = set(matches)
    found = match_within(a, b, matches, LAST, (used_a, used_b))
    matches = [match for match in found if match in before or alike_in_bytes(a[match.a], b[match.b])]
    spots += [_pair(a, b, match, predicted) for match in matches]
    used_a |= {m.a for m in matches}
    used_b |= {m.b for m in matches}
    spots += [Spot("removed", "none", (i,), ()) for i in range(len(a)) if i not in used_a]
    spots += [Spot("added", "none", (), (j,)) for j in range(len(b)) if j not in used_b]
    return Alignment(a, b, spots, predicted)


def _pair(a: Sequence[Item], b: Sequence[Item], match: Match, predicted: Predicted) -> Spot:
    one, other = a[match.a], b[match.b]
    category: CategoryName = "identical" if one.code == other.code else "replaced"
    if category == "replaced" and predicted is not None and _as_predicted(one, other, match.how):
        category = "predicted"
    off = None if category == "replaced" or predicted is None else _off(one, other, predicted)
    return Spot(category, match.how, (match.a,), (match.b,), off)


def _off(one: Item, other: Item, predicted: Literal["a", "b"]) -> Off:
    """On which side of its predicted interval a measured row lies; None inside it, or where there is none."""
    told, seen = (one, other) if predicted == "a" else (other, one)
    if told.predicted is None:
        return None
    low, high = told.predicted
    return "below" if seen.us < low else "above" if seen.us > high else None


def _as_predicted(one: Item, other: Item, how: How) -> bool:
    """Whether two rows are the same work but for their names: a predicted name is a guess."""
    sized = one.size is not None and other.size is not None
    return how != "order and kind" and one.kind == other.kind and (not sized or one.size == other.size)


def categories(alignment: Alignment) -> list[Category]:
    """What falls into each category; only those that hold rows."""
    found = []
    for name in CATEGORIES:
        spots = [spot for spot in alignment.spots if spot.category == name]
        if not spots:
            continue
        rows_a = [alignment.a[i] for spot in spots for i in spot.a]
        rows_b = [alignment.b[j] for spot in spots for j in spot.b]
        found.append(
            Category(
                category=name,
                a_kernels=sum(row.is_kernel for row in rows_a),
                b_kernels=sum(row.is_kernel for row in rows_b),
                a_transfers=sum(not row.is_kernel for row in rows_a),
                b_transfers=sum(not row.is_kernel for row in rows_b),
                a_us=total(rows_a),
                b_us=total(rows_b),
            )
        )
    return found


def folded(alignment: Alignment) -> list[Place]:
    """The spots as places: alike ones counted, most time first within each category."""
    groups: dict[tuple[object, ...], list[Spot]] = {}
    for spot in alignment.spots:
        names = (
            tuple((alignment.a[i].name, alignment.a[i].op) for i in spot.a),
            tuple((alignment.b[j].name, alignment.b[j].op) for j in spot.b),
        )
        # A row outside its predicted interval is told apart from its like inside, and a fused kernel of unknown bytes
        # from its like of known ones.
        groups.setdefault((spot.category, spot.how, spot.off, _lacking(alignment, spot), *names), []).append(spot)
    places = [_place(alignment, spots) for spots in groups.values()]
    rank = {name: position for position, name in enumerate(CATEGORIES)}
    return sorted(places, key=lambda p: (rank[p.category], -max(p.a_us, p.b_us)))


def _lacking(alignment: Alignment, spot: Spot) -> tuple[bool, ...]:
    """Which rows lack the bytes that are counted where rows were fused or split; nothing of other spots."""
    if spot.category not in ("fused", "split"):
        return ()
    rows = (*(alignment.a[i] for i in spot.a), *(alignment.b[j] for j in spot.b))
    return tuple(row.bytes is None for row in rows)


def _place(alignment: Alignment, spots: list[Spot]) -> Place:
    rows_a = [alignment.a[i] for spot in spots for i in spot.a]
    rows_b = [alignment.b[j] for spot in spots for j in spot.b]
    first = spots[0]
    a_bytes, b_bytes = _bytes(rows_a), _bytes(rows_b)
    guessed = alignment.predicted if first.category == "predicted" else None
    vanished = None
    if first.category in ("fused", "split") and a_bytes is not None and b_bytes is not None:
        vanished = a_bytes - b_bytes
    one, other = measure(_summed(rows_a)), measure(_summed(rows_b))
    told = None
    if alignment.predicted is not None and first.category in ("identical", "predicted"):
        rows, guess = (rows_a, one) if alignment.predicted == "a" else (rows_b, other)
        told = _interval(rows)
        guess.low, guess.high = told or (None, None)
    return Place(
        category=first.category,
        how=first.how,
        title=_title([alignment.a[i] for i in first.a], [alignment.b[j] for j in first.b], guessed),
        count=len(spots),
        a=[_row(alignment.a[i]) for i in first.a],
        b=[_row(alignment.b[j]) for j in first.b],
        a_us=total(rows_a),
        b_us=total(rows_b),
        change=change_of(one, other) if told is None else against_prediction(one, other, outside=first.off is not None),
        a_bytes=a_bytes,
        b_bytes=b_bytes,
        bytes_vanished=vanished,
        off=first.off,
        predicted_low_us=None if told is None else told[0],
        predicted_high_us=None if told is None else told[1],
        a_events=[row.event for row in rows_a],
        b_events=[row.event for row in rows_b],
    )


def _interval(rows: list[Item]) -> tuple[float, float] | None:
    """The interval of predicted rows together, all of them off to the same side; None unless each has one."""
    told = [row.predicted for row in rows if row.predicted is not None]
    if not told or len(told) < len(rows):
        return None
    return round(fsum(low for low, _ in told), 6), round(fsum(high for _, high in told), 6)


def _title(a: list[Item], b: list[Item], guessed: Predicted) -> str:
    """The rows in words: one name where both sides have it, else what became what, or what was predicted as what."""
    if not a or not b:
        row = (a or b)[0]
        return f"{row.short_name} ({row.op})" if row.op else row.short_name
    before, after = _named(a), _named(b)
    if guessed is not None:
        real, guess = (after, a[0]) if guessed == "a" else (before, b[0])
        # A stand-in for a name that no table knows says nothing beside the real one.
        return real if is_stand_in(guess.name) else f"{real}, predicted as {guess.short_name}"
    if len(a) == len(b) == 1 and a[0].code == b[0].code:
        return before
    return f"{before} → {'another ' if before == after else ''}{after}"


def _named(rows: list[Item]) -> str:
    """A single row by its short name, several by their operators: ``gelu + 2 mul``; generated code has none but itself.

    A memset is none of its operator's work: two products and what clears their counters are not four products.
    """
    if len(rows) == 1:
        return rows[0].short_name
    ordered = sorted(rows, key=lambda row: row.kind == "memset")
    words = ("memset" if row.kind == "memset" else _operator_of(row) for row in ordered)
    counts = Counter(word.removeprefix("aten::") for word in words)
    names = [name if many == 1 else f"{many} {name}" for name, many in counts.items()]
    shown = names if len(names) <= PARTS_NAMED else [*names[: PARTS_NAMED - 1], f"{len(names) - PARTS_NAMED + 1} more"]
    return " + ".join(shown)


def _operator_of(row: Item) -> str:
    return row.short_name if row.op in (None, row.name) else str(row.op)


def _summed(rows: list[Item]) -> list[float]:
    """The time of all rows together in each step; zero for no rows, which is what they take."""
    if not rows:
        return [0.0]
    return [round(fsum(samples), 6) for samples in zip(*(row.samples for row in rows), strict=True)]


def _bytes(rows: list[Item]) -> int | None:
    known = [row.bytes for row in rows if row.bytes is not None]
    return sum(known) if rows and len(known) == len(rows) else None


def total(rows: Iterable[Item]) -> float:
    """Time of the rows, µs; sums of exact nanoseconds without the dust of binary fractions."""
    return round(fsum(row.us for row in rows), 6)


def _row(item: Item) -> Row:
    return Row(
        name=item.name,
        short_name=item.short_name,
        kind=item.kind,
        op=item.op,
        path=[*item.regions, *item.path],
        module=item.module,
        us=item.us,
        bytes=item.bytes,
        flops=item.flops,
        event=item.event,
    )
