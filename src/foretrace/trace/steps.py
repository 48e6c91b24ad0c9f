"""The steps of a trace: the profiler's own annotations, or one span over everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from foretrace.errors import InputError
from foretrace.knowledge.kineto import HOST_ROWS, RowKind, step_number
from foretrace.model.report import WHOLE_TRACE
from foretrace.model.slim import StepName, slim_note

if TYPE_CHECKING:
    from foretrace.trace.table import Trace

__all__ = ["LabelledStep", "StepSpan", "find_marks", "find_steps", "select_steps", "step_of_rows", "steps_of_rows"]

_LISTED = 8


class LabelledStep(Protocol):
    """A step of a trace, or of a report of it."""

    @property
    def index(self) -> int:
        """Its position among the steps of the trace; 0 is the first."""

    @property
    def label(self) -> str:
        """Its name: ``ProfilerStep#3``."""


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

    A slim trace holds the start of the step behind one that it was cut to; that is no step of it (`find_marks`).

    torch 1.8 to 1.12 wrote the annotation twice (as annotation and as operator): a row that shares at least half of
    its time with an earlier one of the same process and number is that step again. Steps of different numbers may
    overlap (by a rounding error, or on several threads).
    """
    steps = [span for span in _annotated(trace) if not _is_mark(trace, span)]
    return [replace(span, index=index) for index, span in enumerate(steps)] or [_whole(trace)]


def find_marks(trace: Trace) -> list[StepSpan]:
    """Where the steps begin that a slim trace was not cut to, in order of start; they end there too, and their index is
    -1."""
    note = slim_note(trace.meta)
    if note is None or not note.marks:
        return []
    return [replace(span, index=-1) for span in _annotated(trace) if _is_mark(trace, span)]


def _is_mark(trace: Trace, span: StepSpan) -> bool:
    if span.end > span.start:
        return False
    note = slim_note(trace.meta)
    return note is not None and StepName(label=span.label, process=span.pid) in note.marks


def _annotated(trace: Trace) -> list[StepSpan]:
    wanted = np.array([step_number(name) is not None for name in trace.names] or [False])
    rows = np.flatnonzero(wanted[trace.name_id] & np.isin(trace.kind, HOST_ROWS)) if len(trace) else np.zeros(0, int)
    rows = rows[np.lexsort((-trace.duration[rows], trace.start[rows]))]
    spans: list[StepSpan] = []
    last_end: dict[tuple[int | str, int | None], int] = {}
    for row in rows.tolist():
        pid, name = trace.lanes[trace.lane[row]].pid, trace.name(row)
        start, end = int(trace.start[row]), int(trace.end[row])
        key = pid, step_number(name)
        if start < last_end.get(key, start) and 2 * (min(end, last_end[key]) - start) >= end - start:
            continue
        last_end[key] = max(end, last_end.get(key, end))
        spans.append(StepSpan(len(spans), name, start, end, row, pid))
    return spans


def _whole(trace: Trace) -> StepSpan:
    work = np.isin(trace.kind, (*HOST_ROWS, RowKind.KERNEL, RowKind.MEMCPY, RowKind.MEMSET))
    if not work.any():
        return StepSpan(0, WHOLE_TRACE, 0, 0, -1, None)
    start = int(trace.start[work].min())
    end = int(trace.end[work].max())
    return StepSpan(0, WHOLE_TRACE, start, end, -1, None)


def select_steps(steps: Sequence[LabelledStep], asked: Sequence[int | str], *, what: str = "a step is") -> list[int]:
    """Positions of the steps that were asked for, in the trace's order and each once.

    A number, or digits, is a position; ``#3`` stands for every label that ends so (merged ranks repeat them); anything
    else is a whole label. Raises ``InputError`` that lists the choices; ``what`` (with its verb, "--step takes") says
    there what was to name a step.
    """
    chosen: set[int] = set()
    for word in asked:
        found = [step.index for step in steps if _is_asked(step, word)]
        if not found:
            raise InputError(
                f"there is no step {word!r}; {what} a position or a label, of: {_choices(steps) or 'none'}"
            )
        chosen.update(found)
    return sorted(chosen)


def _is_asked(step: LabelledStep, word: int | str) -> bool:
    if isinstance(word, int) or word.isdecimal():
        return step.index == int(word)
    return step.label == word or (word.startswith("#") and step.label.endswith(word))


def _choices(steps: Sequence[LabelledStep]) -> str:
    named = [f"{step.index} ({step.label})" for step in steps]
    if len(named) > _LISTED:
        named = [*named[: _LISTED - 2], "…", named[-1]]
    return ", ".join(named)


def steps_of_rows(trace: Trace) -> NDArray[np.int64]:
    """The step of every row, int64; -1 for none.

    A row of a CPU thread belongs to the step it starts in, GPU work to the step of its launch (or of its operator,
    where the launch was not recorded). Rows that are neither, such as the profiler's own, belong to none.
    """
    step = np.full(len(trace), -1, dtype=np.int64)
    timed = np.concatenate([trace.forest.order, trace.rows(RowKind.MEMORY)])
    step[timed] = step_of_rows(trace, timed)
    gpu = trace.gpu_rows
    if len(trace.steps) == 1 and trace.steps[0].row < 0:
        step[gpu] = 0
        return step
    anchor = trace.links.anchor(gpu)
    step[gpu[anchor >= 0]] = step[anchor[anchor >= 0]]
    return step


def step_of_rows(trace: Trace, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The step inside whose annotation each CPU row starts (-1: none).

    Where steps overlap, one of the row's own thread goes before one of another thread, and the later start wins.
    """
    result = np.full(len(rows), -1, dtype=np.int64)
    if len(trace.steps) == 1 and trace.steps[0].row < 0:
        result[:] = 0
        return result
    by_pid: defaultdict[int | str | None, list[StepSpan]] = defaultdict(list)
    by_lane: defaultdict[int, list[StepSpan]] = defaultdict(list)
    for step in trace.steps:
        by_pid[step.pid].append(step)
        by_lane[int(trace.lane[step.row])].append(step)
    times = trace.start[rows]
    lanes = trace.lane[rows]
    for pid, spans in by_pid.items():
        chosen = _innermost(spans, times)
        if len(by_pid) > 1:
            own_pid = np.array([lane.pid == pid for lane in trace.lanes], dtype=np.bool_)
            chosen[~own_pid[lanes]] = -1
        result = np.where(chosen >= 0, chosen, result)
    if len(by_lane) > len(by_pid):
        for lane, spans in by_lane.items():
            own = np.flatnonzero(lanes == lane)
            chosen = _innermost(spans, times[own])
            result[own] = np.where(chosen >= 0, chosen, result[own])
    return result


def _innermost(spans: list[StepSpan], times: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the step with the latest start among those around each time (-1: none); ``spans`` by start."""
    edges = sorted({edge for span in spans for edge in (span.start, span.end)})
    owner: list[int] = []
    around: list[tuple[int, int, int]] = []
    begun = 0
    for edge in edges:
        while begun < len(spans) and spans[begun].start <= edge:
            heappush(around, (-spans[begun].start, -spans[begun].index, spans[begun].end))
            begun += 1
        while around and around[0][2] <= edge:
            heappop(around)
        owner.append(-around[0][1] if around else -1)
    # The last edge is an end, behind which no step is; in front of the first one is none either.
    found = np.array([*owner, -1], dtype=np.int64)
    return found[np.searchsorted(np.array(edges, dtype=np.int64), times, side="right") - 1]
