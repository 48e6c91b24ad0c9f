"""How a table's frame is made: with the columns, the order and the types that ``knowledge.tables`` documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import step_number
from foretrace.knowledge.tables import Table, table_named
from foretrace.trace.frames import texts

if TYPE_CHECKING:
    import polars

    from foretrace.trace.table import Trace

__all__ = ["described", "events_at", "labels_of", "shaped", "shared_texts", "text_of", "whole_numbers"]

Int64 = NDArray[np.int64]


def described(name: str) -> Table:
    """The description of one of the tables."""
    found = table_named(name)
    assert found is not None, name
    return found


def shaped(name: str, data: Mapping[str, Any]) -> polars.DataFrame:
    """The frame of a table; ``data`` holds its columns (or some), as Series, arrays or lists (None: unknown)."""
    import polars as pl

    types = {"integer": pl.Int64, "number": pl.Float64, "text": pl.String, "boolean": pl.Boolean}
    series = []
    documented = described(name)
    assert data.keys() <= set(documented.names), data.keys() - set(documented.names)
    for column in documented.columns:
        if column.name not in data:
            continue
        values, dtype = data[column.name], types[column.type]
        if isinstance(values, pl.Series):
            series.append(values.alias(column.name).cast(dtype))
        else:
            series.append(pl.Series(column.name, values, dtype=dtype))
    return pl.DataFrame(series)


def shared_texts(values: Iterable[str | None]) -> polars.Series:
    """Texts of which many are equal, each held once."""
    import polars as pl

    places: dict[str | None, int] = {}
    at = [places.setdefault(value, len(places)) for value in values]
    distinct = texts([value or "" for value in places])
    if None in places:
        distinct = pl.DataFrame({"text": distinct, "known": [value is not None for value in places]}).select(
            pl.when("known").then("text")
        )["text"]
    return distinct.gather(at)


def labels_of(trace: Trace, steps: Int64 | polars.Series) -> polars.Series:
    """The labels of steps by their positions, as reports show them; NULL where a position is negative or NULL."""
    import polars as pl

    positions = pl.Series("step", steps, dtype=pl.Int64)
    numbers = [step_number(span.label) for span in trace.steps]
    shown = zip(trace.steps, numbers, strict=True)
    labels = texts([span.label if number is None else f"#{number}" for span, number in shown])
    return labels.gather(pl.DataFrame(positions).select(pl.when(pl.col("step") >= 0).then("step"))["step"])


def whole_numbers(values: Iterable[object]) -> list[int | None]:
    """Integers of 64 bits; what is none, or does not fit, is unknown."""
    return [v if isinstance(v, int) and -(2**63) <= v < 2**63 else None for v in values]


def events_at(event: Int64, rows: Iterable[int]) -> polars.Series:
    """Event numbers of other rows; NULL where the row is -1."""
    import polars as pl

    at = np.fromiter(rows, dtype=np.int64)
    if not len(at):
        return pl.Series([], dtype=pl.Int64)
    numbers = np.where(at >= 0, event[np.maximum(at, 0)] if len(event) else -1, -1)
    return pl.DataFrame({"event": numbers}).select(pl.when(pl.col("event") >= 0).then("event"))["event"]


def text_of(value: object) -> str | None:
    """A decoded fact as text: a list is joined, None and an empty list are unknown."""
    if isinstance(value, list):
        return ", ".join(map(str, value)) or None
    return None if value is None else str(value)
