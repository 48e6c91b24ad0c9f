"""Tensors that fusing would avoid: results that only elementwise operators read, with the memory they took.

Who reads what is inferred from shapes and order (`findings.dataflow`); size and lifetime are the allocator's own rows.
A result without such a row (written in place, or into a tensor that was there) takes no memory of its own and is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.findings.attention import inner_works
from foretrace.analysis.findings.dataflow import Work, follow, works_of
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.memory_rows import Ledger, Place
from foretrace.knowledge.allocator_rows import CPU, OUTLIVED_WORKS, fits_block
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.results import is_activation, is_pointwise, is_product, transfer
from foretrace.knowledge.views import effect
from foretrace.model.trace_memory import Intermediate, Intermediates
from foretrace.trace.table import Trace

__all__ = ["Avoidable", "avoidable", "summed"]

GATE, UP, ACTIVATED, BEFORE, PRODUCT, ELEMENTWISE = (
    "gate",
    "up",
    "activated",
    "pre-activation",
    "product",
    "elementwise",
)
_OF_MLP = (GATE, UP, ACTIVATED, BEFORE)
_ORDER = (*_OF_MLP, PRODUCT, ELEMENTWISE)
# A cast writes its result two operators below the one that allocated it.
_DEPTH = 3


@dataclass(frozen=True)
class _Tensor:
    position: int  # of its allocation in the ledger
    event: int  # of the operator that wrote it
    step: int
    role: str
    op: str
    read_by: tuple[str, ...]
    kept: bool


@dataclass(frozen=True)
class Avoidable:
    """The tensors found, by ledger; ``reason``: why none could be looked for, if so."""

    tensors: dict[int, list[_Tensor]]  # by the ledger's id()
    looked_at: frozenset[int] = frozenset()  # id() of the ledgers of the device that computed
    reason: str | None = None


def avoidable(facts: Facts, books: Sequence[tuple[Ledger, Sequence[Place]]]) -> Avoidable:
    """All tensors of the selected steps that fusing would avoid."""
    context = facts.context
    if not context.has_shapes:
        return Avoidable({}, reason="operator shapes were not recorded (record_shapes): who reads a result is unknown")
    if not context.has_gpu and not context.cpu_only:
        return Avoidable({}, reason="no kernel was recorded, so which operators computed on the GPU is unknown")
    works = list(follow(_forward(facts)))
    attention = {work.op for work in inner_works(facts)}
    begins = np.sort(context.trace.start[[work.op for work in works]]) if works else np.zeros(0, dtype=np.int64)
    backward = context.attribution.first_backward
    tensors: dict[int, list[_Tensor]] = {}
    allocations = [
        (ledger, _by_operator(ledger, place))
        for ledger, place in books
        if (ledger.device == CPU) == (not context.has_gpu)
    ]
    for work in works:
        if work.op in attention or work.kept or work.result is None or not _only_elementwise(work):
            continue
        for ledger, by_operator in allocations:
            position = _allocation(context.trace, work, ledger, by_operator)
            if position is None:
                continue
            role = _role(work)
            died = int(ledger.died[position])
            until = backward.get(work.step, context.trace.steps[work.step].end)
            outlives = died < 0 or int(ledger.start[died]) >= until
            if outlives and role not in _OF_MLP:
                break  # who else reads it is not known
            if not outlives and not _soon(context.trace, work, int(ledger.start[died]), begins):
                break
            tensor = _Tensor(
                position=position,
                event=int(context.trace.event[work.op]),
                step=work.step,
                role=role,
                op=work.name,
                read_by=tuple(taker.name for taker in work.takers),
                # From gate and up the backward pass works the activation out again.
                kept=outlives and role != ACTIVATED,
            )
            tensors.setdefault(id(ledger), []).append(tensor)
            break
    return Avoidable(tensors, frozenset(id(ledger) for ledger, _ in allocations))


def summed(owned: Avoidable, ledger: Ledger, step: int, low: int, high: int) -> Intermediates | str:
    """The tensors of one step on one device by role, or why there are none to speak of.

    ``low`` and ``high``: the step's rows in the ledger.
    """
    if owned.reason is not None:
        return owned.reason
    if id(ledger) not in owned.looked_at:
        return "the operators computed on another device"
    mine = [tensor for tensor in owned.tensors.get(id(ledger), []) if tensor.step == step]
    if not mine:
        return "no result was found that elementwise operators alone read"
    groups: dict[tuple[str, str, tuple[str, ...]], list[_Tensor]] = {}
    for tensor in mine:
        groups.setdefault((tensor.role, tensor.op, tensor.read_by), []).append(tensor)

    def size(tensors: Iterable[_Tensor]) -> int:
        return sum(int(ledger.moved[tensor.position]) for tensor in tensors)

    ranked = sorted(groups.items(), key=lambda item: (_ORDER.index(item[0][0]), -size(item[1]), item[0]))
    return Intermediates(
        tensors=[
            Intermediate(
                role=role,
                op=op,
                read_by=list(read_by),
                tensors=len(members),
                bytes=size(members),
                kept_bytes=size(tensor for tensor in members if tensor.kept),
                event=members[0].event,
            )
            for (role, op, read_by), members in ranked
        ],
        bytes=size(mine),
        kept_bytes=size(tensor for tensor in mine if tensor.kept),
        peak_without_bytes=_peak_without(ledger, [t.position for t in mine if not t.kept], low, high),
    )


def _peak_without(ledger: Ledger, positions: list[int], low: int, high: int) -> int | None:
    """The most bytes in use at once in a step, were these allocations not made and all others as they are."""
    start = ledger.level(low)
    if start is None or ledger.allocated is None:
        return None
    less = np.zeros(len(ledger.rows) + 1, dtype=np.int64)
    for position in positions:
        less[position] += ledger.moved[position]
        if ledger.died[position] >= 0:
            less[ledger.died[position]] -= ledger.moved[position]
    without = ledger.allocated[low:high] - np.cumsum(less)[low:high]
    return max(start, int(without.max())) if len(without) else start


def _soon(trace: Trace, work: Work, died: int, begins: NDArray[np.int64]) -> bool:
    """Whether a tensor is given back right after its last reader, so that nothing later can have read it too."""
    last = max(int(trace.start[taker.op]) for taker in work.takers)
    between = np.searchsorted(begins, died, side="left") - np.searchsorted(begins, last, side="right")
    return int(between) <= OUTLIVED_WORKS


def _only_elementwise(work: Work) -> bool:
    """Whether every operator that takes a result of a product or of elementwise work is elementwise itself."""
    if work.kind not in ("gemm", "pointwise") or not work.takers:
        return False
    return all(
        taker.kind == "pointwise" and any(source is work and same for source, same in taker.sources)
        for taker in work.takers
    )


def _role(work: Work) -> str:
    """What a tensor is to a gated or plain MLP; else whether a product or elementwise work made it."""
    if work.kind == "gemm":
        for taker in work.takers:
            if is_activation(taker.name):
                return GATE if any(_gates(after) for after in taker.takers) else BEFORE
            if _gates(taker):
                return UP
        return PRODUCT
    if is_activation(work.name) and any(_gates(taker) for taker in work.takers):
        return ACTIVATED
    return ELEMENTWISE


def _gates(work: Work) -> bool:
    """Whether a work multiplies a product with the activation of another: act(gate) · up."""
    sources = [source for source, _ in work.sources]
    if work.name.rstrip("_") != "mul" or len(sources) != 2:
        return False
    return any(
        is_activation(one.name) and any(s.kind == "gemm" for s, _ in one.sources) and other.kind == "gemm"
        for one, other in (sources, sources[::-1])
    )


def _by_operator(ledger: Ledger, place: Sequence[Place]) -> dict[int, list[int]]:
    """Operator row → positions of what was allocated for it."""
    table: dict[int, list[int]] = {}
    for position in np.flatnonzero(ledger.moved > 0).tolist():
        if place[position].op >= 0:
            table.setdefault(place[position].op, []).append(position)
    return table


def _allocation(trace: Trace, work: Work, ledger: Ledger, by_operator: dict[int, list[int]]) -> int | None:
    """The allocation that a work's result was written into."""
    result = work.result
    assert result is not None
    current = work.op
    for _ in range(_DEPTH):
        if current < 0:
            return None
        if trace.kind[current] == RowKind.OPERATOR:
            for position in by_operator.get(current, ()):
                if ledger.start[position] <= trace.end[work.op] and fits_block(
                    result.bytes, int(ledger.moved[position])
                ):
                    return position
            if work.name.rstrip("_") != "copy":
                return None
        current = int(trace.forest.parent[current])
    return None


