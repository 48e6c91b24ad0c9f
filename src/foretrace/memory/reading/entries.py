"""Entries of a history on their way into columns: a million of them weigh 41 bytes each, not a dict each."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from foretrace.errors import TraceReadError
from foretrace.knowledge.snapshots import (
    ACTION_FIELD,
    ENTRY_ADDRESS,
    ENTRY_ADDRESS_OF_OOM,
    ENTRY_FRAMES,
    ENTRY_SIZE,
    ENTRY_TEXTS,
    ENTRY_TIME,
    NO_TEXT,
)
from foretrace.memory.snapshot import ACTIONS, Frame, History, Stacks

__all__ = ["Entries", "frame_of"]

_NUMBERS = {action: number for number, action in enumerate(ACTIONS)}
_OTHER = _NUMBERS["other"]
_OOM = _NUMBERS["oom"]
_ADDRESSES = 1 << 64
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
        line if isinstance(line, int) else 0,
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
            self.unknown.add(str(said)[:80] if isinstance(said, str | int | None) else type(said).__name__)
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
        address = self._number(entry, place) % _ADDRESSES
        row = (
            address,
            self._number(entry, ENTRY_SIZE),
            self._number(entry, "stream"),
            self._number(entry, ENTRY_TIME),
        )
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

    def _number(self, entry: dict[Any, Any], field: str) -> int:
        value = entry.get(field)
        if value is None:
            self.lack(field)
            return 0
        if not isinstance(value, int):
            raise TraceReadError(
                f"has a history whose entry {len(self)} has a {field} that is no whole number "
                f"({type(value).__name__}); the file was changed or damaged"
            )
        largest = _ADDRESSES if field in (ENTRY_ADDRESS, ENTRY_ADDRESS_OF_OOM) else 1 << 63
        if not -(1 << 63) <= value < largest:
            raise TraceReadError(
                f"has a history whose entry {len(self)} has a {field} that fits no 64 bits; the file was changed or "
                "damaged"
            )
        return value

    def extend(self, columns: dict[str, Iterable[int] | bytes]) -> None:
        """Append many rows; a column is numbers, or its memory as bytes."""
        for name, values in columns.items():
            if isinstance(values, bytes):
                self.columns[name].frombytes(values)
            else:
                self.columns[name].extend(values)

    def histories(self, lengths: Sequence[int]) -> tuple[History, ...]:
        """The history of each device, given how many of the rows are whose; the columns are then in use."""
        whole = {name: np.frombuffer(column, dtype=column.typecode) for name, column in self.columns.items()}
        texts = tuple(self.texts)
        made, start = [], 0
        for device, length in enumerate(lengths):
            part = {name: column[start : start + length] for name, column in whole.items()}
            made.append(History(device=device, texts=texts, **part))
            start += length
        return tuple(made)
