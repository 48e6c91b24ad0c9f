"""Which rows stay when a trace is cut to some of its steps, or to a range of time.

What stays is what the numbers of the kept steps rest on: the rows of a step, what it launched whenever that ran, and
what ran on the GPU or was open on the CPU during it. Nothing is shortened, with one exception: a kept step's period
ends where the next step begins, so that step's annotation stays as a mark without duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.context import Context
from foretrace.analysis.steps import period_end
from foretrace.knowledge.kineto import GPU_WORK, HOST_ROWS, RowKind, module_name, step_number
from foretrace.model.report import WHOLE_TRACE
from foretrace.model.slim import StepName
from foretrace.trace.steps import StepSpan
from foretrace.trace.table import Trace

__all__ = ["Cut", "Window", "cut_to_range", "cut_to_steps", "dropped_kinds", "named"]

Bool = NDArray[np.bool_]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Window:
    """A stretch ``[start, end)`` in ns on the file's own clock; ``pid`` is whose CPU rows it is about, None: all."""

    start: int
    end: int
    pid: int | str | None = None


@dataclass(eq=False)
class Cut:
    """What stays of a trace.

    Attributes:
        rows: bool, one entry a row.
        windows: the stretches it was cut to; none where nothing was cut.
        ends: rows that stay as a mark of their start, without duration.
        inside: bool, kept rows that began in a window or were launched from one; arrows may end at them.
        parts: steps of which something is kept and something is not.
    """

    rows: Bool
    windows: list[Window] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    inside: Bool = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    parts: list[StepName] = field(default_factory=list)

    def during(self, ns: int) -> bool:
        """Whether a moment (ns on the file's own clock) lies in what was cut out."""
        return not self.windows or any(window.start <= ns < window.end for window in self.windows)


def cut_to_steps(trace: Trace, steps: Sequence[int]) -> Cut:
    """The rows of the steps at these positions, and of what belongs to them."""
    context = Context(trace=trace, selected=list(steps))
    spans = context.steps
    if all(span.row < 0 for span in spans):
        return Cut(np.ones(len(trace), dtype=np.bool_))
    chosen = {span.index for span in spans}
    several = len({span.pid for span in trace.steps}) > 1
    windows = [Window(s.start, period_end(context, s), s.pid if several else None) for s in spans]
    step = context.attribution.step
    mine = np.isin(step, list(chosen))
    gpu = np.isin(trace.kind, GPU_WORK)

    host = np.isin(trace.kind, HOST_ROWS)
    open_before = np.zeros(len(trace), dtype=np.bool_)
    overlapping = np.zeros(len(trace), dtype=np.bool_)
    for window in windows:
        # What takes no time where the step ends counts as inside it.
        here = _overlap(trace, window) | (host & (trace.duration == 0) & (trace.start == window.end))
        if window.pid is not None:
            here &= _of_process(trace, window.pid) | ~host
        overlapping |= here
        open_before |= here & (trace.start < window.start)
    rows = np.where(host, mine | (overlapping & ((step < 0) | open_before)), overlapping | (gpu & mine))
    ends = _following(context, chosen)
    _steps_by_name(trace, rows, {span.row: (span.label, span.pid, span.start, span.end) for span in spans})
    rows[ends] = True
    cut = Cut(rows, windows, ends)
    _complete(trace, cut, gpu & mine)
    cut.inside = rows & ~(host & open_before & ~mine & (trace.kind != RowKind.CALL))
    cut.inside[ends] = False
    return cut


def cut_to_range(trace: Trace, window: Window) -> Cut:
    """The rows of a stretch of time: what is open on the CPU, what that launches, and what runs on the GPU in it.

    A step is whole where its period lies in the stretch, and all its rows with it.
    """
    overlapping = _overlap(trace, window)
    host = np.isin(trace.kind, HOST_ROWS)
    gpu = trace.gpu_rows
    launch = trace.links.launch[gpu]
    linked, launch = gpu[launch >= 0], launch[launch >= 0]
    rows = overlapping.copy()
    begun = (trace.start >= window.start) & (trace.start < window.end)
    mine = np.zeros(len(trace), dtype=np.bool_)
    mine[linked[begun[launch]]] = True
    rows |= mine
    context = Context(trace=trace, selected=[span.index for span in trace.steps])
    there = {span.index for span in context.steps if span.row >= 0 and rows[span.row]}
    whole = {span.index for span in context.steps if _lies_in(context, span, window)}
    ends = _following(context, there, of=whole)
    rows[ends] = True
    cut = Cut(rows, [window], ends)
    _complete(trace, cut, mine)
    cut.inside = rows & ~(host & overlapping & ~begun & (trace.kind != RowKind.CALL))
    cut.inside[ends] = False
    missing = set(context.attribution.step[~rows & (trace.kind != RowKind.SPAN)].tolist())
    cut.parts = [named(span) for span in context.steps if span.index in there - (whole - missing)]
    if not there and bool((~rows & (trace.kind != RowKind.SPAN)).any()):
        cut.parts = [StepName(label=WHOLE_TRACE)]
    return cut


