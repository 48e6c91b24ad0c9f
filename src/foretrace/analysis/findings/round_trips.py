"""Intermediates between pointwise kernels that travel through memory, and what fusing them would save."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from foretrace.analysis.findings.facts import Facts, gigabytes_per_second, megabytes, microseconds
from foretrace.knowledge.dtypes import dtype
from foretrace.model.report import Finding

__all__ = ["find"]

_POINTWISE = frozenset({"elementwise", "fused"})
# A saving below this is in the noise of kernel times.
_LEAST_SAVING_US = 0.5


@dataclass(frozen=True)
class _Tensor:
    elements: int
    last: int
    dtype: str

    @property
    def bytes(self) -> int:
        found = dtype(self.dtype)
        return self.elements * found.itemsize if found else 0


@dataclass
class _Work:
    """One kernel with the tensors its operator takes, as far as the shapes were recorded."""

    row: int
    op: int
    inputs: list[_Tensor]
    pointwise: bool
    phase: str | None


def find(facts: Facts) -> Iterable[Finding]:
    """Chains of pointwise kernels of which each takes the result of the one before.

    The result of a pointwise operator has its largest operand's size. It is taken to feed the next operator that
    has an operand of that size, last dimension and type; if that one is pointwise too, the pair could be one kernel.
    """
    chains: dict[tuple[Any, ...], list[list[_Work]]] = {}
    for step in facts.steps:
        for chain in _chains(facts, step.index):
            names = tuple(facts.context.trace.name(w.op) for w in chain)
            sizes = tuple(max(t.elements for t in w.inputs) for w in chain)
            chains.setdefault((names, sizes, chain[0].phase), []).append(chain)
    for (names, _, phase), members in chains.items():
        yield from _finding(facts, names, phase, members)


def _finding(
    facts: Facts, names: tuple[str, ...], phase: str | None, members: list[list[_Work]]
) -> Iterable[Finding]:
    rows = [work.row for chain in members for work in chain]
    moved = sum(facts.kernel_at[row].bytes or 0 for row in rows)
    time_us = sum(facts.kernel_at[row].duration_us for row in rows)
    # In a training step's forward the intermediate is kept for the backward, so only its second trip is saved.
    trips = 1 if phase == "forward" else 2
    saved = sum(trips * _result(work).bytes for chain in members for work in chain[:-1])
    if not moved or not saved or time_us <= 0:
        return
    rate = moved / time_us / 1e3
    saving = facts.per_step(saved / rate / 1e3)
    if saving < _LEAST_SAVING_US:
        return
    first = members[0]
    yield facts.finding(
        "hbm_round_trip",
        rows,
        saving_us=saving,
        source_row=first[-1].op,
        count=len(members),
        chain=" → ".join(name.removeprefix("aten::") for name in names),
        megabytes=megabytes(facts.per_step(saved)),
        rate=gigabytes_per_second(rate),
        saving=microseconds(saving),
        training=" Its write stays: the backward pass needs the tensor." if trips == 1 else "",
    )


def _chains(facts: Facts, step: int) -> list[list[_Work]]:
    """Maximal chains of one step, in launch order."""
    works = [w for w in _works(facts, step) if w.inputs]
    chains: list[list[_Work]] = []
    chain_of: dict[int, list[_Work]] = {}
    # Tensor → the pointwise kernel that last produced one of its size and nobody has taken yet.
    waiting: dict[_Tensor, _Work] = {}
    for work in works:
        taken = {tensor for tensor in work.inputs if tensor in waiting}
        producers = [waiting.pop(tensor) for tensor in taken]
        if work.pointwise:
            chain: list[_Work] = [work]
            for producer in producers:
                if producer.phase == work.phase:
                    chain = chain_of[producer.row] + chain
                    if chain_of[producer.row] in chains:
                        chains.remove(chain_of[producer.row])
            chain_of[work.row] = chain
            if len(chain) > 1:
                chains.append(chain)
            waiting[_result(work)] = work
    return chains


def _works(facts: Facts, step: int) -> Iterable[_Work]:
    context = facts.context
    for row, kernel in facts.kernel_at.items():
        op = int(context.attribution.op[row])
        if kernel.step != step or op < 0 or len(context.kernels_of_op.get(op, [])) != 1:
            continue
        pointwise = kernel.kind in _POINTWISE and kernel.bytes is not None and kernel.phase != "optimizer"
        yield _Work(row, op, _tensors(context.operands(op)), pointwise, kernel.phase)


def _tensors(operands: dict[str, Any]) -> list[_Tensor]:
    found = []
    for shape, name in zip(operands["shapes"], operands["dtypes"], strict=False):
        if isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape) and dtype(str(name)):
            found.append(_Tensor(prod(shape), shape[-1], str(name)))
    return found


def _result(work: _Work) -> _Tensor:
    return max(work.inputs, key=lambda tensor: tensor.elements)
