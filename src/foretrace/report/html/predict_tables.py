"""Tables of a prediction: its rows one by one, and together by operator, kind and shape."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.prediction import PredictedGroup, PredictedRow, PredictionInfo
from foretrace.model.words import UNKNOWN, number, scale_of_times
from foretrace.report.html.tables import Column, Table, times

__all__ = ["floor_of", "groups_table", "rows_of_groups", "rows_table"]

_OPERATOR_HELP = "the operator of the program that launches it"
_INTERVAL_HELP = "holds about 80 % of measured calls"


def groups_table(info: PredictionInfo) -> Table:
    """Rows of one operator, kind and shape together, most time first."""
    groups = info.groups
    columns = [
        Column("op", "operator", "name", [group.op for group in groups], help=_OPERATOR_HELP),
        Column("kind", "kind", "text", [group.kind for group in groups]),
        Column("shape", "M×N×K or elements", "text", [group.shape for group in groups]),
        Column("calls", "calls", "count", [group.calls for group in groups]),
        Column(
            "kernels",
            "rows",
            "count",
            [group.kernels for group in groups],
            help="more than calls where a library takes helper kernels",
        ),
        *_timed(groups, "spread"),
        Column("share", "share", "percent", [group.share for group in groups], unit="%", help="of the GPU time"),
        Column("bound", "bound", "text", [_bound(group) for group in groups]),
        Column("flops", "work", "flop", [group.flops for group in groups]),
        Column("bytes", "bytes", "bytes", [group.bytes for group in groups]),
    ]
    remarks = ["All calls of a step together, most time first. Nothing here was measured."]
    return Table("groups", "What will run", columns, len(groups), picks="groups", remarks=remarks)


def rows_table(info: PredictionInfo) -> Table:
    """Every kernel, memset and copy in the order they run."""
    rows = info.rows
    columns = [
        Column("place", "place", "count", list(range(1, len(rows) + 1)), help="in the order of the launches"),
        Column("op", "operator", "name", [row.op for row in rows], help=_OPERATOR_HELP),
        Column("kind", "kind", "text", [row.kind for row in rows]),
        Column("shape", "M×N×K or elements", "text", [row.shape for row in rows]),
        *_timed(rows, "interval"),
        times("floor", "floor", [floor_of(row) for row in rows], help="at the rates of the datasheet"),
        Column("bound", "bound", "text", [_bound(row) for row in rows]),
        Column("basis", "rests on", "text", [row.basis for row in rows]),
        Column("name", "name, a guess", "name", [row.name for row in rows], help="what the library may call it"),
    ]
    return Table("rows", "Row by row", columns, len(rows), picks="rows")


def _timed(rows: Sequence[PredictedGroup] | Sequence[PredictedRow], key: str) -> list[Column]:
    """The time and its interval, in one unit; the page draws a bar in the column ``spread``."""
    divisor, unit = scale_of_times(row.high_us for row in rows)
    spans = [f"{number(row.low_us / divisor)}–{number(row.high_us / divisor)}" for row in rows]
    return [
        Column("us", "time", "number", [row.us for row in rows], unit=unit, divisor=divisor),
        Column(key, "interval", "text", spans, unit=unit, help=_INTERVAL_HELP),
    ]


def floor_of(row: PredictedRow) -> float | None:
    """The time (µs) at the rates of the datasheet; of a memset of a few bytes it says nothing."""
    return row.floor_us if row.row == "kernel" else None


def _bound(row: PredictedGroup | PredictedRow) -> str:
    return UNKNOWN if row.bound == "unknown" or row.row != "kernel" else row.bound


def rows_of_groups(info: PredictionInfo) -> list[dict[str, object]]:
    """For each group its events and its interval as shares of the longest, for drawing."""
    most = max((group.high_us for group in info.groups), default=0.0) or 1.0
    members: dict[tuple[object, ...], list[int]] = {}
    for row in info.rows:
        members.setdefault((row.row, row.kind, row.op, row.shape), []).append(row.event)
    return [
        {
            "events": members.get((group.row, group.kind, group.op, group.shape), []),
            "low": group.low_us / most,
            "high": group.high_us / most,
            "at": group.us / most,
        }
        for group in info.groups
    ]