def _lies_in(context: Context, span: StepSpan, window: Window) -> bool:
    return span.row >= 0 and window.start <= span.start and period_end(context, span) <= window.end


def named(span: StepSpan) -> StepName:
    """What tells a step from others in another copy of its trace."""
    return StepName(label=span.label, process=span.pid)


def dropped_kinds(trace: Trace, drop: Sequence[str]) -> Bool:
    """Mask of the rows that are left out whole, whatever the cut, for the parts named."""
    out = np.zeros(len(trace), dtype=np.bool_)
    frames = trace.kind == RowKind.PYTHON
    if frames.any() and ("stacks" in drop or "modules" in drop):
        modules = frames & np.array([module_name(name) is not None for name in trace.names])[trace.name_id]
        if "stacks" in drop:
            out |= frames & ~modules
        if "modules" in drop:
            out |= modules
    if "memory" in drop:
        out |= trace.kind == RowKind.MEMORY
    return out


def _overlap(trace: Trace, window: Window) -> Bool:
    """Rows of which a part lies in the window; one without duration lies in it where it starts."""
    within: Bool = (trace.start < window.end) & ((trace.end > window.start) | (trace.start >= window.start))
    return within


def _of_process(trace: Trace, pid: int | str) -> Bool:
    return np.array([lane.pid == pid for lane in trace.lanes], dtype=np.bool_)[trace.lane]


def _following(context: Context, chosen: set[int], of: set[int] | None = None) -> list[int]:
    """Annotations of the steps right behind the chosen ones (``of`` some of them) that are not chosen themselves."""
    spans = [*context.trace.steps, *context.trace.marks]
    starts = {(step.pid, step.start): step for step in sorted(spans, key=lambda span: -span.start)}
    found = set()
    for index in sorted(chosen if of is None else of):
        begin = context.next_start.get(index)
        if begin is None:
            continue
        span = context.trace.steps[index]
        behind = starts[span.pid, begin]
        if behind.index not in chosen:
            found.add(behind.row)
    return sorted(found)


def _steps_by_name(trace: Trace, rows: Bool, kept: dict[int, tuple[str, int | str | None, int, int]]) -> None:
    """Take out the annotations of other steps; a second row of a kept step (torch 1.8 to 1.12) stays."""
    named = np.array([step_number(name) is not None for name in trace.names] or [False])
    labels = {label for label, *_ in kept.values()}
    for row in np.flatnonzero(rows & named[trace.name_id]).tolist():
        if trace.kind[row] == RowKind.GPU_ANNOTATION:
            rows[row] = trace.name(row) in labels
        elif trace.kind[row] in HOST_ROWS and row not in kept:
            pid, start, end = trace.lanes[int(trace.lane[row])].pid, int(trace.start[row]), int(trace.end[row])
            rows[row] = any(
                (trace.name(row), pid) == (label, owner) and start < last and end > first
                for label, owner, first, last in kept.values()
            )


def _complete(trace: Trace, cut: Cut, mine: Bool) -> None:
    """Add what the kept GPU rows hang on, and what on the GPU's lanes is no work but belongs to them.

    ``mine``: the GPU rows launched from inside. Of the others that are kept because they ran meanwhile, the launch and
    the operators around it stay as well, so that every kept kernel keeps its operator.
    """
    rows, links, kind = cut.rows, trace.links, trace.kind
    kept = np.flatnonzero(rows & np.isin(kind, GPU_WORK))
    named = np.array([step_number(name) is not None for name in trace.names] or [False])[trace.name_id]
    seen: set[int] = set()
    for anchor in np.unique(np.concatenate([links.launch[kept], links.op[kept]])).tolist():
        if anchor < 0:
            continue
        rows[anchor] = True
        for row in trace.forest.ancestors(anchor):
            if row in seen:
                break
            seen.add(row)
            if not named[row] and kind[row] != RowKind.PYTHON:
                rows[row] = True
    own = np.flatnonzero(mine)
    if len(own):
        first, last = int(trace.start[own].min()), int(trace.end[own].max())
        mirrors = (kind == RowKind.GPU_ANNOTATION) & (trace.start >= first) & (trace.end <= last)
        rows |= mirrors & ~named
        labels = {trace.name(row) for row in np.flatnonzero(rows & named & np.isin(kind, HOST_ROWS)).tolist()}
        for row in np.flatnonzero((kind == RowKind.GPU_ANNOTATION) & named).tolist():
            if trace.name(row) in labels - {trace.name(end) for end in cut.ends}:
                rows[row] = True
    syncs = kind == RowKind.SYNC
    if syncs.any():
        ids = trace.correlation[rows & (kind == RowKind.CALL)]
        rows |= syncs & np.isin(trace.correlation, ids[ids != 0])
    # The frame around the whole recording would be no longer what it says.
    rows &= kind != RowKind.SPAN
