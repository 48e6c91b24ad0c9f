"""Reading a damaged trace: all whole events count, and what was mended is said.

Called only when the typed decoder has refused the text. The text is put into UTF-8 and then read in chunks of about
a megabyte at the full speed of that decoder. Only a chunk that fails is taken apart into events, and only an event
that fails is mended (``fragment.py``), so the cost is that of a healthy file plus the damage.
"""

from __future__ import annotations

import re
from collections import Counter
from decimal import Decimal
from typing import Any

import msgspec

from foretrace.errors import TraceReadError
from foretrace.trace.columns import exact_times
from foretrace.trace.decode import SEVERAL_LISTS, decode_fast, event_list_decoder
from foretrace.trace.encoding import to_utf8
from foretrace.trace.event import RawEvent
from foretrace.trace.fragment import (
    EVENT_START,
    TYPES,
    LooseEvent,
    decode_lenient,
    exact,
    first_event,
    loosened,
    mend,
    object_end,
    typed,
    typed_or_deep,
)
from foretrace.trace.metadata import read_metadata
from foretrace.trace.refuse import refuse_json, refuse_text

__all__ = ["decode_damaged"]

_CHUNK = 1 << 20
_BLANK = b" \t\r\n\0"
_BLANKS = re.compile(rb"[ \t\r\n\0]*")
_BETWEEN = _BLANK + b","
# Pieces in a row that were no event; behind so many, mending every further one would only cost time.
_HOPELESS = 1000
_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*')
_LIST_KEY = re.compile(_EVENTS_KEY.pattern + rb"\[")
_MOST_LISTS = 100
SEPARATORS = "missing or surplus commas between events, mended"
BRACKETS = "surplus brackets between events, ignored"

_START = EVENT_START
_CLOSE = re.compile(rb'\}(?=\s*\]\s*(?:\}|\Z|,\s*"[^"\\]{1,64}"\s*:))')
_TAIL_KEY = re.compile(rb'\s*,?\s*"[^"\\]{1,64}"\s*:')


def decode_damaged(text: bytes, path: str) -> tuple[list[RawEvent], dict[str, Any], bool, list[str]]:
    """Read what can be read: (events, other top-level keys, whether it was a bare array, repairs in words).

    Raises ``TraceReadError`` with one sentence where the text holds no trace events at all.
    """
    repairs: list[str] = []
    sound = to_utf8(text, repairs)
    if sound is not text:
        try:
            events, meta, bare, more = decode_fast(sound)
            return events, meta, bare, [*repairs, *more]
        except _ERRORS:
            pass
    reading = _Reading(sound, path)
    reading.document(0)
    if not any(event.ph for event in reading.events):
        try:
            document = msgspec.json.decode(sound)
        except _ERRORS:
            document = None
        if document is not None:
            raise refuse_json(document, path)
        if reading.deep:
            raise TraceReadError(f"{path} nests too deeply to be a trace; name the file that the profiler wrote")
        raise TraceReadError(f"{path} is cut off before its first whole event; copy or record the trace again")
    return reading.events, reading.meta, reading.bare, [*repairs, *reading.words()]


