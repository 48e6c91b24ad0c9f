"""Which kernels of one step became one kernel of the other: by the parts its name lists, else by its place."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretrace.comparison.align import Match, gaps_between
from foretrace.comparison.subject import Item
from foretrace.knowledge.comparing import NEAR_PLACES, NEAR_ROWS, absorbs, is_part
from foretrace.model.comparison import How

__all__ = ["Fusion", "by_parts", "by_place", "epilogues"]


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


def by_parts(many: Sequence[Item], few: Sequence[Item], matches: Sequence[Match], *, swapped: bool) -> list[Fusion]:
    """Rows of ``few`` that name their operators, with the unmatched rows of ``many`` whose operators their names list.

    A name lists an operator once however often it occurs, so in its own gap a fused row takes every such row that no
    other fused row has a better claim to; a part that is not there is looked for nearby, nearest first. ``swapped``:
    the matches have ``few`` as their ``a``.
    """
    at_many = [m.b if swapped else m.a for m in matches]
    at_few = [m.a if swapped else m.b for m in matches]
    matched, taken = set(at_many), set(at_few)
    free = [i for i in range(len(many)) if i not in matched]
    wholes = [j for j, item in enumerate(few) if j not in taken and item.parts]
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
            for part in few[whole].parts:
                if not any(is_part(part, many[i].op) for i in rows):
                    rows += _nearest(many, free, claimed, part, limits)
            if rows:
                found.append(Fusion(tuple(sorted(rows)), whole, "parts in the name"))
    return found


def _allot(many: Sequence[Item], few: Sequence[Item], rows: list[int], wholes: list[int]) -> dict[int, list[int]]:
    """Give the rows of a gap to its fused rows: as many as can be, without crossing, each only parts of its own.

    Rows far from the last one a fused row was given belong to something else and are left alone, and a row of a single
    part says nothing: of those only the last is kept.
    """
    if not rows or len(rows) * len(wholes) > _ALLOTTED_CELLS:
        return {}
    fits = {
        op: np.array([any(is_part(part, op) for part in few[w].parts) for w in wholes], dtype=np.int64)
        for op in {many[i].op for i in rows}
    }
    best = np.zeros(len(wholes), dtype=np.int64)
    came_from = np.empty((len(rows), len(wholes)), dtype=np.int32)
    for step, i in enumerate(rows):
        reach = np.maximum.accumulate(best)
        # The whole at which the best so far was reached: the earliest, so that a kernel goes on while it can.
        opens = np.where(best > np.concatenate(([-1], reach[:-1])), np.arange(len(wholes)), 0)
        came_from[step] = np.maximum.accumulate(opens)
        best = reach + fits[many[i].op]
    given: dict[int, list[int]] = {}
    at = int(np.argmax(best))
    for step in range(len(rows) - 1, -1, -1):
        if fits[many[rows[step]].op][at]:
            given.setdefault(wholes[at], []).append(rows[step])
        at = int(came_from[step, at])
    return {whole: _together(many, few[whole], rows) for whole, rows in given.items()}


def _together(many: Sequence[Item], whole: Item, rows: list[int]) -> list[int]:
    """The rows (last first) that stand close together, first ones last."""
    kept = rows[:1]
    for i in rows[1:]:
        if kept[-1] - i > NEAR_ROWS or len(kept) >= _ROWS_A_PART * len(whole.parts):
            break
        kept.append(i)
    parts = {part for part in whole.parts for i in kept if is_part(part, many[i].op)}
    return kept[::-1] if len(parts) > 1 else kept[:1]


def _nearest(
    many: Sequence[Item], free: list[int], claimed: set[int], part: str, limits: tuple[int, int, int, int]
) -> list[int]:
    near_low, low, high, near_high = limits
    before = reversed(free[bisect_left(free, near_low) : bisect_left(free, low)])
    after = free[bisect_left(free, high) : bisect_left(free, near_high)]
    for i in [*before, *after]:
        if i not in claimed and is_part(part, many[i].op):
            claimed.add(i)
            return [i]
    return []


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
    """Position in ``matches`` of a GEMM → the row of ``many`` right behind it that became the other one's epilogue."""
    found: dict[int, tuple[int, ...]] = {}
    matched = {m.b if swapped else m.a for m in matches}
    for position, match in enumerate(matches):
        plain, other = (match.b, match.a) if swapped else (match.a, match.b)
        gained = set(few[other].epilogue) - set(many[plain].epilogue)
        after = plain + 1
        if few[other].kind != "gemm" or not gained or after >= len(many) or after in used or after in matched:
            continue
        if any(is_part("add" if word == "bias" else word, many[after].op) for word in gained):
            found[position] = (after,)
    return found
