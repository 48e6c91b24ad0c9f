"""The rows of a trace as a Polars frame, with the ties between them (step, enclosing row) as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.kineto import RowKind
from foretrace.trace.steps import steps_of_rows

if TYPE_CHECKING:
    import polars

    from foretrace.trace.table import Trace

__all__ = ["events_frame", "known", "texts"]

Int64 = NDArray[np.int64]


def events_frame(trace: Trace) -> polars.DataFrame:
    """One row an event, in the order of the trace's rows; the columns are those of ``Trace.events``."""
    import polars as pl

    kinds = texts([kind.name.lower() for kind in RowKind])
    instant = trace.kind == RowKind.MEMORY
    parent = trace.forest.parent
    return pl.DataFrame(
        {
            "event": trace.event,
            "name": texts(trace.names).gather(trace.name_id),
            "category": texts(trace.categories).gather(trace.category_id),
            "kind": kinds.gather(trace.kind.astype(np.int64)),
            "start_us": (trace.start - trace.origin) / 1000,
            "duration_us": known(trace.duration / 1000, ~instant),
            "process": texts([str(lane.pid) for lane in trace.lanes]).gather(trace.lane),
            "thread": texts([str(lane.tid) for lane in trace.lanes]).gather(trace.lane),
            "correlation": known(trace.correlation, trace.correlation != 0),
            "external_id": known(trace.external, trace.external != 0),
            "stream": known(trace.stream.astype(np.int64), trace.stream >= 0),
            "device": known(trace.device.astype(np.int64), trace.device >= 0),
            "step": known(steps := steps_of_rows(trace), steps >= 0),
            "parent_event": known(_at(trace.event, parent), parent >= 0),
        }
    )


def known(values: NDArray[Any], mask: NDArray[np.bool_]) -> polars.Series:
    """The values, NULL where the mask is False."""
    import polars as pl

    return pl.DataFrame({"value": values, "known": mask}).select(pl.when("known").then("value")).to_series()


def texts(values: list[str]) -> polars.Series:
    """Text as a column; half of a surrogate pair, which is no character, becomes U+FFFD."""
    import polars as pl

    try:
        return pl.Series(values, dtype=pl.String)
    except UnicodeEncodeError:
        whole = [value.encode("utf-8", "surrogatepass").decode("utf-8", "replace") for value in values]
        return pl.Series(whole, dtype=pl.String)


def _at(values: Int64, rows: Int64) -> Int64:
    """The values of other rows; anything where the row is -1."""
    return values[np.maximum(rows, 0)] if len(values) else rows