class _Reading:
    """One pass over the text, with everything found so far."""

    def __init__(self, text: bytes, path: str) -> None:
        self.text = text
        self.path = path
        self.events: list[RawEvent] = []
        self.meta: dict[str, Any] = {}
        self.bare = False
        self.mended: Counter[str] = Counter()
        self.skipped = 0
        self.strangers = 0  # entries of the list that are no events
        self.cut = False
        self.cut_events = 0
        self.documents = 0
        self.listed = True
        self.first = -1  # an event although it stands behind a colon
        self.ignored = 0
        self.lists = 1
        self.deep = False  # an event nests deeper than any decoder follows
        self.failures = 0  # pieces in a row that no mending turned into an event
        self.notes: list[str] = []

    def words(self) -> list[str]:
        """The repairs, most important first."""
        words = []
        if self.cut:
            lost = "; an incomplete event at the end was dropped" if self.cut_events else ""
            words.append(f"the text is cut off; all {len(self.events):,} whole events before the cut were read{lost}")
        if self.skipped:
            words.append(_counted(self.skipped, "broken event", "skipped"))
        if self.strangers:
            words.append(_counted(self.strangers, "entry that is no event", "skipped"))
        words += [f"{what} ({count}×)" for what, count in self.mended.items() if count]
        words += self.notes
        if self.lists > 1:
            words.append(SEVERAL_LISTS.format(n=self.lists))
        if self.documents > 1:
            words.append(f"{self.documents} documents stood one after another; their events were read as one trace")
        if self.ignored:
            words.append(_counted(self.ignored, "byte", "after the end of the document ignored"))
        return words or ["brackets of the document, mended"]

    def document(self, at: int) -> None:
        """Read the document that begins at ``at`` and those behind it."""
        while at < len(self.text):
            self.documents += 1
            at = self._one(at)

    def _one(self, at: int) -> int:
        """Read one document; returns where the next one begins (the end of the text if there is none)."""
        key = _EVENTS_KEY.search(self.text, at)
        begin = self._skip_blank(at)
        first = self.text[begin : begin + 1]
        start = _START.search(self.text, at)
        if first != b"[" and key and (not start or key.start() < start.start() or start.start() > begin):
            opened = self.text[key.end() : key.end() + 1] == b"["
            if not opened:
                # The bracket may be missing or another byte may stand in its place.
                first_event = _START.search(self.text, key.end(), key.end() + 64)
                if not first_event:
                    raise refuse_json({"traceEvents": None}, self.path)
                self.first = first_event.start()
                self.notes.append("the opening bracket of the list of events was missing")
            self._metadata(self.text[begin : key.start()])
            return self._list(key.end() + opened)
        if start is None:
            return self._nothing(at, first)
        if first == b"[":
            self.bare = True
            return self._list(begin + 1)
        self.bare = True
        if start.start() > begin:
            self.notes.append("the beginning of the text is missing; events were read from the first whole one on")
        else:
            self.notes.append("the events stood one after another without a list around them")
        return self._list(start.start(), listed=False)

    def _nothing(self, at: int, first: bytes) -> int:
        if self.events:
            self.documents -= 1
            self.ignored += len(self.text) - at
            return len(self.text)
        try:
            document = msgspec.json.decode(self.text)
        except _ERRORS:
            document = None
            if first in (b"{", b"["):
                raise TraceReadError(
                    f"{self.path} is broken JSON without one whole trace event; copy or record the trace again"
                ) from None
            raise refuse_text(self.text, self.path) from None
        raise refuse_json(document, self.path)

    def _skip_blank(self, at: int) -> int:
        found = _BLANKS.match(self.text, at)
        return found.end() if found else at

    def _list(self, at: int, *, listed: bool = True) -> int:
        """Read events from ``at`` to the end of their list; returns where the next document begins.

        ``listed``: a list was opened before, so that the text is cut off where it does not close.
        """
        self.listed = listed
        # Many small documents in a row must not each cost a look at a megabyte.
        size = _CHUNK if self.documents == 1 else 1 << 12
        while at < len(self.text):
            cut = self._next_start(at + size)
            piece = self.text[at:cut].strip(_BETWEEN)
            if not piece:
                at = cut
                continue
            try:
                found = event_list_decoder.decode(b"[" + piece + b"]")
            except _ERRORS:
                if self._oddly_typed(b"[" + piece + b"]"):
                    at = cut
                    continue
                after, finished = self._piecewise(at, cut)
                if finished:
                    return after
                # Only the beginning of one event fits into the chunk: look at more of it at once.
                size = min(2 * size, _CHUNK) if after > at else size * 2
                at = after
                continue
            self._keep(found, piece)
            at = cut
            size = min(2 * size, _CHUNK)
        self.cut = listed
        return at

    def _oddly_typed(self, chunk: bytes) -> bool:
        """Take a chunk that is sound JSON but has fields of unexpected types, such as times as strings."""
        try:
            loose = _loose_list.decode(chunk)
        except _ERRORS:
            return False
        converted = [loosened(event) for event in loose]
        events = [event for event, _ in converted]
        self.mended[TYPES] += sum(odd for _, odd in converted)
        exact_times(events, chunk)
        self.events += events
        return True

    def _keep(self, found: list[RawEvent], piece: bytes) -> None:
        exact_times(found, b"[" + piece + b"]")
        self.events += found

    def _next_start(self, at: int) -> int:
        for start in _START.finditer(self.text, at):
            if self._begins_event(start.start()):
                return start.start()
        return len(self.text)

    def _begins_event(self, at: int) -> bool:
        """Whether the brace at ``at`` is not the value of a key (``"args": {"name": …}``)."""
        low = max(at - 256, 0)
        before = self.text[low:at].rstrip(_BLANK)
        return before[-1:] != b":" or at == self.first

    def _piecewise(self, at: int, cut: int) -> tuple[int, bool]:
        """Read the events of a chunk one by one: (where to go on, whether the list has ended)."""
        text = self.text
        starts = [m.start() for m in _START.finditer(text, at, cut) if self._begins_event(m.start())]
        last_chunk = cut >= len(text)
        if not starts:
            self._leftover(text[at:cut])
            return cut, False
        self._leftover(text[at : starts[0]])
        ends = [*starts[1:], cut]
        index = 0
        while index < len(starts):
            start = starts[index]
            if index == len(starts) - 1 and not last_chunk and index > 0:
                return start, False  # it may go on in the next chunk
            event, end, index = self._one_event(starts, ends, index)
            if event is None:
                if index >= len(starts) and last_chunk:
                    self.cut, self.cut_events = True, 1
                    return len(text), True
                self.skipped += 1
                continue
            self._add(event, text[start:end])
            stop = ends[index - 1]
            between = text[end:stop].strip(_BLANK)
            if between == b"," or (not between and stop == len(text)):
                continue
            rest = between.strip(_BETWEEN)
            if not rest:
                self.mended[SEPARATORS] += self.listed
                continue
            closed = self._after(end, rest)
            if closed >= 0:
                return closed, True
        return cut, False

    def _one_event(self, starts: list[int], ends: list[int], index: int) -> tuple[RawEvent | None, int, int]:
        """Decode the event at ``index``: (event, where its text ends, index of the next one)."""
        text = self.text
        start, stop = starts[index], ends[index]
        piece = text[start:stop].rstrip(_BETWEEN)
        event, deep = typed_or_deep(piece)
        if event is not None:
            self.failures = 0
            return event, start + len(piece), index + 1
        if deep or self.failures > _HOPELESS:
            self.deep |= deep
            return None, stop, index + 1
        self.failures += 1
        event, end, index = self._careful(starts, ends, index, piece)
        if event is not None:
            self.failures = 0
        return event, end, index

    def _careful(
        self, starts: list[int], ends: list[int], index: int, piece: bytes
    ) -> tuple[RawEvent | None, int, int]:
        """``_one_event`` for a piece that the typed decoder has refused."""
        text = self.text
        start, stop = starts[index], ends[index]
        end = object_end(piece)
        if end > 0:
            whole = piece[:end]
            event = typed(whole) or self._converted(whole) or self._mended(whole, close=False)
            if event is not None:
                return event, start + end, index + 1
        else:
            # Open at its end: a list of objects inside args looks like the beginnings of further events.
            for more in range(index + 1, min(index + 9, len(starts))):
                joined = text[start : ends[more]]
                end = object_end(joined)
                if end > 0:
                    event = typed(joined[:end])
                    if event is not None:
                        return event, start + end, more + 1
                    break
        if stop == len(text):
            # The end of the list and of the document stand behind the last event and belong to nobody's text.
            for close in _CLOSE.finditer(piece):
                event = self._mended(piece[: close.start() + 1])
                if event is not None:
                    return event, start + close.start() + 1, index + 1
        # The last piece of the text is no event with a missing brace but one that was cut.
        event = self._mended(piece, close=stop < len(text))
        return event, start + len(piece), index + 1

    def _mended(self, piece: bytes, *, close: bool = True) -> RawEvent | None:
        event: RawEvent | None = mend(piece, self.mended, first_event, close=close)
        return event

    def _converted(self, piece: bytes) -> RawEvent | None:
        event = decode_lenient(piece)
        if event is not None:
            self.mended[TYPES] += 1
        return event

    def _add(self, event: RawEvent, piece: bytes) -> None:
        # What was mended came with exact times; the text of the others is sound.
        self.events.append(exact(event, piece) or event)

    def _leftover(self, text: bytes) -> None:
        rest = text.strip(_BETWEEN)
        if rest.strip(_BETWEEN + b"[]{}"):
            self.strangers += 1
        elif rest:
            self.mended[BRACKETS] += 1

    def _after(self, end: int, rest: bytes) -> int:
        """What stands behind an event: -1 to go on, else where the next document begins."""
        if rest[:1] != b"]":
            self._leftover(rest)
            return -1
        if b"," in self.text[end : self.text.index(b"]", end)]:
            self.mended[SEPARATORS] += 1
        closing = self.text.index(b"]", end)
        after = self._skip_blank(closing + 1)
        if after >= len(self.text):
            if not self.bare:
                self.notes.append("the closing brace of the document was missing")
            return len(self.text)
        if self.bare:
            return after
        if self.text[after : after + 1] == b"}":
            return self._skip_blank(after + 1)
        if _TAIL_KEY.match(self.text, after) or not _START.search(self.text, after):
            return self._tail(after)
        self.mended[BRACKETS] += 1
        return -1

    def _tail(self, at: int) -> int:
        """Top-level keys behind the list of events; returns where the next document begins."""
        at = self._skip_blank(at + (self.text[at : at + 1] == b","))
        again = _LIST_KEY.search(self.text, at) if self.lists < _MOST_LISTS else None
        if again:
            between = b"{" + self.text[at : again.start()].rstrip(_BETWEEN) + b"}"
            try:
                msgspec.json.decode(between)
            except _ERRORS:
                pass  # the key belongs to a value or to another document
            else:
                self._metadata(between[:-1])
                self.lists += 1
                return self._list(again.end())
        # The keys are few and short; looking at all the rest at once would cost a copy for each of many documents.
        size, end, rest = 1 << 16, -1, b""
        while end < 0 and len(rest) <= len(self.text) - at:
            rest = b"{" + self.text[at : at + size]
            end = object_end(rest)
            size *= 16
        whole = rest if end < 0 else rest[:end]
        read = self._metadata(whole.rstrip(_BETWEEN).removesuffix(b"}"))
        if end < 0:
            self.notes.append("the text is cut off in the metadata behind the events; all events were read")
            return len(self.text)
        if not read:
            self.notes.append("the metadata behind the events could not be read")
        return self._skip_blank(at + end - 1)

    def _metadata(self, head: bytes) -> bool:
        """Take over ``{"key": value, …`` (without its closing brace); False where nothing of it can be read."""
        found = read_metadata(head, self.mended, self.notes)
        for key, value in (found or {}).items():
            self.meta.setdefault(key, value)
        return found is not None


# A number of unexpected type keeps its digits, and so do the times beside it.
_loose_list = msgspec.json.Decoder(list[LooseEvent], float_hook=Decimal)


def _counted(count: int, what: str, done: str) -> str:
    if count == 1:
        return f"1 {what} {done}"
    plural = what.replace("entry that is no event", "entries that are no events")
    return f"{count:,} {plural if plural != what else what + 's'} {done}"
