"""Synthetic memory for pages, as large as a process of hundreds of thousands of tensors leaves it."""

from __future__ import annotations

from foretrace.model.memory import (
    DeviceTotals,
    Fragmentation,
    Free,
    Memory,
    MemoryBlock,
    MemorySegment,
    Pin,
    Source,
    Totals,
)
from foretrace.model.report import Health

__all__ = ["MIB", "START", "large_memory", "small_memory"]

MIB = 1 << 20
START = 0x7F00_0000_0000


def small_memory(lines: list[str], *, path: str = "made.pickle") -> Memory:
    """One segment of 20 MiB with a block of 2 MiB and a hole of 2 MiB for each line, and 2 MiB pending at the end."""
    blocks: list[MemoryBlock] = []
    at = START
    for line in lines:
        blocks.append(
            MemoryBlock(address=at, size=2 * MIB, requested=2 * MIB - 12, state="active", stack=[line], where=line)
        )
        blocks.append(MemoryBlock(address=at + 2 * MIB, size=2 * MIB, requested=None, state="free", stack=[]))
        at += 4 * MIB
    blocks.append(MemoryBlock(address=at, size=2 * MIB, requested=None, state="pending", stack=[], where="freed.py:1"))
    size = at + 2 * MIB - START
    return _memory(blocks, [_segment(START, size, 0, blocks)], path)


def large_memory(segments: int, each: int) -> Memory:
    """``segments`` segments of ``each`` blocks of many sizes; every third block is free, every tenth segment small."""
    stacks = [[f"model.py:{line} in forward", "train.py:9 in <module>"] for line in range(40)]
    blocks: list[MemoryBlock] = []
    rows: list[MemorySegment] = []
    address = START
    for number in range(segments):
        small = number % 10 == 0
        unit = 512 if small else 512 * 1024
        own: list[MemoryBlock] = []
        at = address
        for i in range(each):
            size = unit * (1 + (number * 7 + i * 3) % 5)
            free = i % 3 == 2
            stack = [] if free else stacks[(number + i) % len(stacks)]
            own.append(
                MemoryBlock(
                    address=at,
                    size=size,
                    requested=None if free else size - 4,
                    state="free" if free else "active",
                    stack=stack,
                    where=None if free else stack[0],
                )
            )
            at += size
        rows.append(_segment(address, at - address, len(blocks), own, kind="small" if small else "large"))
        blocks += own
        address = at + 2 * MIB
    return _memory(blocks, rows, "large.pickle")


def _segment(address: int, size: int, first: int, blocks: list[MemoryBlock], *, kind: str = "large") -> MemorySegment:
    holes = [block.size for block in blocks if block.state == "free"]
    return MemorySegment(
        address=address,
        size=size,
        stream=0,
        pool=[0, 0],
        kind=kind,
        expandable=False,
        active_bytes=size - sum(holes),
        holes_bytes=sum(holes),
        largest_hole_bytes=max(holes, default=0),
        first_block=first,
        blocks=len(blocks),
    )


def _memory(blocks: list[MemoryBlock], segments: list[MemorySegment], path: str) -> Memory:
    live = [block for block in blocks if block.state == "active"]
    pending = sum(block.size for block in blocks if block.state == "pending")
    holes = [block for block in blocks if block.state == "free"]
    allocated = sum(block.size for block in live)
    requested = sum(block.requested or 0 for block in live)
    reserved = sum(segment.size for segment in segments)
    open_bytes = sum(block.size for block in holes)
    wheres = sorted({block.where for block in blocks if block.where is not None})
    pins = []
    for where in wheres:
        own = [block for block in blocks if block.where == where]
        pins.append(
            Pin(
                where=where,
                stack=own[0].stack,
                blocks=len(own),
                bytes=sum(block.size for block in own),
                segments=1,
                holes_bytes=open_bytes,
                only_here_bytes=0,
            )
        )
    return Memory(
        source=Source(path=path, format="snapshot", device=0, settings={}, repairs=[]),
        totals=Totals(
            requested_bytes=requested,
            allocated_bytes=allocated,
            active_bytes=allocated + pending,
            reserved_bytes=reserved,
        ),
        free=Free(
            whole_segments_bytes=0,
            holes_bytes=open_bytes,
            largest_hole_bytes=max((block.size for block in holes), default=0),
            whole_segments=0,
            holes=len(holes),
            largest_whole_segment_bytes=0,
        ),
        fragmentation=Fragmentation(
            hard_bytes=open_bytes,
            soft_bytes=0,
            stream_bytes=0,
            rounding_bytes=allocated - requested,
            pending_bytes=pending,
        ),
        segments=segments,
        blocks=blocks,
        pinned_by=pins,
        health=[Health(check="adds_up", state="ok", detail="made so")],
        devices=[DeviceTotals(device=0, reserved_bytes=reserved, allocated_bytes=allocated, segments=len(segments))],
        findings=[],
    )
