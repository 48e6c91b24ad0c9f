"""One screen of a prediction: what will run, for how long and how surely, what bounds it, and what is unknown."""

from __future__ import annotations

from foretrace.model.prediction import PredictedGroup, PredictionInfo
from foretrace.model.report import Report
from foretrace.model.words import (
    BOUND_WORDS,
    UNKNOWN,
    bytes_of,
    count,
    flop,
    listed,
    number,
    percent,
    scale_of_times,
    time,
)
from foretrace.report.clock import more
from foretrace.report.ink import finished
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, line, note
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["render_prediction"]

_ROWS = 16
_FUSED = "foretrace::"  # what precedes the steps of fused modules
_LEAD = 10  # cells of the column of leads


def render_prediction(report: Report, view: View | None = None) -> str:
    """The screen as text that ends in a newline; ``report`` is that of a predicted trace, with ``prediction`` set.

    Raises ``ValueError`` for the report of a recording.
    """
    info = report.prediction
    if info is None:
        raise ValueError("the report is not of a predicted trace")
    view = view or View()
    content = [*_title(info, view), [], *_totals(info, report, view), [], *_kernels(info, view)]
    content += [*_unknown(info, view), *_foot(info, view)]
    return finished(content, view)


def _title(info: PredictionInfo, view: View) -> list[Line]:
    head = line(Span("foretrace", "dim"), "  ", Span(f"{info.program}, {info.variant}, {info.mode}", "title"))
    modelled = paragraph(" · ".join(info.modelled), view.width, indent=0) if info.modelled else []
    said = paragraph(f"PREDICTED for {info.gpu}; nothing ran, nothing was measured", view.width, indent=0)
    return [head, *said, *modelled]


def _said(lead: str, text: str, view: View, style: str = "") -> list[Line]:
    return paragraph(text, view.width, lead=Span(lead.ljust(_LEAD), "section"), indent=0, style=style)


def _totals(info: PredictionInfo, report: Report, view: View) -> list[Line]:
    rows = [count(info.kernels, "kernel")]
    rows += [count(info.memsets, "memset")] if info.memsets else []
    rows += [count(info.memcpys, "copy", "copies")] if info.memcpys else []
    launches = count(len(info.rows), "launch", "launches")
    if not info.rows:
        seen = " that was followed" if info.unknown else ""
        return _said("GPU", f"nothing is launched: no operator of this step{seen} does work on the GPU", view)
    between = f"{time(info.gpu_busy_low_us)} to {time(info.gpu_busy_high_us)}"
    lines = _said("GPU", f"busy {time(info.gpu_busy_us)} a step ({between}): {listed(rows)}, {launches}", view)
    lines += _said("CPU", f"{time(info.cpu_us)} to dispatch the step, without a profiler", view)
    lines += _said("VERDICT", BOUND_WORDS[report.verdict.bound], view, "verdict")
    # The first reason repeats the two times above, unless it is the only one.
    for reason in report.verdict.because[1:] or report.verdict.because:
        lines += paragraph(reason, view.width, lead="• ", indent=_LEAD)
    return lines + _floors(info, view)


def _floors(info: PredictionInfo, view: View) -> list[Line]:
    parts = []
    if info.compute_floor_us is not None:
        parts.append(f"{flop(info.flops)} take {time(info.compute_floor_us)} at peak")
    if info.memory_floor_us is not None:
        parts.append(f"{bytes_of(info.bytes)} take {time(info.memory_floor_us)} at full bandwidth")
    if not parts:
        return []
    return _said("FLOORS", f"{'; '.join(parts)} ({'; '.join(info.peaks)})", view)


def _kernels(info: PredictionInfo, view: View) -> list[Line]:
    if not info.groups:
        return []
    limit = view.rows(_ROWS)
    limit = len(info.groups) if limit is None or len(info.groups) == limit + 1 else limit
    shown = info.groups[:limit]
    divisor, unit = scale_of_times(group.high_us for group in shown)
    flops, flop_unit = (1e9, "GFLOP") if max(group.flops or 0 for group in shown) >= 1e9 else (1e6, "MFLOP")
    # Steps of fused modules, up to linear_act_backward, are told apart by the middle of their names.
    operator = 19 if any(group.op.startswith(_FUSED) for group in shown) else 16
    columns = [
        Column("operator", left=True, least=operator, keep=9, cut="middle"),
        Column("kind", left=True, least=11, keep=7),
        Column("M×N×K or\nelements", left=True, least=18, keep=6, cut="middle"),
        Column("calls", keep=6),
        Column(f"time\n{unit}", keep=9),
        Column("interval", keep=8),
        Column("share\n%", keep=7),
        Column(flop_unit, keep=4),
        Column("bytes", keep=4),
        Column("bound", left=True, keep=5),
    ]
    rows = [_row(group, divisor, flops) for group in shown]
    told = "  most time first; all calls of a step together"
    if any(map(_helpers, shown)):
        told += "; +: helper kernels"
    head: Line = [Span("WHAT WILL RUN", "section"), Span(told, "dim")]
    return [head, *table(columns, rows, view.width), *more(len(info.groups), limit, "row")]


def _helpers(group: PredictedGroup) -> int:
    """Rows beyond one a call."""
    return max(0, (group.kernels or 0) - group.calls)


def _row(group: PredictedGroup, divisor: float, flops: float) -> list[str]:
    return [
        # The table has room for the step's name; that it is foretrace's, the note below says.
        group.op.removeprefix(_FUSED),
        group.kind,
        group.shape or UNKNOWN,
        number(group.calls) + (f" +{number(_helpers(group))}" if _helpers(group) else ""),
        number(group.us / divisor),
        f"{number(group.low_us / divisor)}–{number(group.high_us / divisor)}",
        percent(group.share),
        UNKNOWN if group.flops is None else number(group.flops / flops),
        bytes_of(group.bytes),
        UNKNOWN if group.bound == "unknown" or group.row != "kernel" else group.bound,
    ]


def _unknown(info: PredictionInfo, view: View) -> list[Line]:
    if not info.unknown:
        return []
    lines: list[Line] = [[], [Span("GUESSED", "suspect"), Span("  so the numbers above are a lower bound", "dim")]]
    for operator, reason in info.unknown.items():
        lines += paragraph(f"{operator}: {reason}", view.width, lead="• ")
    return lines


def _foot(info: PredictionInfo, view: View) -> list[Line]:
    lines: list[Line] = [[]]
    rests = "; ".join(info.basis) or "nothing: no row was predicted"
    for lead, text in (("Times rest on", rests), *(("Note", said) for said in info.notes)):
        lines += paragraph(text, view.width, lead=Span(f"{lead}: ", "dim"), indent=0, style="dim", hang=2)
    said = "an interval holds about 80 % of measured calls; that of the step has all its rows off to the same side"
    return lines + note(said, view.width, indent=0)
