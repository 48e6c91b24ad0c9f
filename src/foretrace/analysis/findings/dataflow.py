"""Which kernel takes the result of which, as far as shapes and order tell.

A trace holds no tensor identities. A result is matched with the next operator on the same stream that takes a tensor
of its size and type; where several wait, the one made last, an equal last dimension first. Every user of this
inference must say that it is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.copying import DDP_REDUCER
from foretrace.knowledge.kineto import RowKind, is_backward_root
from foretrace.knowledge.limits import RECENT_RESULTS
from foretrace.knowledge.results import Tensor, Transfer, accumulates_gradient, is_pointwise, transfer
from foretrace.model.report import Kernel

__all__ = ["Work", "chains", "follow", "infer", "works_of"]

_GENERATED = frozenset({"elementwise", "fused"})


@dataclass(eq=False)
class Work:
    """One operator call with the GPU rows it launched itself.

    Attributes:
        op: operator row.
        rows: its kernels and copies, in order of start.
        name: the operator without ``aten::``.
        kind: ``gemm``, ``pointwise`` (one kernel that works element by element; casts too), or ``other``.
        moved: what it reads and returns.
        kernel: the report entry of its only kernel (for a GEMM: of its longest); None for copies.
        sources: works whose results it takes, with whether the last dimension is the same (else a view of it is).
        takers: works that take its result.
        kept: its result was needed again after the first taker.
        node: row of the autograd node it runs in; -1 outside the backward pass.
        final: it puts a parameter's gradient in its place (``.grad``, a bucket of DistributedDataParallel), where no
            kernel of the backward pass takes it.
    """

    op: int
    rows: list[int]
    name: str
    kind: str
    moved: Transfer
    kernel: Kernel | None
    step: int
    phase: str | None
    position: int = 0
    sources: list[tuple[Work, bool]] = field(default_factory=list)
    takers: list[Work] = field(default_factory=list)
    kept: bool = False
    node: int = -1
    final: bool = False

    @property
    def result(self) -> Tensor | None:
        """The tensor it returns, where that is known."""
        return self.moved.result

    @property
    def trips(self) -> int:
        """How often its result crosses memory needlessly if the taker could be joined: written and read, or read.

        In a training step's forward pass the result is kept for the backward pass.
        """
        return 1 if self.kept or self.phase == "forward" else 2


def infer(facts: Facts) -> list[Work]:
    """All works of the selected steps in order of start, with their sources and takers filled in."""
    return follow(works_of(facts))


def follow(works: Iterable[tuple[int, Work]]) -> list[Work]:
    """Fill in the sources and takers of works, each given with the stream (or thread) it runs on, in order of start."""
    found: list[Work] = []
    flows: dict[tuple[int, int], _Stream] = {}
    for stream, work in works:
        flow = flows.get((work.step, stream))
        if flow is None:
            flow = flows[work.step, stream] = _Stream()
        flow.take(work)
        found.append(work)
    return found


def chains(works: list[Work]) -> list[list[Work]]:
    """Groups of pointwise works joined by results that keep their last dimension, in order of start.

    The works of a group come from one phase of one step, so that they could become one kernel.
    """
    group: dict[int, list[Work]] = {}
    for work in works:
        if work.kind != "pointwise":
            continue
        own = [work]
        for source, same in work.sources:
            if same and source.kind == "pointwise" and source.phase == work.phase:
                other = group.get(id(source))
                if other is not None and other is not own:
                    small, large = sorted((own, other), key=len)
                    large.extend(small)
                    for member in small:
                        group[id(member)] = large
                    own = large
        group[id(work)] = own
    distinct = {id(members): members for members in group.values() if len(members) > 1}
    return [sorted(members, key=lambda w: w.position) for members in distinct.values()]


class _Stream:
    """Results of one step on one stream that wait for a taker."""

    def __init__(self) -> None:
        self.position = 0
        self.waiting: dict[int, list[Work]] = {}  # by elements, oldest first
        self.taken: dict[tuple[int, int], Work] = {}  # by elements and last dimension, the last one taken
        self.node = -1
        self.by_node: dict[int, Work] = {}  # by elements, what works of the current autograd node took from outside

    def take(self, work: Work) -> None:
        self.position += 1
        work.position = self.position
        missing = []
        mine: set[int] = set()
        if work.node != self.node:
            self.node = work.node
            self.by_node.clear()
        for tensor in work.moved.reads:
            source = self._source(work, tensor, mine)
            if source is None:
                missing.append(tensor)
                continue
            result = source.result
            assert result is not None  # only works with a result wait
            work.sources.append((source, result.last == tensor.last))
            source.takers.append(work)
            mine.add(id(source))
        for tensor in missing:
            again = self.taken.get((tensor.elements, tensor.last))
            if again is not None and id(again) not in mine and self._recent(again):
                again.kept = True
        for source, _ in work.sources:
            if source.result is not None:
                self.taken[source.result.elements, source.result.last] = source
                if work.node >= 0 and source.node != work.node:
                    self.by_node[source.result.elements] = source
        if work.result is not None and work.result.elements > 1 and not work.final:
            self.waiting.setdefault(work.result.elements, []).append(work)

    def _source(self, work: Work, tensor: Tensor, mine: set[int]) -> Work | None:
        """The work whose result an operand is, or None.

        The operators of one autograd node mostly work on the same gradient side by side: what one of them took is
        taken to be read again before the results of other nodes are looked at.
        """
        waiting = self.waiting.get(tensor.elements, [])
        waiting[:] = [w for w in waiting if self._recent(w)]
        if work.node >= 0:
            at = _fitting([w if w.node == work.node else None for w in waiting], work, tensor)
            if at is not None:
                return waiting.pop(at)
            shared = self.by_node.get(tensor.elements)
            if shared is not None and id(shared) not in mine:
                shared.kept = True
                mine.add(id(shared))
                return None
        at = _fitting(waiting, work, tensor)
        return None if at is None else waiting.pop(at)

    def _recent(self, work: Work) -> bool:
        return self.position - work.position <= RECENT_RESULTS


def _fitting(waiting: Sequence[Work | None], work: Work, tensor: Tensor) -> int | None:
    """Position of the latest result that fits an operand; one with its last dimension goes before all others."""
    for same_last in (True, False):
        for at in range(len(waiting) - 1, -1, -1):
            candidate = waiting[at]
            result = candidate.result if candidate is not None else None
            if candidate is None or result is None or (same_last and result.last != tensor.last):
                continue
            if tensor.dtype is not None and result.dtype is not None and result.dtype != tensor.dtype:
                continue
            if not _side_by_side(candidate, work):
                return at
    return None


def _side_by_side(one: Work, other: Work) -> bool:
    """Whether two works are an autograd node's two gradients: the same operator on two tensors each."""
    same_node = one.node >= 0 and one.node == other.node
    return same_node and one.name == other.name and min(len(one.moved.reads), len(other.moved.reads)) > 1


