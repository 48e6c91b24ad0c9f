"""Findings and expectations as sections: each statement with links to the events it rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretrace.model.expectations import Account, Checked, Outcome
from foretrace.model.report import WHOLE_TRACE, Evidence, Finding, Report
from foretrace.report import check
from foretrace.report.advice import saving_words
from foretrace.report.html.page import Section, section
from foretrace.report.work import short_names

__all__ = ["expectations", "findings"]

# Evidence that stands in the open; the rest is folded, and past the last of these only counted.
_SHOWN, _FOLDED = 4, 60
# Findings that are open when the page is; the others show their one line.
_OPEN = 5


@dataclass(frozen=True)
class _Link:
    """An event that can be gone to."""

    event: int
    name: str
    full: str
    start_us: float


@dataclass(frozen=True)
class _Rests:
    """The events a statement rests on: all of their numbers, and as many links as are shown."""

    events: str  # numbers apart by spaces, as an attribute
    many: int
    shown: Sequence[_Link]
    folded: Sequence[_Link]
    left: int


def _rests(evidence: Sequence[Evidence], names: Mapping[str, str]) -> _Rests:
    links = [_Link(e.event, names.get(e.name, e.name), e.name, e.start_us) for e in evidence[: _SHOWN + _FOLDED]]
    # One more than are shown would take no more room than the line that says so.
    shown = len(links) if len(links) == _SHOWN + 1 else _SHOWN
    return _Rests(
        events=" ".join(str(each.event) for each in evidence),
        many=len(evidence),
        shown=links[:shown],
        folded=links[shown:],
        left=len(evidence) - len(links),
    )


@dataclass(frozen=True)
class _Shown:
    finding: Finding
    saving: str
    remedy_of: int  # the finding that spells its remedy out
    rests: _Rests
    open: bool


def findings(report: Report) -> Section:
    """The findings as a numbered list, most valuable first."""
    names = short_names(report)
    remedies: dict[str, int] = {}
    rows = [
        _Shown(
            finding=finding,
            saving=saving_words(finding),
            remedy_of=remedies.setdefault(finding.suggestion or "", position),
            rests=_rests(finding.evidence, names),
            open=position <= _OPEN,
        )
        for position, finding in enumerate(report.findings, 1)
    ]
    whole = len(report.steps) == 1 and report.steps[0].label == WHOLE_TRACE
    return section(
        "findings",
        "Findings",
        "findings.html.j2",
        count=str(len(rows)),
        rows=rows,
        saves=any(row.saving for row in rows),
        each="" if whole else "a step",
    )


@dataclass(frozen=True)
class _Judged:
    outcome: Outcome
    said: str  # the clause with its place
    where: str  # in which steps it broke, where not in all
    accounts: Sequence[tuple[Account, _Rests]]


def expectations(checked: Checked, report: Report | None = None) -> Section:
    """What was expected, what was seen, and what accounts for each difference."""
    names = short_names(report) if report is not None else {}
    rows = [
        _Judged(
            outcome=outcome,
            said=_said(outcome),
            where=check.broken_where(outcome) if outcome.state == "broken" else "",
            accounts=[(account, _rests(account.evidence, names)) for account in outcome.accounts],
        )
        for outcome in checked.outcomes
    ]
    return section(
        "expectations",
        "Expectations",
        "expectations.html.j2",
        count=f"{checked.held} of {len(checked.outcomes)} held",
        rows=rows,
        score="".join(span.text for span in check.score(checked)),
        alarms=checked.alarms,
        surprises=[(surprise, _rests(surprise.evidence, names)) for surprise in checked.surprises],
    )


def _said(outcome: Outcome) -> str:
    """The clause with its place, in the terminal's words where the clause itself is none."""
    if outcome.quantity != "occupancy_query_before":
        return outcome.expectation
    place = outcome.expectation[: outcome.expectation.rfind(outcome.quantity)]
    return place + check.clause_words(outcome)
