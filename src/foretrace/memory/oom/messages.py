"""Out-of-memory messages in a pasted text: what each says, as intervals, since sizes are printed with two decimals.

A message may stand anywhere in a log: coloured, broken by a terminal, behind the prefixes of launchers, escaped in
JSON, with the lines of several ranks between each other. So lines are sorted by who wrote them, white space is taken
out, and what is looked for has none either.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from typing import Final

from foretrace.knowledge import out_of_memory as known

__all__ = ["Amount", "Message", "Process", "find_messages"]


@dataclass(frozen=True, slots=True)
class Amount:
    """A size that is known to lie between two sizes, both included, in bytes; ``nominal`` is what was written."""

    low: int
    high: int
    nominal: int

    @classmethod
    def exactly(cls, size: int) -> Amount:
        """A size without rounding."""
        size = min(size, known.NOT_REPORTED_BYTES)
        return cls(size, size, size)

    @classmethod
    def read(cls, text: str) -> Amount:
        """A printed size such as ``21.73GiB``: half a unit of its last digit either way, never below zero.

        What is above `knowledge.out_of_memory.NOT_REPORTED_BYTES` is cut to that: no memory is so large.
        """
        digits, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]+)", text.replace(" ", "")).groups()  # type: ignore[union-attr]
        least, most = known.UNITS[unit]
        whole, _, decimals = digits.partition(".")
        scale = 10 ** len(decimals)
        value = int(whole + decimals)
        if not decimals and most == 1:
            return cls.exactly(value)
        # Twice the value plus or minus one, over twice the scale: integers, so that nothing rounds on the way.
        low = max(0, -(-(2 * value - 1) * least // (2 * scale)))
        high = (2 * value + 1) * most // (2 * scale)
        return cls(*(min(size, known.NOT_REPORTED_BYTES) for size in (low, high, value * most // scale)))

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.low + other.low, self.high + other.high, self.nominal + other.nominal)

    def __sub__(self, other: Amount) -> Amount:
        return Amount(self.low - other.high, self.high - other.low, self.nominal - other.nominal)

    def at_least(self, other: Amount) -> bool | None:
        """Whether it is the other size or more; None where the rounding hides it."""
        if self.low >= other.high:
            return True
        return False if self.high < other.low else None


@dataclass(frozen=True, slots=True)
class Process:
    """A process the message lists with the device memory it holds."""

    pid: int
    amount: Amount


@dataclass(frozen=True, slots=True)
class Message:
    """What one message says; None is what it does not say.

    ``kind``: "allocator" for the messages of a caching allocator, else a name in `knowledge.out_of_memory.PLAIN`
    ("async" is cudaMallocAsync's), or "bare". ``asked`` is what was asked of the device, which for an allocator is a
    whole segment. ``private`` is what is idle in private pools. ``own_hidden``: the process's own memory was printed,
    but as "not known". ``variable``: the environment variable that the message names. ``utilization``: the share of the
    device that vLLM was told to take.
    """

    kind: str
    backend: str
    wording: str | None = None
    device: int | None = None
    asked: Amount | None = None
    total: Amount | None = None
    free: Amount | None = None
    own: Amount | None = None
    own_hidden: bool = False
    others: tuple[Process, ...] = ()
    allowed: Amount | None = None
    allocated: Amount | None = None
    private: Amount | None = None
    unallocated: Amount | None = None
    reserved: Amount | None = None
    elsewhere: Amount | None = None  # MPS: other allocations of the system
    library: str | None = None
    utilization: float | None = None
    advice: str | None = None
    variable: str | None = None
    line: int = 1
    count: int = 1
    ranks: tuple[int, ...] = ()

    @property
    def counted(self) -> Amount | None:
        """What counts against the process's limit: what is reserved; with cudaMallocAsync, what is allocated."""
        return self.allocated if self.kind == "async" else self.reserved


_HEAD: Final = re.compile(known.HEAD)
_CLAUSES: Final = {name: re.compile(pattern) for name, pattern in known.CLAUSES.items()}
_ITEMS: Final = {name: re.compile(pattern) for name, pattern in known.ITEMS.items()}
_PLAIN: Final = {name: (backend, re.compile(pattern)) for name, (backend, pattern) in known.PLAIN.items()}
_BARE: Final = re.compile(known.BARE)
_DEVICE: Final = re.compile(r"(?:GPU|[A-Z]{2,5})(\d{1,4})")
_ADVICE: Final = re.compile("|".join(f"(?P<{name}>{pattern})" for name, pattern in known.ADVICE.items()))
_VARIABLE: Final = re.compile(known.CONF_NAME)
_BETWEEN: Final = ".,;:()…"
# The advice stands within this many characters of the last number, web address included.
_ADVICE_REACH = 220

_ESCAPES: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_]")
# Four backslashes: a log of a log of a log. A bound, so that a long run of them costs no more than its length.
_JSON: Final = re.compile(r"\\{1,4}u001[bB]\[[0-9;]*m|\\{1,4}x1b\[[0-9;]*m|\\{1,4}([nrt\"'])")
# Frames of tables and boxes, Markdown's emphasis and code, and what is not seen.
_DROPPED: Final = re.compile("[\\s\u2500-\u259f*`\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\x00]+")
_RANK: Final = re.compile(known.RANK_PREFIX)
_RUNNING: Final = re.compile(known.RUNNING_PREFIX)
_PREFIXES = 8