def works_of(facts: Facts) -> Iterator[tuple[int, Work]]:
    """(stream, work) for every operator call of a step that launched work of its own, in order of start."""
    context = facts.context
    trace, attribution = context.trace, context.attribution
    steps = {step.index for step in facts.steps}
    by_op: dict[int, list[int]] = {}
    for row in context.gpu_rows.tolist():
        op = int(attribution.op[row])
        if op >= 0 and int(attribution.step[row]) in steps and trace.kind[row] != RowKind.MEMSET:
            by_op.setdefault(op, []).append(row)
    moved: dict[tuple[int, str], Transfer] = {}
    for op, rows in by_op.items():
        operands = context.operands(op)
        key = (int(trace.name_id[op]), repr(operands))
        known = moved.get(key)
        if known is None:
            known = moved[key] = transfer(trace.name(op), **operands)
        kernels = [facts.kernel_at[row] for row in rows if trace.kind[row] == RowKind.KERNEL]
        first = rows[0]
        work = Work(
            op=op,
            rows=rows,
            name=trace.name(op).removeprefix("aten::"),
            kind="other",
            moved=known,
            kernel=kernels[0] if len(kernels) == 1 else None,
            step=int(attribution.step[first]),
            phase=attribution.phase.get(first),
        )
        work.node, work.final = _node(facts, op)
        _classify(work, kernels)
        yield int(trace.stream[first]), work


# An operator of the backward pass stands at most this far below its node.
_NODE_DEPTH = 8


def _node(facts: Facts, op: int) -> tuple[int, bool]:
    """The autograd node an operator row runs in (-1: none), and whether it puts a parameter's gradient in its place.

    What stands directly below the engine's row (adding up gradients that meet) is not the node's own work.
    """
    trace = facts.context.trace
    within = op
    for up in islice(trace.forest.ancestors(op), _NODE_DEPTH):
        name = trace.name(up)
        if accumulates_gradient(name) or name.startswith(DDP_REDUCER):
            return up, True
        if is_backward_root(name):
            return (up if within != op else -1), False
        within = up
    return -1, False


def _classify(work: Work, kernels: list[Kernel]) -> None:
    products = [kernel for kernel in kernels if kernel.kind == "gemm"]
    if products:
        work.kind = "gemm"
        work.kernel = max(products, key=lambda kernel: kernel.duration_us)
        return
    kernel = work.kernel
    if work.final or kernel is None or len(work.rows) != 1 or kernel.bytes is None or kernel.phase == "optimizer":
        return
    if kernel.kind == "copy" or work.name.rstrip("_") == "copy":
        reads, result = work.moved.reads, work.result
        # A cast is pointwise work; a copy that only moves is not.
        if len(reads) == 1 and result is not None and reads[0].dtype != result.dtype:
            work.kind = "pointwise"
    elif kernel.kind in _GENERATED:
        work.kind = "pointwise"
        if work.moved.result is None and not is_pointwise(work.name) and work.moved.reads:
            # Generated kernels list what they write among what they read; the result has the largest size.
            largest = max(work.moved.reads, key=lambda tensor: tensor.elements)
            work.moved = Transfer(work.moved.reads, largest)
