"""Launch calls that take long: because the queue is full (harmless), or while the GPU has nothing to do (not)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis import intervals
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import calls_in_steps, listed, times
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.knowledge.limits import LAUNCH_BUSY_SHARE, LAUNCH_IDLE_SHARE, LONG_LAUNCH_US, QUEUE_DEPTH
from foretrace.model.report import Finding
from foretrace.model.words import time

__all__ = ["find", "queue_depths"]

Int64 = NDArray[np.int64]


def find(facts: Facts) -> Iterable[Finding]:
    """One finding for the launches that met a full queue, one for those that kept an idle GPU waiting."""
    context = facts.context
    trace = context.trace
    if not context.has_gpu:
        return
    launches = calls_in_steps(facts, Call.LAUNCH_KERNEL)
    long = launches[trace.duration[launches] >= LONG_LAUNCH_US * 1000]
    if not len(long):
        return
    starts, ends = context.busy
    busy = intervals.covered_between(starts, ends, trace.start[long], trace.end[long]) / trace.duration[long]
    depth = queue_depths(facts, long)
    full = (busy >= LAUNCH_BUSY_SHARE) & (depth >= QUEUE_DEPTH)
    if full.any():
        rows = long[full]
        yield facts.finding(
            "launch_queue_full",
            rows.tolist(),
            launches=times(len(rows), "launch call"),
            depth=f"{int(np.median(depth[full])):,}",
            total=time(int(trace.duration[rows].sum()) / 1000),
            longest=time(int(trace.duration[rows].max()) / 1000),
        )
    slow = busy < LAUNCH_IDLE_SHARE
    if slow.any():
        yield _slow(facts, long[slow], depth[slow])


def _slow(facts: Facts, rows: Int64, depth: Int64) -> Finding:
    trace = facts.context.trace
    us = trace.duration[rows] / 1000
    worst = rows[np.argsort(-us, kind="stable")]
    kernel_of = dict(zip(trace.links.launch[trace.gpu_rows].tolist(), trace.gpu_rows.tolist(), strict=True))
    first_use = _first_uses(facts)
    new = sum(kernel_of.get(row, -1) in first_use for row in rows.tolist())
    by_op: dict[str, float] = {}
    for row, each in zip(rows.tolist(), us.tolist(), strict=True):
        op = int(trace.links.op[row])
        name = trace.name(op) if op >= 0 else trace.name(row)
        by_op[name] = by_op.get(name, 0.0) + each
    return facts.finding(
        "slow_launches",
        worst.tolist(),
        source_row=int(worst[0]),
        launches=times(len(rows), "launch call"),
        total=time(float(us.sum())),
        longest=time(float(us.max())),
        ops=listed(by_op.items()),
        depth=f"{int(depth[np.argmax(us)]):,}",
        new=f"{new} of {len(rows)} launched a kernel for the first time in this trace",
    )


def _first_uses(facts: Facts) -> set[int]:
    """The first row of every kernel name of the trace."""
    trace = facts.context.trace
    kernels = trace.gpu_rows[trace.kind[trace.gpu_rows] == RowKind.KERNEL]
    _, first = np.unique(trace.name_id[kernels], return_index=True)
    return set(kernels[first].tolist())


def queue_depths(facts: Facts, launches: Int64) -> Int64:
    """For each launch call: how many earlier launches to its stream were not done when it began (int64).

    A launch without a GPU row counts for no stream and has depth 0.
    """
    trace = facts.context.trace
    gpu = trace.gpu_rows[trace.links.launch[trace.gpu_rows] >= 0]
    # One entry a launch: the work of a graph launch is done when its last row is.
    calls, position = np.unique(trace.links.launch[gpu], return_inverse=True)
    done = np.zeros(len(calls), dtype=np.int64)
    np.maximum.at(done, position, trace.end[gpu])
    stream = np.zeros(len(calls), dtype=np.int64)
    stream[position] = trace.device[gpu].astype(np.int64) * 2**32 + trace.stream[gpu]
    result = np.zeros(len(launches), dtype=np.int64)
    if not len(calls):
        return result
    at = np.searchsorted(calls, launches)
    known = (at < len(calls)) & (calls[np.minimum(at, len(calls) - 1)] == launches)
    for lane in np.unique(stream[at[known]]).tolist():
        mine = stream == lane
        begun, finished = np.sort(trace.start[calls[mine]]), np.sort(done[mine])
        chosen = np.flatnonzero(known)[stream[at[known]] == lane]
        when = trace.start[launches[chosen]]
        result[chosen] = np.searchsorted(begun, when, side="left") - np.searchsorted(finished, when, side="right")
    return np.maximum(result, 0)
