"""Reading a large, healthy file piece by piece.

The file is never in memory as a whole: a piece of about a megabyte is read (and inflated), cut where an event begins,
decoded and turned into columns while it is still in the processor's cache; only the raw ``args`` outlive it. Anything
unusual ends the attempt, and the caller reads the whole file with all its care instead.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Any

import msgspec

from foretrace.knowledge.formats import KINETO_KEYS
from foretrace.trace.columns import Columns
from foretrace.trace.decode import event_list_decoder
from foretrace.trace.fragment import EVENT_START
from foretrace.trace.inflate import is_packed, opened

__all__ = ["BETWEEN", "LARGEST_EVENT", "PIECE", "Streamed", "events_begin", "last_start", "stream_events"]

# Bytes that are read (and inflated) at a time.
PIECE = 1 << 20
# Below this a file is read at once: the pieces would gain nothing.
_SMALLEST = 4 << 20
# An event that does not end within this is none.
LARGEST_EVENT = 64 << 20
# What stands between two events.
BETWEEN = b" \t\r\n,"
_OPEN, _CLOSE = b"[]"
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')

Streamed = tuple[Columns, dict[str, Any], bool, bool]


def stream_events(path: str | Path) -> Streamed | None:
    """Columns, other top-level keys, whether it was a bare array, whether it was compressed; None: read it at once."""
    if str(path) == "-":
        return None
    try:
        # A pipe gives its bytes once: what is looked at here would be missing from what the caller reads.
        if not stat.S_ISREG(Path(path).stat().st_mode):
            return None
        with Path(path).open("rb") as file:
            compressed = is_packed(file)
            size = file.seek(0, 2)
            file.seek(0)
            if size < (_SMALLEST // 16 if compressed else _SMALLEST):
                return None
            columns, meta, bare = _read(opened(file) if compressed else file)
    except Exception:  # whatever is wrong with the file, the careful reader finds it again and says what it is
        return None
    if not columns.known() and not meta.keys() & KINETO_KEYS:
        return None
    return columns, meta, bare, compressed


def events_begin(text: bytes) -> tuple[bytes | None, bytes]:
    """What stands before the list of events, and the text from its first event on.

    ``text`` is the first piece of a file; None stands for nothing, where the file is a bare list. Raises ``ValueError``
    where the list does not begin in it.
    """
    if text.lstrip()[:1] == b"[":
        return None, text[text.index(b"[") + 1 :]
    key = _EVENTS_KEY.search(text)
    if not key:
        raise ValueError("the list of events does not begin within the first piece")
    return text[: key.start()], text[key.end() :]


def last_start(text: bytes | bytearray, end: int | None = None) -> int:
    """Where the last event before ``end`` begins (it may be incomplete); 0 or less where there is none but the first.

    ``text`` begins with an event, or with the bracket that opens their list.
    """
    at = text.rfind(b"{", 0, end)
    while at > 0:
        if EVENT_START.match(text, at) and text[max(at - 64, 0) : at].rstrip()[-1:] == b",":
            return at
        at = text.rfind(b"{", 0, at)
    return at


def _read(file: Any) -> tuple[Columns, dict[str, Any], bool]:
    columns = Columns()
    head, text = events_begin(file.read(PIECE))
    while True:
        # One buffer a piece: the raw args stay views into it, so that nothing is copied but the cut-off last event.
        buffer = bytearray(1 + len(text) + PIECE)
        buffer[0] = _OPEN
        buffer[1 : 1 + len(text)] = text
        view = memoryview(buffer)
        got = file.readinto(view[1 + len(text) :])
        if not got:
            break
        used = 1 + len(text) + got
        cut = last_start(buffer, used)
        if cut > 1:
            text = bytes(view[cut:used])
            _take(columns, buffer, cut)
        elif used < LARGEST_EVENT:
            text = bytes(view[1:used])
        else:
            raise ValueError("an event without end")
    end, meta = (_bare_end(text), {}) if head is None else _end(head, text)
    _take(columns, bytearray(b"[%b]" % text[:end]), end + 1)
    return columns, meta, head is None


def _take(columns: Columns, buffer: bytearray, end: int) -> None:
    """Decode the events between the opening bracket and ``end``; the comma behind the last gives way to a bracket."""
    while buffer[end - 1] in BETWEEN:
        end -= 1
    buffer[end] = _CLOSE
    listed = memoryview(buffer)[: end + 1]
    if not buffer.isascii():
        str(listed, "utf-8")  # raises where it is none; the typed decoder does not look into args
    columns.add(event_list_decoder.decode(listed), listed)


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
