"""Masthead, verdict and health of a report: what it is of, what it says, and how far it may be trusted."""

from __future__ import annotations

from pathlib import PurePath

from foretrace.model.report import Report
from foretrace.model.words import BOUND_WORDS
from foretrace.report import trust
from foretrace.report.html.page import Masthead, Section, section
from foretrace.report.text import Line
from foretrace.report.view import View

__all__ = ["UNBROKEN", "health", "masthead", "sentences", "verdict"]

# So wide that no sentence of the terminal is broken: the page breaks lines itself.
UNBROKEN = View(width=1_000_000, everything=True)


def sentences(lines: list[Line]) -> list[str]:
    """Lines of the terminal as plain sentences, without those that are empty."""
    said = ("".join(span.text for span in line).strip() for line in lines)
    return [text for text in said if text]


def masthead(report: Report, verb: str) -> Masthead:
    """The head of a page about one report."""
    path = report.trace.path
    return Masthead(
        verb=verb,
        title=PurePath(path).name if path != "-" else "standard input",
        facts=sentences(trust.title(report, UNBROKEN)[1:]),
        alarms=trust.alarm_words(report),
    )


def verdict(report: Report) -> Section:
    """What bounds the steps, and why we think so."""
    return section(
        "verdict",
        "Verdict",
        "verdict.html.j2",
        bound=BOUND_WORDS[report.verdict.bound],
        because=report.verdict.because,
        unprofiled=trust.unprofiled(report),
    )


def health(report: Report) -> Section:
    """Every check with its outcome, what was mended, what the numbers cover, what was not recorded."""
    raised = sum(check.state != "ok" for check in report.health)
    return section(
        "health",
        "Health: may these numbers be trusted",
        "health.html.j2",
        count=f"{raised} to read" if raised else "",
        checks=report.health,
        repairs=report.trace.repairs,
        notes=sentences(trust.footer(report, UNBROKEN)),
        trace=report.trace,
    )
