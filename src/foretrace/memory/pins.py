"""Who keeps the holes open: live blocks by the line that allocated them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from foretrace.memory.accounts import holes
from foretrace.memory.frames import own_lines, where
from foretrace.memory.snapshot import Segment, Stacks
from foretrace.model.memory import Pin

__all__ = ["pins"]


@dataclass(slots=True)
class _Group:
    stack: int
    blocks: int = 0
    bytes: int = 0
    segments: set[int] = field(default_factory=set)


def pins(segments: Sequence[Segment], stacks: Stacks) -> list[Pin]:
    """Live blocks in segments with holes, by origin; first those whose freeing alone would bring back most.

    A segment's holes count for every origin that lies in it, so that they do not add up; ``only_here_bytes`` of
    different origins do.
    """
    groups: dict[str, _Group] = {}
    origins: dict[int, str] = {}
    hole_bytes: dict[int, int] = {}
    for number, segment in enumerate(segments):
        open_bytes = sum(hole.size for hole in holes(segment))
        if not open_bytes:
            continue
        hole_bytes[number] = open_bytes
        for block in segment.blocks:
            if block.state == "free":
                continue
            origin = origins.get(block.stack)
            if origin is None:
                origin = origins[block.stack] = where(stacks.frames(block.stack))
            group = groups.get(origin)
            if group is None:
                group = groups[origin] = _Group(block.stack)
            group.blocks += 1
            group.bytes += block.size
            group.segments.add(number)
    pinning: dict[int, int] = {}
    for group in groups.values():
        for number in group.segments:
            pinning[number] = pinning.get(number, 0) + 1
    found = [
        Pin(
            where=origin,
            stack=own_lines(stacks.frames(group.stack)),
            blocks=group.blocks,
            bytes=group.bytes,
            segments=len(group.segments),
            holes_bytes=sum(hole_bytes[number] for number in group.segments),
            only_here_bytes=sum(hole_bytes[number] for number in group.segments if pinning[number] == 1),
        )
        for origin, group in groups.items()
    ]
    return sorted(found, key=lambda pin: (-pin.only_here_bytes, -pin.holes_bytes, pin.where))
