"""The tables that a trace can be asked for in SQL, as data: schema ``foretrace.tables/1``."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["SCHEMA", "Described", "DescribedColumn", "DescribedTable"]

SCHEMA: Literal["foretrace.tables/1"] = "foretrace.tables/1"


class DescribedColumn(msgspec.Struct, kw_only=True):
    """One column; ``unit`` is null where it has none."""

    name: str
    type: str
    unit: str | None
    meaning: str


class DescribedTable(msgspec.Struct, kw_only=True):
    """One table."""

    name: str
    meaning: str
    columns: list[DescribedColumn]


class Described(msgspec.Struct, kw_only=True):
    """The tables."""

    schema: Literal["foretrace.tables/1"] = SCHEMA
    tables: list[DescribedTable]
