"""The events of a trace file as the text they were written in, for copies of the file.

A healthy file is read piece by piece, so that its text is never in memory as a whole. What the reader has to mend is
mended here by the same means, once, and kept. Positions are those of the reader (``Trace.event``).
"""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from sys import intern
from typing import Any

import msgspec

from foretrace.errors import InputError
from foretrace.trace.decode import decode_fast, event_list_decoder
from foretrace.trace.encoding import to_utf8
from foretrace.trace.event import RawEvent
from foretrace.trace.inflate import is_packed, opened
from foretrace.trace.repair import decode_damaged
from foretrace.trace.source import read_source
from foretrace.trace.stream import BETWEEN, LARGEST_EVENT, PIECE, events_begin, last_start
from foretrace.trace.table import Trace

__all__ = ["Mark", "RawFile", "open_raw"]

_BATCH = 4096
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_raw_list = msgspec.json.Decoder(list[msgspec.Raw]).decode
_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
# Times of absolute clocks need more than a float64: they are decimals from the text to the text.
_encode = msgspec.json.Encoder(decimal_format="number").encode
_THOUSAND = Decimal(1000)


class _Head(msgspec.Struct, gc=False):
    """What tells the events apart; times in µs as the file has them."""

    ph: str = ""
    cat: str | None = None
    name: str | None = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: Decimal | None = None
    id: int | str | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """An event that is no complete row: an arrow's end, a name, a counter, half of a begin/end pair, a mark.

    ``position``: its place in the file's ``traceEvents``; ``ns``: its time, None where it has none.
    """

    position: int
    ph: str
    cat: str | None
    pid: int | str | None
    tid: int | str | None
    ns: int | None
    id: int | str | None


_heads = msgspec.json.Decoder(list[_Head]).decode
_COMPLETE = "X"


@dataclass(eq=False)
class RawFile:
    """What a file holds, event by event.

    ``marks`` are the events that are no complete rows; ``own`` the positions of complete ones of category ``own``
    (see ``open_raw``).
    """

    path: str
    marks: list[Mark] = field(default_factory=list)
    own: list[int] = field(default_factory=list)
    total: int = 0
    _held: list[Any] | None = None

    def batches(self) -> Iterator[list[msgspec.Raw]]:
        """The events in the file's order, some thousand at a time."""
        if self._held is None:
            yield from _streamed(self.path)
            return
        for at in range(0, len(self._held), _BATCH):
            yield self._held[at : at + _BATCH]

    def _look(self, own: str | None) -> None:
        self.marks, self.own, self.total = [], [], 0
        for batch in self.batches():
            for place, head in enumerate(_heads(b"[%b]" % b",".join(batch)), self.total):
                if head.ph != _COMPLETE:
                    self.marks.append(_mark(place, head))
                elif own is not None and head.cat == own:
                    self.own.append(place)
            self.total += len(batch)


def _mark(position: int, head: _Head) -> Mark:
    # The decoder makes each word anew; a large file has millions of marks and a handful of words.
    category = None if head.cat is None else intern(head.cat)
    ts = head.ts
    ns = None if ts is None or not ts.is_finite() else int((ts * _THOUSAND).to_integral_value())
    return Mark(position, intern(head.ph), category, head.pid, head.tid, ns, head.id)


def open_raw(trace: Trace, *, own: str | None = None) -> RawFile:
    """The events of the file that ``trace`` was read from; ``own`` is a category whose rows are looked for.

    Raises `InputError` where the file is no longer the one that was read, or was standard input; `TraceReadError`
    where it cannot be read.
    """
    if trace.path == "-":
        raise InputError("standard input can be read only once; save the trace to a file and name that")
    raw = RawFile(trace.path)
    if not trace.repairs and not trace.in_nanoseconds and _is_file(trace.path):
        try:
            raw._look(own)
        except Exception:  # whatever is unusual about the file, the careful way finds it again and says what it is
            raw.total = -1
        if raw.total == trace.total_events:
            return raw
    raw._held = _held(trace)
    raw._look(own)
    if raw.total != trace.total_events:
        raise InputError(f"{trace.path} has changed since it was read; try again when nothing writes to it")
    return raw


def _is_file(path: str) -> bool:
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def _streamed(path: str) -> Iterator[list[msgspec.Raw]]:
    """Batches of a healthy file; raises whatever goes wrong where it is none."""
    with Path(path).open("rb") as packed:
        file = opened(packed) if is_packed(packed) else packed
        head, text = events_begin(file.read(PIECE))
        bare = head is None
        while more := file.read(PIECE):
            text += more
            cut = last_start(text)
            if cut > 0:
                yield _events(b"[%b]" % text[:cut].rstrip(BETWEEN))
                text = text[cut:]
            elif len(text) > LARGEST_EVENT:
                raise ValueError("an event without end")
        # What is left closes the list and the document, with the keys behind the list between them.
        yield _events(b"[" + text) if bare else _raw_list(_top_level(_sound(b'{"traceEvents":[' + text))["traceEvents"])


def _events(text: bytes) -> list[msgspec.Raw]:
    return _raw_list(_sound(text))


def _sound(text: bytes) -> bytes:
    if not text.isascii():
        str(text, "utf-8")  # raises where it is none; what is skipped by the decoder is not looked at
    return text


def _held(trace: Trace) -> list[Any]:
    """All events of a file that has to be read at once, mended where their own text would not do."""
    text = to_utf8(read_source(trace.path).text, [])
    if not trace.in_nanoseconds:
        try:
            listed = text if text[: 1 << 12].lstrip()[:1] == b"[" else _top_level(text)["traceEvents"]
            event_list_decoder.decode(listed)  # fields of another type are mended by the reader only
            events = _raw_list(listed)
        except (*_ERRORS, KeyError):
            pass
        else:
            if len(events) == trace.total_events:
                return list(events)
    return [msgspec.Raw(_encode(_plain(event, trace))) for event in _mended(text, trace.path)]


def _mended(text: bytes, path: str) -> list[RawEvent]:
    try:
        return decode_fast(text)[0]
    except _ERRORS:
        return decode_damaged(text, path)[0]


def _plain(event: RawEvent, trace: Trace) -> dict[str, Any]:
    """The fields of a mended event; times in µs also where the file has ns."""
    found: dict[str, Any] = {
        key: value
        for key in ("ph", "cat", "name", "pid", "tid", "ts", "dur", "id")
        if (value := getattr(event, key)) is not None and value != ""
    }
    for key in ("ts", "dur"):
        # By way of its digits: what a float64 has beyond them was never written.
        time = Decimal(str(found.get(key, 0)))
        if not time.is_finite():
            del found[key]
        elif trace.in_nanoseconds and key in found:
            found[key] = time / _THOUSAND
    # Of the fields that the reader does not keep, Kineto writes two, each always with the same value.
    if event.ph == "f":
        found["bp"] = "e"
    elif event.ph == "i":
        found["s"] = "t"
    if event.args:
        found["args"] = event.args
    return found
