"""The API calls that hold the CPU until GPU work is done, and those among them that are the profiler's own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.blocking import holds_cpu, is_device_wide, is_profiler_frame
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.trace.table import Trace

__all__ = ["blocking_calls", "profiler_syncs"]

Int64 = NDArray[np.int64]

# Calls that may come after the profiler's last synchronization: they enqueue nothing.
_QUIET = (Call.SYNCHRONIZE, Call.QUERY, Call.OTHER, Call.FREE)


def blocking_calls(trace: Trace) -> Int64:
    """Rows of the calls that return only when GPU work is done, by end.

    These are the synchronizing calls, and the copies that do not return before they are done: those without
    ``Async`` in their name, and those into pageable host memory, which the runtime cannot do behind the host's back.
    """
    links = trace.links
    blocks = links.call == Call.SYNCHRONIZE
    copies = trace.rows(RowKind.MEMCPY)
    copies = copies[links.launch[copies] >= 0]
    launches = links.launch[copies]
    pairs, which = np.unique(np.stack([trace.name_id[launches], trace.name_id[copies]]), axis=1, return_inverse=True)
    holding = [holds_cpu(trace.names[call], trace.names[copy]) for call, copy in pairs.T.tolist()]
    blocks[launches[np.array(holding, dtype=np.bool_)[which.reshape(-1)]]] = True
    rows = np.flatnonzero(blocks).astype(np.int64)
    return rows[np.argsort(trace.end[rows], kind="stable")]


def profiler_syncs(trace: Trace) -> set[int]:
    """Synchronizing calls that the profiler made to end the recording, not the program.

    Where Python frames surround the call they say whose it is. Otherwise it is the last synchronization of the whole
    device on its thread, if no operator or annotation is open and nothing but calls that free or ask comes after it.
    (A program that ends in such a call itself, recorded by a profiler that makes none, looks the same.)
    """
    syncs = np.flatnonzero(trace.links.call == Call.SYNCHRONIZE)
    if not len(syncs):
        return set()
    host = trace.forest.order
    quiet = (trace.kind == RowKind.PYTHON) | (trace.kind == RowKind.CALL) & np.isin(trace.links.call, _QUIET)
    acts = host[~quiet[host]]
    last_act = np.full(len(trace.lanes), np.iinfo(np.int64).min)
    np.maximum.at(last_act, trace.lane[acts], trace.start[acts])
    last_sync: dict[int, int] = {}
    own: set[int] = set()
    for row in syncs[np.argsort(trace.start[syncs], kind="stable")].tolist():
        whose = _frame_owner(trace, row)
        if whose == "profiler":
            own.add(row)
        elif whose is None and is_device_wide(trace.name(row)):
            last_sync[int(trace.lane[row])] = row
    own.update(row for lane, row in last_sync.items() if trace.start[row] > last_act[lane] and _free(trace, row))
    return own


def _frame_owner(trace: Trace, row: int) -> str | None:
    """``profiler`` or ``program`` by the Python frames directly around a call; None where there are none."""
    framed = False
    for up in trace.forest.ancestors(row):
        if trace.kind[up] != RowKind.PYTHON:
            break
        if is_profiler_frame(trace.name(up)):
            return "profiler"
        framed = True
    return "program" if framed else None


def _free(trace: Trace, row: int) -> bool:
    """Whether no operator or annotation is open when the call returns."""
    return not any(
        trace.kind[up] in (RowKind.OPERATOR, RowKind.ANNOTATION) and trace.end[up] >= trace.end[row]
        for up in trace.forest.ancestors(row)
    )
