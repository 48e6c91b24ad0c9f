"""What changed against a test's committed baseline, as text."""

from __future__ import annotations

from foretrace.model.baseline import Drift
from foretrace.report.text import Line, Span, line, plain
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["render_drift"]


def render_drift(drift: Drift, name: str, view: View | None = None) -> str:
    """The differences from the baseline file ``name``, increases first, as text that ends in a newline."""
    view = view or View()
    content: list[Line] = [line("foretrace baseline  ", Span(name, "title"))]
    for change in [*drift.more, *(change for change in drift.changes if not change.more)]:
        lead = "  MORE     " if change.more else "  changed  "
        content += paragraph(change.text, view.width, lead=lead, indent=0)
        if change.why:
            content += paragraph(change.why, view.width, indent=11)
    if not drift.changes:
        content.append(line("  nothing that was compared became more or less"))
    for note in [*drift.notes, *([drift.unseen] if drift.unseen else [])]:
        content += paragraph(note, view.width, lead="  note     ", indent=0)
    return plain(content)
