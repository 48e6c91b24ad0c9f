"""What changed against a test's committed baseline, as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretrace.model.baseline import Change, Drift
from foretrace.report.ink import finished
from foretrace.report.text import Line, Span, line
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["render_drift"]


def render_drift(
    drift: Drift, name: str, view: View | None = None, *, places: Mapping[Change, Sequence[str]] | None = None
) -> str:
    """The differences from the baseline file ``name``, increases first, as text that ends in a newline.

    ``places``: where the calls of a change are made, one line each.
    """
    view = view or View()
    content: list[Line] = [line("foretrace baseline  ", Span(name, "title"))]
    for change in [*drift.more, *(change for change in drift.changes if not change.more)]:
        lead = "  MORE     " if change.more else "  changed  "
        content += paragraph(change.text, view.width, lead=lead, indent=0)
        if change.why:
            content += paragraph(change.why, view.width, indent=11)
        for place in (places or {}).get(change, ()):
            content += paragraph(place, view.width, lead="           where: ", indent=0)
    if not drift.changes:
        content.append(line("  nothing that was compared became more or less"))
    for note in [*drift.notes, *([drift.unseen] if drift.unseen else [])]:
        content += paragraph(note, view.width, lead="  note     ", indent=0)
    return finished(content, view)
