"""What the opcodes of a pickle do to a stack, those that are data; and the refusal of all that are more.

Source of the opcodes: the documentation in CPython's ``pickletools``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any, Final, NoReturn

__all__ = [
    "HIGHEST_PROTOCOL",
    "OPERATIONS",
    "Machine",
    "NotPlainError",
    "PickleError",
    "damaged",
    "extend",
    "unknown",
    "update",
]

HIGHEST_PROTOCOL: Final = 5
# How deep tuples may nest inside a key: hashing is recursive in C and has no guard of its own.
_KEY_DEPTH = 64
_TEXT: Final = {str}


class PickleError(Exception):
    """The bytes are no pickle, or a damaged one; the text continues a sentence that begins with the file's name."""


class NotPlainError(PickleError):
    """The pickle wants more than data: it names something to import, call or fetch."""


class Machine:
    """The bytes, the next one to look at, and what is put together so far."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[Any] = []
        self.outer: list[list[Any]] = []  # the stacks below the marks
        self.memo: list[Any] = []
        self.sparse: dict[int, Any] = {}  # numbers that do not follow one another

    def put(self, number: int, item: Any) -> None:
        """Remember ``item``; numbers that follow one another lie in a list."""
        memo = self.memo
        if number == len(memo) and not self.sparse:
            memo.append(item)
        elif 0 <= number < len(memo):
            memo[number] = item
        elif number >= 0:
            self.sparse[number] = item
        else:
            raise ValueError("a negative number in the memo")

    def get(self, number: int) -> None:
        """Push what was remembered."""
        self.stack.append(self.memo[number] if 0 <= number < len(self.memo) else self.sparse[number])

    def take(self, size: int) -> bytes:
        """The next bytes, all of them or `IndexError`."""
        end = self.at + size
        if size < 0 or end > len(self.data):
            self.at = len(self.data)
            raise IndexError
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def unsigned(self, size: int) -> int:
        """A little-endian number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "little")

    def line(self) -> bytes:
        """The text up to the end of the line."""
        end = self.data.find(b"\n", self.at)
        if end < 0:
            self.at = len(self.data)
            raise IndexError
        text = self.data[self.at : end]
        self.at = end + 1
        return text

    def marked(self) -> list[Any]:
        """What lies above the last mark, taken off."""
        items = self.stack
        self.stack = self.outer.pop()
        return items

    def push(self, item: Any) -> None:
        """Push an object."""
        self.stack.append(item)

    def append(self) -> None:
        """APPEND: one item to the list below it."""
        item = self.stack.pop()
        extend(self.stack[-1], [item])

    def pop(self) -> None:
        """POP: an object, or the mark if nothing lies on it."""
        if self.stack:
            self.stack.pop()
        else:
            self.marked()

    def tuple_of(self, count: int) -> None:
        """TUPLE1, TUPLE2, TUPLE3."""
        stack = self.stack
        if len(stack) < count:
            raise IndexError
        stack[-count:] = [tuple(stack[-count:])]

    def unique(self) -> None:
        """ADDITEMS: items of a set."""
        items = self.marked()
        target = self.stack[-1]
        if type(target) is not set:
            raise TypeError("items for a set that is none")
        target.update(map(_key, items))


def update(target: Any, items: list[Any]) -> None:
    """SETITEMS: keys and values in turn."""
    if type(target) is not dict or len(items) % 2:
        raise TypeError("keys and values for a dict that is none")
    keys = items[::2]
    if set(map(type, keys)) <= _TEXT:
        target.update(zip(keys, items[1::2], strict=True))
        return
    pairs = iter(items)
    for key in pairs:
        target[key if type(key) is str else _key(key)] = next(pairs)


def extend(target: Any, items: list[Any]) -> None:
    """APPENDS."""
    if type(target) is not list:
        raise TypeError("items for a list that is none")
    target += items


def _key(item: Any) -> Any:
    """``item`` where it can be hashed without danger."""
    level = [item]
    for _ in range(_KEY_DEPTH):
        level = [inner for outer in level if type(outer) is tuple for inner in outer]
        if not level:
            return item
        if len(level) > 1 << 16:
            break
    raise ValueError("a key of tuples nested too deep")


def damaged(at: int, what: str) -> PickleError:
    """The error for a pickle that is broken at byte ``at``."""
    return PickleError(f"is a damaged pickle (at byte {at}: {what}); copy or record it again")


def unknown(at: int, code: int) -> PickleError:
    """The error for a byte that is no opcode."""
    return damaged(at, f"there is no operation 0x{code:02x}")


def _refuse(wanted: str) -> NoReturn:
    raise NotPlainError(
        f"is a pickle that wants more than data: it asks for {wanted}; a memory snapshot never does, so nothing of "
        "it was run or read"
    )


def _named(module: Any, name: Any) -> NoReturn:
    words = [w.decode("utf-8", "replace") if isinstance(w, bytes) else w for w in (module, name)]
    dotted = ".".join(w if isinstance(w, str) else f"<{type(w).__name__}>" for w in words)
    _refuse("".join(c if c.isprintable() else "?" for c in dotted[:120]))


def _global(reader: Machine) -> None:
    module = reader.line()
    _named(module, reader.line())


def _protocol(reader: Machine) -> None:
    protocol = reader.unsigned(1)
    if protocol > HIGHEST_PROTOCOL:
        raise PickleError(
            f"is a pickle of protocol {protocol}, and protocols up to {HIGHEST_PROTOCOL} are known; dump it again with "
            f"protocol={HIGHEST_PROTOCOL}"
        )


