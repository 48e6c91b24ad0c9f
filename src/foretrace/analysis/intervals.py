"""Arithmetic of time intervals: unions, clips, gaps, coverage.

Every function takes two int64 arrays of one shape ``(n,)`` with half-open intervals ``[start, end)`` in
nanoseconds, in any order, overlapping as they like. Intervals that are empty or end before they start cover
nothing. Everything is exact integer arithmetic in O(n log n).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["clip", "covered_between", "gaps", "union_intervals", "union_ns"]

Int64 = NDArray[np.int64]


def union_intervals(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    """The union as disjoint intervals in order of time; intervals that touch become one.

    Returns two int64 arrays of shape ``(m,)``, m ≤ n, with ``starts[i] < ends[i] < starts[i + 1]``.
    """
    start, end = _nonempty(start, end)
    if not len(start):
        return start, end
    order = np.argsort(start, kind="stable")
    start = start[order]
    # The furthest end so far: an interval that starts beyond it opens a new piece of the union.
    reach = np.maximum.accumulate(end[order])
    opens = np.empty(len(start), dtype=np.bool_)
    opens[0] = True
    np.greater(start[1:], reach[:-1], out=opens[1:])
    first = np.flatnonzero(opens)
    last = np.append(first[1:] - 1, len(start) - 1)
    return start[first], reach[last]


def union_ns(start: Int64, end: Int64) -> int:
    """Length of the union in ns: the time during which at least one interval is open."""
    starts, ends = union_intervals(start, end)
    return int((ends - starts).sum())


def clip(start: Int64, end: Int64, low: int, high: int) -> tuple[Int64, Int64]:
    """The parts of the intervals inside ``[low, high)``, in the given order; what lies outside is dropped."""
    return _nonempty(np.maximum(np.asarray(start), low), np.minimum(np.asarray(end), high))


def gaps(start: Int64, end: Int64, low: int, high: int) -> tuple[Int64, Int64]:
    """The stretches of ``[low, high)`` that no interval covers, in order of time.

    Together with the union of the clipped intervals they add up to ``high - low`` exactly.
    """
    starts, ends = union_intervals(*clip(start, end, low, high))
    return _nonempty(np.append(np.int64(low), ends), np.append(starts, np.int64(high)))


def covered_between(start: Int64, end: Int64, low: Int64, high: Int64) -> Int64:
    """How many ns of each window ``[low[i], high[i])`` the union of the intervals covers.

    ``low`` and ``high`` have one shape ``(k,)`` and need not be sorted; the result has it too (int64).
    One sort serves all windows, so asking for every step or gap at once is cheap.
    """
    starts, ends = union_intervals(start, end)
    low = np.asarray(low, dtype=np.int64)
    high = np.asarray(high, dtype=np.int64)
    if not len(starts):
        return np.zeros(low.shape, dtype=np.int64)
    before = np.concatenate(([0], np.cumsum(ends - starts)))

    def covered_until(time: Int64) -> Int64:
        # Whole pieces that began earlier, less what of the last one lies after `time`.
        began = np.searchsorted(starts, time, side="right")
        last = np.maximum(began - 1, 0)
        after = np.where(began > 0, np.maximum(ends[last] - time, 0), 0)
        return np.asarray(before[began] - after, dtype=np.int64)

    covered: Int64 = np.maximum(covered_until(high) - covered_until(low), 0)
    return covered


def _nonempty(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    start = np.asarray(start, dtype=np.int64)
    end = np.asarray(end, dtype=np.int64)
    keep = end > start
    return start[keep], end[keep]
