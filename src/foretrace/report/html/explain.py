"""The page of ``foretrace explain``: one report with its timeline."""

from __future__ import annotations

from typing import Any

from foretrace.analysis.chain_rows import chain_events
from foretrace.analysis.roofline_plot import roofline_of
from foretrace.model.expectations import Checked
from foretrace.model.report import Report
from foretrace.model.roofline import RooflinePlot
from foretrace.model.timeline import Timeline
from foretrace.model.words import count, listed, time
from foretrace.report.html import work_tables
from foretrace.report.html.allocations import memory
from foretrace.report.html.clock import idle, steps
from foretrace.report.html.dispatch import chain
from foretrace.report.html.findings import expectations, findings
from foretrace.report.html.kernel_columns import kernel_columns, transfer_columns
from foretrace.report.html.page import Page, Section, render, section
from foretrace.report.html.payload import data_block
from foretrace.report.html.tables import Table
from foretrace.report.html.timeline import timeline_block
from foretrace.report.html.trust import health, masthead, verdict

__all__ = ["explain_page", "report_blocks", "report_sections"]


def explain_page(report: Report, timeline: Timeline, *, checked: Checked | None = None) -> bytes:
    """One self-contained HTML file in UTF-8.

    Args:
        report: what it says.
        timeline: of the same trace; what findings, tables and the roofline point into.
        checked: the trace held against expectations, where any were given.

    Raises:
        ValueError: a time beyond 2⁵³ ns.
    """
    plot = roofline_of(report)
    events = chain_events(report, timeline)
    sections = report_sections(report, timeline, plot, events)
    if checked is not None:
        sections.insert(1, expectations(checked, report))
    page = Page(masthead(report, "explain"), sections, report_blocks(report, timeline, plot, events))
    return render(page)


def report_sections(report: Report, timeline: Timeline, plot: RooflinePlot, events: list[list[int]]) -> list[Section]:
    """The sections that tell of one report, in reading order; those with nothing to tell are left out."""
    sections = [verdict(report), findings(report), timeline_section(timeline), steps(report)]
    if report.gaps or any(step.idle for step in report.steps):
        sections.append(idle(report))
    for table, title in _tables(report):
        if table.rows:
            sections.append(table_section(table, title))
            if table.id == "elementwise":
                sections.append(roofline_section(report, plot))
    if report.kernels and not any(one.id == "roofline" for one in sections):
        sections.append(roofline_section(report, plot))
    allocated = memory(report)
    sections += [allocated] if allocated is not None else []
    sections += [chain(report, events)] if report.chain else []
    operators = work_tables.operators(report)
    sections += [table_section(operators, operators.title)] if operators.rows else []
    return [*sections, health(report)]


def report_blocks(report: Report, timeline: Timeline, plot: RooflinePlot, events: list[list[int]]) -> list[Any]:
    """The data blocks that the sections of :func:`report_sections` draw from."""
    picks = work_tables.picks_of(report)
    tables = [table for table, _ in _tables(report)] + [work_tables.operators(report)]
    document, columns = kernel_columns(report, picks, plot)
    return [
        timeline_block("data-timeline", timeline),
        data_block("data-kernels", document, columns),
        data_block("data-transfers", {}, transfer_columns(report, picks)),
        data_block("data-tables", [table.data() for table in tables if table.rows]),
        data_block(
            "data-roofs", [{"label": roof.label, "tflops": roof.tflops, "gbps": roof.gbps} for roof in plot.roofs]
        ),
        data_block("data-chain", events),
    ]


def _tables(report: Report) -> list[tuple[Table, str]]:
    return [
        (table, table.title)
        for table in (
            work_tables.groups(report),
            work_tables.gemms(report),
            work_tables.elementwise(report),
            work_tables.transfers(report),
        )
    ]


def timeline_section(timeline: Timeline) -> Section:
    """The place of the timeline, and what is not drawn in it."""
    left = [f"{count(many, 'row')}: {reason}" for reason, many in timeline.left_out.items() if many]
    return section(
        "timeline",
        "Timeline",
        "timeline.html.j2",
        needs=("d3", "lanes"),
        rows=len(timeline),
        lanes=len(timeline.lanes),
        left_out=left,
    )


def table_section(table: Table, title: str) -> Section:
    """A table that sorts and filters, and stands in the page for reading without JavaScript and on paper."""
    return section(
        table.id, title, "table_section.html.j2", needs=("tabulator", "tables"), count=str(table.rows), table=table
    )


def roofline_section(report: Report, plot: RooflinePlot) -> Section:
    """The place of the roofline plot, and in words what stands on it and what does not."""
    return section(
        "roofline",
        "Roofline",
        "roofline.html.j2",
        needs=("d3", "roofline"),
        count=str(len(report.kernels)),
        plot=plot,
        kernels=len(report.kernels),
        left_out=[
            f"{count(left.kernels, 'kernel')}, {time(left.us)} ({listed(left.kinds)}): {left.reason}"
            for left in plot.left_out
        ],
    )