class _Stream:
    """The lines of one writer, without white space, and where in the text each began."""

    def __init__(self, rank: int | None) -> None:
        self.rank = rank
        self.parts: list[str] = []
        self.starts: list[int] = []
        self.lines: list[tuple[int, bool]] = []
        self.length = 0

    def add(self, text: str, number: int, signed: bool) -> None:
        if not text:
            return
        self.parts.append(text)
        self.starts.append(self.length)
        self.lines.append((number, signed))
        self.length += len(text)

    def line_of(self, position: int) -> tuple[int, bool]:
        """The number of the line a position lies in, and whether the line itself named its rank."""
        return self.lines[bisect_right(self.starts, position) - 1]


def find_messages(text: str) -> list[Message]:
    """Every out-of-memory message of a text, in order; equal ones once, with their count and the ranks that had them.

    Messages that name no size ("OutOfMemoryError") are given only where none says more. The list may be empty.
    """
    streams = _streams(text)
    found: list[Message] = []
    for stream in streams:
        found += _found_in(stream)
    if not found:
        for stream in streams:
            squeezed = "".join(stream.parts)
            for match in _BARE.finditer(squeezed):
                backend = match["backend"] or "CUDA"
                found.append(_placed(Message("bare", backend), stream, match.start()))
    return _once(found)


def _streams(text: str) -> list[_Stream]:
    text = _JSON.sub(lambda match: "\n" if match[1] in ("n", "r") else " ", _ESCAPES.sub("", text))
    streams: dict[int | None, _Stream] = {None: _Stream(None)}
    current = streams[None]
    for number, line in enumerate(text.split("\n"), 1):
        rest, rank = _without_prefix(line)
        # A line that names no rank goes on with what the last one said: terminals break lines without repeating it.
        if rank is not None:
            current = streams.setdefault(rank, _Stream(rank))
        current.add(_DROPPED.sub("", rest), number, rank is not None)
    return list(streams.values())


def _without_prefix(line: str) -> tuple[str, int | None]:
    """The line without what log systems put before it, and the rank it names."""
    rank: int | None = None
    line = line.lstrip(" \t\r│|*")
    for _ in range(_PREFIXES):
        match = _RANK.match(line)
        if match is not None:
            rank = int(match[match.lastgroup or 0])
        else:
            match = _RUNNING.match(line)
            if match is None:
                break
        line = line[match.end() :].lstrip(" \t│|*")
    return line, rank


def _found_in(stream: _Stream) -> list[Message]:
    """The messages of one writer: of two readings of one place, the one that begins first, or says more."""
    squeezed = "".join(stream.parts)
    readings: list[tuple[int, int, int, Message]] = []
    for match in _HEAD.finditer(squeezed):
        message, end = _allocator(squeezed, match)
        readings.append((match.start(), -end, len(readings), message))
    for name, (backend, pattern) in _PLAIN.items():
        for match in pattern.finditer(squeezed):
            readings.append((match.start(), -match.end(), len(readings), _plain(name, backend, match)))
    found: list[Message] = []
    reached = 0
    for start, end, _, message in sorted(readings, key=lambda one: one[:3]):
        if start >= reached:
            found.append(_placed(message, stream, start))
            reached = -end
    return found


def _placed(message: Message, stream: _Stream, position: int) -> Message:
    line, signed = stream.line_of(position)
    return replace(message, line=line, ranks=(stream.rank,) if signed and stream.rank is not None else ())


