"""``query``: SQL over the tables of a trace."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Answer, name_of, short
from foretrace.integrations.mcp.arguments import TracePath
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit
from foretrace.knowledge.agents import (
    ANSWER_BYTES,
    LARGEST_ANSWER_BYTES,
    MOST_PAGE,
    MOST_QUERY_ROWS,
    WHOLE_ANSWER_BYTES,
)
from foretrace.knowledge.tables import TABLES, Table, table_named
from foretrace.model.words import listed
from foretrace.report.text import clean

__all__ = ["QueryAnswer", "query"]

# Characters of a text in a row; where not even one row fits otherwise, fewer.
_CELL = 300
_CELLS = (_CELL, 100, 40, 20, 8, 0)
# Bytes of an answer that are neither columns nor rows, besides the path.
_AROUND = 250
Cell = int | float | str | bool | None
Item = TypeVar("Item", "ColumnFacts", "list[Cell]")


class ColumnFacts(Answer):
    """A column of a result."""

    name: str
    type: str
    unit: str | None = Field(description="null: it has none, or the query made something else of the column")


class TableFacts(Answer):
    """A table that can be asked."""

    name: str
    meaning: str
    columns: list[str] = Field(description="name and type; the unit is in the name")


class QueryAnswer(Answer):
    """The rows of a query, or without one the tables."""

    path: str
    tables: list[TableFacts]
    columns: list[ColumnFacts]
    columns_left_out: int = Field(
        default=0, description="columns at the end of the result that do not fit: name those you need, or give a limit"
    )
    rows: list[list[Cell]] = Field(description="values in the order of columns; null is not known")
    offset: int
    more: bool
    next_offset: int | None = None
    total: int | None = Field(default=None, description="rows in all; null without sql, or for more than a million")


def query(
    library: Library,
    path: TracePath,
    sql: Annotated[
        str | None,
        Field(
            description="One SELECT (or WITH … SELECT). Without it, the answer lists the tables and their columns.",
            max_length=10_000,
            examples=[
                "SELECT short_name, count(*) AS calls, sum(duration_us) AS total_us FROM kernels "
                "GROUP BY short_name ORDER BY total_us DESC"
            ],
        ),
    ] = None,
    table: Annotated[
        str | None, Field(description="Without sql: only this table, with what each column means.", max_length=60)
    ] = None,
    limit: Limit = None,
    offset: Annotated[
        int, Field(description="Rows to skip: next_offset of the answer before.", ge=0, le=MOST_QUERY_ROWS)
    ] = 0,
) -> QueryAnswer:
    """Run one query."""
    opened = library.open(path)
    opened.need_trace("a query")
    if sql is None:
        return QueryAnswer(path=opened.name, tables=_tables(table), columns=[], rows=[], offset=0, more=False)
    most = MOST_PAGE if limit is None else limit
    from foretrace.analysis.tables.result import result_of

    # One row more than is shown tells whether there is one.
    result = result_of(opened.tables().ask(sql, limit=offset + most + 1))
    most_rows, whole = (
        (ANSWER_BYTES, WHOLE_ANSWER_BYTES) if limit is None else (LARGEST_ANSWER_BYTES, LARGEST_ANSWER_BYTES)
    )
    room = whole - _AROUND - _size(opened.name)
    heads = [ColumnFacts(name=name_of(one.name), type=one.type, unit=one.unit) for one in result.columns]
    columns = _fitting(heads, room // 2)
    room -= sum(map(_size, columns))
    found = [row[: len(columns)] for row in result.rows[offset:]]
    rows = _fitting([_row(row, room) for row in found[:most]], min(most_rows, room))
    more = len(found) > len(rows)
    return QueryAnswer(
        path=opened.name,
        tables=[],
        columns=columns,
        columns_left_out=len(heads) - len(columns),
        rows=rows,
        offset=offset,
        more=more,
        next_offset=offset + len(rows) if more else None,
        total=result.total,
    )


def _tables(wanted: str | None) -> list[TableFacts]:
    if wanted is None:
        return [
            TableFacts(name=one.name, meaning=one.meaning, columns=[f"{c.name} {c.type}" for c in one.columns])
            for one in TABLES
        ]
    one = _table(wanted)
    columns = [f"{column.name} {column.type}: {column.meaning}" for column in one.columns]
    return [TableFacts(name=one.name, meaning=one.meaning, columns=columns)]


def _table(name: str) -> Table:
    table = table_named(name.lower())
    if table is None:
        raise InputError(f"there is no table {clean(name)!r}; the tables are {listed(each.name for each in TABLES)}")
    return table


def _fitting(items: Sequence[Item], room: int) -> list[Item]:
    """The first items that fit, and always one."""
    kept: list[Item] = []
    used = 0
    for item in items:
        used += _size(item)
        if kept and used > room:
            break
        kept.append(item)
    return kept


def _size(value: ColumnFacts | list[Cell] | str) -> int:
    """Bytes of a part of an answer, with the comma behind it."""
    plain = value.model_dump() if isinstance(value, ColumnFacts) else value
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return len(text.encode("utf-8", "replace")) + 1


def _row(values: Sequence[Any], room: int) -> list[Cell]:
    """The cells of a row, its texts as short as it takes to fit."""
    row: list[Cell] = []
    for most in _CELLS:
        row = [_cell(value, most) for value in values]
        if _size(row) <= room:
            break
    return row


def _cell(value: Any, most: int) -> Cell:
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return short(text, most) if most else "…"
