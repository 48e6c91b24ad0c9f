"""The simulated allocator's memory: ranges of addresses cut into blocks, made from a snapshot's segments and back.

A plain segment is one range. An expandable segment is one range too, with the addresses that no page is mapped to as
blocks of their own; a snapshot shows each run of mapped pages as a segment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from foretrace.knowledge import allocator as known
from foretrace.memory.allocator.sizes import Settings, up
from foretrace.memory.snapshot import ACTIONS, NO_STACK, Block, History, Segment, Snapshot

__all__ = ["Key", "Piece", "Range", "ranges_of"]

# More pages at once are damage: no device has as much.
_MOST_PAGES = 1 << 18


class Key(NamedTuple):
    """What separates free blocks from each other: one request sees the blocks of one key."""

    pool: tuple[int, int]
    small: bool
    stream: int


@dataclass(slots=True, eq=False)
class Piece:
    """A block while its state still changes. ``unmapped``: addresses without memory."""

    address: int
    size: int
    state: Literal["active", "pending", "free", "unmapped"]
    requested: int | None = None
    stack: int = NO_STACK


@dataclass(slots=True, eq=False)
class Range:
    """A segment, and its pieces side by side, by address. ``page``: what an expandable one is mapped in; else 0."""

    key: Key
    pieces: list[Piece]
    page: int = 0
    stack: int = NO_STACK

    @property
    def address(self) -> int:
        """Where it begins."""
        return self.pieces[0].address

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.pieces[-1].address + self.pieces[-1].size

    @property
    def mapped(self) -> int:
        """Its bytes of the device's memory."""
        return sum(piece.size for piece in self.pieces if piece.state != "unmapped")

    @property
    def whole(self) -> bool:
        """Whether it is one free block, so that it can be given back."""
        return len(self.pieces) == 1 and self.pieces[0].state == "free"

    def whole_pages(self, piece: Piece) -> tuple[int, int]:
        """From where to where the pages that lie in one piece altogether reach (ExpandableSegment::unmap)."""
        begin = self.address + up(piece.address - self.address, self.page)
        end = piece.address + piece.size
        return begin, max(begin, end - (end - self.address) % self.page)

    def grown(self, at: int) -> int:
        """How large a piece is with the unmapped addresses behind it."""
        behind = self.pieces[at + 1 : at + 2]
        return self.pieces[at].size + sum(piece.size for piece in behind if piece.state == "unmapped")

    def cut(self, at: int, size: int) -> None:
        """Cut a piece in two, the first with ``size`` bytes; the second is in the same state."""
        piece = self.pieces[at]
        rest = Piece(piece.address + size, piece.size - size, piece.state)
        piece.size = size
        self.pieces.insert(at + 1, rest)

    def merge(self, at: int) -> int:
        """Join a free or unmapped piece with neighbours in the same state; where it is then."""
        piece = self.pieces[at]
        if at + 1 < len(self.pieces) and self.pieces[at + 1].state == piece.state:
            piece.size += self.pieces.pop(at + 1).size
        if at and self.pieces[at - 1].state == piece.state:
            at -= 1
            self.pieces[at].size += self.pieces.pop(at + 1).size
        return at

    def segments(self, device: int) -> Iterator[Segment]:
        """As a snapshot shows it."""
        run: list[Block] = []
        for piece in [*self.pieces, Piece(self.end, 0, "unmapped")]:
            if piece.state != "unmapped":
                run.append(Block(piece.address, piece.size, piece.state, piece.requested, piece.stack))
            elif run:
                pool, small, stream = self.key
                size = sum(block.size for block in run)
                yield Segment(
                    device, run[0].address, size, stream, small, tuple(run), pool, bool(self.page), self.stack
                )
                run = []


def ranges_of(snapshot: Snapshot, device: int, settings: Settings) -> list[Range]:
    """The ranges of one device, by address.

    What a snapshot does not say of an expandable segment is where its addresses begin and end: it begins at its first
    mapped page, or at the lowest that the history tells of, and ends where the next segment begins.
    """
    mine = sorted((s for s in snapshot.segments if s.device == device), key=lambda s: s.address)
    history = snapshot.history(device)
    found: list[Range] = []
    growing: dict[Key, Range] = {}
    for segment in mine:
        key = Key(segment.pool, segment.small, segment.stream)
        pieces = [Piece(b.address, b.size, b.state, b.requested, b.stack) for b in segment.blocks]
        if not segment.expandable:
            found.append(Range(key, pieces, stack=segment.stack))
            continue
        before = growing.get(key)
        page = math.gcd(settings.page_bytes(segment.small), segment.size)
        gap = segment.address - before.end if before else 0
        # Mapped pages side by side would be one segment, and pages lie at multiples of their size: otherwise it is
        # another expandable segment of the same stream.
        if before and gap > 0 and gap % before.page == 0 and page == before.page:
            before.pieces += [Piece(before.end, gap, "unmapped"), *pieces]
            continue
        growing[key] = Range(key, pieces, page, segment.stack)
        found.append(growing[key])
    bounds = [segment.address for segment in mine]
    for at in found:
        if not at.page:
            continue
        first = _first_page(history, at, max((b for b in bounds if b < at.address), default=0))
        if first < at.address:
            at.pieces.insert(0, Piece(first, at.address - first, "unmapped"))
        room = min((b for b in bounds if b >= at.end), default=at.end + known.ADDRESS_SPACE_BYTES) - at.end
        if room >= at.page:
            at.pieces.append(Piece(at.end, room - room % at.page, "unmapped"))
    return found


def _first_page(history: History | None, at: Range, bound: int) -> int:
    """The lowest page of an expandable segment that the history tells of, above what lies before the segment.

    Pages that are unmapped keep their addresses and are filled first, lowest first, unless all are unmapped: then the
    segment itself is given up, and the next one begins elsewhere.
    """
    if history is None:
        return at.address
    maps, unmaps = ACTIONS.index("segment_map"), ACTIONS.index("segment_unmap")
    chosen = np.flatnonzero(
        ((history.action == maps) | (history.action == unmaps))
        & (history.stream == at.key.stream)
        & (history.address > np.uint64(bound))
        & (history.address < np.uint64(at.end))
    )
    mapped: set[int] = set()
    lowest = at.address
    for row in chosen:
        address, size, mapping = int(history.address[row]), int(history.size[row]), history.action[row] == maps
        # Another pool's segment of this stream is mapped in pages of another size, or at other multiples of it. The
        # small pool never needs more than one page at once.
        if (address - at.address) % at.page or size % at.page or (at.key.small and mapping and size != at.page):
            continue
        if size > _MOST_PAGES * at.page:
            continue
        pages = range(address, address + size, at.page)
        if mapping:
            lowest = min(lowest, address) if mapped else address
            mapped.update(pages)
        else:
            mapped.difference_update(pages)
    return min(lowest, at.address)
