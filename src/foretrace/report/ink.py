"""Lines become text, text with colours, or a fragment of HTML, as the view asks for: the last step of a report."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from foretrace.report.text import Line, fitted, paint, plain
from foretrace.report.view import View

__all__ = ["CLASS", "STYLE", "finished", "markup"]

CLASS = "foretrace"

# Style → declarations on light ground, and on dark. A notebook says by a class or attribute of its own which one it
# has (JupyterLab, VS Code, Colab), and where none of them does the browser's preference decides.
_COLOURS = {
    "head": ("font-weight:600", ""),
    "title": ("font-weight:600;color:#0b6b80", "color:#5fd0e6"),
    "section": ("font-weight:600", ""),
    "dim": ("color:#6b7280", "color:#9aa3af"),
    "good": ("color:#17752f", "color:#6fd388"),
    "saving": ("font-weight:600;color:#17752f", "color:#6fd388"),
    "suspect": ("font-weight:600;color:#8a5a00", "color:#f0b44c"),
    "bad": ("font-weight:600;color:#fff;background:#b3261e", ""),
    "verdict": ("font-weight:600;color:#7a2a8f", "color:#dd9bf0"),
}
_DARK = ("[data-jp-theme-light=false]", ".vscode-dark", "[theme=dark]")


def _rules(prefix: str, which: int) -> str:
    return "".join(
        f"{prefix}.{CLASS} .{style}{{{declarations[which]}}}"
        for style, declarations in _COLOURS.items()
        if declarations[which]
    )


STYLE = (
    f".{CLASS} pre{{line-height:1.35;overflow-x:auto;white-space:pre;margin:0}}"
    f".{CLASS} summary{{cursor:pointer}}"
    + _rules("", 0)
    + "@media(prefers-color-scheme:dark){"
    + _rules(":root:not(:has([data-jp-theme-light=true],.vscode-light)) ", 1)
    + "}"
    + "".join(_rules(f"{dark} ", 1) for dark in _DARK)
)
"""The style sheet of `markup`, every rule below the class ``foretrace``."""


def finished(content: Iterable[Line], view: View) -> str:
    """The lines, cut at the view's width, in the form that the view asks for."""
    content = [fitted(row, view.width) for row in content]
    if view.html:
        return markup(content)
    return paint(content) if view.color else plain(content)


def markup(content: Iterable[Line]) -> str:
    """The lines as one ``<pre>``; what a trace calls things is text in it, whatever it is."""
    rows = ("".join(_span(span.text, span.style) for span in row).rstrip() for row in content)
    return f"<pre>{chr(10).join(rows)}</pre>"


def _span(text: str, style: str) -> str:
    shown = escape(text)
    return f'<span class="{style}">{shown}</span>' if style and text else shown
