"""``finding``: one finding with its whole argument and its events."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import EventRow, Paged, evidence_row, paged, short, short_names
from foretrace.integrations.mcp.arguments import Steps, TracePath
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, piece

__all__ = ["FindingAnswer", "finding"]


class FindingAnswer(Paged):
    """A finding; ``evidence`` is the page of its events."""

    number: int
    rule: str
    severity: str
    title: str
    explanation: str
    suggestion: str | None
    source: str | None = Field(description="the line of the program, where Python stacks were recorded")
    saving_us: float | None = Field(description="a step")
    upper_bound: bool = Field(description="true: saving_us is the most it can save")
    count: int = Field(description="times in this trace")
    evidence: list[EventRow]


def finding(
    library: Library,
    path: TracePath,
    number: Annotated[int, Field(description="The finding's number in explain, from 1.", ge=1, le=100_000)],
    steps: Steps = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> FindingAnswer:
    """Tell one finding in full."""
    opened = library.open(path)
    report = opened.report(opened.steps(steps))
    findings = report.findings
    if number > len(findings):
        there = f"there are 1 to {len(findings)}" if findings else "none of the rules found anything"
        raise InputError(f"there is no finding {number}; {there} (explain with the same steps lists them)")
    one, names = findings[number - 1], short_names(report)
    cut = piece(
        one.evidence,
        lambda _, evidence: evidence_row(evidence, names),
        limit=limit,
        offset=offset,
        room=None if limit else 1_800,
    )
    return FindingAnswer(
        number=number,
        rule=one.rule,
        severity=one.severity,
        title=short(one.title, 600),
        explanation=short(one.explanation),
        suggestion=None if one.suggestion is None else short(one.suggestion),
        source=None if one.source is None else short(one.source, 400),
        saving_us=one.saving_us,
        upper_bound=one.upper_bound,
        count=one.count,
        evidence=cut.rows,
        **paged(cut),
    )
