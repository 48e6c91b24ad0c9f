"""Histories straight out of a pickle's bytes: what repeats a million times is matched, not interpreted.

`EntryCollector` takes every entry of a history (a dict with an ``action``) away as soon as it is whole. That bounds
the memory. For time it also reads ahead: an entry whose keys have been seen in this order before is, in the bytes, a
run of references to those keys with a number, a reference or a list of frames after each, which a regular expression
takes apart in C. Whatever does not match (a text seen first, a boundary of the stream) is left to the general loop,
so nothing depends on how an entry is written.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from foretrace.knowledge.snapshots import (
    ACTION_FIELD,
    ENTRY_FRAMES,
    ENTRY_INTEGERS,
    ENTRY_TEXTS,
    ENTRY_TIME,
    FRAME_FIELDS,
)
from foretrace.memory.reading.entries import Entries
from foretrace.memory.reading.pickles import CONSUMED, Collector, TakenAwayError
from foretrace.memory.snapshot import NO_STACK, Frame

__all__ = ["EntryCollector"]

# Opcodes as the pickler of protocols 4 and 5 puts them. Alternatives begin with different bytes, so that atomic
# groups lose nothing.
_REFERENCE = rb"(?>h[\x00-\xff]|j[\x00-\xff]{4})"
_INTEGER = (
    rb"(?>K[\x00-\xff]|J[\x00-\xff]{4}|M[\x00-\xff]{2}|\x8a(?>\x06[\x00-\xff]{6}|\x07[\x00-\xff]{7}"
    rb"|\x05[\x00-\xff]{5}|\x08[\x00-\xff]{8}|\x04[\x00-\xff]{4}))"
)
_SCALAR = rb"(?>h[\x00-\xff]|K[\x00-\xff]|j[\x00-\xff]{4}|J[\x00-\xff]{4}|M[\x00-\xff]{2})"
_FRAME = rb"\}\x94\((?:" + _REFERENCE + _SCALAR + rb"){3}u"
_ITEM = rb"(?>h[\x00-\xff]|j[\x00-\xff]{4}|" + _FRAME + rb")"
# EMPTY_LIST MEMOIZE, then MARK items APPENDS, or one item APPEND, or nothing.
_LIST = rb"\]\x94(?>\((?>" + _ITEM + rb")*+e|" + _ITEM + rb"a)?"
_PAIR = _INTEGER + _INTEGER + rb"\x86\x94"
_VALUE = rb"(?>" + _LIST + rb"|" + _PAIR + rb"|" + _REFERENCE + rb"|" + _INTEGER + rb"|[N\x88\x89])"

_ANY_ENTRY = re.compile(rb"\}\x94\((?>" + _REFERENCE + _VALUE + rb")++u")
_FIELD = re.compile(rb"(" + _REFERENCE + rb")(" + _VALUE + rb")")
_INTEGER_AT = re.compile(_INTEGER)
_ANY_LIST = re.compile(_LIST)
_EACH_ITEM = re.compile(_ITEM)
_FRAME_PARTS = re.compile((rb"(" + _REFERENCE + rb")(" + _SCALAR + rb")") * 3)

# Entries are looked for in pieces of this size: a search that finds nothing ends there.
_WINDOW = 1 << 20
# Orders of keys tried at a place; more than a few mean that the file is not what is expected.
_LAYOUTS = 6
# Lists known by their bytes; when so much of them is kept, it starts anew.
_KEPT_BYTES = 1 << 26

_EMPTY_DICT: Final = b"}\x94"
_EMPTY_LIST: Final = b"]\x94"
_PAIR_END: Final = b"\x86\x94"
_CONSTANTS: Final = {b"N": None, b"\x88": True, b"\x89": False}
# Fields whose values are no objects that the pickle remembers, or were remembered before.
_FLEETING: Final = frozenset({ACTION_FIELD, *ENTRY_INTEGERS, *ENTRY_TEXTS})


class _Layout(NamedTuple):
    pattern: re.Pattern[bytes]
    fields: tuple[str, ...]
    lasting: tuple[int, ...]  # the fields whose values the pickle remembers
    frames: int  # -1: none


class _Settled(tuple[Frame, ...]):
    """A list of frames that entries share from now on. Like the list it stands for, it is no key of a dict."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]


