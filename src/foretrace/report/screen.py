"""The first screen: what an impatient reader needs, in about forty lines.

Order: what this is; what forbids trusting it; the verdict; the time of each step, and its memory where that was
recorded; the kernels that take the time; the findings that would change it; what the numbers cover and how to see
more. Where warnings take lines, the tables give theirs up.
"""

from __future__ import annotations

from foretrace.model.report import Report
from foretrace.model.words import BOUND_WORDS
from foretrace.report import advice, clock, host, trace_memory, trust, work
from foretrace.report.text import Line, Span, line
from foretrace.report.view import View

__all__ = ["first_screen"]

SCREEN_LINES = 40
STEP_ROWS = 5
REASON_LINES = 8
LEAST_ROWS = 3


def first_screen(report: Report, view: View) -> list[Line]:
    """The lines of the first screen."""
    top = [*trust.title(report, view), *trust.alarms(report, view), [], *_verdict(report, view)]
    top += [[], *_steps(report, view)]
    bottom = [] if view.brief else [[], *trust.footer(report, view)]
    memory = trace_memory.summary(report, view)
    # Two blank lines, four of headings and up to two "more" lines surround the rows of both tables.
    free = SCREEN_LINES - len(top) - len(bottom) - len(memory) - 8
    if memory and free > 2 * LEAST_ROWS:  # else the blank line would cost a row that has to be there
        memory, free = [[], *memory], free - 1
    top += memory
    for_rows = max(2 * LEAST_ROWS, free)
    findings = min(len(report.findings), max(LEAST_ROWS, for_rows // 2))
    rows = max(LEAST_ROWS, for_rows - findings)
    content = [*top, [], *_work(report, view, rows)]
    findings = max(findings, for_rows - min(rows, len(report.groups or report.operators)))
    content += [[], *_findings(report, view, findings)]
    return content + bottom


def _verdict(report: Report, view: View) -> list[Line]:
    verdict = report.verdict
    lines = [line(Span("VERDICT", "section"), "  ", Span(BOUND_WORDS[verdict.bound], "verdict"))]
    reasons: list[Line] = []
    for reason in verdict.because:
        reasons += trust.paragraph(reason, view.width, lead="• ")
    if len(reasons) > REASON_LINES and not view.everything:
        reasons = [*reasons[: REASON_LINES - 1], line(Span("  … (--all)", "dim"))]
    return lines + reasons


def _steps(report: Report, view: View) -> list[Line]:
    shown = clock.picked(report.steps, len(report.steps) if view.everything else STEP_ROWS)
    unit = clock.step_scale([step for step, _ in shown])[1]
    lines: list[Line] = [[Span("STEPS", "section"), Span(f"  times in {unit}", "dim")]]
    alone = len(report.steps) == 1
    lines += clock.step_table(shown, view.width, causes=not alone)
    lines += clock.more(len(report.steps), len(shown), "step")
    middle = clock.middle_step(report.steps)
    idle = clock.idle_line(middle) if alone else None
    for said in (trust.unprofiled(report), idle, clock.phase_line(middle), clock.outside_line(report)):
        if said:
            lines += trust.paragraph(said, view.width)
    return lines


def _limit(there: int, rows: int, view: View) -> int | None:
    """Rows to show of a table: what ``--top`` says, else what the screen holds."""
    if view.top is not None or view.everything:
        return view.top
    # The line that says "1 more" would take the place of the row itself.
    return there if there == rows + 1 else rows


def _work(report: Report, view: View, rows: int) -> list[Line]:
    limit = _limit(len(report.groups or report.operators), rows, view)
    if report.groups:
        lines: list[Line] = [[Span("KERNELS", "section"), Span("  most time first", "dim")]]
        lines += work.group_table(report.groups[:limit], view.width)
        return lines + clock.more(len(report.groups), limit, "kernel")
    if not report.operators:
        return [line("The trace holds neither kernels nor operators.")]
    lines = [[Span("OPERATORS", "section"), Span("  on the CPU; the trace holds no kernels", "dim")]]
    own = sorted(report.operators, key=lambda operator: -operator.self_cpu_us)
    lines += host.operator_table(own[:limit], view.width)
    return lines + clock.more(len(own), limit, "operator")


def _findings(report: Report, view: View, rows: int) -> list[Line]:
    if not report.findings:
        return [[Span("FINDINGS", "section"), Span("  none of the rules found anything", "dim")]]
    limit = _limit(len(report.findings), rows, view)
    head: Line = [Span("FINDINGS", "section"), Span("  times are what a step would save", "dim")]
    if all(finding.saving_us is None for finding in report.findings):
        head = [Span("FINDINGS", "section")]
    lines = [head, *advice.finding_lines(report, view.width, limit)]
    left = 0 if limit is None else len(report.findings) - limit
    if left > 0:
        lines.append(line(Span(f"  + {left} more; why, where and what to do: {_findings_place(view)}", "dim")))
    elif not view.everything:
        lines.append(line(Span(f"  why, where and what to do: {_findings_place(view)}", "dim")))
    return lines


def _findings_place(view: View) -> str:
    return "below" if view.html else "--section findings"
