"""The dispatch chain of one step as a tree: operator → launch → kernel, equal neighbours folded and counted."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from foretrace.analysis.context import Context
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.model.report import Launcher, Step

__all__ = ["CUT_SHORT", "dispatch_chain", "representative_step"]

# How nodes begin that stand for what the tree leaves out.
CUT_SHORT = "… "

# A tree longer than this is no longer read by people; what is cut is counted in its place.
_NODES = 2_000
# Calls nested deeper than this are not a program anybody wrote; the walks below recurse.
_LEVELS = 150
# API calls that answer a question and enqueue nothing are left out of the tree, except occupancy queries and
# synchronizations, which a reader looks for.
_KIND: dict[int, str] = {
    RowKind.OPERATOR: "operator",
    RowKind.ANNOTATION: "annotation",
    RowKind.KERNEL: "kernel",
    RowKind.MEMCPY: "memcpy",
    RowKind.MEMSET: "memset",
}


def representative_step(steps: list[Step]) -> int:
    """Position in ``steps`` of the one whose period is the median (the earlier of two)."""
    middle = median(step.period_us for step in steps)
    return min(range(len(steps)), key=lambda i: (abs(steps[i].period_us - middle), i))


def dispatch_chain(context: Context, index: int) -> list[Launcher]:
    """The tree of the step at position ``index`` of the trace."""
    trace = context.trace
    build = _Builder(context, index)
    span = next(s for s in trace.steps if s.index == index)
    roots = build.children.get(-1, [])
    if span.row >= 0:
        # Work of other threads (autograd's) is not below the annotation but belongs to the step.
        step = context.attribution.step
        roots = [span.row, *(r for r in roots if r != span.row and step[r] == index)]
    nodes = build.fold([build.node(row, _LEVELS) for row in build.shown(roots)])
    nodes += build.fold([build.leaf(row) for row in build.launched.get(-1, [])])
    return _cut([node for node, _ in nodes], _NODES)[0]


# A node with the number of its shape: two nodes look alike when the numbers are equal.
_Shaped = tuple[Launcher, int]


class _Builder:
    """Builds the nodes of one step; columns are lists here because single items are read."""

    def __init__(self, context: Context, index: int) -> None:
        trace = context.trace
        self.children = trace.forest.children()
        self.launched: dict[int, list[int]] = {}
        for row in context.attribution.rows_of(trace, index).tolist():
            self.launched.setdefault(int(trace.links.launch[row]), []).append(row)
        self._names = trace.names
        self._name_id: list[int] = trace.name_id.tolist()
        self._kind: list[int] = trace.kind.tolist()
        self._duration: list[int] = trace.duration.tolist()
        self._enqueues: list[bool] = trace.links.enqueues.tolist()
        self._call: list[int] = trace.links.call.tolist()
        self._shapes: dict[tuple[object, ...], int] = {}

    def shown(self, rows: list[int]) -> Iterator[int]:
        """Those of the rows that the tree shows; in the place of Python frames what runs inside them."""
        pending = rows[::-1]
        while pending:
            row = pending.pop()
            if self._kind[row] == RowKind.PYTHON:
                pending.extend(reversed(self.children.get(row, [])))
            elif (
                self._kind[row] != RowKind.CALL
                or self._enqueues[row]
                or self._call[row] in (Call.OCCUPANCY, Call.SYNCHRONIZE)
            ):
                yield row

    def node(self, row: int, levels: int) -> _Shaped:
        """A CPU row with what runs inside it and what it launched, ``levels`` deep."""
        below: list[_Shaped] = []
        inside = self.children.get(row, [])
        if inside and not levels:
            below.append(self._shaped(f"{CUT_SHORT}deeper", "operator", None, []))
        elif levels:
            below += [self.node(child, levels - 1) for child in self.shown(inside)]
        below += [self.leaf(gpu) for gpu in self.launched.get(row, [])]
        kind = _KIND.get(self._kind[row]) or ("launch" if self._enqueues[row] else "call")
        return self._shaped(self._names[self._name_id[row]], kind, self._duration[row], self.fold(below))

    def leaf(self, row: int) -> _Shaped:
        """A GPU row."""
        return self._shaped(self._names[self._name_id[row]], _KIND[self._kind[row]], self._duration[row], [])

    def fold(self, nodes: list[_Shaped]) -> list[_Shaped]:
        """Merge neighbours that look alike; their times add up."""
        folded: list[_Shaped] = []
        for node, shape in nodes:
            if folded and folded[-1][1] == shape:
                _add(folded[-1][0], node)
            else:
                folded.append((node, shape))
        return folded

    def _shaped(self, name: str, kind: str, duration_ns: int | None, below: list[_Shaped]) -> _Shaped:
        key = (name, kind, *((node.count, shape) for node, shape in below))
        shape = self._shapes.setdefault(key, len(self._shapes))
        us = None if duration_ns is None else duration_ns / 1000
        return Launcher(name=name, kind=kind, count=1, us=us, children=[node for node, _ in below]), shape


def _add(into: Launcher, node: Launcher) -> None:
    into.count += node.count
    if into.us is not None and node.us is not None:
        into.us += node.us
    for mine, theirs in zip(into.children, node.children, strict=True):
        mine.us = None if mine.us is None or theirs.us is None else mine.us + theirs.us
        _add_below(mine, theirs)


def _add_below(mine: Launcher, theirs: Launcher) -> None:
    for a, b in zip(mine.children, theirs.children, strict=True):
        a.us = None if a.us is None or b.us is None else a.us + b.us
        _add_below(a, b)


def _cut(nodes: list[Launcher], budget: int) -> tuple[list[Launcher], int]:
    """Keep the first ``budget`` nodes in reading order; say how many rows were left out."""
    kept: list[Launcher] = []
    for position, node in enumerate(nodes):
        if budget <= 0:
            left = sum(n.count for n in nodes[position:])
            kept.append(Launcher(name=f"{CUT_SHORT}{left} more", kind="operator", count=1, us=None, children=[]))
            return kept, 0
        budget -= 1
        node.children, budget = _cut(node.children, budget)
        kept.append(node)
    return kept, budget
