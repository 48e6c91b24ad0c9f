"""The lines of a log, sorted by who wrote them, without white space, and where in the text each began."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final

from foretrace.knowledge import out_of_memory as known

__all__ = ["Squeezed", "squeezed"]

_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
# Four backslashes: a log of a log of a log. A bound, so that a long run of them costs no more than its length.
_JSON: Final = re.compile(r"\\{1,4}u001[bB]\[[0-9;]*m|\\{1,4}x1b\[[0-9;]*m|\\{1,4}([nrt\"'])")
# Frames of tables and boxes, Markdown's emphasis and code, and what is not seen.
_DROPPED: Final = re.compile("[\\s\u2500-\u259f*`\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\x00]+")
# The same for a line of ASCII, an order of magnitude faster.
_DROPPED_ASCII: Final = dict.fromkeys(map(ord, "\x00\t\n\v\f\r\x1c\x1d\x1e\x1f *`"))
_PREFIX: Final = re.compile(f"{known.RANK_PREFIX}|{known.RUNNING_PREFIX}")
_PREFIXES = 8


class Squeezed:
    """A text without white space, one writer after the other; a line feed, which no pattern crosses, between them."""

    def __init__(self) -> None:
        self.text = ""
        self._starts: list[int] = []
        self._lines: list[tuple[int, int | None]] = []

    def extend(self, parts: list[str], lines: list[tuple[int, int | None]], at: int) -> int:
        """Note the lines of one writer, whose text begins at ``at``; returns where the next writer's begins."""
        for part in parts:
            self._starts.append(at)
            at += len(part)
        self._lines += lines
        return at + 1

    def line_of(self, position: int) -> tuple[int, int | None]:
        """The number of the line a position lies in, and the rank it names itself."""
        return self._lines[bisect_right(self._starts, position) - 1]

    def around(self, position: int) -> tuple[int, int]:
        """Where the line of a position begins and ends in the text."""
        at = bisect_right(self._starts, position)
        end = self._starts[at] if at < len(self._starts) else len(self.text)
        # The line feed between two writers is of neither.
        return self._starts[at - 1], end - (end > 0 and self.text[end - 1 : end] == "\n")


def squeezed(text: str) -> Squeezed:
    """The text as patterns are looked for in it."""
    text = _JSON.sub(lambda match: "\n" if match[1] in ("n", "r") else " ", _ESCAPES.sub("", text))
    writers: dict[int | None, tuple[list[str], list[tuple[int, int | None]]]] = {None: ([], [])}
    parts, lines = writers[None]
    for number, line in enumerate(text.split("\n"), 1):
        rest, rank = _without_prefix(line)
        # A line that names no rank goes on with what the last one said: terminals break lines without repeating it.
        if rank is not None:
            parts, lines = writers.setdefault(rank, ([], []))
        if kept := rest.translate(_DROPPED_ASCII) if rest.isascii() else _DROPPED.sub("", rest):
            parts.append(kept)
            lines.append((number, rank))
    found = Squeezed()
    at = 0
    for parts, lines in writers.values():
        at = found.extend(parts, lines, at)
    found.text = "\n".join("".join(parts) for parts, _ in writers.values())
    return found


def _without_prefix(line: str) -> tuple[str, int | None]:
    """The line without what log systems put before it, and the rank it names."""
    rank: int | None = None
    line = line.lstrip(" \t\r│|*")
    for _ in range(_PREFIXES):
        match = _PREFIX.match(line)
        if match is None:
            break
        if match.lastgroup is not None:
            rank = int(match[match.lastgroup])
        line = line[match.end() :].lstrip(" \t│|*")
    return line, rank
