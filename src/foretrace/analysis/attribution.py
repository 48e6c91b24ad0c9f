"""Where GPU work comes from: the step, phase, module and operator of every kernel, copy and memset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import RowKind, is_backward_root, is_optimizer, module_name
from foretrace.trace.steps import steps_of_rows

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["Attribution", "attribute"]

FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


@dataclass(eq=False)
class Attribution:
    """Facts about the rows of a trace; arrays have one entry a row of the trace.

    Attributes:
        step: int64, of ``trace.steps.steps_of_rows``; -1 for none (launched outside every step, or launch unknown).
        op: int64, the operator of a GPU row; -1 for none. The rows of a CUDA graph have none: their operators ran
            when the graph was captured.
        phase: ``forward``, ``backward``, ``optimizer`` of a GPU row, or None where it cannot be told.
        module: the ``nn.Module`` frame around the launch (or around the forward operator of a backward one).
        first_backward: step → start (ns) of its first backward operator.
    """

    step: NDArray[np.int64]
    op: NDArray[np.int64]
    phase: dict[int, str]
    module: dict[int, str]
    first_backward: dict[int, int] = field(default_factory=dict)
    _tags: _Tags | None = None
    _forward_module: dict[int, str] = field(default_factory=dict)
    _by_step: dict[int, NDArray[np.int64]] | None = None

    def place(self, row: int, *, step: int, at: int) -> tuple[str | None, str | None]:
        """Phase and module of what happens at ``at`` (ns) in a step, below a CPU row; None for what cannot be told."""
        tags = self._tags
        if tags is None:
            return None, None
        phase = tags.phase[row]
        if phase is None and self.first_backward:
            begins = self.first_backward.get(step)
            if begins is not None and at < begins:
                phase = FORWARD
        module = tags.module[row] or (self._forward_module.get(tags.sequence[row]) if phase == BACKWARD else None)
        return phase, module

    def rows_of(self, trace: Trace, step: int) -> NDArray[np.int64]:
        """GPU rows that ``step`` launched, by start."""
        if self._by_step is None:
            self._by_step = rows_by_step(trace.gpu_rows, self.step)
        return self._by_step.get(step, np.zeros(0, dtype=np.int64))


def rows_by_step(rows: NDArray[np.int64], step: NDArray[np.int64]) -> dict[int, NDArray[np.int64]]:
    """The given rows by their step, each group in the given order; rows of no step are left out."""
    order = np.argsort(step[rows], kind="stable")
    grouped = rows[order]
    labels = step[grouped]
    cuts = np.flatnonzero(np.diff(labels)) + 1
    return {int(step[group[0]]): group for group in np.split(grouped, cuts) if len(group) and step[group[0]] >= 0}


def attribute(trace: Trace) -> Attribution:
    """Attribute all GPU rows in one pass over the CPU rows from the roots down."""
    links = trace.links
    gpu = trace.gpu_rows
    step = steps_of_rows(trace)
    anchor = links.anchor(gpu)
    known = anchor >= 0

    op = links.op.copy()
    op[links.graph] = -1
    tags = _tags(trace)
    made = Attribution(step=step, op=op, phase={}, module={}, _tags=tags)
    if tags is not None:
        made.first_backward = _first_backward(trace, step, tags.phase)
        made._forward_module = _forward_modules(trace, tags)
        for row, at in zip(gpu[known].tolist(), anchor[known].tolist(), strict=True):
            phase, module = made.place(at, step=int(step[at]), at=int(trace.start[at]))
            if phase is not None:
                made.phase[row] = phase
            if module is not None:
                made.module[row] = module
    return made


@dataclass(eq=False)
class _Tags:
    phase: list[str | None]
    module: list[str | None]
    sequence: list[int]  # of the innermost enclosing row that has one; -1 none


def _tags(trace: Trace) -> _Tags | None:
    """What each CPU row inherits from the rows around it; None where no row gives anything to inherit."""
    own_phase: list[str | None] = [
        BACKWARD if is_backward_root(n) else OPTIMIZER if is_optimizer(n) else None for n in trace.names
    ]
    own_module = [module_name(n) for n in trace.names]
    if not any(own_phase) and not any(own_module):
        return None
    n = len(trace)
    phase: list[str | None] = [None] * n
    module: list[str | None] = [None] * n
    sequence: list[int] = trace.sequence.tolist()
    parent = trace.forest.parent.tolist()
    name_id = trace.name_id.tolist()
    for row in trace.forest.order.tolist():
        up = parent[row]
        name = name_id[row]
        phase[row] = own_phase[name] or (phase[up] if up >= 0 else None)
        module[row] = own_module[name] or (module[up] if up >= 0 else None)
        if sequence[row] < 0 and up >= 0:
            sequence[row] = sequence[up]
    return _Tags(phase, module, sequence)


def _first_backward(trace: Trace, step: NDArray[np.int64], phase: list[str | None]) -> dict[int, int]:
    """Start (ns) of the first backward row of each step."""
    first: dict[int, int] = {}
    rows: list[Any] = [row for row in trace.rows(RowKind.OPERATOR).tolist() if phase[row] == BACKWARD]
    for row in rows:
        index, start = int(step[row]), int(trace.start[row])
        if index not in first or start < first[index]:
            first[index] = start
    return first


def _forward_modules(trace: Trace, tags: _Tags) -> dict[int, str]:
    """Autograd sequence number → module of the forward operator that made the node."""
    table: dict[int, str] = {}
    for row in trace.rows(RowKind.OPERATOR).tolist():
        name = tags.module[row]
        if name is not None and tags.phase[row] != BACKWARD and trace.sequence[row] >= 0:
            table[int(trace.sequence[row])] = name
    return table
