"""The page of ``foretrace predict``: what will run, for how long and how surely; nothing in it was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrace.model.drawn import Drawn
from foretrace.model.prediction import PredictionInfo
from foretrace.model.report import Report
from foretrace.model.words import BOUND_WORDS, bytes_of, count, flop, listed, time
from foretrace.report.html.dispatch import chain
from foretrace.report.html.explain import drawn_blocks, roofline_section, timeline_section
from foretrace.report.html.page import Masthead, Page, Section, render, section
from foretrace.report.html.payload import data_block
from foretrace.report.html.predict_tables import floor_of, groups_table, rows_of_groups, rows_table
from foretrace.report.html.tables import Table

__all__ = ["predict_page"]

_PREDICTED = "PREDICTED"
_NEEDS = ("tabulator", "tables", "predict")


def predict_page(report: Report, drawn: Drawn) -> bytes:
    """One self-contained HTML file in UTF-8.

    Args:
        report: of a predicted trace.
        drawn: of the same trace.

    Raises:
        ValueError: the report is of a recording, or a time lies beyond 2⁵³ ns.
    """
    info = report.prediction
    if info is None:
        raise ValueError("the report is not of a predicted trace")
    if (timeline := drawn.timeline) is not None:
        lanes = [replace(lane, group=f"{_PREDICTED} · {lane.group}") for lane in timeline.lanes]
        drawn = replace(drawn, timeline=replace(timeline, lanes=lanes))
    groups, rows = groups_table(info), rows_table(info)
    sections = [_whole(report, info)]
    sections += [_guessed(info)] if info.unknown else []
    if info.rows:
        sections.append(_groups(info, groups))
    sections.append(_said(timeline_section(drawn.timeline)))
    if info.rows:
        sections.append(
            section(
                "rows",
                "Row by row, predicted",
                "predict_rows.html.j2",
                needs=_NEEDS,
                count=str(rows.rows),
                table=rows,
            )
        )
        sections.append(_said(roofline_section(report, drawn.roofline)))
    sections += [_said(chain(report, drawn.chain))] if report.chain else []
    sections.append(_basis(info))
    blocks = [
        *drawn_blocks(report, drawn),
        data_block("data-tables", [table.data() for table in (groups, rows) if table.rows]),
        data_block("data-predicted", {"groups": rows_of_groups(info), "rows": _rows(info)}),
    ]
    return render(Page(_masthead(info), sections, blocks))


def _said(one: Section) -> Section:
    """The section with a title that says that it was predicted."""
    return replace(one, title=f"{one.title}, predicted")


def _masthead(info: PredictionInfo) -> Masthead:
    facts = [f"for {info.gpu}, by foretrace {info.version}"]
    facts += [" · ".join(info.modelled)] if info.modelled else []
    return Masthead(
        verb="predict",
        title=f"{info.program}, {info.variant}, {info.mode}",
        facts=facts,
        alarms=[(_PREDICTED, f"for {info.gpu}; nothing ran, nothing was measured")],
    )


@dataclass(frozen=True)
class _Span:
    """A time or an interval on the axis that all of them share; positions in percent."""

    what: str
    kind: str
    left: float
    width: float
    at: float
    said: str
    why: str


def _longest(info: PredictionInfo) -> float:
    """Where the axis of the times ends, µs."""
    ends = [info.gpu_busy_high_us, info.cpu_us, info.compute_floor_us, info.memory_floor_us]
    return max((end for end in ends if end), default=0.0)


def _spans(info: PredictionInfo) -> list[_Span]:
    """The times of the step on one axis."""
    most = _longest(info)
    if not most:
        return []
    scale = 100 / most
    low, high = info.gpu_busy_low_us, info.gpu_busy_high_us
    spans = [
        _Span(
            "GPU busy",
            "range",
            low * scale,
            (high - low) * scale,
            info.gpu_busy_us * scale,
            f"{time(info.gpu_busy_us)} ({time(low)} to {time(high)})",
            "the sum of all rows; its ends have all of them off to the same side",
        )
    ]
    for what, us, why in (
        ("compute floor", info.compute_floor_us, f"{flop(info.flops)} at peak"),
        ("memory floor", info.memory_floor_us, f"{bytes_of(info.bytes)} at full bandwidth"),
        ("CPU", info.cpu_us, "to dispatch the step, without a profiler"),
    ):
        if us is not None:
            spans.append(_Span(what, what.split()[-1].lower(), 0.0, us * scale, us * scale, time(us), why))
    return spans


def _whole(report: Report, info: PredictionInfo) -> Section:
    launched = [count(info.kernels, "kernel")]
    launched += [count(info.memsets, "memset")] if info.memsets else []
    launched += [count(info.memcpys, "copy", "copies")] if info.memcpys else []
    if info.rows:
        runs = f"{listed(launched)}, {count(len(info.rows), 'launch', 'launches')} a step"
    else:
        followed = " that was followed" if info.unknown else ""
        runs = f"Nothing is launched: no operator of this step{followed} does work on the GPU."
    return section(
        "prediction",
        "Prediction",
        "predict_whole.html.j2",
        bound=BOUND_WORDS[report.verdict.bound],
        because=report.verdict.because,
        runs=runs,
        spans=_spans(info) if info.rows else [],
        longest=time(_longest(info)),
        peaks=info.peaks,
        guessed=len(info.unknown),
    )


def _guessed(info: PredictionInfo) -> Section:
    return section(
        "guessed",
        "Guessed: the numbers are a lower bound",
        "predict_guessed.html.j2",
        count=str(len(info.unknown)),
        unknown=list(info.unknown.items()),
    )


@dataclass(frozen=True)
class _Bar:
    left: float
    width: float
    at: float


def _groups(info: PredictionInfo, table: Table) -> Section:
    most = max(group.high_us for group in info.groups) or 1.0
    bars = [
        _Bar(100 * group.low_us / most, 100 * (group.high_us - group.low_us) / most, 100 * group.us / most)
        for group in info.groups
    ]
    return section(
        "groups",
        "What will run",
        "predict_groups.html.j2",
        needs=_NEEDS,
        count=str(len(info.groups)),
        table=table,
        bars=bars,
    )


def _basis(info: PredictionInfo) -> Section:
    return section(
        "basis",
        "What it rests on",
        "predict_basis.html.j2",
        basis=info.basis,
        notes=info.notes,
    )


def _rows(info: PredictionInfo) -> Sequence[dict[str, object]]:
    """What a row's details say beyond its length."""
    return [
        {
            "event": row.event,
            "interval": f"{time(row.low_us)} to {time(row.high_us)}",
            "shape": row.shape,
            "floor": None if (floor := floor_of(row)) is None else time(floor),
            "basis": row.basis,
        }
        for row in info.rows
    ]
