"""Styled text for a terminal: what a trace calls things may never reach it as an escape sequence.

A ``Line`` is a list of ``Span``; a ``Span`` cleans its text when it is made, so nothing that is shown can
move the cursor, change colours, ring a bell or reverse the reading direction, whoever wrote the trace.
Widths are counted in terminal cells: combining marks take none, East Asian wide characters take two.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Protocol

__all__ = [
    "Line",
    "Span",
    "clean",
    "columns_of",
    "cut",
    "fitted",
    "line",
    "note",
    "paint",
    "plain",
    "wants_color",
    "wide",
    "width_of",
    "wrap",
]

ELLIPSIS = "…"

# style → parameters of an ECMA-48 "select graphic rendition" sequence
_SGR = {
    "": "",
    "head": "1",
    "title": "1;36",
    "section": "1",
    "dim": "2",
    "good": "32",
    "saving": "1;32",
    "suspect": "1;33",
    "bad": "1;37;41",
    "verdict": "1;35",
}

PLAIN_COLUMNS = 100  # the width of everything that is not a terminal: files, pipes, golden reports
MIN_COLUMNS = 40


def clean(text: str) -> str:
    """The text with every character that is not printable spelled out (``\\x1b``, ``\\u202e``, ``\\n``)."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else _spelled(c) for c in text)


def _spelled(character: str) -> str:
    code = ord(character)
    if character in "\n\r\t":
        return repr(character)[1:-1]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


class Span:
    """A piece of one line in one style (a key of the style table, ``""`` for none)."""

    __slots__ = ("style", "text")

    def __init__(self, text: str, style: str = "") -> None:
        self.text = clean(text)
        self.style = style

    def __repr__(self) -> str:
        return f"Span({self.text!r}, {self.style!r})"


Line = list[Span]


def line(*parts: Span | str) -> Line:
    """A line of spans; plain strings get no style."""
    return [part if isinstance(part, Span) else Span(part) for part in parts]


def width_of(text: str) -> int:
    """Terminal cells the (clean) text takes."""
    if text.isascii():
        return len(text)
    return sum(wide(character) for character in text)


def wide(character: str) -> int:
    """Terminal cells one printable character takes: 0, 1 or 2."""
    if character.isascii():
        return 1
    from unicodedata import combining, east_asian_width

    if combining(character):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def cut(text: str, width: int, where: str = "end") -> str:
    """The text in at most ``width`` cells; an ellipsis marks what was left out in the "middle" or "end"."""
    text = clean(text)
    if width_of(text) <= width:
        return text
    if width < 2:
        return ELLIPSIS[:width]
    room = width - 1
    tail_room = room // 2 if where == "middle" else 0
    head = _fitting(text, room - tail_room)
    tail = _fitting(text[::-1], tail_room)[::-1]
    return head + ELLIPSIS + tail


def _fitting(text: Iterable[str], width: int) -> str:
    kept: list[str] = []
    used = 0
    for character in text:
        used += wide(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept)


def wrap(text: str, width: int) -> list[str]:
    """The text broken at spaces into pieces of at most ``width`` cells; longer words are broken."""
    pieces: list[str] = []
    current = ""
    for word in clean(text).split():
        while width_of(word) > width:
            if current:
                pieces.append(current)
                current = ""
            head = _fitting(word, width) or word[0]
            pieces.append(head)
            word = word[len(head) :]
        if not word:
            continue
        joined = f"{current} {word}" if current else word
        if width_of(joined) > width:
            pieces.append(current)
            current = word
        else:
            current = joined
    if current or not pieces:
        pieces.append(current)
    return pieces


def note(text: str, width: int, indent: int = 2) -> list[Line]:
    """A wrapped remark in the background colour of remarks."""
    return [line(" " * indent, Span(piece, "dim")) for piece in wrap(text, max(1, width - indent))]


def fitted(row: Line, width: int) -> Line:
    """The line, cut at the width: the last resort, for fixed words on a very narrow terminal."""
    used = 0
    kept: Line = []
    for span in row:
        room = width - used
        if width_of(span.text) > room:
            kept.append(Span(cut(span.text, room), span.style))
            break
        kept.append(span)
        used += width_of(span.text)
    return kept


def plain(content: Iterable[Line]) -> str:
    """The lines without colour; no trailing spaces, a newline after each."""
    return "".join("".join(span.text for span in row).rstrip() + "\n" for row in content)


def paint(content: Iterable[Line]) -> str:
    """The lines with colours for a terminal."""
    painted = []
    for row in content:
        for span in row:
            code = _SGR[span.style]
            painted.append(f"\x1b[{code}m{span.text}\x1b[0m" if code and span.text else span.text)
        painted.append("\n")
    return "".join(painted)


class Stream(Protocol):
    """As much of a text file as is asked here."""

    def isatty(self) -> bool: ...
    def fileno(self) -> int: ...


def wants_color(stream: Stream, environ: Mapping[str, str]) -> bool:
    """Whether to colour: only on a terminal, never with ``NO_COLOR`` set (no-color.org) or ``TERM=dumb``."""
    if environ.get("NO_COLOR") or environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def columns_of(stream: Stream, environ: Mapping[str, str]) -> int:
    """The width to fill: the terminal's (or ``COLUMNS``, where it is one), else 100."""
    if not stream.isatty():
        return PLAIN_COLUMNS
    asked = environ.get("COLUMNS", "")
    if asked.isdigit() and int(asked) > 0:
        return max(MIN_COLUMNS, int(asked))
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return PLAIN_COLUMNS
    return max(MIN_COLUMNS, columns) if columns > 0 else PLAIN_COLUMNS
