"""The data block of a timeline, as ``foretrace.timelineOptions`` of the page takes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from foretrace.model.timeline import Timeline
from foretrace.report.html.payload import data_block

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["timeline_block"]


def timeline_block(id: str, timeline: Timeline) -> Markup:
    """The timeline as a data block: lanes, names and bands as the document, rows and arrows as columns.

    Raises:
        ValueError: a time beyond 2⁵³ ns.
    """
    document = {
        "lanes": timeline.lanes,
        "names": timeline.names,
        "labels": timeline.labels or timeline.names,
        "kinds": timeline.kinds,
        "bands": [{"label": band.label, "start": band.start_ns, "end": band.end_ns} for band in timeline.bands],
        "left_out": timeline.left_out,
        "unit": "ns",
    }
    columns: dict[str, NDArray[Any]] = {
        "lane": timeline.lane,
        "depth": timeline.depth,
        "start": timeline.start,
        "duration": timeline.duration,
        "name": timeline.name,
        "kind": timeline.kind,
        "event": timeline.event,
        "arrow_from": timeline.arrow_from,
        "arrow_to": timeline.arrow_to,
    }
    return data_block(id, document, columns)
