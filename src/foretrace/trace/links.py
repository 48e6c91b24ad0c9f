"""Which API call launched which GPU row, and which operator stands behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import Call, RowKind, call_kind
from foretrace.trace.processes import choose_launches

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["Links", "build_links"]

# Calls that put work on a stream.
_ENQUEUES = (Call.LAUNCH_KERNEL, Call.LAUNCH_GRAPH, Call.MEMCPY, Call.MEMSET)


@dataclass(eq=False)
class Links:
    """Ties between CPU and GPU rows; every array has one entry a row of the trace.

    Attributes:
        launch: int64, the call that launched a GPU row; -1 where the trace holds none with its correlation id.
        op: int64, for a GPU row the operator it belongs to (the one around its launch; without a launch row the
            operator of the same external id); for a call the operator around it; -1 none.
        call: uint8, ``Call`` of each API call row.
        enqueues: bool, API calls that put work on a stream: by their name, or because a GPU row points at them.
        graph: bool, GPU rows that a graph launch put there.
        ambiguous: GPU rows whose correlation id several launches share (merged files) and whose process cannot be
            told; the nearest earlier launch is taken.
    """

    launch: NDArray[np.int64]
    op: NDArray[np.int64]
    call: NDArray[np.uint8]
    enqueues: NDArray[np.bool_]
    graph: NDArray[np.bool_]
    ambiguous: int

    def anchor(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The CPU row that each GPU row hangs on: its launch, or its operator where the launch was not recorded."""
        return np.where(self.launch[rows] >= 0, self.launch[rows], self.op[rows])


def build_links(trace: Trace) -> Links:
    """Link by correlation id, in time linear in the rows after one sort."""
    n = len(trace)
    call = np.zeros(n, dtype=np.uint8)
    calls = trace.rows(RowKind.CALL)
    by_name = np.array([call_kind(name) for name in trace.names] or [Call.OTHER], dtype=np.uint8)
    call[calls] = by_name[trace.name_id[calls]]

    launch = np.full(n, -1, dtype=np.int64)
    gpu = trace.gpu_rows
    ambiguous = _by_correlation(trace, gpu, calls, call, launch)

    enqueues = np.isin(call, _ENQUEUES)
    linked = gpu[launch[gpu] >= 0]
    enqueues[launch[linked]] = True
    graph = np.zeros(n, dtype=np.bool_)
    graph[linked] = call[launch[linked]] == Call.LAUNCH_GRAPH

    op = _operators(trace, calls, gpu, launch)
    return Links(launch=launch, op=op, call=call, enqueues=enqueues, graph=graph, ambiguous=ambiguous)


def _by_correlation(
    trace: Trace,
    gpu: NDArray[np.int64],
    calls: NDArray[np.int64],
    call: NDArray[np.uint8],
    launch: NDArray[np.int64],
) -> int:
    """Fill ``launch``; returns how many GPU rows had several candidates of which none was certain."""
    gpu = gpu[trace.correlation[gpu] != 0]
    # A call that enqueues beats another one of the same id (a query whose id was reused).
    candidates = calls[trace.correlation[calls] != 0]
    if not len(gpu) or not len(candidates):
        return 0
    enqueuing = np.isin(call[candidates], _ENQUEUES)
    if not enqueuing.all():
        better = trace.correlation[candidates[enqueuing]]
        candidates = candidates[enqueuing | ~np.isin(trace.correlation[candidates], better)]
    gpu = gpu[np.isin(trace.correlation[gpu], trace.correlation[candidates])]
    if not len(gpu):
        return 0
    launch[gpu], ambiguous = choose_launches(trace, gpu, candidates)
    return ambiguous


def _operators(
    trace: Trace, calls: NDArray[np.int64], gpu: NDArray[np.int64], launch: NDArray[np.int64]
) -> NDArray[np.int64]:
    op = np.full(len(trace), -1, dtype=np.int64)
    forest = trace.forest
    # The innermost operator around each CPU row, top-down, so that every row is visited once.
    inside = np.full(len(trace), -1, dtype=np.int64)
    is_operator = (trace.kind == RowKind.OPERATOR).tolist()
    around: list[Any] = inside.tolist()
    parent = forest.parent.tolist()
    for row in forest.order.tolist():
        up = parent[row]
        if up >= 0:
            around[row] = up if is_operator[up] else around[up]
    inside[:] = around
    op[calls] = inside[calls]
    linked = gpu[launch[gpu] >= 0]
    op[linked] = inside[launch[linked]]
    orphans = gpu[launch[gpu] < 0]
    if len(orphans):  # only then: the external ids are read from the file's text on first use
        orphans = orphans[trace.external[orphans] != 0]
        operators = trace.rows(RowKind.OPERATOR)
        by_external = dict(zip(trace.external[operators].tolist(), operators.tolist(), strict=True))
        op[orphans] = [by_external.get(external, -1) for external in trace.external[orphans].tolist()]
    return op
