"""Everything that a page about one trace draws, in one pass."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.analysis.chain_rows import chain_events
from foretrace.analysis.roofline_plot import roofline_of
from foretrace.analysis.timeline import timeline_of
from foretrace.model.drawn import Drawn
from foretrace.model.report import Report
from foretrace.trace.table import Trace

__all__ = ["drawn_of"]


def drawn_of(trace: Trace | None, report: Report, *, steps: Sequence[int] | None = None) -> Drawn:
    """Timeline, roofline and chain of a report.

    Args:
        trace: what the report is of; ``None`` where it is not at hand, and nothing but the roofline can be drawn.
        report: of the same steps.
        steps: positions of the steps it speaks of; ``None``: all.
    """
    timeline = None if trace is None else timeline_of(trace, report, steps=steps)
    chain = [] if timeline is None else chain_events(report, timeline)
    return Drawn(timeline, roofline_of(report), chain)
