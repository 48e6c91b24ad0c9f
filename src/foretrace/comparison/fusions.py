"""Which kernels of one step became one kernel of the other: by the parts its name lists, else by its place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isclose

import numpy as np

from foretrace.comparison.align import Match, gaps_between
from foretrace.comparison.subject import Item
from foretrace.knowledge.comparing import (
    FARTHEST_BYTES,
    NEAR_PLACES,
    NEAR_ROWS,
    SAME_FLOPS,
    absorbs,
    accumulates,
    contains,
    is_part,
)
from foretrace.model.comparison import How

__all__ = ["Fusion", "alike_in_bytes", "by_parts", "by_place", "epilogues"]


# A name lists each operator once; more rows than this a part are not one kernel's.
_ROWS_A_PART = 4
_ALLOTTED_CELLS = 20_000_000


@dataclass(frozen=True)
class Fusion:
    """Rows ``parts`` of one step do the work of row ``whole`` of the other.

    ``partner`` is a row of the parts' side that ``whole`` was paired with before (a GEMM that took an epilogue in).
    """

    parts: tuple[int, ...]
    whole: int
    how: How


def by_parts(
    many: Sequence[Item],
    few: Sequence[Item],
    matches: Sequence[Match],
    used: tuple[set[int], set[int]],
    *,
    swapped: bool,
) -> list[Fusion]:
    """Rows of ``few`` that name their operators, with the rows of ``many`` whose operators their names list.

    A name lists an operator once however often it occurs, so in its own gap a fused row takes every such row that no
    other fused row has a better claim to; a part that is not there is looked for nearby, nearest first. A row that is
    a fused kernel itself is such a row if all of its own parts are listed. ``used`` rows (of ``many``, of ``few``) are
    left alone. ``swapped``: the matches have ``few`` as their ``a``.
    """
    at_many = [m.b if swapped else m.a for m in matches]
    at_few = [m.a if swapped else m.b for m in matches]
    free = [i for i in range(len(many)) if i not in used[0]]
    wholes = [j for j, item in enumerate(few) if j not in used[1] and item.parts]
    by_gap: dict[int, list[int]] = {}
    for whole in wholes:
        by_gap.setdefault(bisect_left(at_few, whole), []).append(whole)
    parts: dict[int, list[int]] = {}
    for place, members in by_gap.items():
        low = at_many[place - 1] + 1 if place else 0
        high = at_many[place] if place < len(at_many) else len(many)
        inside = free[bisect_left(free, low) : bisect_left(free, high)]
        parts.update(_allot(many, few, inside, members))
    claimed = {i for rows in parts.values() for i in rows}
    found = []
    for place, members in by_gap.items():
        low = at_many[place - 1] + 1 if place else 0
        high = at_many[place] if place < len(at_many) else len(many)
        near_low = at_many[place - NEAR_PLACES] if place >= NEAR_PLACES else 0
        near_high = at_many[place + NEAR_PLACES] if place + NEAR_PLACES < len(at_many) else len(many)
        limits = (max(near_low, low - NEAR_ROWS), low, high, min(near_high, high + NEAR_ROWS))
        for whole in members:
            rows = parts.get(whole, [])
            done = {part for i in rows for part in _done(few[whole].parts, many[i].op, many[i].parts)}
            elsewhere = []
            for part in few[whole].parts:
                if part not in done and (near := _nearest(many, free, claimed, few[whole], part, limits)) is not None:
                    elsewhere.append(near)
                    done |= _done(few[whole].parts, many[near].op, many[near].parts)
            if len(done) < 2:
                rows = rows[-1:]  # rows of a single part say nothing
            rows = [*rows, *elsewhere]
            if len(rows) > 1 or (rows and alike_in_bytes(many[rows[0]], few[whole])):
                found.append(Fusion(tuple(sorted(rows)), whole, "parts in the name"))
    return found


@lru_cache(maxsize=10_000)
def _fits(parts: tuple[str, ...], op: str | None, own: tuple[str, ...]) -> bool:
    """Whether a row, by its operator or by its ``own`` parts, goes into a kernel with these parts."""
    return any(is_part(part, op) for part in parts) or (bool(own) and contains(parts, own))


@lru_cache(maxsize=10_000)
def _done(parts: tuple[str, ...], op: str | None, own: tuple[str, ...]) -> frozenset[str]:
    """Which of a fused kernel's parts a row does, by its operator or by its ``own`` parts, beside other work or not."""
    return frozenset(part for part in parts if is_part(part, op) or any(is_part(part, other) for other in own))