class EntryCollector(Collector):
    """Moves the entries of histories into ``entries`` while a pickle is read; what is left of each is `CONSUMED`."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self._data = b""
        # Dicts and lists that may still be taken away or replaced: by id, their number in the memo and their end.
        self._born: dict[int, tuple[int, int]] = {}
        self._layouts: dict[tuple[bytes, ...], _Layout] = {}
        self._frames: dict[tuple[str, str, int], dict[str, Any]] = {}
        self._frames_by_bytes: dict[bytes, dict[Any, Any]] = {}
        # Values by their bytes, each with what the pickle remembers while it is read.
        self._values: dict[bytes, tuple[Any, tuple[Any, ...]]] = {}
        self._stacks: dict[bytes, tuple[int, tuple[Any, ...]]] = {}
        # One for each stack, by its number.
        self._settled: dict[int, _Settled] = {}
        self._kept_bytes = 0

    def begin(self, data: bytes, memo: list[Any]) -> None:
        """Called once, before anything of ``data`` is read."""
        super().begin(data, memo)
        self._data = data

    def remembered(self, item: Any, number: int, end: int) -> None:
        """Note where a dict or a list is remembered."""
        self._born[id(item)] = (number, end)

    def filled(self, item: dict[Any, Any]) -> Any:
        """Take an entry away, and let frames that say the same be one."""
        if ACTION_FIELD in item:
            return self._consume(item)
        if len(item) == len(FRAME_FIELDS) and item.keys() == FRAME_FIELDS:
            shared = self._shared(item)
            if shared is not item:
                self._replace(item, shared)
            return shared
        return item

    def appended(self, items: list[Any]) -> list[Any]:
        """The same for dicts that were filled key by key, as protocol 0 does."""
        settled = [self.filled(item) if type(item) is dict else item for item in items]
        if len(items) > 1 and settled.count(CONSUMED) > items.count(CONSUMED) > 0:
            raise TakenAwayError  # some before and some now: they would not be in the order of the list
        return settled

    def list_at(self, start: int) -> tuple[int, list[Any]] | None:
        """A whole list of frames or of references, if its bytes are nothing else."""
        match = _ANY_LIST.match(self._data, start)
        if match is None or match.end() - start == len(_EMPTY_LIST):
            return None
        value, remembered = self._known(match[0])
        made = list(value)  # one of its own: what follows may add to it
        self.remembered(made, len(self.memo), start + len(_EMPTY_LIST))
        self.memo.append(made)
        self.memo += remembered[1:]
        return match.end(), [made]

    def dict_at(self, start: int) -> tuple[int, list[Any]] | None:
        """All entries from ``start`` on that are written as some before were."""
        for layout in self._layouts.values():
            if layout.pattern.match(self._data, start):
                rows: list[tuple[bytes, ...]] = []
                end = start
                for match in layout.pattern.finditer(self._data, start, start + _WINDOW):
                    if match.start() != end:
                        break
                    end = match.end()
                    rows.append(match.groups())
                if rows:
                    self._take(layout, rows)
                    return end, [CONSUMED] * len(rows)
        return None

    def _shared(self, frame: dict[Any, Any]) -> dict[Any, Any]:
        """The first frame that says the same."""
        name, filename, line = frame["name"], frame["filename"], frame["line"]
        if type(name) is str and type(filename) is str and type(line) is int:
            return self._frames.setdefault((name, filename, line), frame)
        return frame

    def _replace(self, item: Any, other: Any) -> int:
        """Let the memo hold ``other``; the position behind where ``item`` was remembered, 0 where it was not."""
        number, end = self._born.pop(id(item), (0, 0))
        if not end or self.memo[number] is not item:
            return 0
        self.memo[number] = other
        return end

    def _consume(self, entry: dict[Any, Any]) -> object:
        self.entries.add(entry)
        frames = entry.get(ENTRY_FRAMES)
        if type(frames) is list:
            # Lists of the same frames are one from now on, or every entry would keep its own in the memo.
            self._replace(frames, self._frames_of(self.entries.columns["stack"][-1]))
        end = self._replace(entry, CONSUMED)
        if end and len(self._layouts) < _LAYOUTS:
            self._learn(end - len(_EMPTY_DICT))
        return CONSUMED

    def _learn(self, start: int) -> None:
        """Make a pattern of the entry at ``start``, if it refers to all of its keys and lacks no field but the time."""
        whole = _ANY_ENTRY.match(self._data, start)
        if whole is None:
            return
        keys, at = [], start + len(_EMPTY_DICT) + 1
        while at < whole.end() - 1:
            field = _FIELD.match(self._data, at)
            if field is None:
                return
            keys.append(field[1])
            at = field.end()
        names = [self._referred(key) for key in keys]
        if tuple(keys) in self._layouts or not all(type(name) is str for name in names) or len(set(names)) < len(names):
            return
        if not {ACTION_FIELD, *ENTRY_INTEGERS} - {ENTRY_TIME} <= set(names):
            return
        slots = b"".join(re.escape(key) + b"(" + _slot(name) + b")" for key, name in zip(keys, names, strict=True))
        self._layouts[tuple(keys)] = _Layout(
            pattern=re.compile(re.escape(_EMPTY_DICT) + rb"\(" + slots + b"u"),
            fields=tuple(names),
            lasting=tuple(slot for slot, name in enumerate(names) if name not in _FLEETING),
            frames=names.index(ENTRY_FRAMES) if ENTRY_FRAMES in names else -1,
        )

    def _take(self, layout: _Layout, rows: list[tuple[bytes, ...]]) -> None:
        """Append what was matched to the columns, and remember what reading it would have left behind."""
        entries, count = self.entries, len(rows)
        columns = dict(zip(layout.fields, zip(*rows, strict=True), strict=True))
        integers = {}
        for name, column in zip(("address", "size", "stream", "time_us"), ENTRY_INTEGERS, strict=True):
            if column in columns:
                integers[name] = _integers(columns[column]).tobytes()
            else:
                integers[name] = bytes(8 * count)
                entries.lack(column, count)
        entries.extend(
            {
                **integers,
                "action": self._translated(columns[ACTION_FIELD]),
                "stack": self._remember(layout, rows),
                "metadata": self._metadata([columns.get(name) for name in ENTRY_TEXTS], count),
            }
        )

    def _remember(self, layout: _Layout, rows: list[tuple[bytes, ...]]) -> list[int]:
        """Extend the memo as if every row had been read; the stack of each."""
        memo, known, frames = self.memo, self._stacks, layout.frames
        stacks = []
        for row in rows:
            memo.append(CONSUMED)
            stack = NO_STACK
            for slot in layout.lasting:
                raw = row[slot]
                if slot == frames:
                    stack, remembered = known.get(raw) or self._stack(raw)
                else:
                    remembered = self._known(raw)[1]
                memo += remembered
            stacks.append(stack)
        return stacks

    def _translated(self, column: tuple[bytes, ...]) -> list[int]:
        actions = {raw: self.entries.action(self._referred(raw)) for raw in set(column)}
        return [actions[raw] for raw in column]

    def _metadata(self, columns: list[tuple[bytes, ...] | None], count: int) -> list[int]:
        said = [column for column in columns if column is not None]
        if not said:
            return [-1] * count
        rows = list(zip(*said, strict=True))
        numbers = {row: self.entries.metadata(*map(self._referred, row)) for row in set(rows)}
        return [numbers[row] for row in rows]

    def _referred(self, raw: bytes) -> Any:
        """What a reference means, so far as it is in the memo."""
        item = self.memo[int.from_bytes(raw[1:], "little")]
        if item is CONSUMED:
            raise TakenAwayError
        return item

    def _stack(self, raw: bytes) -> tuple[int, tuple[Any, ...]]:
        """Likewise the stack that ``raw`` stands for."""
        value, remembered = self._read(raw)
        stack = self.entries.stack(value)
        if remembered and type(value) is list:
            remembered = (self._frames_of(stack), *remembered[1:])
        self._keep(raw, remembered)
        self._stacks[raw] = stack, remembered
        return stack, remembered

    def _frames_of(self, stack: int) -> _Settled:
        """What stands in the memo for the frames of a stack."""
        known = self._settled.get(stack)
        if known is None:
            known = self._settled[stack] = _Settled(self.entries.stacks.frames(stack))
        return known

    def _known(self, raw: bytes) -> tuple[Any, tuple[Any, ...]]:
        """The value that ``raw`` stands for, and what is remembered while it is read; the same bytes mean the same."""
        known = self._values.get(raw)
        if known is None:
            known = self._read(raw)
            self._keep(raw, known[1])
            self._values[raw] = known
        return known

    def _keep(self, raw: bytes, remembered: tuple[Any, ...]) -> None:
        """Reckon with one value more; when they weigh too much, all are forgotten and read again when they return."""
        if self._kept_bytes > _KEPT_BYTES:
            for kept in (self._values, self._stacks, self._frames_by_bytes):
                kept.clear()
            self._kept_bytes = 0
        self._kept_bytes += len(raw) + 24 * len(remembered) + 400

    def _read(self, raw: bytes) -> tuple[Any, tuple[Any, ...]]:
        code = raw[:1]
        if code in b"hj":
            return self._referred(raw), ()
        if code == b"]":
            return self._read_list(raw)
        if raw.endswith(_PAIR_END):
            cut = len(_INTEGER_AT.match(raw)[0])  # type: ignore[index]
            pair = (_integer(raw[:cut]), _integer(raw[cut : -len(_PAIR_END)]))
            return pair, (pair,)
        if code in _CONSTANTS:
            return _CONSTANTS[code], ()
        return _integer(raw), ()

    def _read_list(self, raw: bytes) -> tuple[Any, tuple[Any, ...]]:
        made: list[Any] = []
        local: list[Any] = [made]
        body = len(_EMPTY_LIST) + raw.startswith(b"(", len(_EMPTY_LIST))
        for match in _EACH_ITEM.finditer(raw, body, len(raw) - 1):
            item = match[0]
            if item[:1] == b"}":
                frame = self._frames_by_bytes.get(item)
                if frame is None:
                    frame = self._frames_by_bytes[item] = self._read_frame(item)
                local.append(frame)
                made.append(frame)
            else:
                ahead = int.from_bytes(item[1:], "little") - len(self.memo)
                made.append(self._referred(item) if ahead < 0 else local[ahead])
        return made, tuple(local)

    def _read_frame(self, raw: bytes) -> dict[Any, Any]:
        parts = _FRAME_PARTS.match(raw, len(_EMPTY_DICT) + 1)
        if parts is None:
            raise TakenAwayError
        said = parts.groups()
        frame = {self._referred(said[i]): self._read(said[i + 1])[0] for i in (0, 2, 4) if self._is_text(said[i])}
        if frame.keys() != FRAME_FIELDS:
            raise TakenAwayError  # a dict of another kind: whatever it is, the general loop reads it
        return self._shared(frame)

    def _is_text(self, raw: bytes) -> bool:
        return type(self._referred(raw)) is str


def _slot(name: str) -> bytes:
    """The pattern of a field's value."""
    if name in ENTRY_INTEGERS:
        return _INTEGER
    return _REFERENCE if name in _FLEETING else _VALUE


