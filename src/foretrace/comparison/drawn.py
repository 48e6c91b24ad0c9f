"""The step that is compared as something to draw: every trace's on a clock that starts with its own step."""

from __future__ import annotations

from dataclasses import replace

from foretrace.analysis.timeline import timeline_of
from foretrace.comparison.subject import Subject
from foretrace.model.timeline import Band, Timeline
from foretrace.trace.table import Trace

__all__ = ["timeline_of_step"]


def timeline_of_step(subject: Subject, trace: Trace) -> Timeline | None:
    """What the compared step holds and launched; times count from the start of the step.

    ``None`` where the trace has no step. A row that starts before the step, on a clock that disagrees, is negative.
    """
    if subject.typical is None:
        return None
    step = subject.steps[subject.typical]
    timeline = timeline_of(trace, subject.report, steps=[step.index])
    if timeline.bands:
        zero = timeline.bands[0].start_ns
    elif len(timeline):
        zero = int(timeline.start.min())
    else:
        zero = 0
    bands = [Band(band.label, band.start_ns - zero, band.end_ns - zero) for band in timeline.bands]
    return replace(timeline, start=timeline.start - zero, bands=bands)
