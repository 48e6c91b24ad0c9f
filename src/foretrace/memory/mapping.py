"""A device's memory as columns, for drawing: blocks by their place in a segment, and who allocated them by number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.model.memory import Memory, MemorySegment

__all__ = ["ACTIVE", "FREE", "HOLE", "LARGEST", "NOBODY", "PENDING", "STATES", "MemoryMap", "Origin", "memory_map"]

# What a block is; a free block of a segment that nobody uses is another thing than a hole between live blocks.
STATES = ("active", "pending", "hole", "free segment")
ACTIVE, PENDING, HOLE, FREE = range(4)
# In the column of origins: allocated by nobody.
NOBODY = 2**32 - 1
# The largest size that a float, JavaScript's only number, holds exactly.
LARGEST = 2**53


@dataclass(frozen=True)
class Origin:
    """Who allocated: in one line as `Pin.where` has it, and the program's lines, innermost first."""

    where: str
    stack: tuple[str, ...]


@dataclass(eq=False)
class MemoryMap:
    """Blocks as columns, in order of segment then address; sizes in bytes.

    Attributes:
        segments: by address; a segment's blocks are rows ``first_block`` to ``first_block + blocks``.
        origins: what ``origin`` numbers; blocks of one line may have several stacks, and so several origins.
        offset: of each block in its segment, int64.
        size: int64.
        requested: float64, NaN where it is not known.
        state: position in ``STATES``, uint8.
        origin: position in ``origins``, or ``NOBODY``, uint32.
    """

    segments: Sequence[MemorySegment]
    origins: list[Origin]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    requested: NDArray[np.float64]
    state: NDArray[np.uint8]
    origin: NDArray[np.uint32]

    def __len__(self) -> int:
        """How many blocks there are."""
        return len(self.size)


def memory_map(memory: Memory) -> MemoryMap | None:
    """The blocks of a snapshot as columns; None where there are no segments, or one is larger than ``LARGEST``."""
    segments, blocks = memory.segments, memory.blocks
    if not segments or any(segment.size > LARGEST for segment in segments):
        return None
    many = len(blocks)
    base = [segment.address for segment in segments for _ in range(segment.blocks)]
    held = np.fromiter((segment.active_bytes > 0 for segment in segments), np.bool_, len(segments))
    each = np.fromiter((segment.blocks for segment in segments), np.int64, len(segments))
    numbers: dict[Origin, int] = {}
    origin = np.full(many, NOBODY, np.uint32)
    known: dict[tuple[int, str | None], int] = {}
    for row, block in enumerate(blocks):
        if block.state == "free":
            continue
        # Blocks of one stack share its list: most need no look at its lines.
        key = id(block.stack), block.where
        number = known.get(key)
        if number is None:
            number = known[key] = numbers.setdefault(Origin(block.where or "", tuple(block.stack)), len(numbers))
        origin[row] = number
    live = np.fromiter((block.state != "free" for block in blocks), np.bool_, many)
    pending = np.fromiter((block.state == "pending" for block in blocks), np.bool_, many)
    state = np.where(live, np.where(pending, PENDING, ACTIVE), np.where(np.repeat(held, each), HOLE, FREE))
    return MemoryMap(
        segments=segments,
        origins=list(numbers),
        offset=np.fromiter((block.address - start for block, start in zip(blocks, base, strict=True)), np.int64, many),
        size=np.fromiter((block.size for block in blocks), np.int64, many),
        requested=np.fromiter(
            (np.nan if block.requested is None else block.requested for block in blocks), np.float64, many
        ),
        state=state.astype(np.uint8),
        origin=origin,
    )
