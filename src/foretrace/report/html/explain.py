"""The page of ``foretrace explain``: one report with its timeline."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.model.drawn import Drawn
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

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["drawn_blocks", "explain_page", "report_parts", "roofline_section", "timeline_section"]


def explain_page(report: Report, drawn: Drawn, *, checked: Checked | None = None) -> bytes:
    """One self-contained HTML file in UTF-8.

    Args:
        report: what it says.
        drawn: of the same trace; what findings, tables and the roofline point into.
        checked: the trace held against expectations, where any were given.

    Raises:
        ValueError: a time beyond 2⁵³ ns.
    """
    sections, blocks = report_parts(report, drawn)
    if checked is not None:
        sections.insert(1, expectations(checked, report))
    return render(Page(masthead(report, "explain"), sections, blocks))


def report_parts(report: Report, drawn: Drawn) -> tuple[list[Section], list[Markup]]:
    """The sections that tell of one report, in reading order, and the data blocks that they draw from.

    Sections with nothing to tell are left out.
    """
    gemms, movers = work_tables.gemms(report), work_tables.elementwise(report)
    groups, transfers = work_tables.groups(report), work_tables.transfers(report)
    operators = work_tables.operators(report)
    tables = [table for table in (groups, gemms, movers, transfers, operators) if table.rows]
    sections = [verdict(report), findings(report), timeline_section(drawn.timeline), steps(report)]
    if report.gaps or any(step.idle for step in report.steps):
        sections.append(idle(report))
    sections += [table_section(table) for table in (groups, gemms, movers) if table.rows]
    if report.kernels:
        sections.append(roofline_section(report, drawn.roofline))
    if transfers.rows:
        sections.append(table_section(transfers))
    if (allocated := memory(report)) is not None:
        sections.append(allocated)
    if report.chain:
        sections.append(chain(report, drawn.chain))
    if operators.rows:
        sections.append(table_section(operators))
    sections.append(health(report))
    return sections, [*drawn_blocks(report, drawn), data_block("data-tables", [table.data() for table in tables])]


def drawn_blocks(report: Report, drawn: Drawn) -> list[Markup]:
    """The data blocks of timeline, kernels, copies, roofline and chain."""
    picks = work_tables.picks_of(report)
    document, columns = kernel_columns(report, picks, drawn.roofline)
    roofs = [{"label": roof.label, "tflops": roof.tflops, "gbps": roof.gbps} for roof in drawn.roofline.roofs]
    blocks = [] if drawn.timeline is None else [timeline_block("data-timeline", drawn.timeline)]
    return [
        *blocks,
        data_block("data-kernels", document, columns),
        data_block("data-transfers", {}, transfer_columns(report, picks)),
        data_block("data-roofs", roofs),
        data_block("data-chain", drawn.chain),
    ]


def timeline_section(timeline: Timeline | None) -> Section:
    """The place of the timeline, and what is not drawn in it."""
    if timeline is None:
        return section("timeline", "Timeline", "no_timeline.html.j2")
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


def table_section(table: Table) -> Section:
    """A table that sorts and filters, and stands in the page for reading without JavaScript and on paper."""
    return section(
        table.id,
        table.title,
        "table_section.html.j2",
        needs=("tabulator", "tables"),
        count=str(table.rows),
        table=table,
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
