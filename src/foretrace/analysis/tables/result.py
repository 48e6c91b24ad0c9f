"""A result as plain data: names, types, units and rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from foretrace.analysis.tables.statement import Statement
from foretrace.knowledge.tables import TABLES, unit_by_name
from foretrace.model.query import QueryColumn, QueryResult

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.tables.engine import Answer

__all__ = ["flat", "result_of"]

# A number of these is as whole as its parts, so an integer can be one; of the others it is a count of rows.
_WHOLE_UNITS = ("B", "FLOP")


def result_of(answer: Answer) -> QueryResult:
    """The answer as a document; lists stay lists."""
    frame = _plain(answer.frame)
    return QueryResult(
        columns=[_column(series, answer.statement) for series in frame.get_columns()],
        rows=[list(row) for row in frame.rows()],
        truncated=answer.truncated,
        total=answer.rows,
    )


def flat(frame: polars.DataFrame) -> polars.DataFrame:
    """The frame with lists as JSON text, for forms that have no lists."""
    import polars as pl

    frame = _plain(frame)
    nested = [name for name, dtype in frame.schema.items() if dtype.is_nested()]
    made = [
        pl.Series(
            name,
            [None if value is None else msgspec.json.encode(value).decode() for value in frame[name].to_list()],
            dtype=pl.String,
        )
        for name in nested
    ]
    return frame.with_columns(made)


def _plain(frame: polars.DataFrame) -> polars.DataFrame:
    """Integers, numbers, texts, booleans and lists; anything else (a date, a decimal) as text."""
    import polars as pl

    made = []
    for name, dtype in frame.schema.items():
        if dtype.is_integer() or dtype.is_nested() or dtype in (pl.String, pl.Boolean):
            continue
        made.append(pl.col(name).cast(pl.Float64 if dtype.is_float() or dtype.is_decimal() else pl.String))
    return frame.with_columns(made)


def _column(series: polars.Series, statement: Statement) -> QueryColumn:
    import polars as pl

    dtype = series.dtype
    if dtype.is_integer():
        kind = "integer"
    elif dtype.is_float():
        kind = "number"
    elif dtype.is_nested():
        kind = "list"
    else:
        kind = "boolean" if dtype == pl.Boolean else "text"
    return QueryColumn(name=series.name, type=kind, unit=_unit(series.name, kind, statement))  # type: ignore[arg-type]


def _unit(name: str, kind: str, statement: Statement) -> str | None:
    if kind not in ("integer", "number"):
        return None
    heading = next((one for one in statement.headings if one.name == name), None)
    if heading is not None:
        if heading.of is None:
            return None
        name = heading.of
    documented = [column for table in TABLES for column in table.columns if column.name == name]
    if documented:
        # `duration_us / 1000` may be named after the column, too.
        if heading is None and name in statement.changed:
            return None
        return next((column.unit for column in documented if column.type == kind or kind == "number"), None)
    unit = unit_by_name(name)
    return unit if kind == "number" or unit in _WHOLE_UNITS else None
