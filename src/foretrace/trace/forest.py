"""The call forest: which CPU row runs inside which, per thread."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import HOST_ROWS, RowKind

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["Forest", "build_forest"]

# How far a child's end may lie beyond its parent's and still count as clock difference.
_CLOCK_SKEW_NS = 1_000


@dataclass(eq=False)
class Forest:
    """Parent of every CPU row (operators, annotations, Python frames, API calls).

    Attributes:
        parent: int64, row number of the smallest enclosing CPU row of the same thread; -1 for roots and for rows
            that are not CPU rows.
        order: int64, the CPU rows so that parents come before their children, threads one after the other.
        crossing: rows that end after a row they start in. An annotation that outlives the Python frame of its
            ``__enter__`` is meant to and not counted.
    """

    parent: NDArray[np.int64]
    order: NDArray[np.int64]
    crossing: int
    _kind: NDArray[np.uint8]
    _children: dict[int, list[int]] | None = None

    def ancestors(self, row: int) -> Iterator[int]:
        """The rows that enclose ``row``, innermost first."""
        parent = self.parent
        current = int(parent[row])
        while current >= 0:
            yield current
            current = int(parent[current])

    def enclosing(self, row: int, *kinds: RowKind) -> int:
        """The innermost row of one of ``kinds`` that encloses ``row`` (-1: none)."""
        for ancestor in self.ancestors(row):
            if self._kind[ancestor] in kinds:
                return ancestor
        return -1

    def children(self) -> dict[int, list[int]]:
        """Children of each row in order of start; roots under -1."""
        if self._children is not None:
            return self._children
        table: dict[int, list[int]] = {}
        for row, parent in zip(self.order.tolist(), self.parent[self.order].tolist(), strict=True):
            table.setdefault(parent, []).append(row)
        self._children = table
        return table


def build_forest(trace: Trace) -> Forest:
    """Nest the CPU rows of each thread by time; linear after one sort.

    Rows with equal spans nest in the file's order, which is the order they began in. A row that ends a little after
    the row it started in (the clocks of runtime API and dispatcher differ) stays its child. One that ends well after
    it (``ProfilerStep`` begins inside the Python frame of ``__enter__`` and outlives it) is not inside it at all and
    hangs on the next row further out.
    """
    kind = trace.kind
    rows = np.flatnonzero(np.isin(kind, HOST_ROWS))
    start = trace.start
    end = trace.end
    # Kineto writes API calls after the operators, so among rows of equal span the operator must come first.
    rank = (kind[rows] == RowKind.CALL).astype(np.int8)
    order = rows[np.lexsort((trace.event[rows], rank, -trace.duration[rows], start[rows], trace.lane[rows]))]
    parent = np.full(len(trace), -1, dtype=np.int64)
    parents: list[int] = []
    is_python = (kind == RowKind.PYTHON).tolist()
    crossing = 0
    stack: list[int] = []
    ends: list[int] = []
    lane = -1
    for row, row_lane, row_start, row_end in zip(
        order.tolist(),
        trace.lane[order].tolist(),
        start[order].tolist(),
        end[order].tolist(),
        strict=True,
    ):
        if row_lane != lane:
            lane = row_lane
            stack.clear()
            ends.clear()
        while ends and (ends[-1] < row_start or (ends[-1] == row_start and row_end > row_start)):
            stack.pop()
            ends.pop()
        while ends and row_end - ends[-1] > _CLOCK_SKEW_NS and 2 * (row_end - ends[-1]) > row_end - row_start:
            crossing += not is_python[stack[-1]]
            stack.pop()
            ends.pop()
        if stack:
            parents.append(stack[-1])
            crossing += row_end > ends[-1]
        else:
            parents.append(-1)
        stack.append(row)
        ends.append(row_end)
    parent[order] = parents
    return Forest(parent=parent, order=order.astype(np.int64), crossing=crossing, _kind=kind)
