"""What a page about one trace draws besides its report: the timeline, the roofline plot, the events of the chain."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.model.roofline import RooflinePlot
from foretrace.model.timeline import Timeline

__all__ = ["Drawn"]


@dataclass(eq=False)
class Drawn:
    """Made by ``analysis/drawn.py``, laid out by the HTML reports.

    Attributes:
        timeline: of the trace; ``None`` where only its report is at hand.
        roofline: where the report's kernels stand.
        chain: the events of each node of the report's dispatch chain, nodes in reading order; a list is empty where
            the events are not certain. No lists at all without a timeline.
    """

    timeline: Timeline | None
    roofline: RooflinePlot
    chain: list[list[int]]
