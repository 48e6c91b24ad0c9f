"""Where a device's reserved memory is: in use, or free as holes, as whole segments, or in somebody else's pool."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from foretrace.knowledge.fragmentation import MOSTLY_FREE, SMALL_PART
from foretrace.memory.snapshot import DEFAULT_POOL, Block, Segment
from foretrace.model.memory import Fragmentation, Free, Totals

__all__ = ["Owner", "Sparse", "busiest_stream", "fragmentation", "free", "holes", "idle_elsewhere", "sparse", "totals"]

# What the allocator never lends across: a stream of a pool.
Owner = tuple[int, tuple[int, int]]


def busiest_stream(segments: Iterable[Segment]) -> int:
    """The stream that holds most of the ordinary pool; 0, the default stream, where nothing is reserved."""
    reserved: dict[int, int] = defaultdict(int)
    for segment in segments:
        if segment.pool == DEFAULT_POOL:
            reserved[segment.stream] += segment.size
    return max(reserved, key=lambda stream: (reserved[stream], -stream), default=0)


def holes(segment: Segment) -> list[Block]:
    """The free blocks of a segment that somebody uses; none of one that is wholly free."""
    return [] if segment.free else [block for block in segment.blocks if block.state == "free"]


def totals(segments: Sequence[Segment], *, device_used: int | None = None, device_total: int | None = None) -> Totals:
    """The five sizes. Requested is None where a live block's request was not recorded."""
    blocks = [block for segment in segments for block in segment.blocks]
    live = [block for block in blocks if block.state == "active"]
    asked = [block.requested for block in live]
    return Totals(
        requested_bytes=None if None in asked else sum(size for size in asked if size is not None),
        allocated_bytes=sum(block.size for block in live),
        active_bytes=sum(block.size for block in blocks if block.state != "free"),
        reserved_bytes=sum(segment.size for segment in segments),
        device_used_bytes=device_used,
        device_total_bytes=device_total,
    )


def free(segments: Sequence[Segment], page_bytes: Callable[[bool], int]) -> Free:
    """The free memory, in whole segments and in holes.

    ``page_bytes``: a page of the small (True) or the large pool's expandable segments, of which those in a hole can be
    returned.
    """
    whole = [segment.size for segment in segments if segment.free]
    cut = [(segment, hole) for segment in segments for hole in holes(segment)]
    pages = sum(_whole_pages(segment, hole, page_bytes(segment.small)) for segment, hole in cut if segment.expandable)
    return Free(
        whole_segments_bytes=sum(whole),
        holes_bytes=sum(hole.size for _, hole in cut),
        largest_hole_bytes=max((hole.size for _, hole in cut), default=0),
        whole_segments=len(whole),
        holes=len(cut),
        largest_whole_segment_bytes=max(whole, default=0),
        releasable_bytes=sum(whole) + pages,
    )


def _whole_pages(segment: Segment, hole: Block, page: int) -> int:
    """Bytes of a hole in pages that nothing else lies in; pages are counted from the segment's start."""
    first = -(-(hole.address - segment.address) // page)
    last = (hole.end - segment.address) // page
    return max(0, last - first) * page


def fragmentation(segments: Sequence[Segment], owner: Owner) -> Fragmentation:
    """Why the free memory may not serve a request of this stream and pool; the three kinds add up to all of it."""
    own = [segment for segment in segments if (segment.stream, segment.pool) == owner]
    blocks = [block for segment in segments for block in segment.blocks]
    live = [block for block in blocks if block.state == "active"]
    known = all(block.requested is not None for block in live)
    thin = sparse(segments)
    return Fragmentation(
        hard_bytes=sum(hole.size for segment in own for hole in holes(segment)),
        soft_bytes=sum(segment.size for segment in own if segment.free),
        stream_bytes=sum(idle_elsewhere(segments, owner).values()),
        rounding_bytes=sum(block.size - (block.requested or 0) for block in live) if known else None,
        sparse_blocks=sum(len(found.blocks) for found in thin),
        sparse_bytes=sum(block.size for found in thin for block in found.blocks),
        pending_bytes=sum(block.size for block in blocks if block.state == "pending"),
    )


def idle_elsewhere(segments: Iterable[Segment], owner: Owner) -> dict[Owner, int]:
    """Free bytes by the other streams and pools they belong to, most first."""
    idle: dict[Owner, int] = defaultdict(int)
    for segment in segments:
        if (segment.stream, segment.pool) != owner:
            idle[segment.stream, segment.pool] += sum(block.size for block in segment.blocks if block.state == "free")
    return {at: size for at, size in sorted(idle.items(), key=lambda item: -item[1]) if size}


@dataclass(frozen=True, slots=True)
class Sparse:
    """A segment of the large pool that is mostly free and pinned by small blocks alone."""

    segment: Segment
    blocks: tuple[Block, ...]

    @property
    def free_bytes(self) -> int:
        """What these blocks keep from being returned."""
        return sum(block.size for block in self.segment.blocks if block.state == "free")


def sparse(segments: Iterable[Segment]) -> list[Sparse]:
    """Segments of the large pool, mostly free, in which every live block is small, most free memory first."""
    found = []
    for segment in segments:
        used = tuple(block for block in segment.blocks if block.state != "free")
        if segment.small or segment.expandable or not used:
            continue
        if sum(b.size for b in used) < MOSTLY_FREE * segment.size and all(
            block.size < SMALL_PART * segment.size for block in used
        ):
            found.append(Sparse(segment, used))
    return sorted(found, key=lambda one: -one.free_bytes)
