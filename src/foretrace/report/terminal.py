"""A report as text: one screen first, sections below or on request."""

from __future__ import annotations

from foretrace.model.report import Report
from foretrace.report import advice, clock, host, screen, trace_memory, trust, work
from foretrace.report.ink import finished
from foretrace.report.text import Line, Span
from foretrace.report.view import SECTIONS, View

__all__ = ["render", "section"]

_RENDERERS = {
    "health": trust.health,
    "findings": advice.findings,
    "steps": clock.steps,
    "phases": clock.phases,
    "idle": clock.idle,
    "kernels": work.kernels,
    "gemms": work.gemms,
    "elementwise": work.elementwise,
    "transfers": work.transfers,
    "memory": trace_memory.memory,
    "chain": host.chain,
    "operators": host.operators,
    "metadata-only": host.metadata_only,
}

# Shown among all sections only where something of it was recorded, since hardly a trace has it.
_WHERE_RECORDED = frozenset({"memory"})


def render(report: Report, view: View | None = None) -> str:
    """The report as text that ends in a newline.

    Without sections it is the first screen (and with ``view.everything`` all sections below it); with
    sections it is those, under the title and whatever forbids trusting the numbers. ``view`` defaults to
    plain text, 100 columns wide.
    """
    view = view or View()
    if view.sections:
        content = [*trust.title(report, view), *trust.alarms(report, view)]
        wanted = [name for name in SECTIONS if name in view.sections]
    else:
        content = screen.first_screen(report, view)
        wanted = [name for name in SECTIONS if name not in _WHERE_RECORDED or report.memory is not None]
        wanted = wanted if view.everything else []
    for name in wanted:
        content += [[], [Span(SECTIONS[name].upper(), "section")], *section(name, report, view)]
    return finished(content, view)


def section(name: str, report: Report, view: View) -> list[Line]:
    """The lines of one section, without its heading."""
    return _RENDERERS[name](report, view)
