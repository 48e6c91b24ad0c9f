"""Our objects in a notebook: the first screen, as in a terminal, with the sections folded below it."""

from __future__ import annotations

from html import escape

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

__all__ = ["html_of", "text_of"]

_VIEW = View(width=110, html=True, brief=True)


def html_of(thing: object) -> str:
    """The HTML fragment that shows ``thing``: a trace, a report, a comparison, a check, a memory.

    Raises ``TypeError`` for anything else.
    """
    return f'<div class="{CLASS}"><style>{STYLE}</style>{_screen(thing, _VIEW)}{"".join(_below(thing))}</div>'


def text_of(thing: object) -> str:
    """The same as plain text without what is folded; raises as `html_of` does."""
    return _screen(thing, View(brief=True)).rstrip()


def _screen(thing: object, view: View) -> str:
    match thing:
        case Report(prediction=None):
            from foretrace.report.terminal import render

            return render(thing, view)
        case Report():
            from foretrace.report.predict import render_prediction

            return render_prediction(thing, view)
        case Comparison():
            from foretrace.report.compare_terminal import render_comparison

            return render_comparison(thing, view)
        case Checked():
            from foretrace.report.check import render_check

            return render_check(thing, view)
        case Memory():
            from foretrace.report.memory import render_memory

            return render_memory(thing, view)
        case Trace():
            return finished(_trace(thing), view)
    raise TypeError(f"a notebook is shown no {type(thing).__name__}")


def _below(thing: object) -> list[str]:
    """What is folded below the screen."""
    match thing:
        case Report(prediction=None):
            sections = [name for name in SECTIONS if name != "memory" or thing.memory is not None]
            return [_folded(SECTIONS[name], _section(thing, name)) for name in sections]
        case Memory():
            return [_folded("Map of the segments", _memory_map(thing))]
    return []


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
    facts = [count(len(trace), "row"), count(len(trace.steps), "step")]
    if trace.length_us is not None:
        facts.append(f"{time(trace.length_us)} long")
    lines = [line(Span("foretrace.load", "dim"), "  ", Span(trace.path, "title"))]
    lines += paragraph(" · ".join(facts), _VIEW.width, indent=0)
    lines += [line(f"  {kind.name.lower():<16}", f"{number(rows):>10}") for kind, rows in trace.counts().items()]
    for repair in trace.repairs:
        lines += paragraph(repair, _VIEW.width, lead=Span("! ", "suspect"))
    said = "foretrace.explain(trace) says what it means; trace.events is a Polars frame of all rows"
    return [*lines, line(Span(said, "dim"))]
