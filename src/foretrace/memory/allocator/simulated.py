"""PyTorch's caching allocator of one device, simulated: allocate, free, give back, step by step.

It follows c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.1 to 2.13 outside of a CUDA graph's capture. A request first
looks for the smallest free block of its pool and stream. Where none fits, it asks the device for a segment (or for
pages of an expandable one); where that fails, it gives oversize blocks back and asks again (only with
`max_split_size_mb`), then waits for pending frees, gives back everything that is wholly free and asks a last time.

Left out, because no snapshot tells: free-memory callbacks, the `MemPool` options `use_on_oom` and `no_split`, and the
age of idle segments that `garbage_collection_threshold` goes by (here all count as equally old, and go together).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from foretrace.errors import InputError
from foretrace.knowledge import allocator as known
from foretrace.memory.allocator.events import Event, history_of
from foretrace.memory.allocator.ranges import Key, Piece, Range, ranges_of
from foretrace.memory.allocator.sizes import Settings, up
from foretrace.memory.snapshot import DEFAULT_POOL, NO_STACK, Snapshot, Stacks

__all__ = ["Allocator", "Given"]

_FIRST_ADDRESS = 0x7F00_0000_0000


@dataclass(frozen=True, slots=True)
class Given:
    """What became of one request; sizes in bytes.

    ``source``: block, segment, mapping, release (a segment or mapping after something was given back) or nowhere.
    ``size``: of the block, which may be larger than ``rounded`` where the rest is not split off. ``asked``: of the
    device, a segment or the pages that had to be mapped. ``released``: what was given back to the device on the way.
    """

    source: Literal["block", "segment", "mapping", "release", "nowhere"]
    rounded: int
    address: int | None = None
    size: int | None = None
    asked: int | None = None
    released: int = 0
    released_segments: int = 0


class Allocator:
    """The allocator of one device. Its memory is `ranges`; what it did since it was made or loaded, `events`.

    ``device_free_bytes``: what the device can still give; None: without end. ``limit_bytes``: of the process
    (`set_per_process_memory_fraction`); None: none. ``unused_pools``: private pools that no graph and no MemPool uses
    any more, so that they are given back like ordinary memory.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        device: int = 0,
        device_free_bytes: int | None = None,
        limit_bytes: int | None = None,
        unused_pools: frozenset[tuple[int, int]] = frozenset(),
    ) -> None:
        self.settings = settings or Settings()
        self.device = device
        self.device_free_bytes = device_free_bytes
        self.limit_bytes = limit_bytes
        self.unused_pools = unused_pools
        self.ranges: list[Range] = []
        self.events: list[Event] = []
        self.time_us = 0
        self.reserved = 0
        self._top = _FIRST_ADDRESS

    @classmethod
    def load(
        cls,
        snapshot: Snapshot,
        device: int,
        *,
        device_free_bytes: int | None = None,
        limit_bytes: int | None = None,
        unused_pools: frozenset[tuple[int, int]] = frozenset(),
    ) -> Allocator:
        """The allocator as a snapshot shows one device; where its settings are missing, as its segments suggest."""
        settings = Settings.read(snapshot.settings)
        made = cls(
            settings,
            device=device,
            device_free_bytes=device_free_bytes,
            limit_bytes=limit_bytes,
            unused_pools=unused_pools,
        )
        if settings.expandable is None:
            made.expand(any(s.expandable for s in snapshot.segments if s.device == device))
        made.ranges = ranges_of(snapshot, device, made.settings)
        made.reserved = sum(at.mapped for at in made.ranges)
        # Other devices' segments lie in the same address space.
        ends = [at.end for at in made.ranges] + [s.address + s.size for s in snapshot.segments]
        made._top = max([_FIRST_ADDRESS, *ends])
        return made

    def expand(self, on: bool) -> None:
        """Switch `expandable_segments` on or off from now on."""
        self.settings = replace(self.settings, expandable=on)

    # What a program does.

    def malloc(self, size: int, stream: int = 0, pool: tuple[int, int] = DEFAULT_POOL, stack: int = NO_STACK) -> Given:
        """Allocate ``size`` bytes (at least 1) on a stream, as the allocator would."""
        rounded = self.settings.rounded(size)
        key = Key(pool, rounded <= known.SMALL_REQUEST_BYTES, stream)
        source: Literal["block", "segment", "mapping", "release"] = "block"
        place, asked, released, segments = self._best_fit(key, rounded), None, 0, 0
        if place is None:
            place, asked, released, segments = self._beyond_cache(key, rounded, stack)
            source = "release" if released else "mapping" if self.settings.expandable else "segment"
        if place is None:
            self._record("oom", self.device_free_bytes or 0, rounded, stream, stack)
            return Given("nowhere", rounded, asked=asked, released=released, released_segments=segments)
        at, piece = place
        index = at.pieces.index(piece)
        if self.settings.splits(piece.size, rounded, key.small):
            at.cut(index, rounded)
        piece.state, piece.requested, piece.stack = "active", size, stack
        self._record("alloc", piece.address, size, stream, stack)
        return Given(source, rounded, piece.address, piece.size, asked, released, segments)

    def free(self, address: int, *, used_elsewhere: bool = False, stack: int = NO_STACK) -> None:
        """Free the block at an address; one that another stream may still use (`record_stream`) is pending.

        Raises:
            InputError: nothing is allocated there.
        """
        at, index = self._find(address, "active")
        piece = at.pieces[index]
        self._record("free_requested", address, piece.requested or piece.size, at.key.stream, stack)
        piece.state = "pending"
        if not used_elsewhere:
            self._complete(at, index)

    def complete(self, address: int) -> None:
        """The other stream is done with a pending block.

        Raises:
            InputError: no block is pending there.
        """
        self._complete(*self._find(address, "pending"))

    def empty_cache(self) -> int:
        """Give back what is wholly free (`torch.cuda.empty_cache`); how many bytes that were."""
        return self._release_all()[0]

    def blocks(self, state: str) -> Iterator[tuple[Range, Piece]]:
        """All pieces in a state, by range."""
        return ((at, piece) for at in self.ranges for piece in at.pieces if piece.state == state)

    def snapshot(self, path: str = "simulated", stacks: Stacks | None = None) -> Snapshot:
        """What a snapshot of it would hold; ``stacks``: those that the numbers given to it mean."""
        segments = (segment for at in self.ranges for segment in at.segments(self.device))
        return Snapshot(
            path=path,
            segments=tuple(sorted(segments, key=lambda segment: segment.address)),
            histories=(history_of(self.events, self.device),),
            stacks=stacks or Stacks(),
            settings=self.settings.recorded(),
        )

    # What it does for that.

    def needed(self, key: Key, rounded: int) -> int:
        """What the device would have to give for a request that no block serves: a segment, or pages not yet mapped."""
        if not self.settings.expandable:
            return self.settings.segment_bytes(rounded)
        room = self._room(key, rounded)
        if room is None:
            return up(rounded, self.settings.page_bytes(key.small))
        return sum(up(size, room[0].page) for _, size in self._gaps(*room, rounded))

    def _best_fit(self, key: Key, rounded: int) -> tuple[Range, Piece] | None:
        """The free block it gets (get_free_block): the smallest that fits, of those the lowest.

        Expandable segments are another matter. Switched off, their blocks are passed over. Switched on, a block counts
        as large as it can grow into the unmapped addresses behind it.
        """
        settings = self.settings
        fits = [
            (piece.size, piece.address, at.grown(index) if at.page else 0, at, piece)
            for at in self.ranges
            if at.key == key and (settings.expandable or not at.page)
            for index, piece in enumerate(at.pieces)
            if piece.state == "free" and piece.size >= rounded
        ]
        if not fits:
            return None
        fits.sort(key=lambda item: item[:2])
        chosen = fits[0]
        for following in fits[1:]:
            if not chosen[3].page or (following[2] or following[0]) >= chosen[2]:
                break
            chosen = following
        size, _, _, at, piece = chosen
        if not settings.oversize(rounded) and settings.oversize(size):
            return None
        if settings.oversize(rounded) and size >= rounded + settings.non_split_rounding:
            return None
        return at, piece

    def _beyond_cache(self, key: Key, rounded: int, stack: int) -> tuple[tuple[Range, Piece] | None, int, int, int]:
        """Ask the device, give back, ask again: the block, what was asked for, bytes and segments given back."""
        released, segments = self._collect()
        asked = self.needed(key, rounded)
        place = self._from_device(key, rounded, stack)
        for give_back in (self._release_oversize, self._release_cached):
            if place is not None:
                break
            given, how_many, enough = give_back(key, rounded)
            released, segments = released + given, segments + how_many
            if enough:
                asked = self.needed(key, rounded)
                place = self._from_device(key, rounded, stack)
        return place, asked, released, segments

    def _from_device(self, key: Key, rounded: int, stack: int) -> tuple[Range, Piece] | None:
        """A free block of memory that the device gives now (alloc_block); None where it does not."""
        asked = self.settings.segment_bytes(rounded)
        # Pages that need not be mapped count towards the limit all the same.
        if self.limit_bytes is not None and self.reserved + asked > self.limit_bytes:
            return None
        if self.settings.expandable:
            return self._expand_into(key, rounded, stack)
        if not self._take(asked):
            return None
        piece = Piece(self._addresses(asked), asked, "free")
        at = Range(key, [piece], stack=stack)
        self.ranges.append(at)
        self._record("segment_alloc", piece.address, asked, key.stream, stack)
        return at, piece

    def _expand_into(self, key: Key, rounded: int, stack: int) -> tuple[Range, Piece] | None:
        """Map pages until a free block is large enough (try_allocate_expandable_block)."""
        room = self._room(key, rounded)
        if room is None:
            page = self.settings.page_bytes(key.small)
            space = max(known.ADDRESS_SPACE_BYTES, up(rounded, page))
            at = Range(key, [Piece(self._addresses(space), space, "unmapped")], page, stack)
            self.ranges.append(at)
            room = at, 0
        at, index = room
        start = at.pieces[index].address
        for gap, size in list(self._gaps(at, index, rounded)):
            bytes_ = up(size, at.page)
            if not self._take(bytes_):
                return None
            where = at.pieces.index(gap)
            if bytes_ < gap.size:
                at.cut(where, bytes_)
            gap.state = "free"
            self._record("segment_map", gap.address, bytes_, key.stream, stack)
            at.merge(where)
        piece = next(p for p in at.pieces if p.state == "free" and p.address <= start < p.address + p.size)
        return at, piece

    def _room(self, key: Key, rounded: int) -> tuple[Range, int] | None:
        """The lowest addresses with room, free and unmapped together (find_expandable_block): where they begin."""
        for at in sorted((at for at in self.ranges if at.page and at.key == key), key=lambda at: at.address):
            for index, piece in enumerate(at.pieces):
                if piece.state != "unmapped":
                    continue
                first = index - 1 if index and at.pieces[index - 1].state == "free" else index
                room = 0
                for following in at.pieces[first:]:
                    if following.state not in ("free", "unmapped") or room >= rounded:
                        break
                    room += following.size
                if room >= rounded:
                    return at, first
        return None

    @staticmethod
    def _gaps(at: Range, index: int, rounded: int) -> Iterator[tuple[Piece, int]]:
        """The unmapped pieces from there on that a request of this size needs, and how much of each."""
        missing = rounded
        for piece in at.pieces[index:]:
            if missing <= 0:
                return
            if piece.state == "unmapped":
                size = min(piece.size, missing)
                yield piece, size
                missing -= up(size, at.page)
            else:
                missing -= piece.size

    # What it gives back: bytes, segments, and whether the device is asked again then.

    def _collect(self) -> tuple[int, int]:
        """Idle segments of the large pool, once much of the limit is reserved (garbage_collect_cached_blocks)."""
        threshold = self.settings.collect_above
        if self.limit_bytes is None or not threshold or self.reserved <= int(threshold * self.limit_bytes):
            return 0, 0
        large = (at for at in self.ranges if at.key.pool == DEFAULT_POOL and not at.key.small)
        return self._give_back([at for at in large if at.whole and not at.page])

    def _release_oversize(self, key: Key, rounded: int) -> tuple[int, int, bool]:
        """One oversize block that is large enough, or the largest until they are (release_available_cached_blocks)."""
        if self.settings.max_split is None:
            return 0, 0, False
        target = max(rounded, self.settings.max_split)
        own = sorted(
            ((piece.size, piece.address, at) for at, piece in self.blocks("free") if at.key == key),
            key=lambda item: item[:2],
        )
        first = next((n for n, item in enumerate(own) if item[0] >= target), len(own))
        if first < len(own) and own[first][2].whole and not own[first][2].page:
            return *self._give_back([own[first][2]]), True
        chosen: list[Range] = []
        for size, _, at in reversed(own[:first]):
            if sum(c.mapped for c in chosen) >= target or not self.settings.oversize(size):
                break
            if at.whole and not at.page:
                chosen.append(at)
        given, segments = self._give_back(chosen)
        return given, segments, given >= target

    def _release_cached(self, key: Key, _: int) -> tuple[int, int, bool]:
        """Everything; not while a private pool is being filled, when nothing may wait (captures_underway)."""
        return (*self._release_all(), True) if key.pool == DEFAULT_POOL else (0, 0, False)

    def _release_all(self) -> tuple[int, int]:
        """Wait for pending frees, then give back all that is wholly free (release_cached_blocks)."""
        # From the last to the first, because pieces merge.
        for at in self.ranges:
            for index in reversed(range(len(at.pieces))):
                if at.pieces[index].state == "pending":
                    self._complete(at, index)
        loose = [at for at in self.ranges if at.key.pool == DEFAULT_POOL or at.key.pool in self.unused_pools]
        given, segments = self._give_back([at for at in loose if at.whole and not at.page])
        for at in loose:
            if at.page:
                for index in reversed(range(len(at.pieces))):
                    given += self._unmap(at, index) if at.pieces[index].state == "free" else 0
                if not at.mapped:
                    self.ranges.remove(at)
        return given, segments

    def _give_back(self, ranges: list[Range]) -> tuple[int, int]:
        for at in ranges:
            self.ranges.remove(at)
            self._take(-at.mapped)
            self._record("segment_free", at.address, at.mapped, at.key.stream, at.stack)
        return sum(at.mapped for at in ranges), len(ranges)

    def _unmap(self, at: Range, index: int) -> int:
        """Give back the pages that lie in a free block altogether (unmap_block)."""
        piece = at.pieces[index]
        begin, end = at.whole_pages(piece)
        if begin >= end:
            return 0
        if begin > piece.address:
            at.cut(index, begin - piece.address)
            index += 1
            piece = at.pieces[index]
        if end < piece.address + piece.size:
            at.cut(index, end - begin)
        piece.state = "unmapped"
        self._take(begin - end)
        self._record("segment_unmap", begin, end - begin, at.key.stream, at.stack)
        at.merge(index)
        return end - begin

    def _complete(self, at: Range, index: int) -> None:
        piece = at.pieces[index]
        self._record("free_completed", piece.address, piece.requested or piece.size, at.key.stream, piece.stack)
        piece.state, piece.requested, piece.stack = "free", None, NO_STACK
        at.merge(index)

    def _find(self, address: int, state: str) -> tuple[Range, int]:
        for at, piece in self.blocks(state):
            if piece.address == address:
                return at, at.pieces.index(piece)
        raise InputError(f"no {state} block begins at {address:#x}: give the address that the allocation returned")

    def _take(self, size: int) -> bool:
        """Take memory from the device, or give back (negative); whether it had as much."""
        if self.device_free_bytes is not None:
            if size > self.device_free_bytes:
                return False
            self.device_free_bytes -= size
        self.reserved += size
        return True

    def _addresses(self, size: int) -> int:
        start = up(self._top, known.SMALL_SEGMENT_BYTES)
        self._top = start + size
        return start

    def _record(self, action: str, address: int, size: int, stream: int, stack: int) -> None:
        self.time_us += 1
        self.events.append(Event(action, address, size, stream, self.time_us, stack))
