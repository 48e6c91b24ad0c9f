"""The result of a query on a screen: aligned columns, or one row under another where a single row is too wide."""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.model.query import QueryResult
from foretrace.model.words import count, listed, number
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, clean, cut, line, note, paint, plain, width_of
from foretrace.report.view import View

__all__ = ["render_rows"]

_GAP = 2  # cells between columns
_LEAST = 16  # cells that a text keeps at least
_WIDE = 1_000_000  # of a screen that cuts nothing
_DIGITS = 4
_NULL = Span("NULL", "dim")


def render_rows(result: QueryResult, view: View | None = None) -> str:
    """The rows as text that ends in a newline; ``view.everything`` cuts nothing.

    Texts are cut before columns are left out, from the right; what is left out is said. ``view`` defaults to plain
    text, 100 columns wide.
    """
    view = view or View()
    width = _WIDE if view.everything else view.width
    cells = [[_cell(value) for value in row] for row in result.rows]
    heads = [clean(column.name) for column in result.columns]
    texts = [column.type in ("text", "list") for column in result.columns]
    content: list[Line]
    if not cells:
        content = [line(f"no rows; columns: {', '.join(heads)}")]
    else:
        shown = _fitting(heads, texts, cells, width)
        if shown < len(heads) and len(cells) == 1:
            content = _folded(heads, cells[0], width)
        else:
            columns = [
                Column(head, left=text, least=_LEAST if text else 0, cut="middle")
                for head, text in zip(heads[:shown], texts[:shown], strict=True)
            ]
            content = table(columns, [row[:shown] for row in cells], width, indent=0)
            content += _left_out(heads[shown:], view.width)
    content += _rest(result, view.width)
    return paint(content) if view.color else plain(content)


def _cell(value: Any) -> Span:
    if value is None:
        return _NULL
    if isinstance(value, bool):
        return Span("true" if value else "false")
    if isinstance(value, str):
        return Span(value or "''")
    if isinstance(value, int):
        return Span(str(value))
    if isinstance(value, float):
        # What division by zero gives, in the words of the engine.
        return Span(number(value, _DIGITS) if value - value == 0 else str(value))
    return Span(msgspec.json.encode(value).decode())


def _fitting(heads: list[str], texts: list[bool], cells: list[list[Span]], width: int) -> int:
    """How many columns from the left fit once texts are as short as they may be; at least one."""
    used = 0
    for place, head in enumerate(heads):
        natural = max([width_of(head), *(width_of(row[place].text) for row in cells)])
        used += (min(natural, _LEAST) if texts[place] else natural) + (_GAP if place else 0)
        if used > width:
            return max(1, place)
    return len(heads)


def _folded(heads: list[str], row: list[Span], width: int) -> list[Line]:
    room = max(map(width_of, heads))
    left = max(1, width - room - _GAP)
    return [
        line(Span(head, "head"), " " * (room - width_of(head) + _GAP), Span(cut(cell.text, left, "middle"), cell.style))
        for head, cell in zip(heads, row, strict=True)
    ]


def _left_out(heads: list[str], width: int) -> list[Line]:
    if not heads:
        return []
    what = f"{count(len(heads), 'column')} not shown at this width: {listed(heads)}"
    return [[], *note(f"{what}; name the columns you need, or see all with --all, --csv or --json", width, indent=0)]


def _rest(result: QueryResult, width: int) -> list[Line]:
    if not result.truncated:
        return []
    shown = len(result.rows)
    more = f"{count(result.total - shown, 'more row')}" if result.total is not None else "more than a million more rows"
    return note(f"{more}; --top N shows more, --all every one", width, indent=0)
