"""Out-of-memory messages in a pasted text: what each says, as intervals, since sizes are printed with two decimals.

A message may stand anywhere in a log: coloured, broken by a terminal, behind the prefixes of launchers, escaped in
JSON, with the lines of several ranks between each other. So lines are sorted by who wrote them, white space is taken
out, and what is looked for has none either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from foretrace.knowledge import out_of_memory as known
from foretrace.memory.oom.amounts import Amount, below_zero
from foretrace.memory.oom.writers import Squeezed, squeezed

__all__ = ["Amount", "Message", "Process", "find_messages", "read_messages"]


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
    whole segment; ``below_zero`` how far below zero it was, where it reads as a size that wrapped around. ``private``
    is what is idle in private pools. ``own_hidden``: the process's own memory was printed, but as "not known".
    ``variable``: the environment variable that the message names. ``utilization``: the share of the
    device that vLLM was told to take.
    """

    kind: str
    backend: str
    wording: str | None = None
    device: int | None = None
    asked: Amount | None = None
    below_zero: Amount | None = None
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

_CLASS: Final = re.compile(known.CLASS_NAME)
_TRACEBACK: Final = re.compile(known.TRACEBACK_SIGNS)
_IN_SOURCE: Final = re.compile(known.SOURCE_SIGNS)
# A traceback's frames stand within this many characters of its last line.
_TRACEBACK_REACH = 4000
# The longest message: hundreds of processes are listed.
_REACH = 40_000


def find_messages(text: str) -> list[Message]:
    """Every out-of-memory message of a text, in order; equal ones once, with their count and the ranks that had them.

    Messages that name no size ("OutOfMemoryError") are given only where none says more. The list may be empty.
    """
    return read_messages(text)[0]


def read_messages(text: str, most: int | None = None) -> tuple[list[Message], int]:
    """The messages of a text as `find_messages`, at most ``most`` different ones; and how often others stand there."""
    source = squeezed(text)
    found = _Found(source, most)
    readings: list[tuple[int, int, int, str]] = []
    heads = [match.start() for match in _HEAD.finditer(source.text)]
    readings += [(start, -(1 << 62), at, "") for at, start in enumerate(heads)]
    for name, (_, pattern) in _PLAIN.items():
        # A plain search is far faster than a pattern that begins with alternatives.
        if name in known.NEEDLES and not any(needle in source.text for needle in known.NEEDLES[name]):
            continue
        readings += [(match.start(), -match.end(), 0, name) for match in pattern.finditer(source.text)]
    reached = 0
    for start, end, at, name in sorted(readings, key=lambda one: one[:2]):
        if start < reached:
            continue
        if name:
            # Of two readings of one place the one that begins first counts, or says more.
            if not _IN_SOURCE.match(source.text, -end):
                found.add(name, source.text[start:-end], start)
            reached = -end
            continue
        until = heads[at + 1] if at + 1 < len(heads) else len(source.text)
        reached = start + found.add(name, source.text[start : min(until, start + _REACH)].partition("\n")[0], start)
    if not found.messages and not found.left_out:
        for start, raw in _bare(source):
            found.add("bare", raw, start)
    return found.in_order(), found.left_out


