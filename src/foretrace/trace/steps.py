"""The steps of a trace: the profiler's own annotations, or one span over everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import HOST_ROWS, RowKind, step_number
from foretrace.model.report import WHOLE_TRACE

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["StepSpan", "find_steps", "step_of_rows"]


@dataclass(frozen=True)
class StepSpan:
    """One step: ``[start, end)`` in ns; ``row`` is its annotation, -1 when the step is the whole trace."""

    index: int
    label: str
    start: int
    end: int
    row: int
    pid: int | str | None


def find_steps(trace: Trace) -> list[StepSpan]:
    """The ``ProfilerStep#N`` rows of the CPU in order of start, else one step over the whole trace.

    torch 1.8 to 1.12 wrote the annotation twice (as annotation and as operator): spans that overlap an earlier
    one of the same process are the same step and are not counted again.
    """
    wanted = np.array([step_number(name) is not None for name in trace.names] or [False])
    rows = np.flatnonzero(wanted[trace.name_id] & np.isin(trace.kind, HOST_ROWS)) if len(trace) else np.zeros(0, int)
    rows = rows[np.lexsort((-trace.duration[rows], trace.start[rows]))]
    spans: list[StepSpan] = []
    last_end: dict[int | str, int] = {}
    for row in rows.tolist():
        pid = trace.lanes[trace.lane[row]].pid
        start, end = int(trace.start[row]), int(trace.end[row])
        if start < last_end.get(pid, start):
            continue
        last_end[pid] = end
        spans.append(StepSpan(len(spans), trace.name(row), start, end, row, pid))
    return spans or [_whole(trace)]


def _whole(trace: Trace) -> StepSpan:
    work = np.isin(trace.kind, (*HOST_ROWS, RowKind.KERNEL, RowKind.MEMCPY, RowKind.MEMSET))
    if not work.any():
        return StepSpan(0, WHOLE_TRACE, 0, 0, -1, None)
    start = int(trace.start[work].min())
    end = int(trace.end[work].max())
    return StepSpan(0, WHOLE_TRACE, start, end, -1, None)


def step_of_rows(trace: Trace, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The step inside whose annotation each CPU row starts (-1: none)."""
    result = np.full(len(rows), -1, dtype=np.int64)
    if len(trace.steps) == 1 and trace.steps[0].row < 0:
        result[:] = 0
        return result
    pids = {step.pid for step in trace.steps}
    pid_of_lane = np.array([lane.pid for lane in trace.lanes], dtype=object)
    times = trace.start[rows]
    for pid in pids:
        spans = [step for step in trace.steps if step.pid == pid]
        starts = np.array([s.start for s in spans], dtype=np.int64)
        ends = np.array([s.end for s in spans], dtype=np.int64)
        index = np.array([s.index for s in spans], dtype=np.int64)
        position = np.searchsorted(starts, times, side="right") - 1
        inside = (position >= 0) & (times < ends[position])
        if len(pids) > 1:
            inside &= pid_of_lane[trace.lane[rows]] == pid
        result[inside] = index[position[inside]]
    return result