def _integer(raw: bytes) -> int:
    """The number of one opcode."""
    signed = raw[:1] in (b"J", b"\x8a")
    return int.from_bytes(raw[2 if raw[:1] == b"\x8a" else 1 :], "little", signed=signed)


def _integers(column: tuple[bytes, ...]) -> npt.NDArray[np.int64]:
    """The numbers of BININT, BININT1, BININT2 and LONG1 opcodes, all at once: little-endian, the last byte's sign."""
    lengths = np.fromiter(map(len, column), np.int64, len(column))
    joined = np.frombuffer(b"".join(column) + bytes(8), np.uint8)
    starts = np.cumsum(lengths) - lengths
    codes = joined[starts]
    heads = np.where(codes == ord(b"\x8a"), 2, 1)
    sizes = lengths - heads
    starts = starts + heads
    values = np.zeros(len(column), np.uint64)
    for byte in range(int(sizes.max(initial=0))):
        values |= np.where(byte < sizes, joined[starts + byte], 0).astype(np.uint64) << np.uint64(8 * byte)
    signed = (codes == ord(b"J")) | (codes == ord(b"\x8a"))
    negative = signed & (joined[starts + sizes - 1] > 127) & (sizes < 8)
    sign = np.left_shift(np.uint64(1), (8 * np.minimum(sizes, 7)).astype(np.uint64))
    return (values - np.where(negative, sign, np.uint64(0))).view(np.int64)
