"""Places in a trace that a link can lead to: a step, a finding, an event, a stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import InputError
from foretrace.model.words import count, time
from foretrace.view.links import Window, window_of

if TYPE_CHECKING:
    from foretrace.model.report import Report
    from foretrace.trace.table import Trace

__all__ = ["event_window", "finding_window", "range_window", "step_window"]


def step_window(trace: Trace, steps: Sequence[int]) -> Window | None:
    """The steps at these positions of ``trace.steps``, with the GPU work that they launched; selects the first.

    None where no link can lead there (see ``window_of``), here and below.
    """
    from foretrace.trace.steps import step_of_rows

    spans = [trace.steps[position] for position in steps]
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    # GPU work of a step runs on after the step's annotation has ended.
    gpu = trace.gpu_rows
    launch = trace.links.launch[gpu]
    linked = launch >= 0
    owner = step_of_rows(trace, launch[linked])
    ends = trace.end[gpu[linked]][np.isin(owner, steps)]
    first = min(spans, key=lambda span: span.start).row
    return window_of(trace, start, max(end, int(ends.max(initial=end))), row=first if first >= 0 else None)


def finding_window(trace: Trace, report: Report, number: int) -> Window | None:
    """The events that the ``number``-th finding (1 is the first) rests on; selects the first of them.

    Raises `InputError` where there is no such finding, or it rests on no event.
    """
    found = report.findings
    if not 1 <= number <= len(found):
        there = f"it has {count(len(found), 'finding')}" if found else "it has none"
        raise InputError(f"{trace.path} has no finding {number}: {there}; `foretrace explain` lists them")
    finding = found[number - 1]
    rows = [row for evidence in finding.evidence if (row := _row(trace, evidence.event)) is not None]
    if not rows:
        raise InputError(
            f"finding {number} ({finding.title}) is about no event in particular; choose a place with --step or --range"
        )
    first = min(rows, key=lambda row: int(trace.start[row]))
    return window_of(trace, int(trace.start[first]), int(trace.end[rows].max()), row=first)


def event_window(trace: Trace, event: int) -> Window | None:
    """One event, by its position in the file as reports give it; raises `InputError` where that is no row."""
    row = _row(trace, event)
    if row is None:
        what = "has no duration of its own" if 0 <= event < trace.total_events else "does not exist"
        raise InputError(
            f"event {event} of {trace.path} {what}; events are positions in traceEvents, 0 to "
            f"{trace.total_events - 1}, as `foretrace explain` gives them"
        )
    return window_of(trace, int(trace.start[row]), int(trace.end[row]), row=row)


def range_window(trace: Trace, start: int, end: int) -> Window | None:
    """A stretch of time, ns since the trace's origin as ``start_us`` of reports; raises `InputError` outside it."""
    last = int(trace.end.max()) - trace.origin if len(trace) else 0
    if start >= last:
        raise InputError(f"the range begins at {time(start / 1000)}, after {trace.path} ends ({time(last / 1000)})")
    return window_of(trace, trace.origin + start, trace.origin + end)


def _row(trace: Trace, event: int) -> int | None:
    rows = np.flatnonzero(trace.event == event)
    return int(rows[0]) if len(rows) else None
