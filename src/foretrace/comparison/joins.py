"""Products that one step computes apart and the other as one, and equal products that stand in another order.

Two weights that lie side by side make one product of their widths together: its m, n or k is the sum of theirs, and
the rest is equal. Such products need not stand next to each other, so these pairs may cross others.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from foretrace.comparison.align import Match
from foretrace.comparison.subject import Item
from foretrace.knowledge.comparing import NEAR_PLACES, accumulates, is_part

__all__ = ["Join", "K", "M", "N", "displaced", "joined", "unequal", "width"]

Rows = tuple[int, ...]
# Where m, n and k stand in the size of a product.
M, N, K = 0, 1, 2


@dataclass(frozen=True)
class Join:
    """Products ``a`` of the baseline and ``b`` of the other step that are the same work, by position.

    One side is a single product; the other holds its parts, with the additions of their results where k was joined.
    """

    a: Rows
    b: Rows


def joined(a: Sequence[Item], b: Sequence[Item], matches: Sequence[Match]) -> list[Join]:
    """Explain products that are unpaired, or paired with one of another size, by joining along n, m or k.

    All such products of a step that differ along one dimension alone must come to the same sum in both steps, and
    either the one step or the other makes them apart. Whether they are siblings, or layers of a model that is shallower
    and wider, their sizes do not tell.
    """
    # A pair of unequal sizes is open as well: it was paired for its place, and the sizes may tell better.
    kept = [match for match in matches if not unequal(a[match.a], b[match.b])]
    fixed = ({match.a for match in kept}, {match.b for match in kept})
    opened = [
        [i for i, item in enumerate(items) if i not in closed and item.is_product]
        for items, closed in zip((a, b), fixed, strict=True)
    ]
    found: list[Join] = []
    # Fewer layers on a larger batch, or experts in other numbers, look like products joined along m. Those that are
    # joined so are gradients of weights: their k is the number of tokens, the m of other products that stay equal.
    tokens = {width(a[match.a], M) for match in kept if a[match.a].is_product and a[match.a].size == b[match.b].size}
    for along in (N, M, K):
        pairs = [
            (rows_a, rows_b)
            for rows_a, rows_b in _balanced(a, b, opened, along)
            if _may_join([a[i] for i in rows_a], [b[j] for j in rows_b])
            and (along != M or width(a[rows_a[0]], K) in tokens)
        ]
        if along == K:
            pairs = [(_with_sums(a, rows_a, fixed[0]), _with_sums(b, rows_b, fixed[1])) for rows_a, rows_b in pairs]
        joins = [Join(rows_a, rows_b) for rows_a, rows_b in pairs if rows_a and rows_b]
        gone = ({i for join in joins for i in join.a}, {j for join in joins for j in join.b})
        opened = [[i for i in rows if i not in out] for rows, out in zip(opened, gone, strict=True)]
        found += joins
    return found


def unequal(one: Item, other: Item) -> bool:
    """Whether both are products of known sizes that are not the same."""
    return one.is_product and other.is_product and one.size != other.size


def _may_join(a: Sequence[Item], b: Sequence[Item]) -> bool:
    types = {item.dtype for item in (*a, *b) if item.dtype is not None}
    return len(types) < 2 and not any(item.unites for item in (*a, *b))


def _balanced(
    a: Sequence[Item], b: Sequence[Item], opened: Sequence[Sequence[int]], along: int
) -> Iterator[tuple[Rows, Rows]]:
    """One product against one or several of the same sum along a dimension and of equal size otherwise, in order."""
    groups = [_by_rest(items, rows, along) for items, rows in zip((a, b), opened, strict=True)]
    for rest, rows_a in groups[0].items():
        both = [
            [(i, width(items[i], along)) for i in rows] for items, rows in ((a, rows_a), (b, groups[1].get(rest, [])))
        ]
        if sum(width for _, width in both[0]) != sum(width for _, width in both[1]):
            continue
        equal = Counter(width for _, width in both[0]) & Counter(width for _, width in both[1])
        alone, left = zip(*(_set_aside(widths, equal) for widths in both), strict=True)
        yield from zip(*alone, strict=True)
        sums = [set(accumulate(width for _, width in widths)) for widths in left]
        parts = list(zip(*(_cut(widths, sums[0] & sums[1]) for widths in left), strict=True))
        if all(len(part_a) == 1 for part_a, _ in parts) or all(len(part_b) == 1 for _, part_b in parts):
            yield from parts


def _by_rest(items: Sequence[Item], rows: Iterable[int], along: int) -> dict[tuple[object, ...], list[int]]:
    groups: dict[tuple[object, ...], list[int]] = {}
    for i in rows:
        size = items[i].size or ()
        groups.setdefault((*size[:along], *size[along + 1 :]), []).append(i)
    return groups


def width(item: Item, along: int) -> int:
    """m, n or k of a product."""
    found = (item.size or ())[along]
    return found if isinstance(found, int) else 0


def _set_aside(widths: Sequence[tuple[int, int]], equal: Counter[int]) -> tuple[list[Rows], list[tuple[int, int]]]:
    """The first rows of each width, so many as have an equal one in the other step, by width; and the other rows."""
    wanted = equal.copy()
    alone, left = [], []
    for row, width in widths:
        if wanted[width] > 0:
            wanted[width] -= 1
            alone.append((width, row))
        else:
            left.append((row, width))
    return [(row,) for _, row in sorted(alone)], left


def _cut(widths: Sequence[tuple[int, int]], at: set[int]) -> list[Rows]:
    """The rows in stretches, each of which ends where the sum of widths is one of ``at``."""
    sums = accumulate(width for _, width in widths)
    ends = [0, *(position for position, reached in enumerate(sums, start=1) if reached in at)]
    return [tuple(row for row, _ in widths[low:high]) for low, high in pairwise(ends)]


def _with_sums(items: Sequence[Item], rows: Rows, fixed: set[int]) -> Rows:
    """Products whose results are added up, with the additions; nothing where they are not.

    Joined along k, products are the same work only if their results are added: each but the first adds to what is
    there (in place: what ``addmm`` adds may be a bias), or an addition that nothing else explains stands right behind
    it. One behind the first as well is a residual's, of layers in turn.
    """
    found = list(rows)
    for position, row in enumerate(rows):
        behind = row + 1 if row + 1 < len(items) and _is_sum(items[row + 1]) else None
        op = items[row].op
        if len(rows) == 1 or (op is not None and op.endswith("_") and accumulates(op)):
            continue
        if position == 0 and behind is None:
            continue
        if position == 0 or behind is None or behind in fixed:
            return ()
        found.append(behind)
    return tuple(sorted(found))


def _is_sum(item: Item) -> bool:
    """Whether a row does nothing but an addition."""
    return all(part == "add" for part in item.parts) if item.parts else is_part("add", item.op)


def displaced(
    a: Sequence[Item], b: Sequence[Item], matches: Sequence[Match], used: tuple[set[int], set[int]]
) -> list[Match]:
    """Products of equal size and type that are still alone and stand near each other, though in another order."""
    near: tuple[Callable[[int], int], Callable[[int], int]] = (
        lambda i: bisect_left(matches, i, key=lambda match: match.a),
        lambda j: bisect_left(matches, j, key=lambda match: match.b),
    )
    groups: list[dict[tuple[object, ...], list[int]]] = [{}, {}]
    for side, items in enumerate((a, b)):
        for i, item in enumerate(items):
            if i not in used[side] and item.is_product:
                groups[side].setdefault((item.size, item.dtype, item.parts), []).append(i)
    found = []
    for token, rows_a in groups[0].items():
        rows_b = iter(groups[1].get(token, []))
        j = next(rows_b, None)
        for i in rows_a:
            while j is not None and near[1](j) < near[0](i) - NEAR_PLACES:
                j = next(rows_b, None)
            if j is None:
                break
            if near[1](j) <= near[0](i) + NEAR_PLACES:
                found.append(Match(i, j, "work"))
                j = next(rows_b, None)
    return sorted(found, key=lambda match: match.a)
