"""Places in a trace that a link can lead to: a step, a finding, an event, a stretch of time."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from foretrace.errors import InputError
from foretrace.model.words import count, time
from foretrace.view.links import Window, window_of

if TYPE_CHECKING:
    from foretrace.model.report import Report
    from foretrace.trace.table import Trace

__all__ = ["event_window", "finding_window", "parse_range", "range_window", "step_window"]

# µ is written with two characters: the micro sign, and the Greek letter.
_TIME = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(?P<unit>ns|us|µs|μs|ms|s|)")
_NS = {"ns": 1, "": 1e3, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9}
# Times are kept in 64 bits.
_LATEST = 2**62


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


def parse_range(text: str) -> tuple[int | None, int | None]:
    """``1.5ms:3ms`` as ns, ``(1500000, 3000000)``; without a unit µs; an open end is None.

    Raises `InputError` for what is no range, or an empty one.
    """
    parts = [part.strip() for part in text.split(":")]
    if len(parts) != 2 or not any(parts):
        raise InputError(
            f"{text!r} is no range; write FROM:TO in µs, or with a unit, as in 1.5ms:3ms (one may be left out)"
        )
    low, high = (_ns(part) if part else None for part in parts)
    if low is not None and high is not None and high <= low:
        raise InputError(f"the range {text!r} is empty: its end is not behind its beginning")
    return low, high


def _ns(text: str) -> int:
    found = _TIME.fullmatch(text)
    value = math.inf if found is None else float(found["number"]) * _NS[found["unit"]]
    if value >= _LATEST:
        raise InputError(f"{text!r} is no time of a range; write a number of µs, or one with ns, us, ms or s behind it")
    return round(value)


def range_window(trace: Trace, start: int | None, end: int | None) -> Window | None:
    """A stretch of time, ns since the trace's origin as ``start_us`` of reports, None for an open end.

    Raises `InputError` where it lies behind the trace.
    """
    last = int(trace.end.max()) - trace.origin if len(trace) else 0
    start, end = start or 0, last if end is None else end
    if start >= last:
        raise InputError(f"the range begins at {time(start / 1000)}, after {trace.path} ends ({time(last / 1000)})")
    return window_of(trace, trace.origin + start, trace.origin + end)


def _row(trace: Trace, event: int) -> int | None:
    rows = np.flatnonzero(trace.event == event)
    return int(rows[0]) if len(rows) else None
