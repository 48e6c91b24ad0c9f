"""Findings: one line each on the first screen, the whole argument on request."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.model.report import WHOLE_TRACE, Finding, Report
from foretrace.model.words import count, time
from foretrace.report.text import Line, Span, cut, line, width_of, wrap
from foretrace.report.trust import paragraph
from foretrace.report.view import View
from foretrace.report.work import fitting_name, short_names

__all__ = ["finding_lines", "findings"]

_MARKS = {"warning": Span("!", "suspect"), "note": Span("•"), "info": Span("·", "dim")}
EVIDENCE_ROWS = 3


def saving_words(finding: Finding) -> str:
    """ "31.8 µs" a step, or nothing."""
    if finding.saving_us is None:
        return ""
    return ("≤ " if finding.upper_bound else "") + time(finding.saving_us)


def finding_lines(report: Report, width: int, most: int | None) -> list[Line]:
    """One numbered line a finding: mark, title, what it would save per step."""
    shown = report.findings[:most]
    savings = [saving_words(finding) for finding in shown]
    number_width = len(str(len(shown)))
    saving_width = max(map(width_of, savings), default=0)
    gap = 2 if saving_width else 0
    lines: list[Line] = []
    for position, (finding, saving) in enumerate(zip(shown, savings, strict=True), 1):
        room = width - 2 - number_width - 3 - saving_width - gap
        title = cut(finding.title, room)
        padding = " " * (room - width_of(title) + gap + saving_width - width_of(saving)) if saving else ""
        style = "dim" if finding.severity == "info" else ""
        lines.append(
            line(
                f"  {position:>{number_width}} ",
                _MARKS[finding.severity],
                " ",
                Span(title, style),
                padding,
                Span(saving, "saving"),
            )
        )
    return lines


def findings(report: Report, view: View) -> list[Line]:
    """Each finding in full: why, on which events it rests, where in the source, what to do."""
    if not report.findings:
        return [line("  None of the rules found anything.")]
    limit = view.rows()
    lines: list[Line] = []
    names = short_names(report)
    remedies: dict[str, int] = {}
    for position, finding in enumerate(report.findings[:limit], 1):
        if position > 1:
            lines.append([])
        # A remedy that an earlier finding has already spelled out is referred to.
        first = remedies.setdefault(finding.suggestion or "", position)
        remedy = finding.suggestion if first == position else f"as {first} says"
        each = "" if len(report.steps) == 1 and report.steps[0].label == WHOLE_TRACE else " a step"
        lines += _whole(position, finding, remedy if finding.suggestion else None, names, view, each)
    if limit is not None and len(report.findings) > limit:
        lines.append(line(Span(f"  + {count(len(report.findings) - limit, 'more finding')} (--all)", "dim")))
    return lines


def _whole(
    position: int, finding: Finding, remedy: str | None, names: Mapping[str, str], view: View, each: str
) -> list[Line]:
    lead = f"{position:>2} "
    saving = f"  saves {saving_words(finding)}{each}" if finding.saving_us is not None else ""
    room = max(20, view.width - 7 - width_of(saving))
    head = wrap(finding.title, room)
    lines = [line("  ", lead, _MARKS[finding.severity], " ", Span(head[0], "head"), Span(saving, "saving"))]
    lines += [line(" " * 7, Span(piece, "head")) for piece in head[1:]]
    lines += paragraph(finding.explanation, view.width, indent=7)
    if remedy:
        lines += paragraph(remedy, view.width, lead=Span("do: ", "good"), indent=7)
    if finding.source:
        lines += paragraph(finding.source, view.width, lead=Span("source: ", "dim"), indent=7)
    most = None if view.everything else EVIDENCE_ROWS
    for evidence in finding.evidence[:most]:
        where = f"  at {time(evidence.start_us)}, event {evidence.event}"
        name = fitting_name(evidence.name, names, max(20, view.width - 9 - width_of(where)))
        lines.append(line(" " * 7, Span("• ", "dim"), Span(name), Span(where, "dim")))
    left = len(finding.evidence) - len(finding.evidence[:most])
    if left:
        lines.append(line(" " * 7, Span(f"• and {count(left, 'more event')} of the trace", "dim")))
    lines.append(line(" " * 7, Span(f"rule {finding.rule}, {count(finding.count, 'time')} in this trace", "dim")))
    return lines