def _frame(reader: Machine) -> None:
    size = reader.unsigned(8)
    if size > len(reader.data) - reader.at:
        reader.at = len(reader.data)
        raise IndexError


def _int_line(reader: Machine) -> None:
    text = reader.line()
    reader.push(text == b"01" if text in (b"00", b"01") else int(text))


def _dict(reader: Machine) -> None:
    items = reader.marked()
    made: dict[Any, Any] = {}
    update(made, items)
    reader.push(made)


def _setitem(reader: Machine) -> None:
    value = reader.stack.pop()
    key = reader.stack.pop()
    update(reader.stack[-1], [key, value])


_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|[0-7]{1,3}|[\s\S])")
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"\n": b""}


def _unescape(match: re.Match[bytes]) -> bytes:
    said = match[1]
    if said[:1] == b"x" and len(said) == 3:
        return bytes([int(said[1:], 16)])
    if said.isdigit() and said < b"8":
        return bytes([int(said, 8) & 255])
    return _ESCAPED.get(said, said if said in (b"\\", b"'", b'"') else b"\\" + said)


def _old_text(raw: bytes) -> str:
    """Text of Python 2, whose encoding nobody recorded."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _string_line(reader: Machine) -> None:
    text = reader.line().strip()
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
        raise ValueError("a string without quotes")
    reader.push(_old_text(_ESCAPE.sub(_unescape, text[1:-1])))


def _utf8(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _long(reader: Machine, size: int) -> None:
    reader.push(int.from_bytes(reader.take(size), "little", signed=True))


def _drop_marked(reader: Machine) -> None:
    reader.marked()


def _integer(line: bytes) -> int:
    """The decimal number of a line, which `LONG` ends in an L."""
    return int(line[:-1] if line.endswith(b"L") else line)


_Operation = Callable[[Machine], None]


def _table() -> list[_Operation | None]:
    known: dict[bytes, _Operation] = {
        b"\x80": _protocol,
        b"\x95": _frame,
        b"N": lambda r: r.push(None),
        b"\x88": lambda r: r.push(True),
        b"\x89": lambda r: r.push(False),
        b"I": _int_line,
        b"L": lambda r: r.push(_integer(r.line())),
        b"J": lambda r: _long(r, 4),
        b"M": lambda r: r.push(r.unsigned(2)),
        b"\x8a": lambda r: _long(r, r.unsigned(1)),
        b"\x8b": lambda r: _long(r, r.unsigned(4)),
        b"F": lambda r: r.push(float(r.line())),
        b"G": lambda r: r.push(struct.unpack(">d", r.take(8))[0]),
        b"S": _string_line,
        b"T": lambda r: r.push(_old_text(r.take(r.unsigned(4)))),
        b"U": lambda r: r.push(_old_text(r.take(r.unsigned(1)))),
        b"V": lambda r: r.push(r.line().decode("raw-unicode-escape")),
        b"X": lambda r: r.push(_utf8(r.take(r.unsigned(4)))),
        b"\x8c": lambda r: r.push(_utf8(r.take(r.unsigned(1)))),
        b"\x8d": lambda r: r.push(_utf8(r.take(r.unsigned(8)))),
        b"B": lambda r: r.push(r.take(r.unsigned(4))),
        b"C": lambda r: r.push(r.take(r.unsigned(1))),
        b"\x8e": lambda r: r.push(r.take(r.unsigned(8))),
        b"\x96": lambda r: r.push(bytearray(r.take(r.unsigned(8)))),
        b"l": lambda r: r.push(r.marked()),
        b"d": _dict,
        b"s": _setitem,
        b"a": lambda r: r.append(),
        b")": lambda r: r.push(()),
        b"t": lambda r: r.push(tuple(r.marked())),
        b"\x85": lambda r: r.tuple_of(1),
        b"\x86": lambda r: r.tuple_of(2),
        b"\x87": lambda r: r.tuple_of(3),
        b"\x8f": lambda r: r.push(set()),
        b"\x90": lambda r: r.unique(),
        b"\x91": lambda r: r.push(frozenset(map(_key, r.marked()))),
        b"0": lambda r: r.pop(),
        b"1": _drop_marked,
        b"2": lambda r: r.push(r.stack[-1]),
        b"g": lambda r: r.get(int(r.line())),
        b"j": lambda r: r.get(r.unsigned(4)),
        b"p": lambda r: r.put(int(r.line()), r.stack[-1]),
        b"q": lambda r: r.put(r.unsigned(1), r.stack[-1]),
        b"r": lambda r: r.put(r.unsigned(4), r.stack[-1]),
        b"c": _global,
        b"i": _global,
        b"\x93": lambda r: _named(r.stack[-2], r.stack[-1]),
        b"R": lambda _: _refuse("a call"),
        b"b": lambda _: _refuse("the state of an object"),
        b"o": lambda _: _refuse("an object of a class"),
        b"\x81": lambda _: _refuse("an object of a class"),
        b"\x92": lambda _: _refuse("an object of a class"),
        b"\x82": lambda _: _refuse("a registered extension"),
        b"\x83": lambda _: _refuse("a registered extension"),
        b"\x84": lambda _: _refuse("a registered extension"),
        b"P": lambda _: _refuse("an object stored elsewhere (a persistent id)"),
        b"Q": lambda _: _refuse("an object stored elsewhere (a persistent id)"),
        b"\x97": lambda _: _refuse("a buffer stored elsewhere"),
        b"\x98": lambda _: _refuse("a buffer stored elsewhere"),
    }
    return [known.get(bytes([code])) for code in range(256)]


OPERATIONS: Final = _table()
