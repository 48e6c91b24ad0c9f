"""What foretrace says of a process's GPU memory, as plain data: schema ``foretrace.memory/1``.

Sizes are bytes; what is not known is ``None`` with the reason in ``health``, never zero. One document speaks of one
device; `Memory.devices` names the others.

How sizes nest: ``requested <= allocated <= active <= reserved <= device used``. Requested is what programs asked for;
allocated the blocks they got for it, rounded up; active adds blocks that are freed but that another stream may still
use; reserved is what the allocator holds from the device; the device's own count adds the context, other libraries
and other processes. Of what is reserved and not active, `Free` and `Fragmentation` are two accounts, each whole::

    reserved = active + whole segments + holes
    reserved = active + hard + soft + stream
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.model.report import Health, Severity
from foretrace.model.shown import Shown

__all__ = [
    "SCHEMA",
    "Alive",
    "DeviceTotals",
    "Fragmentation",
    "Free",
    "HistoryInfo",
    "Memory",
    "MemoryBlock",
    "MemoryFinding",
    "MemorySegment",
    "OutOfMemory",
    "Peak",
    "Pin",
    "Request",
    "Source",
    "Totals",
]

SCHEMA: Literal["foretrace.memory/1"] = "foretrace.memory/1"

Format = Literal["snapshot", "timeline", "summary", "stats"]
BlockState = Literal["active", "pending", "free"]
# Where the bytes of a request would come from. nowhere: it fails. unknown: the device decides, and what it has free
# is not known.
Supply = Literal["block", "segment", "mapping", "release", "nowhere", "unknown"]


class DeviceTotals(msgspec.Struct, kw_only=True):
    """One device of the file, in short."""

    device: int
    reserved_bytes: int
    allocated_bytes: int
    segments: int


class Source(msgspec.Struct, kw_only=True):
    """Where the numbers come from."""

    path: str
    format: Format
    device: int | None
    settings: dict[str, Any]  # the allocator's, as recorded
    repairs: list[str]
    resolution_bytes: int = 1  # 1: exact; 1048576 where the source is cut to MiB


class Totals(msgspec.Struct, kw_only=True):
    """The five sizes; see the module for how they nest."""

    requested_bytes: int | None
    allocated_bytes: int | None
    active_bytes: int | None
    reserved_bytes: int | None
    device_used_bytes: int | None = None
    device_total_bytes: int | None = None


class Free(msgspec.Struct, kw_only=True):
    """Reserved memory that nobody holds."""

    whole_segments_bytes: int | None  # in segments that nobody uses: the allocator can give them back to the device
    holes_bytes: int | None  # in segments that somebody uses
    largest_hole_bytes: int | None
    whole_segments: int | None = None
    holes: int | None = None
    largest_whole_segment_bytes: int | None = None
    releasable_bytes: int | None = None  # whole segments, and of holes in expandable segments the pages wholly free


class Fragmentation(msgspec.Struct, kw_only=True):
    """Why free memory may not serve a request; the first three add up to all of it."""

    hard_bytes: int | None  # holes of the stream and pool looked at, pinned by live blocks
    soft_bytes: int | None  # its whole free segments: a request larger than each needs them given back first
    stream_bytes: int | None  # free memory that belongs to other streams or private pools
    rounding_bytes: int | None  # live blocks' size above what was asked for
    sparse_blocks: int | None = None  # live blocks, each a small part of its segment, that pin a mostly free one
    sparse_bytes: int | None = None
    pending_bytes: int | None = None


class MemoryBlock(msgspec.Struct, kw_only=True):
    """One block of a segment."""

    address: int
    size: int
    requested: int | None
    state: BlockState
    stack: list[str]  # the program's own lines first; empty where none was recorded
    where: str | None = None  # who allocated it, as in `Pin.where`; None of free blocks


class MemorySegment(msgspec.Struct, kw_only=True):
    """One segment; its blocks are the items of `Memory.blocks` from ``first_block`` on, ``blocks`` of them."""

    address: int
    size: int
    stream: int
    pool: list[int]  # [0, 0] for ordinary tensors
    kind: Literal["small", "large"]
    expandable: bool
    active_bytes: int
    holes_bytes: int
    largest_hole_bytes: int
    first_block: int
    blocks: int


class Pin(msgspec.Struct, kw_only=True):
    """Live blocks of one origin that keep holes from being joined or given back; the worst first."""

    where: str  # the program's line, or what is known instead
    stack: list[str]
    blocks: int
    bytes: int
    segments: int
    holes_bytes: int  # in the segments they lie in
    only_here_bytes: int  # in segments that nobody else pins: given back once these are freed


class Request(msgspec.Struct, kw_only=True):
    """Whether an allocation would succeed now, by what the allocator would do."""

    bytes: int
    rounded_bytes: int  # the block it would get
    stream: int
    pool: list[int]
    succeeds: bool | None  # None: the device decides
    from_: Supply = msgspec.field(name="from")
    because: str
    address: int | None = None  # of the block it would get, or part of
    segment_bytes: int | None = None  # what the allocator would ask the device for
    released_bytes: int | None = None  # what it would give back first
    device_free_bytes: int | None = None  # as given or recorded


class Alive(msgspec.Struct, kw_only=True):
    """Memory of one origin that was held at the peak."""

    where: str
    stack: list[str]
    bytes: int
    blocks: int | None
    annotation: str | None = None  # the innermost one that was open when it was allocated
    module: str | None = None  # the line of the module's forward that asked for it, or the backward's node


class Peak(msgspec.Struct, kw_only=True):
    """The most that was held at once, in bytes asked for, as far back as the history goes."""

    requested_bytes: int
    time_us: int | None
    ago_us: int | None  # before the snapshot's last entry
    complete: bool  # whether the history holds everything since the first allocation
    during: str | None  # the innermost annotation
    unexplained_bytes: int  # held at the peak, from before the history began
    alive: list[Alive]
    reached_by: str | None = None  # where the allocation was made that reached it
    reached_with_bytes: int | None = None  # what that asked for


class OutOfMemory(msgspec.Struct, kw_only=True):
    """An allocation that failed, as the history has it."""

    bytes: int
    device_free_bytes: int | None
    time_us: int | None
    stack: list[str]


class HistoryInfo(msgspec.Struct, kw_only=True):
    """What was recorded of the time before."""

    entries: int
    span_us: int | None
    truncated: bool | None  # None: cannot be told
    live_blocks: int
    live_blocks_with_stack: int
    out_of_memory: list[OutOfMemory]
    segment_allocs: int
    segment_frees: int


class MemoryFinding(msgspec.Struct, kw_only=True):
    """One thing worth knowing, and what would change it.

    ``addresses``: of the blocks it speaks of, where they are few enough to be named.
    """

    rule: str
    severity: Severity
    title: str
    explanation: str
    suggestion: str | None
    bytes: int | None
    source: str | None
    addresses: list[int] = []


class Memory(Shown, msgspec.Struct, kw_only=True):
    """Everything foretrace says of one device's memory."""

    def __repr__(self) -> str:
        """In short: a snapshot's blocks would fill a notebook."""
        return (
            f"Memory({self.source.path!r}, device={self.source.device}, {self.totals!r}, {self.fragmentation!r}, "
            f"{len(self.segments)} segments, {len(self.blocks)} blocks, {len(self.findings)} findings)"
        )

    schema: Literal["foretrace.memory/1"] = SCHEMA
    source: Source
    totals: Totals
    free: Free
    fragmentation: Fragmentation
    segments: list[MemorySegment]
    blocks: list[MemoryBlock]
    pinned_by: list[Pin]
    health: list[Health]
    devices: list[DeviceTotals]
    findings: list[MemoryFinding]
    request: Request | None = None
    peak: Peak | None = None
    history: HistoryInfo | None = None
