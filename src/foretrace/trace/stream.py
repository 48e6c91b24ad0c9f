"""Reading a large, healthy file piece by piece.

The file is never in memory as a whole: a piece of about a megabyte is read (and inflated), cut where an event begins,
decoded and turned into columns while it is still in the processor's cache; only the raw ``args`` outlive it. Anything
unusual ends the attempt, and the caller reads the whole file with all its care instead.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from foretrace.knowledge.formats import GZIP_MAGIC, KINETO_KEYS
from foretrace.trace.columns import Columns
from foretrace.trace.decode import event_list_decoder, exact_times
from foretrace.trace.fragment import EVENT_START

__all__ = ["Streamed", "stream_events"]

_PIECE = 1 << 20
# Below this a file is read at once: the pieces would gain nothing.
_SMALLEST = 4 << 20
# An event that does not end within this is none.
_LARGEST_EVENT = 64 << 20
_BETWEEN = b" \t\r\n,"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')

Streamed = tuple[Columns, dict[str, Any], bool, bool]


def stream_events(path: str | Path) -> Streamed | None:
    """Columns, other top-level keys, whether it was a bare array, whether it was compressed; None: read it at once."""
    if str(path) == "-":
        return None
    try:
        with Path(path).open("rb") as file:
            compressed = file.read(2) == GZIP_MAGIC
            size = file.seek(0, 2)
            file.seek(0)
            if size < (_SMALLEST // 16 if compressed else _SMALLEST):
                return None
            columns, meta, bare = _read(_inflating(file) if compressed else file)
    except Exception:  # whatever is wrong with the file, the careful reader finds it again and says what it is
        return None
    if not columns.known() and not meta.keys() & KINETO_KEYS:
        return None
    return columns, meta, bare, compressed


def _inflating(file: BinaryIO) -> Any:
    library: Any
    try:
        from isal import igzip as library
    except ImportError:  # platforms without an isal wheel
        import gzip as library
    return library.GzipFile(fileobj=file)


def _read(file: Any) -> tuple[Columns, dict[str, Any], bool]:
    columns = Columns()
    text = file.read(_PIECE)
    bare = text.lstrip()[:1] == b"["
    if bare:
        head, text = b"", text[text.index(b"[") + 1 :]
    else:
        key = _EVENTS_KEY.search(text)
        if not key:
            raise ValueError("the list of events does not begin within the first piece")
        head, text = text[: key.start()], text[key.end() :]
    while piece := file.read(_PIECE):
        cut = _last_start(text)
        if cut > 0:
            _take(columns, text, cut)
            text = b"".join((memoryview(text)[cut:], piece))
        elif len(text) < _LARGEST_EVENT:
            text += piece
        else:
            raise ValueError("an event without end")
    end, meta = (_bare_end(text), {}) if bare else _end(head, text)
    _take(columns, text, end)
    return columns, meta, bare


def _take(columns: Columns, text: bytes, end: int) -> None:
    """Decode the events in front of ``end`` (the comma behind the last one may be there)."""
    while end and text[end - 1] in _BETWEEN:
        end -= 1
    listed = b"".join((b"[", memoryview(text)[:end], b"]"))
    if not listed.isascii():
        listed.decode("utf-8")  # raises where it is none; the typed decoder does not look into args
    events = event_list_decoder.decode(listed)
    exact_times(events, listed)
    columns.add(events)


def _last_start(text: bytes) -> int:
    """Where the last event of the text begins (it may be incomplete); -1 where there is none but the first."""
    at = text.rfind(b"{")
    while at > 0:
        if EVENT_START.match(text, at) and text[max(at - 64, 0) : at].rstrip()[-1:] == b",":
            return at
        at = text.rfind(b"{", 0, at)
    return -1


def _bare_end(text: bytes) -> int:
    end = len(text.rstrip()) - 1
    if text[end : end + 1] != b"]":
        raise ValueError("the list does not close")
    return end


def _end(head: bytes, text: bytes) -> tuple[int, dict[str, Any]]:
    """Where the list of events ends, and the keys around it.

    It ends at the first bracket behind which all the rest is the remainder of one JSON object.
    """
    at = text.find(b"]", max(len(text) - (1 << 14), 0))
    tried_all = False
    while True:
        if at < 0:
            if tried_all:
                raise ValueError("the list does not close")
            tried_all, at = True, text.find(b"]")
            continue
        after = text[at + 1 : at + 64].lstrip()
        if after[:1] in (b",", b"}"):
            try:
                meta = msgspec.json.decode(head + b'"traceEvents": null' + text[at + 1 :])
            except msgspec.DecodeError:
                pass
            else:
                if meta.pop("traceEvents", 0) is None:
                    return at, meta
        at = text.find(b"]", at + 1)
