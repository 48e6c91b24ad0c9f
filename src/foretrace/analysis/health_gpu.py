"""Health checks of the GPU side: was everything recorded, and does it fit its launches."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.health_parts import judged
from foretrace.analysis.intervals import union_ns
from foretrace.knowledge import thresholds
from foretrace.knowledge.kineto import Call, RowKind, graph_capture
from foretrace.model.report import Health
from foretrace.model.words import share_of, time
from foretrace.trace import Trace
from foretrace.trace.steps import step_of_rows

__all__ = ["gpu_checks"]

Int64 = NDArray[np.int64]


def gpu_checks(trace: Trace) -> list[Health]:
    """Checks that need GPU rows, or calls that should have made some."""
    rows = trace.gpu_rows
    if not len(rows):
        return _nothing_recorded(trace)
    return [
        *_unlinked(trace, rows),
        *_lost_launches(trace, rows),
        *_graph_replays(trace, rows),
        *_overlaps(trace, rows),
        *_delays(trace, rows),
    ]


def _nothing_recorded(trace: Trace) -> list[Health]:
    calls = int(trace.links.enqueues.sum())
    if not calls:
        return []
    text = (
        f"{calls:,} calls put work on the GPU, yet the recording has no GPU row: the profiler could not record the GPU "
        "(`foretrace doctor` explains why)"
    )
    return [judged("gpu_rows", "bad", text, calls)]


def _unlinked(trace: Trace, rows: Int64) -> list[Health]:
    orphans = rows[trace.links.launch[rows] < 0]
    total = int(trace.duration[rows].sum())
    share = int(trace.duration[orphans].sum()) / total if total else len(orphans) / len(rows)
    if not len(orphans):
        return [judged("gpu_rows_unlinked", "ok", "every GPU row has its launch", 0)]
    if not len(trace.rows(RowKind.CALL)):
        text = "the recording holds no API calls, so no GPU row can be traced to its launch or operator"
        return [judged("gpu_rows_unlinked", "bad", text, len(orphans))]
    text = (
        f"{len(orphans):,} of {len(rows):,} GPU rows ({share_of(share)} of GPU time) have no launch in the recording: "
        "launched before it began, or their call was not recorded"
    )
    return [judged("gpu_rows_unlinked", thresholds.UNLINKED.state(share), text, len(orphans))]


def _lost_launches(trace: Trace, rows: Int64) -> list[Health]:
    """Kernel launches that left no GPU row; those during graph capture and at the very end are none of them."""
    links = trace.links
    launches = np.flatnonzero((links.call == Call.LAUNCH_KERNEL) & (trace.correlation != 0))
    launches = launches[~_captured(trace, launches)]
    if not len(launches):
        return []
    linked = np.zeros(len(trace), dtype=np.bool_)
    linked[links.launch[rows][links.launch[rows] >= 0]] = True
    # A runtime call and the driver call inside it are one launch; the kernel hangs on one of them.
    parent = trace.forest.parent
    inner = parent[launches]
    nested = (inner >= 0) & (links.call[np.maximum(inner, 0)] == Call.LAUNCH_KERNEL)
    has_child = np.zeros(len(trace), dtype=np.bool_)
    has_child[inner[nested]] = True
    lost = launches[~linked[launches] & ~nested & ~has_child[launches]]
    if not len(lost):
        return [judged("launches_without_kernels", "ok", "every kernel launch has its kernel", 0)]
    last = int(trace.start[linked].max()) if linked.any() else -1
    in_flight = int((trace.start[lost] > last).sum()) if last >= 0 else 0
    share = len(lost) / len(launches)
    text = f"{len(lost):,} of {len(launches):,} kernel launches have no kernel: "
    text += (
        "they are the last ones, still in flight when the recording ended"
        if in_flight == len(lost)
        else "the profiler dropped records"
    )
    if in_flight and in_flight < len(lost):
        text += f" ({in_flight:,} of them may have been in flight at its end)"
    return [judged("launches_without_kernels", thresholds.LAUNCHES_LOST.state(share), text, len(lost))]


def _captured(trace: Trace, launches: Int64) -> NDArray[np.bool_]:
    """Which launches happened while their thread captured a graph."""
    inside = np.zeros(len(launches), dtype=np.bool_)
    marks = np.array([graph_capture(name) for name in trace.names] or [0], dtype=np.int8)
    bounds = np.flatnonzero((marks[trace.name_id] != 0) & (trace.kind == RowKind.CALL))
    for lane in np.unique(trace.lane[bounds]).tolist():
        own = bounds[trace.lane[bounds] == lane]
        own = own[np.argsort(trace.start[own], kind="stable")]
        depth = np.cumsum(marks[trace.name_id[own]])
        position = np.searchsorted(trace.start[own], trace.start[launches], side="right") - 1
        inside |= (trace.lane[launches] == lane) & (position >= 0) & (depth[np.maximum(position, 0)] > 0)
    return inside


def _graph_replays(trace: Trace, rows: Int64) -> list[Health]:
    """Graph launches without rows, or with fewer rows than the replay at the same place of another step."""
    links = trace.links
    launches = np.flatnonzero(links.call == Call.LAUNCH_GRAPH)
    if not len(launches):
        return []
    launches = launches[np.argsort(trace.start[launches], kind="stable")]
    per_launch = np.bincount(links.launch[rows][links.launch[rows] >= 0], minlength=len(trace))[launches]
    empty = int((per_launch == 0).sum())
    if empty:
        text = f"{empty} of {len(launches)} graph launches have no GPU rows: their replays were not recorded"
        state = thresholds.GRAPH_ROWS.state(empty / len(launches))
        return [judged("graph_replays", state, text, empty)]
    short = _short_replays(trace, launches, per_launch)
    if short:
        worst = max(missing for missing, _ in short)
        text = (
            f"{len(short)} of {len(launches)} graph launches recorded fewer rows (up to {share_of(worst)} fewer) than "
            "the launch at the same place of another step: only a part of these replays was recorded"
        )
        return [judged("graph_replays", thresholds.GRAPH_ROWS.state(worst), text, len(short))]
    text = f"{len(launches)} graph launches, {int(per_launch.sum()):,} GPU rows"
    return [judged("graph_replays", "ok", text, 0)]


def _short_replays(trace: Trace, launches: Int64, per_launch: Int64) -> list[tuple[float, int]]:
    """(share of rows missing, row number) of launches shorter than their twins in other steps."""
    step = step_of_rows(trace, launches)
    by_step: dict[int, list[int]] = {}
    for index, number in enumerate(step.tolist()):
        if number >= 0:
            by_step.setdefault(number, []).append(index)
    lengths = {len(indices) for indices in by_step.values()}
    if len(by_step) < 2 or len(lengths) != 1:
        return []  # steps that replay different graphs cannot be compared
    table = per_launch[np.array(list(by_step.values()))]
    fullest = table.max(axis=0)
    missing = 1.0 - table / fullest
    found = np.argwhere(missing > thresholds.GRAPH_ROWS.suspect)
    order = list(by_step.values())
    return [(float(missing[s, p]), int(launches[order[s][p]])) for s, p in found.tolist()]


def _overlaps(trace: Trace, rows: Int64) -> list[Health]:
    """Rows of one stream that run at the same time; rows of graphs have branches and are left out."""
    rows = rows[~trace.links.graph[rows]]
    if not len(rows):
        return []
    order = rows[np.lexsort((trace.end[rows], trace.start[rows], trace.stream[rows], trace.lane[rows]))]
    lane, stream = trace.lane[order], trace.stream[order]
    start, end = trace.start[order], trace.end[order]
    new = np.ones(len(order), dtype=np.bool_)
    new[1:] = (lane[1:] != lane[:-1]) | (stream[1:] != stream[:-1])
    group = np.cumsum(new)
    overlap = np.zeros(len(order), dtype=np.int64)
    for first, last in zip(np.flatnonzero(new).tolist(), [*np.flatnonzero(new)[1:].tolist(), len(order)], strict=True):
        reach = np.maximum.accumulate(end[first:last])
        overlap[first + 1 : last] = np.minimum(reach[:-1], end[first + 1 : last]) - start[first + 1 : last]
    seen = overlap > thresholds.OVERLAP_NS
    count = int(seen.sum())
    if not count:
        return [judged("stream_overlap", "ok", f"no overlap within any of {int(group[-1])} streams", 0)]
    busy = union_ns(start, end)
    share = int(overlap[seen].sum()) / busy
    text = f"{count:,} GPU rows overlap an earlier one of their own stream ({share_of(share)} of busy time)"
    return [judged("stream_overlap", thresholds.OVERLAP.state(share), text, count)]


def _delays(trace: Trace, rows: Int64) -> list[Health]:
    linked = rows[trace.links.launch[rows] >= 0]
    if not len(linked):
        return []
    delay = trace.start[linked] - trace.start[trace.links.launch[linked]]
    early = int((delay < -thresholds.NEGATIVE_DELAY_NS).sum())
    if not early:
        return [judged("launch_delays", "ok", "no GPU row starts before its launch", 0)]
    worst = -int(delay.min()) / 1000
    text = f"{early:,} GPU rows start before their launch (by up to {time(worst)}): the clocks do not match"
    return [judged("launch_delays", thresholds.NEGATIVE_DELAY.state(early / len(linked)), text, early)]
