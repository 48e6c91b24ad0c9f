"""The data block of a timeline, as ``foretrace.timelineOptions`` of the page takes it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from foretrace.model.timeline import Timeline
from foretrace.report.html.payload import data_block
from foretrace.report.text import clean

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["timeline_block"]


def timeline_block(id: str, timeline: Timeline) -> Markup:
    """The timeline as a data block: lanes, names and bands as the document, rows and arrows as columns.

    Unprintable characters of its texts are spelled out, as everywhere in a page.

    Raises:
        ValueError: a time beyond 2⁵³ ns.
    """
    names = [clean(name) for name in timeline.names]
    document = {
        "lanes": [
            replace(lane, title=clean(lane.title), group=clean(lane.group), subtitle=clean(lane.subtitle))
            for lane in timeline.lanes
        ],
        "names": names,
        "labels": [clean(label) for label in timeline.labels] or names,
        "kinds": [clean(kind) for kind in timeline.kinds],
        "bands": [{"label": clean(band.label), "start": band.start_ns, "end": band.end_ns} for band in timeline.bands],
        "left_out": timeline.left_out,
        "origin": timeline.origin_ns,
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
