"""The page of ``foretrace check``: what was expected and what was seen, before everything the trace says besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrace.model.drawn import Drawn
from foretrace.model.expectations import Checked, Clause, Expectation, Outcome
from foretrace.model.report import Report
from foretrace.report.html.explain import report_parts
from foretrace.report.html.findings import expectations
from foretrace.report.html.page import Masthead, Page, render, section
from foretrace.report.html.trust import masthead

__all__ = ["check_page"]

# Room on either side of what a scale has to show, as a share of it.
_ROOM = 0.12


def check_page(checked: Checked, report: Report, drawn: Drawn, *, expectation: Expectation | None = None) -> bytes:
    """One self-contained HTML file in UTF-8.

    Args:
        checked: the trace held against expectations.
        report: what the same trace says.
        drawn: of the same trace.
        expectation: what was checked; with it, what was seen is drawn against the intervals expected.

    Raises:
        ValueError: a time beyond 2⁵³ ns.
    """
    rest, blocks = report_parts(report, drawn)
    (own,) = [one for one in rest if one.id == "timeline"]
    rest.remove(own)
    sections = [expectations(checked, report)]
    if expectation is not None and (scales := _scales(checked, expectation)):
        sections.append(
            section(
                "intervals",
                "Seen against the interval",
                "check_intervals.html.j2",
                count=str(len(scales)),
                rows=scales,
                steps=len(checked.steps),
            )
        )
    return render(Page(_masthead(checked, report), [*sections, own, *rest], blocks))


def _masthead(checked: Checked, report: Report) -> Masthead:
    head = masthead(report, "check")
    if not checked.predicted:
        return head
    predicted = ("PREDICTED", "the trace itself was predicted; nothing in it was measured")
    return replace(head, alarms=[predicted, *head.alarms])


@dataclass(frozen=True)
class _Scale:
    """A clause with an interval, and what each step showed; positions in percent of a scale of its own."""

    outcome: Outcome
    place: int  # of the outcome among all
    left: float
    width: float
    open_low: bool
    open_high: bool
    dots: Sequence[tuple[float, str, str]]  # position, label of the step, state


def _scales(checked: Checked, expectation: Expectation) -> list[_Scale]:
    """The clauses that expect an interval, with the steps in which a number was seen."""
    scales = []
    for place, (outcome, clause) in enumerate(zip(checked.outcomes, expectation.clauses, strict=True), 1):
        scale = _scale(outcome, clause, place)
        scales += [scale] if scale is not None else []
    return scales


def _scale(outcome: Outcome, clause: Clause, place: int) -> _Scale | None:
    if clause.range is None or clause.range.exact is not None:
        return None
    seen = [(float(s.observed), s) for s in outcome.steps if isinstance(s.observed, int | float)]
    if not seen:
        return None
    ends = [end for end in (clause.range.low, clause.range.high) if end is not None]
    numbers = [value for value, _ in seen] + ends
    low, high = min(numbers), max(numbers)
    room = (high - low) * _ROOM or abs(high) * _ROOM or 1.0
    start, length = low - room, high - low + 2 * room

    def at(value: float) -> float:
        return 100 * (value - start) / length

    left = 0.0 if clause.range.low is None else at(clause.range.low)
    right = 100.0 if clause.range.high is None else at(clause.range.high)
    return _Scale(
        outcome=outcome,
        place=place,
        left=left,
        width=right - left,
        open_low=clause.range.low is None,
        open_high=clause.range.high is None,
        dots=[(at(value), step.label, step.state) for value, step in seen],
    )
