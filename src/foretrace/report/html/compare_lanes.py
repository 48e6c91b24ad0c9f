"""The compared steps under each other: where they are drawn, and which rows belong together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foretrace.model.comparison import Comparison, Pair, Place, Row
from foretrace.model.timeline import Timeline
from foretrace.model.words import count, listed, time
from foretrace.report import compare_cells as cells
from foretrace.report.html.page import Section, section
from foretrace.report.html.payload import data_block
from foretrace.report.text import clean

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["lanes_section", "pairs_block"]


def lanes_section(comparison: Comparison, timelines: Sequence[Timeline | None]) -> Section:
    """The place of the lanes, and in words what is not in them."""
    sides = comparison.sides
    without = [side.label for side, timeline in zip(sides, timelines, strict=True) if timeline is None]
    said = []
    if without:
        many = len(without) > 1
        said.append(
            f"{listed(without)} {'are reports' if many else 'is a report'} without {'their traces' if many else 'its'}"
            f"{'' if many else ' trace'}, so {'they have' if many else 'it has'} no lanes."
        )
    drawn = [(side, timeline) for side, timeline in zip(sides, timelines, strict=True) if timeline is not None]
    steps = [
        f"{side.label}: {side.step or 'the whole trace'}, {count(len(timeline), 'row')}" for side, timeline in drawn
    ]
    said += [f"{'; '.join(steps)}."] if steps else []
    left = dict.fromkeys(why for _, timeline in drawn for why, many in timeline.left_out.items() if many)
    said += [f"Not drawn: {'; '.join(left)}."] if left else []
    pairs = [pair for pair in comparison.pairs if pair.related]
    return section(
        "timeline",
        "Side by side",
        "compare_lanes.html.j2",
        needs=("d3", "lanes", "compare"),
        said=said,
        pairs=[(pair.b, sides[pair.b].label) for pair in pairs],
        baseline=sides[0].label,
        drawn=bool(drawn),
    )


def pairs_block(id: str, comparison: Comparison) -> Markup:
    """Sides and pairs as the document of a data block; places are in the order of their table."""
    document = {
        "sides": [
            {"label": side.label, "predicted": side.predicted, "step": side.step, "alike": side.like_steps}
            for side in comparison.sides
        ],
        "pairs": [_pair(pair) for pair in comparison.pairs if pair.related],
    }
    return data_block(id, document)


def _pair(pair: Pair) -> dict[str, Any]:
    return {"a": pair.a, "b": pair.b, "places": [_place(place) for place in cells.places_in_order(pair)]}


def _place(place: Place) -> dict[str, Any]:
    return {
        "category": place.category,
        "words": clean(cells.place_words(place)),
        "title": clean(place.title),
        "count": place.count,
        "a": {"events": place.a_events, "rows": [_row(row) for row in place.a], "us": time(place.a_us)},
        "b": {"events": place.b_events, "rows": [_row(row) for row in place.b], "us": time(place.b_us)},
        "change": cells.change_words(place.change) if place.a and place.b else "",
        "how": place.how,
    }


def _row(row: Row) -> dict[str, Any]:
    return {
        "name": clean(row.short_name),
        "kind": row.kind,
        "op": None if row.op is None else clean(row.op),
        "module": None if row.module is None else clean(row.module),
        "us": time(row.us),
        "bytes": row.bytes,
        "flops": row.flops,
    }
