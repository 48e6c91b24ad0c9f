"""What is drawn: the rows of a trace in their lanes, with depths in which no row hides another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.context import Context
from foretrace.analysis.intervals import union_intervals
from foretrace.knowledge.kineto import HOST_ROWS, RowKind
from foretrace.knowledge.timeline import (
    CPU_KINDS,
    LEFT_OUT,
    LONGEST_NS,
    MOST_ROWS,
    OUT_OF_REACH,
    PROFILER_GROUP,
    SHORT_CPU_ROWS,
    SHORT_FRAMES,
)
from foretrace.model import words
from foretrace.model.report import Report
from foretrace.model.timeline import Band, DrawnLane, Timeline
from foretrace.trace.table import Trace

__all__ = ["timeline_of"]

Int64 = NDArray[np.int64]


def timeline_of(
    trace: Trace, report: Report, *, steps: Sequence[int] | None = None, most_rows: int = MOST_ROWS
) -> Timeline:
    """The timeline of a trace, all of it or some of its steps.

    Args:
        trace: the trace.
        report: its report; kinds and short names of kernels are taken from there.
        steps: positions of the steps (0 is the first) whose rows are wanted: what their annotations hold and what they
            launched. All rows by default, also those outside every step.
        most_rows: how many rows may be drawn. GPU rows always are; above it the shortest Python frames go first, then
            the shortest other CPU rows, those that launched something and those that findings rest on last.

    Rows that one picture cannot hold beside most others, because they are months away, are left out, also GPU rows.

    Raises:
        InputError: a step that the trace does not have.
    """
    context = Context(trace=trace, selected=None if steps is None else list(steps))
    left_out: dict[str, int] = {}
    gpu = context.gpu_rows
    cpu = _cpu_rows(context, left_out)
    origin, cpu, gpu = _within_reach(trace, cpu, gpu, left_out)
    cpu = _shortened(trace, report, cpu, gpu, most_rows, left_out)

    lanes, lane_of_cpu, lane_of_gpu = _lanes(trace, report, cpu, gpu)
    rows = np.concatenate([cpu, gpu])
    lane = np.concatenate([lane_of_cpu, lane_of_gpu])
    # Among rows of one start the outer ones come first, as in the call forest.
    forest_rank = np.zeros(len(trace), dtype=np.int64)
    forest_rank[trace.forest.order] = np.arange(len(trace.forest.order))
    order = np.lexsort((trace.event[rows], forest_rank[rows], -trace.duration[rows], trace.start[rows], lane))
    rows, lane = rows[order], lane[order]
    depth = _depths(trace, rows, lane)

    position = np.full(len(trace), -1, dtype=np.int64)
    position[rows] = np.arange(len(rows))
    launch = trace.links.launch[gpu]
    drawn = launch >= 0
    drawn[drawn] = position[launch[drawn]] >= 0

    used, name = np.unique(trace.name_id[rows], return_inverse=True)
    kinds, kind = _kinds(context, report, rows)
    deepest = np.zeros(len(lanes), dtype=np.int64)
    np.maximum.at(deepest, lane, depth + 1)
    return Timeline(
        lanes=[
            DrawnLane(title=one.title, group=one.group, side=one.side, depth=int(deepest[i]), subtitle=one.subtitle)
            for i, one in enumerate(lanes)
        ],
        names=[trace.names[i] for i in used.tolist()],
        labels=_labels(trace, report, used),
        kinds=kinds,
        lane=lane.astype(np.uint32),
        depth=depth.astype(np.uint32),
        start=trace.start[rows] - origin,
        duration=trace.duration[rows],
        name=name.astype(np.uint32),
        kind=kind.astype(np.uint8),
        event=trace.event[rows],
        arrow_from=position[launch[drawn]].astype(np.uint32),
        arrow_to=position[gpu[drawn]].astype(np.uint32),
        bands=[
            Band(span.label, span.start - origin, span.end - origin)
            for span in context.steps
            if span.row >= 0 and origin <= span.start and span.end - origin <= LONGEST_NS
        ],
        left_out=left_out,
        origin_ns=origin - trace.origin,
    )


def _cpu_rows(context: Context, left_out: dict[str, int]) -> Int64:
    """The rows of the CPU and the profiler that are wanted."""
    trace = context.trace
    rows = trace.rows(*CPU_KINDS)
    for kind, reason in LEFT_OUT.items():
        if count := int(np.count_nonzero(trace.kind == kind)):
            left_out[reason] = count
    if context.selected is None:
        return rows
    chosen = [span.index for span in context.steps]
    return rows[np.isin(context.attribution.step[rows], chosen)]


def _within_reach(trace: Trace, cpu: Int64, gpu: Int64, left_out: dict[str, int]) -> tuple[int, Int64, Int64]:
    """Where times are counted from (ns), and the rows that can be drawn together: most of them, where not all."""
    rows = np.concatenate([cpu, gpu])
    if not len(rows):
        return trace.origin, cpu, gpu
    start, end = trace.start[rows], trace.end[rows]
    if int(end.max()) - trace.origin <= LONGEST_NS and int(start.min()) >= trace.origin:
        return trace.origin, cpu, gpu
    short = trace.duration[rows] <= LONGEST_NS
    first, last = np.sort(start[short]), np.sort(end[short])
    held = np.searchsorted(last - LONGEST_NS, first, side="right") - np.arange(len(first))
    origin = int(first[held.argmax()]) if len(first) else trace.origin
    fits = short & (start >= origin) & (end <= origin + LONGEST_NS)
    left_out[OUT_OF_REACH] = int(np.count_nonzero(~fits))
    return origin, cpu[fits[: len(cpu)]], gpu[fits[len(cpu) :]]


def _shortened(trace: Trace, report: Report, cpu: Int64, gpu: Int64, most_rows: int, left_out: dict[str, int]) -> Int64:
    excess = len(cpu) + len(gpu) - most_rows
    if excess <= 0:
        return cpu
    launch = trace.links.launch[gpu]
    evidence = [one.event for finding in report.findings for one in finding.evidence]
    rank = np.ones(len(cpu), dtype=np.int8)
    rank[trace.kind[cpu] == RowKind.PYTHON] = 0
    rank[np.isin(cpu, launch)] = 2
    rank[np.isin(trace.event[cpu], evidence)] = 3
    order = np.lexsort((trace.event[cpu], trace.duration[cpu], rank))
    gone = order[:excess]
    frames = int(np.count_nonzero(trace.kind[cpu[gone]] == RowKind.PYTHON))
    for reason, count in ((SHORT_FRAMES, frames), (SHORT_CPU_ROWS, len(gone) - frames)):
        if count:
            left_out[reason] = count
    kept: Int64 = np.delete(cpu, gone)
    return kept


def _lanes(trace: Trace, report: Report, cpu: Int64, gpu: Int64) -> tuple[list[DrawnLane], Int64, Int64]:
    """The lanes in the order they are drawn, and the lane of every CPU and every GPU row."""
    lanes: list[DrawnLane] = []
    lane_of_cpu = np.zeros(len(cpu), dtype=np.int64)
    stepping = {int(trace.lane[span.row]) for span in trace.steps if span.row >= 0}
    first = np.full(len(trace.lanes), np.iinfo(np.int64).max)
    np.minimum.at(first, trace.lane[cpu], trace.start[cpu])
    own_work = trace.kind[cpu] == RowKind.OVERHEAD
    begins = {lane.pid: int(first[i]) for i, lane in reversed(list(enumerate(trace.lanes)))}
    for i, lane in enumerate(trace.lanes):
        begins[lane.pid] = min(begins[lane.pid], int(first[i]))

    def rank(index: int) -> tuple[int, str, bool, bool, int]:
        pid, tid = trace.lanes[index].pid, trace.lanes[index].tid
        return begins[pid], str(pid), index not in stepping, pid != tid, int(first[index])

    for own in (False, True):
        mine = np.flatnonzero(own_work == own)
        threads, thread, rows_of = np.unique(trace.lane[cpu[mine]], return_inverse=True, return_counts=True)
        place = np.empty(len(threads), dtype=np.int64)
        for _, i, index in sorted((rank(index), i, index) for i, index in enumerate(threads.tolist())):
            place[i] = len(lanes)
            title = trace.lane_names.get(index, "").strip() or f"thread {trace.lanes[index].tid}"
            group = PROFILER_GROUP if own else f"CPU, process {trace.lanes[index].pid}"
            lanes.append(DrawnLane(title, group, "cpu", 1, words.count(int(rows_of[i]), "row")))
        lane_of_cpu[mine] = place[thread]

    # One lane a stream, as the file holds them apart: merged files may use a stream's number twice.
    keys = np.stack([trace.device[gpu], trace.lane[gpu], trace.stream[gpu]], axis=1)
    streams, lane_of_gpu = np.unique(keys, axis=0, return_inverse=True)
    lane_of_gpu = lane_of_gpu.reshape(-1)
    known = {one.id: one.name for one in report.trace.gpus}
    order = sorted(range(len(streams)), key=lambda i: _stream_rank(trace, streams[i]))
    place = np.empty(len(streams), dtype=np.int64)
    processes = {(int(s[0]), str(trace.lanes[s[1]].pid)) for s in streams}
    for i in order:
        device, index, stream = (int(part) for part in streams[i])
        place[i] = len(lanes)
        rows = gpu[lane_of_gpu == i]
        title = f"stream {stream}" if stream >= 0 else f"stream {trace.lanes[index].tid}"
        group = (f"GPU {device}" if device >= 0 else "GPU") + (f": {known[device]}" if known.get(device) else "")
        if sum(d == device for d, _ in processes) > 1:
            group += f", process {trace.lanes[index].pid}"
        starts, ends = union_intervals(trace.start[rows], trace.end[rows])
        busy = words.time(int((ends - starts).sum()) / 1000)
        lanes.append(DrawnLane(title, group, "gpu", 1, f"{busy} busy"))
    return lanes, lane_of_cpu, place[lane_of_gpu] if len(gpu) else lane_of_gpu.astype(np.int64)


def _stream_rank(trace: Trace, key: NDArray[Any]) -> tuple[int, str, int, str]:
    lane = trace.lanes[int(key[1])]
    return int(key[0]), str(lane.pid), int(key[2]), str(lane.tid)


def _depths(trace: Trace, rows: Int64, lane: Int64) -> Int64:
    """The depth of every row, rows being in order of lane, then start.

    A CPU row goes below the row that encloses it; a row that would lie on another one, because clocks differ or streams
    of several contexts share a lane, goes to the first free depth below.
    """
    start, end = trace.start[rows], trace.end[rows]
    depth = np.zeros(len(rows), dtype=np.int64)
    edges = np.flatnonzero(np.diff(lane, prepend=-1, append=-1))
    for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        # Most streams run one row after the other; then there is nothing to do.
        s, e = start[low:high], end[low:high]
        if (np.maximum.accumulate(e)[:-1] <= s[1:]).all() and (np.diff(s) > 0).all():
            continue
        depth[low:high] = _stacked(trace, rows[low:high], s.tolist(), e.tolist())
    return depth


def _stacked(trace: Trace, rows: Int64, starts: list[int], ends: list[int]) -> list[int]:
    host = bool(np.isin(trace.kind[rows[0]], HOST_ROWS))
    around = _enclosing(trace, rows) if host else [-1] * len(rows)
    outlived = _outlived(around, starts, ends) if host else {}
    depths = [-1] * len(rows)
    free: list[int] = []  # when each depth is free again
    taken: list[int] = []  # and where its last row starts: rows without duration take their place too

    def put(at: int, start: int) -> None:
        depth = depths[around[at]] + 1 if around[at] >= 0 else 0
        while depth < len(free) and (free[depth] > start or taken[depth] == start):
            depth += 1
        while depth >= len(free):
            free.append(start)
            taken.append(start - 1)
        free[depth], taken[depth], depths[at] = ends[at], start, depth

    for at, start in enumerate(starts):
        for later in outlived.get(at, ()):
            put(later, start)
        if depths[at] < 0:
            put(at, start)
    return depths


def _enclosing(trace: Trace, rows: Int64) -> list[int]:
    """Position in ``rows`` of the innermost drawn row around each; -1 for none."""
    parent = trace.forest.parent
    position = {row: at for at, row in enumerate(rows.tolist())}
    found: list[int] = []
    for up in parent[rows].tolist():
        while up >= 0 and up not in position:  # rows in between that are not drawn
            up = int(parent[up])
        found.append(position[up] if up >= 0 else -1)
    return found


def _outlived(around: list[int], starts: list[int], ends: list[int]) -> dict[int, list[int]]:
    """Row → rows that begin inside of it and outlive it, though they are not in it.

    ``ProfilerStep`` begins deep inside the frames of its ``__enter__``. It is drawn where it belongs, under what is
    around it all the time, and keeps that place free from the start of the outermost of those frames, which move down.
    """
    found: dict[int, list[int]] = {}
    stack: list[int] = []
    for at, (up, start) in enumerate(zip(around, starts, strict=True)):
        crossed = -1
        while stack and stack[-1] != up:
            inner = stack.pop()
            if ends[inner] > start:
                crossed = inner
        if crossed >= 0:
            found.setdefault(crossed, []).append(at)
        stack.append(at)
    return found


def _kinds(context: Context, report: Report, rows: Int64) -> tuple[list[str], Int64]:
    """The kinds in use and which of them each row is of."""
    trace = context.trace
    reported: dict[int, str] = {kernel.event: kernel.kind for kernel in report.kernels}
    reported.update((transfer.event, transfer.kind) for transfer in report.transfers)
    of_row_kind = {int(kind): name for kind, name in CPU_KINDS.items()}
    of_row_kind[int(RowKind.MEMCPY)] = "memcpy"
    of_row_kind[int(RowKind.MEMSET)] = "memset"
    numbers: dict[str, int] = {}
    kind = np.zeros(len(rows), dtype=np.int64)
    kinds_of_rows = trace.kind[rows]
    for value, name in of_row_kind.items():
        mine = kinds_of_rows == value
        if mine.any():
            kind[mine] = numbers.setdefault(name, len(numbers))
    for at in np.flatnonzero(kinds_of_rows == RowKind.KERNEL).tolist():
        row = int(rows[at])
        name = reported.get(int(trace.event[row])) or context.decoded(row).kind
        kind[at] = numbers.setdefault(name, len(numbers))
    return list(numbers), kind


def _labels(trace: Trace, report: Report, used: NDArray[np.int32]) -> list[str]:
    short = {kernel.name: kernel.short_name for kernel in report.kernels}
    return [short.get(trace.names[i], trace.names[i]) for i in used.tolist()]
