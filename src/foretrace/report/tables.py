"""The tables that can be asked in SQL, described: on a screen, and as the page of the documentation."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.knowledge.sql import FUNCTIONS, OFFERED, QUERY_BYTES, QUERY_SECONDS
from foretrace.knowledge.tables import ARGS, TABLES, Column, Table
from foretrace.model.tables import Described, DescribedColumn, DescribedTable
from foretrace.model.words import bytes_of, number
from foretrace.report.table import Column as Cells
from foretrace.report.table import table
from foretrace.report.text import Line, Span, line, note, paint, plain
from foretrace.report.view import View

__all__ = ["described", "render_tables", "tables_markdown"]


def render_tables(tables: Sequence[Table] = TABLES, view: View | None = None) -> str:
    """The tables with their columns, types, units and meanings, as text that ends in a newline."""
    view = view or View()
    content: list[Line] = []
    for one in tables:
        content += [[]] if content else []
        content += [line(Span(one.name, "section")), *note(one.meaning, view.width)]
        content += _columns(_all_columns(one), view.width)
    return paint(content) if view.color else plain(content)


def _columns(columns: Sequence[Column], width: int) -> list[Line]:
    """Name, type, unit, and the meaning wrapped beside them."""
    heads = [Cells("column", left=True), Cells("type", left=True), Cells("unit", left=True)]
    rows = [[column.name, column.type, column.unit or " "] for column in columns]
    left = table(heads, rows, width)
    room = max(sum(len(span.text) for span in row) for row in left) + 2
    lines = [[*left[0]]]
    for row, column in zip(left[1:], columns, strict=True):
        used = sum(len(span.text) for span in row)
        pieces = note(column.meaning, max(20, width - room), indent=0)
        lines.append([*row, Span(" " * (room - used)), *pieces[0]])
        lines += [[Span(" " * room), *piece] for piece in pieces[1:]]
    return lines


def described(tables: Sequence[Table] = TABLES) -> Described:
    """The tables as a document (schema ``foretrace.tables/1``)."""
    return Described(
        tables=[
            DescribedTable(
                name=one.name,
                meaning=one.meaning,
                columns=[DescribedColumn(**column._asdict()) for column in _all_columns(one)],
            )
            for one in tables
        ]
    )


def tables_markdown() -> str:
    """The page ``docs/reference/tables.md``."""
    parts = [
        "# Tables of a trace\n",
        '`foretrace sql TRACE "select …"` and `foretrace.analysis.tables.Tables` answer SQL over these tables. '
        "[Ask a trace in SQL](../how-to/sql.md) shows how. This page is made from `knowledge/tables.py`.\n",
        "**Unknown is NULL**, never 0 or -1. Columns that end in `event` hold event numbers (positions in the file's "
        "`traceEvents`) and join the tables. Step, phase and time are defined in [Steps](../concepts/steps.md).\n",
    ]
    for one in TABLES:
        parts.append(f"## {one.name}\n")
        parts.append(f"{one.meaning}\n")
        lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
        lines += [f"| `{c.name}` | {c.type} | {c.unit or ''} | {c.meaning} |" for c in _all_columns(one)]
        parts.append("\n".join(lines) + "\n")
    parts.append("## What a query can be\n")
    parts.append(
        f"One statement: {OFFERED}. The engine is Polars. Names and functions are written in small or capital letters; "
        "text stands in single quotes. Nothing is written, no file is read: other statements and functions that make "
        f"tables are refused. A query runs for {number(QUERY_SECONDS)} seconds at most (`--timeout`) and takes at most "
        f"{bytes_of(QUERY_BYTES)} of memory, or half of the machine's. Without `ORDER BY`, the rows of a grouped or "
        "joined result are in order of their columns.\n"
    )
    parts.append("Functions: " + ", ".join(f"`{name}`" for name in sorted(FUNCTIONS)) + ".\n")
    return "\n".join(parts)


def _all_columns(one: Table) -> tuple[Column, ...]:
    return (*one.columns, ARGS) if one.name == "events" else one.columns
