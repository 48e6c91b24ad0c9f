"""Our objects in a notebook: the first screen, as in a terminal, with the sections folded below it."""

from __future__ import annotations

from collections import Counter
from html import escape

from foretrace.knowledge.kineto import RowKind
from foretrace.model.comparison import Comparison
from foretrace.model.expectations import Checked
from foretrace.model.memory import Memory
from foretrace.model.report import Report
from foretrace.model.words import count, number, time
from foretrace.report.ink import CLASS, STYLE, finished
from foretrace.report.text import Line, Span, line
from foretrace.report.trust import paragraph
from foretrace.report.view import SECTIONS, View
from foretrace.trace.table import Trace

__all__ = ["html_of"]

_VIEW = View(width=110, html=True)


def html_of(thing: object) -> str:
    """The HTML fragment that shows ``thing``: a trace, a report, a comparison, a check, a memory.

    Raises ``TypeError`` for anything else.
    """
    match thing:
        case Report():
            parts = _report(thing)
        case Comparison():
            from foretrace.report.compare_terminal import render_comparison

            parts = [render_comparison(thing, _VIEW)]
        case Checked():
            from foretrace.report.check import render_check

            parts = [render_check(thing, _VIEW)]
        case Memory():
            from foretrace.report.memory import render_memory

            parts = [render_memory(thing, _VIEW), _folded("Map of the segments", _memory_map(thing))]
        case Trace():
            parts = [finished(_trace(thing), _VIEW)]
        case _:
            raise TypeError(f"a notebook is shown no {type(thing).__name__}")
    return f'<div class="{CLASS}"><style>{STYLE}</style>{"".join(parts)}</div>'


def _report(report: Report) -> list[str]:
    from foretrace.report.predict import render_prediction
    from foretrace.report.terminal import render

    if report.prediction is not None:
        return [render_prediction(report, _VIEW)]
    first = render(report, View(width=_VIEW.width, html=True, brief=True))
    sections = [name for name in SECTIONS if name != "memory" or report.memory is not None]
    return [first, *(_folded(SECTIONS[name], _section(report, name)) for name in sections)]


def _section(report: Report, name: str) -> str:
    from foretrace.report.terminal import section

    return finished(section(name, report, _VIEW), _VIEW)


def _memory_map(memory: Memory) -> str:
    from foretrace.report.memory_map import map_lines

    return finished(map_lines(memory, _VIEW), _VIEW)


def _folded(heading: str, content: str) -> str:
    return f"<details><summary>{escape(heading)}</summary>{content}</details>"


def _trace(trace: Trace) -> list[Line]:
    """What the file holds; what that means is for ``explain`` to say."""
    kinds = Counter(trace.kind.tolist())
    facts = [count(len(trace), "row"), count(len(trace.steps), "step")]
    if len(trace):
        facts.append(f"{time((int(trace.end.max()) - trace.origin) / 1000)} long")
    lines = [line(Span("foretrace.load", "dim"), "  ", Span(trace.path, "title"))]
    lines += paragraph(" · ".join(facts), _VIEW.width, indent=0)
    lines += [
        line(f"  {RowKind(kind).name.lower():<16}", f"{number(rows):>10}") for kind, rows in sorted(kinds.items())
    ]
    for repair in trace.repairs:
        lines += paragraph(repair, _VIEW.width, lead=Span("! ", "suspect"))
    said = "foretrace.explain(trace) says what it means; trace.events is a Polars frame of all rows"
    return [*lines, line(Span(said, "dim"))]
