"""The tables of what the CPU did: operators and the API calls that put work on streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.attribution import BACKWARD
from foretrace.analysis.tables.frames import events_at, labels_of, shaped, shared_texts
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.trace.frames import known, texts

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.context import Context

__all__ = ["launch_table", "op_table"]

Int64 = NDArray[np.int64]
_KINDS = {
    Call.LAUNCH_KERNEL: "kernel",
    Call.LAUNCH_GRAPH: "graph",
    Call.MEMCPY: "memcpy",
    Call.MEMSET: "memset",
}


def launch_table(context: Context) -> polars.DataFrame:
    """The table ``launches``: every call that put work on a stream, of the selected steps."""
    trace, links = context.trace, context.trace.links
    rows = np.flatnonzero(links.enqueues).astype(np.int64)
    step = context.attribution.step
    if context.selected is not None:
        rows = rows[np.isin(step[rows], [span.index for span in context.steps])]
    gpu = trace.gpu_rows  # by start
    gpu = gpu[links.launch[gpu] >= 0]
    of_call = links.launch[gpu]
    count = np.bincount(of_call, minlength=len(trace))
    kernels = np.bincount(of_call[trace.kind[gpu] == RowKind.KERNEL], minlength=len(trace))
    busy = np.zeros(len(trace), dtype=np.int64)
    np.add.at(busy, of_call, trace.duration[gpu])
    first = np.full(len(trace), -1, dtype=np.int64)
    calls, at = np.unique(of_call, return_index=True)
    first[calls] = gpu[at]
    launched = first[rows]
    found = launched >= 0
    op = links.op[rows]
    delay = (trace.start[np.maximum(launched, 0)] - trace.start[rows]) / 1000
    return shaped(
        "launches",
        {
            "event": trace.event[rows],
            "call": texts(trace.names).gather(trace.name_id[rows]),
            "kind": shared_texts(_KINDS.get(Call(kind), "other") for kind in links.call[rows].tolist()),
            "op": shared_texts(trace.name(row) if row >= 0 else None for row in op.tolist()),
            "op_event": events_at(trace.event, op),
            **_place(context, rows),
            "correlation": known(trace.correlation[rows], trace.correlation[rows] != 0),
            "start_us": (trace.start[rows] - trace.origin) / 1000,
            "duration_us": trace.duration[rows] / 1000,
            "gpu_rows": known(count[rows], found),
            "kernels": known(kernels[rows], found),
            "gpu_us": known(busy[rows] / 1000, found),
            "first_gpu_event": events_at(trace.event, launched),
            "delay_us": known(delay, found),
        },
    )


def op_table(context: Context) -> polars.DataFrame:
    """The table ``ops``: every call of an operator, of the selected steps."""
    trace, attribution = context.trace, context.attribution
    rows = context.operator_rows
    around = _Around(context)
    gpu_ns, own_ns, kernels = _gpu_work(context)
    measured = np.full(len(rows), context.has_gpu)
    places = [
        attribution.place(row, step=step, at=at)
        for row, step, at in zip(
            rows.tolist(), attribution.step[rows].tolist(), trace.start[rows].tolist(), strict=True
        )
    ]
    phase = [place[0] for place in places]
    sequence = around.sequence[rows]
    shapes, dtypes = _operands(context, rows)
    return shaped(
        "ops",
        {
            "event": trace.event[rows],
            "name": texts(trace.names).gather(trace.name_id[rows]),
            "parent_event": events_at(trace.event, around.operator[rows]),
            "depth": around.depth[rows],
            **_place(context, rows),
            "phase": shared_texts(phase),
            "module": shared_texts(place[1] for place in places),
            "start_us": (trace.start[rows] - trace.origin) / 1000,
            "duration_us": trace.duration[rows] / 1000,
            "self_us": _self_ns(context)[rows] / 1000,
            "gpu_us": known(gpu_ns[rows] / 1000, measured),
            "self_gpu_us": known(own_ns[rows] / 1000, measured),
            "kernels": known(kernels[rows], measured),
            "shapes": shapes,
            "dtypes": dtypes,
            "sequence": known(sequence, sequence >= 0),
            "forward_event": events_at(trace.event, _forward(context, rows, phase, sequence)),
        },
    )


def _place(context: Context, rows: Int64) -> dict[str, polars.Series]:
    trace = context.trace
    step = context.attribution.step[rows]
    return {
        "step": known(step, step >= 0),
        "step_label": labels_of(trace, step),
        "process": texts([str(lane.pid) for lane in trace.lanes]).gather(trace.lane[rows]),
        "thread": texts([str(lane.tid) for lane in trace.lanes]).gather(trace.lane[rows]),
    }


class _Around:
    """What encloses each CPU row: the innermost operator, how many there are, and the sequence number they give it.

    Three int64 arrays with one entry a row of the trace; ``operator`` and ``sequence`` are -1 for none.
    """

    def __init__(self, context: Context) -> None:
        trace = context.trace
        parent = trace.forest.parent.tolist()
        is_operator = (trace.kind == RowKind.OPERATOR).tolist()
        operator = [-1] * len(trace)
        depth = [0] * len(trace)
        sequence: list[int] = trace.sequence.tolist()
        for row in trace.forest.order.tolist():
            up = parent[row]
            if up < 0:
                continue
            operator[row] = up if is_operator[up] else operator[up]
            depth[row] = depth[up] + is_operator[up]
            if sequence[row] < 0:
                sequence[row] = sequence[up]
        self.operator = np.array(operator, dtype=np.int64)
        self.depth = np.array(depth, dtype=np.int64)
        self.sequence = np.array(sequence, dtype=np.int64)


def _self_ns(context: Context) -> Int64:
    trace = context.trace
    parent, host = trace.forest.parent, trace.forest.order
    inner = host[parent[host] >= 0]
    inside = np.zeros(len(trace), dtype=np.int64)
    np.add.at(inside, parent[inner], trace.duration[inner])
    own: Int64 = np.maximum(trace.duration - inside, 0)
    return own


def _gpu_work(context: Context) -> tuple[Int64, Int64, Int64]:
    """GPU time below each row and its own, ns, and the kernels below it: as the report's operators have them."""
    trace, links = context.trace, context.trace.links
    gpu = context.gpu_rows
    hangs_on = np.where(links.launch[gpu] >= 0, links.launch[gpu], links.op[gpu])
    below = np.zeros(len(trace), dtype=np.int64)
    kernels = np.zeros(len(trace), dtype=np.int64)
    hanging = hangs_on >= 0
    np.add.at(below, hangs_on[hanging], trace.duration[gpu[hanging]])
    np.add.at(kernels, hangs_on[hanging & (trace.kind[gpu] == RowKind.KERNEL)], 1)
    own = np.zeros(len(trace), dtype=np.int64)
    op = context.attribution.op[gpu]
    np.add.at(own, op[op >= 0], trace.duration[gpu[op >= 0]])
    total, many = below.tolist(), kernels.tolist()
    parent = trace.forest.parent.tolist()
    for row in reversed(trace.forest.order.tolist()):
        up = parent[row]
        if up >= 0:
            total[up] += total[row]
            many[up] += many[row]
    return np.array(total, dtype=np.int64), own, np.array(many, dtype=np.int64)