def _allocator(text: str, head: re.Match[str]) -> tuple[Message, int]:
    """The message that begins with ``head``, and where it ends: clause after clause until none fits."""
    groups: dict[str, str] = {}
    others: list[Process] = []
    position = _skipped(text, head.end())
    parenthesised = text.startswith("(", head.end()) or text.startswith(".(", head.end())
    patterns = _ITEMS if parenthesised else _CLAUSES
    if parenthesised and (device := _DEVICE.match(text, position)):
        groups["device"] = device[1]
        position = _skipped(text, device.end())
    while match := _first(patterns, text, position):
        said = {name: value for name, value in match.groupdict().items() if value is not None}
        if "process" in said:
            others.append(Process(int(said["pid"]), Amount.read(said["process"])))
        groups.update(said)
        if "reserved" in said and said["reserved"] + "cached" in match[0]:
            groups["cached"] = "yes"
        position = _skipped(text, match.end())
    sizes = {
        name: Amount.read(groups[name])
        for name in ("total", "free", "own", "allowed", "allocated", "private", "unallocated", "reserved")
        if name in groups
    }
    own = sizes.get("own")
    hidden = own is not None and own.low >= known.NOT_REPORTED_BYTES
    advice = _ADVICE.search(text, position, position + _ADVICE_REACH)
    variable = _VARIABLE.search(text, position, position + _ADVICE_REACH)
    message = Message(
        kind="allocator",
        backend=head["backend"],
        wording=_wording(groups, parenthesised),
        device=int(groups["device"]) if "device" in groups else None,
        asked=Amount.read(head["asked"]),
        own_hidden=hidden,
        others=tuple(one for one in others if one.amount.low < known.NOT_REPORTED_BYTES),
        advice=advice.lastgroup if advice else None,
        variable=variable[0] if variable else None,
        **{name: None if name == "own" and hidden else size for name, size in sizes.items()},  # type: ignore[arg-type]
    )
    return _completed(message), position


def _completed(message: Message) -> Message:
    """With what follows from the rest: reserved is allocated and unallocated, in either wording."""
    allocated, unallocated, reserved = message.allocated, message.unallocated, message.reserved
    if allocated is None:
        return message
    if reserved is None and unallocated is not None:
        return replace(message, reserved=allocated + unallocated)
    if reserved is not None and unallocated is None:
        rest = reserved - allocated
        return replace(message, unallocated=Amount(max(0, rest.low), max(0, rest.high), max(0, rest.nominal)))
    return message


def _skipped(text: str, position: int) -> int:
    while position < len(text) and text[position] in _BETWEEN:
        position += 1
    return position


def _first(patterns: dict[str, re.Pattern[str]], text: str, position: int) -> re.Match[str] | None:
    return next((match for pattern in patterns.values() if (match := pattern.match(text, position))), None)


def _wording(groups: dict[str, str], parenthesised: bool) -> str | None:
    if parenthesised:
        return "cached" if "cached" in groups else "parentheses"
    if "private" in groups:
        return "private"
    return groups.get("spelled")


def _plain(name: str, backend: str, match: re.Match[str]) -> Message:
    said = match.groupdict()
    sizes: dict[str, Amount] = {}
    for key in ("asked", "allocated", "other", "allowed", "total", "free"):
        if written := said.get(key):
            # Metal's allocator means powers of two also where it writes GB.
            sizes[key] = Amount.read(re.sub(r"(?<=[KMGTP])B", "iB", written) if backend == "MPS" else written)
        elif written := said.get(f"{key}_gib"):
            sizes[key] = Amount.read(written + "GiB")
    if said.get("bytes"):
        sizes["asked"] = Amount.exactly(int(said["bytes"]))
    allowed = sizes.get("allowed")
    share = said.get("utilization")
    return Message(
        kind=name,
        backend=said.get("backend") or backend or "CUDA",
        device=int(said["device"]) if said.get("device") else None,
        asked=sizes.get("asked"),
        total=sizes.get("total"),
        free=sizes.get("free"),
        allocated=sizes.get("allocated"),
        elsewhere=sizes.get("other"),
        allowed=None if allowed is not None and allowed.low >= known.NOT_REPORTED_BYTES else allowed,
        library=said.get("library"),
        utilization=float(share) if share and re.fullmatch(r"\d{0,4}\.?\d{1,8}", share) else None,
    )


def _once(found: list[Message]) -> list[Message]:
    """Equal messages once: logs repeat them for every frame, logger and rank."""
    seen: dict[Message, Message] = {}
    for message in sorted(found, key=lambda one: one.line):
        key = replace(message, line=0, count=0, ranks=(), advice=None, variable=None)
        first = seen.get(key)
        if first is None:
            seen[key] = message
        else:
            ranks = tuple(sorted({*first.ranks, *message.ranks}))
            seen[key] = replace(
                first,
                count=first.count + 1,
                ranks=ranks,
                advice=first.advice or message.advice,
                variable=first.variable or message.variable,
            )
    return list(seen.values())