def _forward(facts: Facts) -> Iterator[tuple[int, Work]]:
    """The works that are in neither the backward pass nor the optimizer."""
    works = works_of(facts) if facts.context.has_gpu else _on_cpu(facts)
    return ((stream, work) for stream, work in works if work.phase in (None, "forward"))


def _on_cpu(facts: Facts) -> Iterator[tuple[int, Work]]:
    """Works of a trace without a GPU: the operators that compute, with the thread they run in.

    Around one whose result is known others only prepare; where no result is known, the innermost one counts.
    """
    context = facts.context
    trace = context.trace
    parent = trace.forest.parent.tolist()
    wanted = set(context.operator_rows.tolist())
    inside: set[int] = set()  # of a work
    above: set[int] = set()  # around one
    order = [row for row in trace.forest.order.tolist() if row in wanted]
    known = []
    for row in order:
        up = parent[row]
        if up in inside:
            inside.add(row)
        elif is_product(trace.name(row)) or is_pointwise(trace.name(row)):
            known.append(row)
            inside.add(row)
    for row in known:
        up = parent[row]
        while up >= 0 and up not in above:
            above.add(up)
            up = parent[up]
    for row in order:
        if row not in inside and row not in above and effect(trace.name(row)) is None:
            known.append(row)
            above.update(_up(parent, row))
    for row in sorted(known, key=lambda at: (int(trace.start[at]), at)):
        name = trace.name(row)
        step = int(context.attribution.step[row])
        if step < 0:
            continue
        phase, _ = context.attribution.place(row, step=step, at=int(trace.start[row]))
        kind = "gemm" if is_product(name) else "pointwise" if is_pointwise(name) else "other"
        moved = transfer(name, **context.operands(row))
        bare = name.removeprefix("aten::")
        yield int(trace.lane[row]), Work(row, [], bare, kind, moved, None, step, phase)


def _up(parent: list[int], row: int) -> Iterator[int]:
    while (row := parent[row]) >= 0:
        yield row
