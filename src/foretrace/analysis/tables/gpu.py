"""The tables of what ran on the GPU: kernels and transfers, as the report has them, with the calls behind them.

Columns that rest on FLOPs and bytes cost more than all others together, so they are apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.tables.frames import events_at, labels_of, shaped, shared_texts, text_of, whole_numbers
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind, memcpy_direction
from foretrace.trace.frames import known, texts

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.context import Context
    from foretrace.model.report import Kernel

__all__ = ["COSTED", "kernel_table", "rows_of", "transfer_table"]

# Columns of kernels that rest on what the kernel had to do.
COSTED = ("flops", "bytes", "bound", "achieved_tflops", "achieved_gbps", "of_peak", "peak", "cache_assisted")

Int64 = NDArray[np.int64]
_PATH = " > "
_BATCH = 4096


def kernel_table(context: Context, rows: Int64, kernels: Sequence[Kernel] | None) -> polars.DataFrame:
    """The table ``kernels`` of kernel rows; without ``kernels``, their reports, it lacks the ``COSTED`` columns."""
    attribution = context.attribution
    listed = rows.tolist()
    sizes = [_sizes(args) for args in _arguments(context, rows)]
    data = {
        **_common(context, rows),
        **_decoded(context, rows),
        "op_path": _paths(context, rows),
        "module": shared_texts(attribution.module.get(row) for row in listed),
        "phase": shared_texts(attribution.phase.get(row) for row in listed),
        "registers": whole_numbers(size[6] for size in sizes),
        "shared_memory_bytes": whole_numbers(size[7] for size in sizes),
    }
    for place, axis in enumerate("xyz"):
        data[f"grid_{axis}"] = whole_numbers(size[place] for size in sizes)
        data[f"block_{axis}"] = whole_numbers(size[3 + place] for size in sizes)
    if kernels is not None:
        data |= {
            "flops": whole_numbers(k.flops for k in kernels),
            "bytes": whole_numbers(k.bytes for k in kernels),
            "bound": shared_texts(k.bound if k.bound != "unknown" else None for k in kernels),
            "achieved_tflops": [k.achieved_tflops for k in kernels],
            "achieved_gbps": [k.achieved_gbps for k in kernels],
            "of_peak": [k.of_peak for k in kernels],
            "peak": shared_texts(k.peak for k in kernels),
            "cache_assisted": [k.cache_assisted for k in kernels],
        }
    return shaped("kernels", data)


def transfer_table(context: Context, rows: Int64) -> polars.DataFrame:
    """The table ``transfers`` of memcpy and memset rows."""
    trace = context.trace
    is_copy = trace.kind[rows] == RowKind.MEMCPY
    moved = whole_numbers(_number(args.moved) for args in _arguments(context, rows))
    time = trace.duration[rows].tolist()
    data = _common(context, rows)
    data |= {
        "kind": shared_texts("memcpy" if copy else "memset" for copy in is_copy.tolist()),
        "direction": shared_texts(
            memcpy_direction(trace.name(row)) if copy else None
            for row, copy in zip(rows.tolist(), is_copy.tolist(), strict=True)
        ),
        "bytes": moved,
        "gbps": [size / ns if size is not None and ns else None for size, ns in zip(moved, time, strict=True)],
    }
    return shaped("transfers", data)


def rows_of(context: Context, events: Sequence[int]) -> Int64:
    """Row numbers of GPU events; raises `InputError` where the trace has no such row."""
    gpu = context.trace.gpu_rows
    gpu = gpu[np.argsort(context.trace.event[gpu], kind="stable")]
    numbers = context.trace.event[gpu]
    wanted = np.array(events, dtype=np.int64)
    places = np.searchsorted(numbers, wanted)
    if len(wanted) and (not len(numbers) or not (numbers[np.minimum(places, len(numbers) - 1)] == wanted).all()):
        raise InputError("the report is not one of this trace: it speaks of events that the trace does not have")
    return gpu[places]


def _common(context: Context, rows: Int64) -> dict[str, Any]:
    trace, attribution = context.trace, context.attribution
    op, launch, step = attribution.op[rows], trace.links.launch[rows], attribution.step[rows]
    delay = (trace.start[rows] - trace.start[np.maximum(launch, 0)]) / 1000
    names = texts(trace.names)
    return {
        "event": trace.event[rows],
        "name": names.gather(trace.name_id[rows]),
        "op": shared_texts(trace.name(row) if row >= 0 else None for row in op.tolist()),
        "op_event": events_at(trace.event, op),
        "step": known(step, step >= 0),
        "step_label": labels_of(trace, step),
        "start_us": (trace.start[rows] - trace.origin) / 1000,
        "duration_us": trace.duration[rows] / 1000,
        "stream": known(trace.stream[rows], trace.stream[rows] >= 0),
        "device": known(trace.device[rows], trace.device[rows] >= 0),
        "launch_event": events_at(trace.event, launch),
        "launch_delay_us": known(delay, launch >= 0),
        "graph": trace.links.graph[rows],
    }


def _decoded(context: Context, rows: Int64) -> dict[str, polars.Series]:
    """What the names say, each pair of kernel and operator decoded once."""
    trace = context.trace
    op = context.attribution.op[rows]
    of_op = np.where(op >= 0, trace.name_id[np.maximum(op, 0)].astype(np.int64), -1)
    pairs = trace.name_id[rows].astype(np.int64) * (len(trace.names) + 1) + of_op + 1
    _, first, place = np.unique(pairs, return_index=True, return_inverse=True)
    found = [context.decoded(row) for row in rows[first].tolist()]
    columns = {
        "short_name": shared_texts(d.short_name for d in found),
        "kind": shared_texts(d.kind for d in found),
    }
    for fact in ("dtype", "tile", "layout", "epilogue"):
        columns[fact] = shared_texts(text_of(d.decoded.get(fact)) for d in found)
    return {name: column.gather(place) for name, column in columns.items()}


def _paths(context: Context, rows: Int64) -> polars.Series:
    """The operators and annotations around each launch as one text."""
    op, launch = context.attribution.op[rows].tolist(), context.trace.links.launch[rows].tolist()
    kept: dict[int, str | None] = {}
    paths: list[str | None] = []
    for row, inner, call in zip(rows.tolist(), op, launch, strict=True):
        anchor = inner if inner >= 0 else call
        if anchor not in kept:
            kept[anchor] = _PATH.join(context.op_path(row)) or None
        paths.append(kept[anchor])
    return shared_texts(paths)


class _Args(msgspec.Struct, gc=False):
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(name="registers per thread", default=None)
    shared: Any = msgspec.field(name="shared memory", default=None)
    moved: Any = msgspec.field(name="bytes", default=None)


def _arguments(context: Context, rows: Int64) -> list[_Args]:
    """The arguments of GPU rows, decoded many at once where they are sound."""
    trace = context.trace
    decode = msgspec.json.Decoder(list[_Args]).decode
    found: list[_Args] = []
    for at in range(0, len(rows), _BATCH):
        some = rows[at : at + _BATCH].tolist()
        try:
            found += decode(b"[%b]" % b",".join(trace.arguments[row] or b"{}" for row in some))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError):
            found += [_lenient(trace.args(row)) for row in some]
    return found


def _lenient(args: dict[str, Any]) -> _Args:
    return _Args(*(args.get(field.encode_name) for field in msgspec.structs.fields(_Args)))


def _sizes(args: _Args) -> tuple[int | None, ...]:
    """Grid (3), block (3), registers, shared memory."""
    return (*_three(args.grid), *_three(args.block), _number(args.registers), _number(args.shared))


def _three(value: Any) -> tuple[int | None, int | None, int | None]:
    if not isinstance(value, list) or not all(isinstance(size, int) for size in value):
        return None, None, None
    x, y, z, *_ = [*value, None, None, None]
    return x, y, z


def _number(value: Any) -> int | None:
    """A whole number, also one that is written with a point."""
    return int(value) if isinstance(value, int | float) and value - value == 0 else None
