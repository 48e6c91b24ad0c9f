"""A reader of Python pickles that knows only data, so that a downloaded file cannot run anything.

``pickle.Unpickler`` calls what the file names, and builds one dict for every event of a history. This reader has no
opcode that imports, calls or fetches anything: files that ask for it are refused. Its loop is flat (a file nested a
million deep is read like any other), and a `Collector` may take finished pieces away while the file is read, which
keeps a history of millions of events out of memory.

Source of the opcodes and what they do: the documentation in CPython's ``pickletools``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from foretrace.memory.reading.pickle_operations import (
    OPERATIONS,
    Machine,
    NotPlainError,
    PickleError,
    damaged,
    extend,
    unknown,
    update,
)

__all__ = ["CONSUMED", "Collector", "NotPlainError", "PickleError", "Progress", "TakenAwayError", "load_plain"]

# Called with the bytes done and the bytes in all.
Progress = Callable[[int, int], None]

_REPORT_EVERY = 1 << 20
# Picklers add so many items to a dict at a time.
_BATCH = 1000
_INT4 = struct.Struct("<i").unpack_from
_UNSIGNED2 = struct.Struct("<H").unpack_from
_UNSIGNED4 = struct.Struct("<I").unpack_from
# MARK, BINGET, LONG_BINGET, EMPTY_DICT: what follows an empty list that is filled at once.
_BEGINS_ITEMS = b"(hj}"


class TakenAwayError(Exception):
    """The file refers to a piece that a `Collector` has taken, or breaks an order that collecting rests on."""


class _Consumed:
    """Stands where a `Collector` took an object away."""

    def __repr__(self) -> str:
        return "<taken away>"


CONSUMED: Final = _Consumed()


class Collector:
    """Takes objects away while a pickle is read; this one takes none.

    ``memo`` is what the file can refer to, by number; the reader appends to it, and so does a collector for what it
    reads itself.
    """

    memo: list[Any]

    def begin(self, data: bytes, memo: list[Any]) -> None:
        """Called once, before anything of ``data`` is read."""
        del data  # for those who read ahead
        self.memo = memo

    def dict_at(self, start: int) -> tuple[int, list[Any]] | None:
        """Read ahead at ``start``, where a dict begins: the position behind it and what it pushes, or None."""

    def list_at(self, start: int) -> tuple[int, list[Any]] | None:
        """Read ahead at ``start``, where a list begins, likewise."""

    def remembered(self, item: Any, number: int, end: int) -> None:
        """Told of a new dict or list, its number in ``memo``, and the position behind that."""

    def filled(self, item: dict[Any, Any]) -> Any:
        """What shall stand in place of a dict that was filled in one go."""
        return item

    def appended(self, items: list[Any]) -> list[Any]:
        """What shall stand in a list in place of ``items``."""
        return items


def load_plain(
    data: bytes, *, collector: Collector | None = None, progress: Progress | None = None, total: int | None = None
) -> Any:
    """What a pickle of any protocol holds, built from None, bool, numbers, str, bytes, list, tuple, dict and set.

    Raises `NotPlainError` where it wants anything else, `PickleError` where it is damaged or none, and with a
    ``collector`` also `TakenAwayError`. Bytes behind its end are not looked at. Whatever ``data`` is, no other
    exception comes out. ``total``: the bytes in all to tell ``progress``, if not those of ``data``.
    """
    reader = _Reader(data, collector, progress, len(data) if total is None else total)
    try:
        return reader.run()
    except (IndexError, struct.error, KeyError):
        if not reader.memo and not reader.stack and not reader.outer and reader.at < len(data):
            raise PickleError("is no pickle") from None
        if reader.at >= len(data):
            raise PickleError(f"is cut off after {len(data)} bytes; copy or record it again") from None
        raise damaged(reader.at, "an operation finds nothing to work on") from None
    except (ValueError, TypeError, OverflowError, UnicodeError, RecursionError) as error:
        if collector is not None and isinstance(error, TypeError):
            raise TakenAwayError from None  # what stands for a list may be at fault: read as it stands, it shows
        raise damaged(reader.at, f"{type(error).__name__}: {str(error)[:80]}") from None


class _Reader(Machine):
    """One pass over the bytes; ``at`` is the next opcode (or the one that failed)."""

    def __init__(self, data: bytes, collector: Collector | None, progress: Progress | None, total: int) -> None:
        super().__init__(data)
        self.collector = collector
        self.progress = progress
        self.total = total
        self.report_at = 0

    def run(self) -> Any:
        """Until STOP. The opcodes that histories consist of are written out here, the others are in `OPERATIONS`."""
        data, memo, collector = self.data, self.memo, self.collector
        if collector is not None:
            collector.begin(data, memo)
            remembered = collector.remembered
        stack = self.stack
        at = 0
        try:
            while True:
                code = data[at]
                at += 1
                if code == 0x68:  # BINGET
                    number, at = data[at], at + 1
                    stack.append(memo[number] if number < len(memo) else self.sparse[number])
                    if stack[-1] is CONSUMED:
                        raise TakenAwayError
                elif code == 0x94:  # MEMOIZE
                    if collector is None:
                        self.put(len(memo) + len(self.sparse), stack[-1])
                    else:
                        item = stack[-1]
                        memo.append(item)
                        kind = type(item)
                        if kind is dict or kind is list:
                            remembered(item, len(memo) - 1, at)
                elif code == 0x4B:  # BININT1
                    stack.append(data[at])
                    at += 1
                elif code == 0x4A:  # BININT
                    stack.append(_INT4(data, at)[0])
                    at += 4
                elif code == 0x4D:  # BININT2
                    stack.append(_UNSIGNED2(data, at)[0])
                    at += 2
                elif code == 0x6A:  # LONG_BINGET
                    number = _UNSIGNED4(data, at)[0]
                    at += 4
                    stack.append(memo[number] if number < len(memo) else self.sparse[number])
                    if stack[-1] is CONSUMED:
                        raise TakenAwayError
                elif code == 0x8A:  # LONG1
                    end = at + 1 + data[at]
                    if end > len(data):
                        self.at = len(data)
                        raise IndexError
                    stack.append(int.from_bytes(data[at + 1 : end], "little", signed=True))
                    at = end
                elif code == 0x7D:  # EMPTY_DICT
                    ahead = collector.dict_at(at - 1) if collector is not None else None
                    if ahead is None:
                        stack.append({})
                    else:
                        at = ahead[0]
                        stack += ahead[1]
                        self.tell(at)
                elif code == 0x28:  # MARK
                    self.outer.append(stack)
                    self.stack = stack = []
                elif code == 0x75:  # SETITEMS
                    items = stack
                    self.stack = stack = self.outer.pop()
                    if collector is None:
                        update(stack[-1], items)
                    elif stack[-1] is CONSUMED or len(stack[-1]) % _BATCH:
                        raise TakenAwayError  # a dict that is changed later may be one that others share by now
                    else:
                        update(stack[-1], items)
                        stack[-1] = collector.filled(stack[-1])
                elif code == 0x5D:  # EMPTY_LIST
                    # Where nothing is put into it at once, there is nothing to read ahead.
                    ahead = (
                        collector.list_at(at - 1)
                        if collector is not None and data[at] == 0x94 and data[at + 1] in _BEGINS_ITEMS
                        else None
                    )
                    if ahead is None:
                        stack.append([])
                    else:
                        at = ahead[0]
                        stack += ahead[1]
                elif code == 0x65:  # APPENDS
                    items = stack
                    self.stack = stack = self.outer.pop()
                    if collector is not None and type(stack[-1]) is not list:
                        raise TakenAwayError  # it may be one that was settled
                    extend(stack[-1], items if collector is None else collector.appended(items))
                    self.tell(at)
                elif code == 0x2E:  # STOP
                    if self.outer or len(stack) != 1:
                        raise damaged(at, "it ends before everything is put together")
                    self.at = at
                    self.tell(self.total, last=True)
                    return stack.pop()
                else:
                    self.at = at
                    other = OPERATIONS[code]
                    if other is None:
                        raise unknown(at - 1, code)
                    other(self)
                    at, stack = self.at, self.stack
        except IndexError:
            self.at = max(self.at, at)
            raise
        except struct.error:
            if at + 4 > len(data):
                self.at = len(data)
            raise

    def tell(self, at: int, *, last: bool = False) -> None:
        """Report how far reading is, where somebody asks and it is time."""
        if self.progress is not None and (at >= self.report_at or last):
            self.progress(min(at, self.total), self.total)
            self.report_at = at + _REPORT_EVERY

    def put(self, number: int, item: Any) -> None:
        """Remember ``item``, and tell the collector of it, whose numbers have to follow one another."""
        if self.collector is None:
            return super().put(number, item)
        if number != len(self.memo):
            raise TakenAwayError
        self.memo.append(item)
        if type(item) is dict or type(item) is list:
            self.collector.remembered(item, number, self.at)
        return None

    def get(self, number: int) -> None:
        """Push what was remembered, if it is still there."""
        super().get(number)
        if self.stack[-1] is CONSUMED:
            raise TakenAwayError

    def append(self) -> None:
        """APPEND: one item to the list below it."""
        item = self.stack.pop()
        if self.collector is not None and type(self.stack[-1]) is not list:
            raise TakenAwayError
        extend(self.stack[-1], [item] if self.collector is None else self.collector.appended([item]))
