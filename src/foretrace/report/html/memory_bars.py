"""Bars of memory: parts that lie side by side and add up, each as long as it is."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.model.memory import Memory
from foretrace.report.memory import size_rows

__all__ = ["Account", "Bar", "Part", "SizeRow", "accounts", "device_bar", "sizes"]


@dataclass(frozen=True)
class Part:
    """A stretch of a bar, in percent of the bar's length."""

    kind: str  # a class of memory.css
    name: str
    bytes: int
    start: float
    length: float
    what: str = ""

    @property
    def style(self) -> str:
        """Where it lies, as CSS."""
        return f"left:{self.start:.4f}%;width:{self.length:.4f}%"


@dataclass(frozen=True)
class Bar:
    """Parts of one whole."""

    whole: int
    parts: list[Part]


@dataclass(frozen=True)
class SizeRow:
    """A size, or what stands between two; ``parts`` lie where they begin and end within what is reserved."""

    name: str
    bytes: int | None
    what: str
    share: float | None  # of what is reserved
    total: bool
    parts: list[Part]


@dataclass(frozen=True)
class Account:
    """All free memory, divided by one question."""

    title: str
    bar: Bar


def _bar(whole: int, parts: list[tuple[str, str, int, str]]) -> Bar:
    """Parts in order, ``(kind, name, bytes, what)``; those without bytes have no length."""
    laid: list[Part] = []
    at = 0
    for kind, name, size, what in parts:
        laid.append(Part(kind, name, size, 100 * at / whole if whole else 0, 100 * size / whole if whole else 0, what))
        at += size
    return Bar(whole, laid)


def sizes(memory: Memory) -> list[SizeRow]:
    """The sizes of the terminal's table, each drawn where it begins: what is added starts where the last one ends."""
    reserved = memory.totals.reserved_bytes
    rows: list[SizeRow] = []
    steps = {
        "requested": "requested", "+ rounding": "rounding", "+ pending": "pending", "+ holes": "hole",
        "+ whole segments": "whole",
    }  # fmt: skip
    drawn: list[tuple[str, str, int, str]] = []
    for name, size, what in size_rows(memory):
        within = reserved is not None and reserved > 0 and size is not None and not name.startswith("device")
        parts: list[Part] = []
        if within and reserved and size is not None:
            if name in steps:
                drawn.append((steps[name], name.lstrip("+= "), size, ""))
                parts = _bar(reserved, drawn).parts[-1:]
            elif sum(each[2] for each in drawn) == size:
                parts = _bar(reserved, drawn).parts
            else:  # something before it is not known: it is drawn whole
                drawn = [("requested", name.lstrip("= "), size, "")]
                parts = _bar(reserved, drawn).parts
        share = size / reserved if within and reserved and size is not None else None
        rows.append(SizeRow(name, size, what, share, not name.startswith("+"), parts))
    return rows


def device_bar(memory: Memory) -> Bar | None:
    """The device's memory: what is reserved, what others use, what is free; None where it is not known."""
    totals = memory.totals
    reserved, used, total = totals.reserved_bytes, totals.device_used_bytes, totals.device_total_bytes
    if reserved is None or (used is None and total is None):
        return None
    others = None if used is None else max(0, used - reserved)
    parts = [("requested", "reserved by this process's allocator", reserved, "")]
    if others is not None:
        parts.append(("others", "contexts, other libraries and processes", others, ""))
    known = reserved + (others or 0)
    if total is not None and total > known:
        parts.append(("unused", "free" if others is not None else "the rest of the device", total - known, ""))
    return _bar(max(known, total or 0), parts)


def accounts(memory: Memory) -> list[Account]:
    """Free memory by where it lies, and by who can have it; each adds up to all of it."""
    free, kinds = memory.free, memory.fragmentation
    holes, whole = free.holes_bytes, free.whole_segments_bytes
    hard, soft, stream = kinds.hard_bytes, kinds.soft_bytes, kinds.stream_bytes
    found: list[Account] = []
    if holes is not None and whole is not None:
        lies = [
            ("hole", "holes", holes, "between live blocks"),
            ("whole", "whole segments", whole, "in which nothing lives"),
        ]
        found.append(Account("Where it lies", _bar(holes + whole, lies)))
    if hard is not None and soft is not None and stream is not None:
        who = [
            ("hole", "hard", hard, "holes of this stream and pool: only requests that fit into one"),
            ("whole", "soft", soft, "its whole segments: what fits into one, or the device once they are given back"),
            ("stream", "stream", stream, "of other streams or private pools: they alone"),
        ]  # fmt: skip
        found.append(Account("Who can have it", _bar(hard + soft + stream, who)))
    requested, rounding = memory.totals.requested_bytes, kinds.rounding_bytes
    if requested is not None and rounding is not None:
        held = [
            ("requested", "requested", requested, "what the program asked for"),
            ("rounding", "rounding", rounding, "blocks are larger than what was asked for"),
        ]
        found.append(Account("Inside live blocks", _bar(requested + rounding, held)))
    return found
