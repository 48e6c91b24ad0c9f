"""Predicted kernels beside the measured ones: slices that begin where the measured kernel does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.analysis.explain import report_of
from foretrace.errors import InputError
from foretrace.model.prediction import PredictedRow
from foretrace.model.report import Report
from foretrace.model.sidefile import SideFile
from foretrace.model.words import time
from foretrace.trace import load
from foretrace.trace.table import Trace
from foretrace.view.annotate_tracks import Slice

__all__ = ["predicted_slices"]


def predicted_slices(
    trace: Trace, report: Report, side: SideFile | None, predicted: str | Path | None, row_of: dict[int, int]
) -> Iterator[tuple[str, list[Slice]]]:
    """Titles and slices of what was predicted: of the trace itself where it is a prediction, else of ``predicted``.

    Raises `InputError` where ``predicted`` is no predicted timeline.
    """
    if report.trace.predicted:
        rows = report.prediction.rows if report.prediction is not None else []
        yield "predicted, at most", [_interval(trace, row_of[row.event], row) for row in rows if row.event in row_of]
        return
    if predicted is None:
        return
    timeline = load(predicted)
    other = report_of(timeline)
    if other.prediction is None:
        raise InputError(f"{predicted} is no predicted timeline; write one with `foretrace predict -o FILE`")
    yield "predicted", _beside(trace, report, side, timeline, other, row_of)


def _interval(trace: Trace, row: int, told: PredictedRow) -> Slice:
    """The longest that a predicted row was said to take."""
    name = f"{time(told.us)}, most likely {time(told.low_us)} to {time(told.high_us)}"
    return Slice(name, int(trace.start[row]), round(told.high_us * 1000), _of_row(told))


def _beside(
    trace: Trace, report: Report, side: SideFile | None, timeline: Trace, other: Report, row_of: dict[int, int]
) -> list[Slice]:
    """What was predicted for the rows of every step that launches the work of the typical one."""
    from foretrace.comparison.align import match_rows
    from foretrace.comparison.subject import make_subject

    measured, planned = make_subject(report, trace, side), make_subject(other, timeline, None)
    told = {} if other.prediction is None else {row.event: row for row in other.prediction.rows}
    matches = match_rows(measured.items, planned.items)
    slices = []
    for position in measured.like:
        rows = measured.rows.get(measured.steps[position].index, [])
        for match in matches:
            row, plan = rows[match.a], told.get(planned.items[match.b].event)
            if plan is None:
                continue
            verdict = (
                "as predicted"
                if plan.low_us <= row.duration_us <= plan.high_us
                else ("longer than predicted" if row.duration_us > plan.high_us else "shorter than predicted")
            )
            args = {
                **_of_row(plan),
                "measured": time(row.duration_us),
                "measured kernel": row.name,
                "paired by": match.how,
            }
            start = int(trace.start[row_of[row.event]])
            slices.append(Slice(f"{time(plan.us)} ({verdict})", start, round(plan.us * 1000), args))
    return slices


def _of_row(told: PredictedRow) -> dict[str, Any]:
    args: dict[str, Any] = {
        "predicted": time(told.us),
        "interval": f"{time(told.low_us)} to {time(told.high_us)}",
        "kernel": told.name,
        "operator": told.op,
        "shape": told.shape,
        "rests on": told.basis,
    }
    return {key: value for key, value in args.items() if value is not None}
