"""``explain``: the verdict and the findings in short, or the rows of one section."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Alarm, Answer, Paged, alarms_of, first, paged, said, short
from foretrace.integrations.mcp.arguments import Steps, TracePath
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset
from foretrace.integrations.mcp.tools.sections import (
    FindingRow,
    Row,
    Section,
    StepRow,
    finding_rows,
    section_piece,
    sizes_of_sections,
    step_rows,
)
from foretrace.model.report import Report

__all__ = ["Explained", "explain"]

_FINDINGS = 8
_STEPS = 3


class CoverageFacts(Answer):
    """How much of the GPU kernel time the report accounts for; null without GPU work."""

    kernels_linked: float | None
    kernels_with_op: float | None
    flops_counted: float | None


class Summary(Answer):
    """A trace on one screen."""

    bound: str = Field(description="overhead, compute, memory, mixed or unknown")
    because: list[str]
    gpus: list[str]
    torch_version: str | None
    predicted: bool
    unprofiled_step_us: float | None
    alarms: list[Alarm]
    warnings: list[str]
    steps: list[StepRow] = Field(description="the first steps; section steps has all")
    findings: list[FindingRow] = Field(description="the most valuable; section findings has all")
    coverage: CoverageFacts


class Explained(Paged):
    """Either the summary, or the rows of a section."""

    path: str
    steps_selected: list[str] | None
    sections: dict[str, int] | None = Field(description="rows of each section, with the summary")
    section: Section | None
    summary: Summary | None
    rows: list[Row]


def explain(
    library: Library,
    path: TracePath,
    section: Annotated[
        Section | None, Field(description="The part whose rows are wanted. Without it, the summary.")
    ] = None,
    steps: Steps = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> Explained:
    """Explain a trace."""
    opened = library.open(path)
    selected = opened.steps(steps)
    report = opened.report(selected)
    labels = None if selected is None else [short(step.label, 100) for step in report.steps]
    if section is None:
        if offset:
            raise InputError("the summary has no further rows; name a section with offset")
        return Explained(
            path=opened.name,
            steps_selected=labels,
            sections=sizes_of_sections(report),
            section=None,
            summary=_summary(report),
            rows=[],
            total=0,
            offset=0,
            more=False,
            next_offset=None,
        )
    cut = section_piece(report, section, limit=limit, offset=offset)
    return Explained(
        path=opened.name,
        steps_selected=labels,
        sections=None,
        section=section,
        summary=None,
        rows=cut.rows,
        **paged(cut),
    )


def _summary(report: Report) -> Summary:
    info = report.trace
    return Summary(
        bound=report.verdict.bound,
        because=first(report.verdict.because, 6, 400),
        gpus=first(sorted({gpu.name or "GPU of unknown model" for gpu in info.gpus}), 8, 80),
        torch_version=said(info.torch_version, 60),
        predicted=info.predicted,
        unprofiled_step_us=None if info.unprofiled is None else info.unprofiled.median_us,
        alarms=alarms_of(report.health),
        warnings=first(info.warnings, 4, 300),
        steps=step_rows(report, _STEPS),
        findings=finding_rows(report, _FINDINGS),
        coverage=CoverageFacts(
            kernels_linked=report.coverage.kernels_linked,
            kernels_with_op=report.coverage.kernels_with_op,
            flops_counted=report.coverage.flops_counted,
        ),
    )