def _allot(many: Sequence[Item], few: Sequence[Item], rows: list[int], wholes: list[int]) -> dict[int, list[int]]:
    """Give the rows of a gap to its fused rows: as many as can be, without crossing, each only parts of its own.

    Rows far from the last one a fused row was given belong to something else and are left alone.
    """
    if not rows or len(rows) * len(wholes) > _ALLOTTED_CELLS:
        return {}
    fits = {
        (op, own): np.array([_fits(few[w].parts, op, own) for w in wholes], dtype=np.int64)
        for op, own in {(many[i].op, many[i].parts) for i in rows}
    }
    best = np.zeros(len(wholes), dtype=np.int64)
    came_from = np.empty((len(rows), len(wholes)), dtype=np.int32)
    for step, i in enumerate(rows):
        reach = np.maximum.accumulate(best)
        # The whole at which the best so far was reached: the earliest, so that a kernel goes on while it can.
        opens = np.where(best > np.concatenate(([-1], reach[:-1])), np.arange(len(wholes)), 0)
        came_from[step] = np.maximum.accumulate(opens)
        best = reach + fits[many[i].op, many[i].parts]
    given: dict[int, list[int]] = {}
    at = int(np.argmax(best))
    for step in range(len(rows) - 1, -1, -1):
        row = many[rows[step]]
        if fits[row.op, row.parts][at]:
            given.setdefault(wholes[at], []).append(rows[step])
        at = int(came_from[step, at])
    return {whole: _together(many, few[whole], rows) for whole, rows in given.items()}


def _together(many: Sequence[Item], whole: Item, rows: list[int]) -> list[int]:
    """Of the rows (last first) those that stand close together, in order."""
    rows = _within(many, whole, rows)
    kept = rows[:1]
    for i in rows[1:]:
        if kept[-1] - i > NEAR_ROWS or len(kept) >= _ROWS_A_PART * len(whole.parts):
            break
        kept.append(i)
    return kept[::-1]


def _within(many: Sequence[Item], whole: Item, rows: list[int]) -> list[int]:
    """The rows without products of other sizes, where the fused row's own FLOPs say that it holds fewer of them.

    And without those whose traffic dwarfs the fused row's.
    """
    rows = [i for i in rows if _of_its_size(many[i], whole)]
    if not whole.is_product or whole.flops is None:
        return rows
    products = {i for i in rows if many[i].is_product}
    alike = {i for i in products if sum(x != y for x, y in zip(many[i].size or (), whole.size or (), strict=True)) < 2}
    flops = sum(many[i].flops or 0 for i in alike)
    if len(alike) == len(products) or not isclose(flops, whole.flops, rel_tol=SAME_FLOPS):
        return rows
    return [i for i in rows if i in alike or i not in products]


def alike_in_bytes(one: Item, other: Item) -> bool:
    """Whether two rows may do the same work, by what they move; yes where that is not known."""
    return _of_its_size(one, other) and _of_its_size(other, one)


def _of_its_size(part: Item, whole: Item) -> bool:
    return not part.bytes or not whole.bytes or part.bytes <= FARTHEST_BYTES * whole.bytes


def _nearest(
    many: Sequence[Item],
    free: list[int],
    claimed: set[int],
    whole: Item,
    part: str,
    limits: tuple[int, int, int, int],
) -> int | None:
    near_low, low, high, near_high = limits
    before = reversed(free[bisect_left(free, near_low) : bisect_left(free, low)])
    after = free[bisect_left(free, high) : bisect_left(free, near_high)]
    for i in [*before, *after]:
        op, own = many[i].op, many[i].parts
        fits = part in _done(whole.parts, op, own) and _fits(whole.parts, op, own)
        if i not in claimed and fits and _of_its_size(many[i], whole):
            claimed.add(i)
            return i
    return None


def by_place(
    many: Sequence[Item],
    few: Sequence[Item],
    matches: Sequence[Match],
    used: tuple[set[int], set[int]],
    *,
    swapped: bool,
) -> list[Fusion]:
    """Stretches between two matches in which several rows of ``many`` stand against a single one of ``few``."""
    found = []
    length_a, length_b = (len(few), len(many)) if swapped else (len(many), len(few))
    for low_a, high_a, low_b, high_b in gaps_between(matches, length_a, length_b):
        span_many, span_few = (range(low_b, high_b), range(low_a, high_a))
        if not swapped:
            span_many, span_few = span_few, span_many
        parts = [i for i in span_many if i not in used[0]]
        wholes = [j for j in span_few if j not in used[1]]
        if len(wholes) == 1 and absorbs(few[wholes[0]].kind, [many[i].kind for i in parts]):
            found.append(Fusion(tuple(parts), wholes[0], "position"))
    return found


def epilogues(
    many: Sequence[Item], few: Sequence[Item], matches: Sequence[Match], used: set[int], *, swapped: bool
) -> dict[int, tuple[int, ...]]:
    """Position in ``matches`` of a GEMM → the row of ``many`` right behind it that the other one does as well.

    An epilogue's name tells so, or an operator that adds its product to something.
    """
    found: dict[int, tuple[int, ...]] = {}
    for position, match in enumerate(matches):
        plain, other = (match.b, match.a) if swapped else (match.a, match.b)
        gained = {"add" if word == "bias" else word for word in set(few[other].epilogue) - set(many[plain].epilogue)}
        if accumulates(few[other].op) and not accumulates(many[plain].op):
            gained.add("add")
        after = plain + 1
        if few[other].kind != "gemm" or not gained or after >= len(many) or after in used:
            continue
        if _fits(tuple(sorted(gained)), many[after].op, many[after].parts):
            found[position] = (after,)
    return found