def _forward(context: Context, rows: Int64, phase: list[str | None], sequence: Int64) -> list[int]:
    """The forward operator of each backward one: the last that had its sequence number before it began; -1 for none.

    An operator that makes no node of the graph leaves its number to the next one, so the last of them made the node.
    """
    trace = context.trace
    found = [-1] * len(rows)
    if BACKWARD not in phase:
        return found
    own = trace.sequence[rows].tolist()
    pids = [trace.lanes[lane].pid for lane in trace.lane[rows].tolist()]
    inherited = sequence.tolist()
    latest: dict[tuple[int | str, int], int] = {}
    for place in np.lexsort((trace.event[rows], trace.start[rows])).tolist():
        key = pids[place], inherited[place]
        if phase[place] == BACKWARD:
            found[place] = latest.get(key, -1) if inherited[place] >= 0 else -1
        elif own[place] >= 0:
            latest[key] = int(rows[place])
    return found


class _Operands(msgspec.Struct, gc=False):
    """Older files write "dims" small."""

    dims: Any = msgspec.field(name="Input Dims", default=None)
    small: Any = msgspec.field(name="Input dims", default=None)
    types: Any = msgspec.field(name="Input type", default=None)


def _operands(context: Context, rows: Int64) -> tuple[polars.Series, polars.Series]:
    """Shapes and types of the inputs as JSON text."""
    trace = context.trace
    decode = msgspec.json.Decoder(_Operands).decode
    shapes: list[str | None] = []
    dtypes: list[str | None] = []
    for row in rows.tolist():
        raw = trace.arguments[row]
        try:
            found = decode(raw) if raw else _Operands()
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
            args = trace.args(row)
            found = _Operands(args.get("Input Dims"), args.get("Input dims"), args.get("Input type"))
        shapes.append(_json(found.dims if found.dims is not None else found.small))
        dtypes.append(_json(found.types))
    return shared_texts(shapes), shared_texts(dtypes)


def _json(value: object) -> str | None:
    return msgspec.json.encode(value).decode() if isinstance(value, list) else None
