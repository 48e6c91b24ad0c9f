"""Aligned columns in a given width: text shrinks first, then the least important columns go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.model.words import UNKNOWN
from foretrace.report.text import Line, Span, cut, width_of

__all__ = ["Column", "table"]

GAP = 2


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        head: its heading, with the unit; ``\\n`` starts the second of two lines.
        left: aligned to the left (text) instead of to the right (numbers).
        least: cells the column may shrink to before columns are dropped; 0 means it never shrinks.
        keep: importance; when the width does not suffice, columns with the lowest value go first.
        cut: where a text that is too long loses its characters, "middle" or "end".
        style: style of its cells that bring none.
    """

    head: str
    left: bool = False
    least: int = 0
    keep: int = 5
    cut: str = "end"
    style: str = ""


Cell = Span | str


def table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int, indent: int = 2) -> list[Line]:
    """Lay out rows under one or two lines of headings.

    Columns in which every cell is unknown or empty are left out: they say nothing (what was not recorded is
    said in words elsewhere).
    """
    cells = [[cell if isinstance(cell, Span) else Span(cell) for cell in row] for row in rows]
    shown = [i for i in range(len(columns)) if any(row[i].text not in ("", UNKNOWN) for row in cells)]
    heads = [column.head.split("\n") for column in columns]
    natural = {i: max([width_of(part) for part in heads[i]] + [width_of(row[i].text) for row in cells]) for i in shown}
    shown = _dropped(columns, shown, natural, width - indent)
    widths = _shrunk(columns, shown, natural, width - indent)

    height = max((len(heads[i]) for i in shown), default=0)
    lines = []
    for level in range(height):
        # A heading of one line stands on the lower of two.
        parts = [heads[i][level - height + len(heads[i])] if level >= height - len(heads[i]) else "" for i in shown]
        lines.append(_row([Span(p, "head") for p in parts], columns, shown, widths, indent))
    for row in cells:
        spans = [row[i] if row[i].style else Span(row[i].text, columns[i].style) for i in shown]
        lines.append(_row(spans, columns, shown, widths, indent))
    return lines


def _dropped(columns: Sequence[Column], shown: list[int], natural: dict[int, int], width: int) -> list[int]:
    """The columns that fit once texts have shrunk as far as they may."""

    def least(i: int) -> int:
        return min(natural[i], columns[i].least) if columns[i].least else natural[i]

    kept = list(shown)
    while len(kept) > 1 and sum(least(i) for i in kept) + GAP * (len(kept) - 1) > width:
        # Of equally important ones the rightmost goes first.
        kept.remove(min(kept, key=lambda i: (columns[i].keep, -i)))
    return kept


def _shrunk(columns: Sequence[Column], shown: list[int], natural: dict[int, int], width: int) -> dict[int, int]:
    """Widths that fit: the widest text gives way first, down to its least."""
    widths = {i: natural[i] for i in shown}
    excess = sum(widths.values()) + GAP * (len(shown) - 1) - width
    while excess > 0:
        able = [i for i in shown if columns[i].least and widths[i] > columns[i].least]
        if not able:
            break
        widest = max(able, key=lambda i: (widths[i], -i))
        widths[widest] -= 1
        excess -= 1
    if excess > 0 and shown:
        # One column is left and the width does not hold even that.
        widths[shown[0]] = max(1, widths[shown[0]] - excess)
    return widths


def _row(spans: list[Span], columns: Sequence[Column], shown: list[int], widths: dict[int, int], indent: int) -> Line:
    parts = [Span(" " * indent)]
    for place, (i, span) in enumerate(zip(shown, spans, strict=True)):
        text = cut(span.text, widths[i], columns[i].cut)
        padding = " " * (widths[i] - width_of(text))
        last = place == len(shown) - 1
        gap = "" if place == 0 else " " * GAP
        if columns[i].left:
            parts += [Span(gap), Span(text, span.style), Span("" if last else padding)]
        else:
            parts += [Span(gap + padding), Span(text, span.style)]
    return [part for part in parts if part.text]