class _Found:
    """Messages found so far: equal ones once, since logs repeat them for every frame, logger and rank."""

    def __init__(self, source: Squeezed, most: int | None) -> None:
        self.source = source
        self.most = most
        self.left_out = 0
        self.messages: dict[Message, list[tuple[int, int | None]]] = {}
        self.advice: dict[Message, tuple[str | None, str | None]] = {}
        self._read: dict[tuple[str, str], tuple[Message, int]] = {}

    def add(self, name: str, raw: str, start: int) -> int:
        """Add the message that ``raw`` begins with; returns how long it is."""
        key = (name, raw)
        known_one = self._read.get(key)
        if known_one is None:
            if self.most is not None and len(self.messages) >= self.most:
                self.left_out += 1
                return 1
            message, length = _read(name, raw)
            plain = replace(message, advice=None, variable=None)
            advice, variable = self.advice.get(plain, (None, None))
            self.advice[plain] = advice or message.advice, variable or message.variable
            known_one = self._read[key] = plain, length
        self.messages.setdefault(known_one[0], []).append(self.source.line_of(start))
        return known_one[1]

    def in_order(self) -> list[Message]:
        """The messages in the order of the text."""
        found = []
        for message, places in self.messages.items():
            advice, variable = self.advice[message]
            ranks = tuple(sorted({rank for _, rank in places if rank is not None}))
            line = min(number for number, _ in places)
            found.append(replace(message, line=line, count=len(places), ranks=ranks, advice=advice, variable=variable))
        return sorted(found, key=lambda one: one.line)


def _read(name: str, raw: str) -> tuple[Message, int]:
    """The message that a text begins with, and its length there."""
    if name == "bare":
        match = _BARE.match(raw)
        return Message("bare", (match["backend"] if match else None) or "CUDA"), len(raw)
    if name:
        backend, pattern = _PLAIN[name]
        plain = pattern.match(raw)
        assert plain is not None
        return _plain(name, backend, plain), plain.end()
    head = _HEAD.match(raw)
    assert head is not None
    return _allocator(raw, head)


def _bare(source: Squeezed) -> Iterator[tuple[int, str]]:
    """What says no more than that memory ran out: in a log, not in a program or a text about it."""
    text = source.text
    for match in _BARE.finditer(text):
        if not _IN_SOURCE.match(text, match.end()):
            yield match.start(), match[0]
    for match in _CLASS.finditer(text):
        begin, end = source.around(match.start())
        before, after = text[begin : match.start()], text[match.end() : end]
        if len(after) > 1 and after[0] == ":":
            raised = not before.startswith("except")
        else:
            # The last line of a traceback is the name alone where the error has no text.
            above = max(0, begin - _TRACEBACK_REACH)
            raised = not before and after in ("", ":") and _TRACEBACK.search(text, above, begin) is not None
        if raised:
            yield match.start(), match[0]


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
    hidden = "own" in sizes and sizes["own"].unreal
    # 2^64 says "not known", or "no limit"; whatever else no memory has says nothing.
    sizes = {name: size for name, size in sizes.items() if not size.unreal}
    advice = _ADVICE.search(text, position, position + _ADVICE_REACH)
    variable = _VARIABLE.search(text, position, position + _ADVICE_REACH)
    message = Message(
        kind="allocator",
        backend=head["backend"],
        wording=_wording(groups, parenthesised),
        device=int(groups["device"]) if "device" in groups else None,
        asked=Amount.read(head["asked"]),
        below_zero=below_zero(head["asked"]),
        own_hidden=hidden,
        others=tuple(one for one in others if not one.amount.unreal),
        advice=advice.lastgroup if advice else None,
        variable=variable[0] if variable else None,
        **sizes,  # type: ignore[arg-type]
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
    written = f"{said['bytes']}bytes" if said.get("bytes") else said.get("asked")
    if said.get("bytes") and written:
        sizes["asked"] = Amount.read(written)
    sizes = {key: size for key, size in sizes.items() if key == "asked" or not size.unreal}
    share = said.get("utilization")
    return Message(
        kind=name,
        backend=said.get("backend") or backend or "CUDA",
        device=int(said["device"]) if said.get("device") else None,
        asked=sizes.get("asked"),
        below_zero=below_zero(written) if written else None,
        total=sizes.get("total"),
        free=sizes.get("free"),
        allocated=sizes.get("allocated"),
        elsewhere=sizes.get("other"),
        allowed=sizes.get("allowed"),
        library=said.get("library"),
        utilization=float(share) if share and re.fullmatch(r"\d{0,4}\.?\d{1,8}", share) else None,
    )
