"""What a query over a trace's tables found, as plain data: the JSON of ``foretrace sql --json``."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["QueryColumn", "QueryResult"]


class QueryColumn(msgspec.Struct, kw_only=True):
    """One column of a result; ``unit`` is None where it has none, or where a query made something else of it."""

    name: str
    type: Literal["integer", "number", "text", "boolean", "list"]
    unit: str | None


class QueryResult(msgspec.Struct, kw_only=True):
    """Rows of a result, each with one value a column; what is unknown is null.

    ``truncated``: there are more rows than ``rows`` has; ``total`` is how many there are, None for more than a million.
    """

    schema: Literal["foretrace.sql/1"] = "foretrace.sql/1"
    columns: list[QueryColumn]
    rows: list[list[Any]]
    truncated: bool
    total: int | None
