"""Entries of a history on their way into columns: a million of them weigh 41 bytes each, not a dict each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from foretrace.errors import TraceReadError
from foretrace.knowledge.snapshots import (
    ACTION_FIELD,
    ADDRESSES,
    ENTRY_ADDRESS,
    ENTRY_ADDRESS_OF_OOM,
    ENTRY_FRAMES,
    ENTRY_SIZE,
    ENTRY_TEXTS,
    ENTRY_TIME,
    LARGEST_BYTES,
    LATEST_US,
    MOST_LINE,
    NO_TEXT,
    UNKNOWN_FREE,
)
from foretrace.memory.reading.notes import Notes, is_whole, shown, text_of
from foretrace.memory.snapshot import ACTIONS, Frame, History, Stacks

__all__ = ["Entries", "frame_of"]

_NUMBERS = {action: number for number, action in enumerate(ACTIONS)}
_OTHER = _NUMBERS["other"]
_OOM = _NUMBERS["oom"]
_CODES = {
    "action": "B",
    "address": "Q",
    "size": "q",
    "stream": "q",
    "time_us": "q",
    "stack": "i",
    "metadata": "i",
}


def frame_of(raw: object) -> Frame:
    """A frame as recorded; what is missing or of another type is not known (an empty text, line 0)."""
    if isinstance(raw, Frame):
        return raw
    if isinstance(raw, str):
        return Frame(raw, "", 0)
    if not isinstance(raw, dict):
        return Frame("", "", 0)
    name, filename, line = raw.get("name"), raw.get("filename"), raw.get("line")
    return Frame(
        name if isinstance(name, str) else "",
        filename if isinstance(filename, str) else "",
        line if type(line) is int and 0 <= line <= MOST_LINE else 0,
    )


class Entries:
    """The columns while they grow, for all devices one after the other; `histories` cuts them apart.

    ``unknown``: actions that no version is known to write. ``lacking``: for fields that some entries lack, how many.
    """

    def __init__(self) -> None:
        self.columns: dict[str, array[Any]] = {name: array(code) for name, code in _CODES.items()}
        self.stacks = Stacks()
        self.texts: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.lacking: dict[str, int] = {}
        # Frames are few and named often: by what they say.
        self._frames: dict[tuple[object, object, object], Frame] = {}

    def __len__(self) -> int:
        return len(self.columns["action"])

    def stack(self, frames: object) -> int:
        """The number of a stack, a list of frames as recorded or as they are in `Stacks`."""
        if not frames or not isinstance(frames, list | tuple):
            return self.stacks.number(())
        return self.stacks.number(map(self._frame, frames))

    def _frame(self, raw: object) -> Frame:
        if not isinstance(raw, dict):
            return frame_of(raw)
        key = (raw.get("name"), raw.get("filename"), raw.get("line"))
        try:
            known = self._frames.get(key)
        except TypeError:  # a list where a text belongs
            return frame_of(raw)
        if known is None:
            known = self._frames[key] = frame_of(raw)
        return known

    def action(self, said: object) -> int:
        """The number of an action."""
        number = _NUMBERS.get(said) if isinstance(said, str) else None
        if number is None:
            self.unknown.add(text_of(said)[:80])
            return _OTHER
        return number

    def text(self, said: object) -> int:
        """The number of a text; -1 where it says nothing."""
        if not isinstance(said, str) or said in NO_TEXT:
            return -1
        return self.texts.setdefault(said, len(self.texts))

    def add(self, entry: dict[Any, Any]) -> None:
        """Append one entry as recorded.

        Raises `TraceReadError` (whose text continues a sentence that begins with the file's name) where a number is
        none, or fits no 64 bits.
        """
        columns = self.columns
        action = self.action(entry.get(ACTION_FIELD))
        place = ENTRY_ADDRESS_OF_OOM if action == _OOM and ENTRY_ADDRESS not in entry else ENTRY_ADDRESS
        # All are looked at before any is appended, so that columns stay of one length.
        address = self._number(entry, place)
        time = self._time(entry)
        if action == _OOM and (entry.get(place) is None or not 0 <= address <= LARGEST_BYTES):
            address = UNKNOWN_FREE
        row = (address % ADDRESSES, self._number(entry, ENTRY_SIZE, signed=True),
               self._number(entry, "stream", signed=True), time)  # fmt: skip
        columns["action"].append(action)
        for name, value in zip(("address", "size", "stream", "time_us"), row, strict=True):
            columns[name].append(value)
        columns["stack"].append(self.stack(entry.get(ENTRY_FRAMES)))
        columns["metadata"].append(self.metadata(*(entry.get(name) for name in ENTRY_TEXTS)))

    def metadata(self, *said: object) -> int:
        """The number of what the program said and of what the compiler said: both, one, or -1 for none."""
        texts = [text for text in said if isinstance(text, str) and text not in NO_TEXT]
        return self.text("; ".join(texts)) if texts else -1

    def lack(self, field: str, count: int = 1) -> None:
        """Note that entries have no such field."""
        self.lacking[field] = self.lacking.get(field, 0) + count

    def _number(self, entry: dict[Any, Any], field: str, *, signed: bool = False) -> int:
        value = entry.get(field)
        if value is None:
            self.lack(field)
            return 0
        if type(value) is not int:
            raise TraceReadError(
                f"is a broken snapshot: in entry {len(self)} of its history, {field} is no whole number "
                f"({type(value).__name__}); record it again"
            )
        if not is_whole(value) or (signed and value >= ADDRESSES >> 1):
            raise TraceReadError(
                f"is a broken snapshot: in entry {len(self)} of its history, {field} fits no 64 bits; record it again"
            )
        return value

    def _time(self, entry: dict[Any, Any]) -> int:
        """The time; -1 for one beyond 64 bits, until `check` has counted those that no clock shows."""
        value = entry.get(ENTRY_TIME)
        if value is None or type(value) is not int:
            return self._number(entry, ENTRY_TIME)
        return value if -(ADDRESSES >> 1) <= value < ADDRESSES >> 1 else -1

    def check(self, lengths: Sequence[int], doubts: Notes) -> None:
        """Refuse sizes beyond reason, and take back times and free memory that cannot be, which goes to ``doubts``.

        Raises `TraceReadError` (whose text continues a sentence that begins with the file's name) for a size below 0,
        and for one of what was there of more than a pebibyte; what was asked for in vain may be as much.
        """
        action, size = self._column("action"), self._column("size")
        wrong = (size < 0) | ((size > LARGEST_BYTES) & (action != _OOM))
        wrong &= action != _OTHER
        if wrong.any():
            row = int(np.argmax(wrong))
            ends = np.cumsum(np.array(lengths, dtype=np.int64))
            device = int(np.searchsorted(ends, row, side="right"))
            number = row - int(ends[device] - lengths[device]) if device < len(lengths) else row
            raise TraceReadError(
                f"is a broken snapshot: entry {number} of the history of device {device} ({ACTIONS[action[row]]}) has "
                f"a size of {int(size[row])} bytes; record it again"
            )
        time = self._column("time_us")
        odd = (time < 0) | (time > LATEST_US)
        if odd.any():
            first = int(time[np.argmax(odd)])
            doubts.add(
                "{n} {n:entry|entries} of the history {n:has a time|have times} before 1970 or after 2200, read as "
                "not recorded",
                f"entry {int(np.argmax(odd))}" if first == -1 else shown(first),
                int(odd.sum()),
            )
            time[odd] = 0
        free = self._column("address")
        odd = (action == _OOM) & (free > LARGEST_BYTES)
        free[odd] = UNKNOWN_FREE

    def _column(self, name: str) -> np.ndarray[Any, Any]:
        """A column as it lies in memory, so that writing to it changes it."""
        column = self.columns[name]
        return np.frombuffer(column, dtype=column.typecode)

    def extend(self, columns: dict[str, Iterable[int] | bytes]) -> None:
        """Append many rows; a column is numbers, or its memory as bytes."""
        for name, values in columns.items():
            if isinstance(values, bytes):
                self.columns[name].frombytes(values)
            else:
                self.columns[name].extend(values)

    def histories(self, lengths: Sequence[int]) -> tuple[History, ...]:
        """The history of each device, given how many of the rows are whose; the columns are then in use."""
        whole = {name: self._column(name) for name in self.columns}
        texts = tuple(self.texts)
        made, start = [], 0
        for device, length in enumerate(lengths):
            part = {name: column[start : start + length] for name, column in whole.items()}
            made.append(History(device=device, texts=texts, **part))
            start += length
        return tuple(made)
