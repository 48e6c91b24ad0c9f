"""The dispatch chain of one step as a tree: operator → launch → kernel, equal neighbours folded and counted."""

from __future__ import annotations

from statistics import median

from foretrace.analysis.context import Context
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.model.report import Launcher, Step

__all__ = ["dispatch_chain", "representative_step"]

# A tree longer than this is no longer read by people; what is cut is counted in its place.
_NODES = 2_000
# API calls that answer a question and enqueue nothing are left out of the tree, except occupancy queries and
# synchronizations, which a reader looks for.
_KIND = {
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
    attribution = context.attribution
    children = trace.forest.children()
    launched: dict[int, list[int]] = {}
    for row in attribution.rows_of(trace, index).tolist():
        launched.setdefault(int(trace.links.launch[row]), []).append(row)
    span = next(s for s in trace.steps if s.index == index)
    if span.row >= 0:
        roots = [span.row]
        # Work of other threads (autograd's) is not below the annotation but belongs to the step.
        roots += [r for r in children.get(-1, []) if r != span.row and attribution.step[r] == index]
    else:
        roots = children.get(-1, [])
    nodes = _fold([_build(context, row, children, launched) for row in roots if _visible(context, row)])
    nodes += _fold([_leaf(context, row) for row in launched.get(-1, [])])
    return _cut(nodes, _NODES)[0]


def _visible(context: Context, row: int) -> bool:
    trace = context.trace
    kind = trace.kind[row]
    if kind == RowKind.CALL:
        return bool(trace.links.enqueues[row]) or int(trace.links.call[row]) in (Call.OCCUPANCY, Call.SYNCHRONIZE)
    return int(kind) != RowKind.PYTHON


def _build(
    context: Context, row: int, children: dict[int, list[int]], launched: dict[int, list[int]]
) -> Launcher:
    trace = context.trace
    below: list[Launcher] = []
    # Python frames are transparent: what runs inside them is shown in their place.
    pending = list(reversed(children.get(row, [])))
    while pending:
        child = pending.pop()
        if trace.kind[child] == RowKind.PYTHON:
            pending.extend(reversed(children.get(child, [])))
        elif _visible(context, child):
            below.append(_build(context, child, children, launched))
    below += [_leaf(context, gpu) for gpu in launched.get(row, [])]
    kind = _KIND.get(RowKind(int(trace.kind[row])))
    if kind is None:
        kind = "launch" if trace.links.enqueues[row] else "call"
    return Launcher(
        name=trace.name(row), kind=kind, count=1, us=int(trace.duration[row]) / 1000, children=_fold(below)
    )


def _leaf(context: Context, row: int) -> Launcher:
    trace = context.trace
    kind = _KIND[RowKind(int(trace.kind[row]))]
    return Launcher(name=trace.name(row), kind=kind, count=1, us=int(trace.duration[row]) / 1000, children=[])


def _shape(node: Launcher) -> tuple[object, ...]:
    return (node.name, node.kind, tuple((child.count, _shape(child)) for child in node.children))


def _fold(nodes: list[Launcher]) -> list[Launcher]:
    """Merge neighbours that look alike; their times add up."""
    folded: list[Launcher] = []
    shapes: list[tuple[object, ...]] = []
    for node in nodes:
        shape = _shape(node)
        if shapes and shapes[-1] == shape:
            _add(folded[-1], node)
        else:
            folded.append(node)
            shapes.append(shape)
    return folded


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
            kept.append(Launcher(name=f"… {left} more", kind="operator", count=1, us=None, children=[]))
            return kept, 0
        budget -= 1
        node.children, budget = _cut(node.children, budget)
        kept.append(node)
    return kept, budget
