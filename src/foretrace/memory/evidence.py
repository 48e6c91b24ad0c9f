"""The blocks that a finding about a snapshot speaks of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.fragmentation import MOSTLY_FREE, SMALL_PART
from foretrace.memory.mapping import ACTIVE, FREE, HOLE, PENDING, MemoryMap
from foretrace.memory.snapshot import DEFAULT_POOL
from foretrace.model.memory import Memory, MemoryFinding

__all__ = ["evidence"]

Rows = NDArray[np.bool_]


def evidence(memory: Memory, drawn: MemoryMap) -> list[NDArray[np.uint32]]:
    """For each finding the rows of ``drawn`` it rests on; none where it is of no blocks.

    Whatever does not add up to the finding's own bytes is left out: a wrong block is worse than none.
    """
    each = np.fromiter((segment.blocks for segment in drawn.segments), np.int64, len(drawn.segments))
    segment = np.repeat(np.arange(len(each)), each)
    owner = _owner(memory)
    ours = ((one.stream, tuple(one.pool)) == owner for one in drawn.segments)
    own = np.fromiter(ours, np.bool_, len(each))[segment]
    free = (drawn.state == HOLE) | (drawn.state == FREE)
    thin = _sparse(drawn, segment)
    # By rule: the rows to show, and the rows whose sizes make up the finding's bytes.
    of: dict[str, Callable[[], tuple[Rows, Rows]]] = {
        "hard_fragmentation": lambda: (own & (drawn.state == HOLE),) * 2,
        "cached_segments": lambda: (own & (drawn.state == FREE),) * 2,
        "idle_in_other_pools": lambda: (~own & free,) * 2,
        "pending_frees": lambda: (drawn.state == PENDING,) * 2,
        "sparse_segments": lambda: (thin & ~free, thin & free),
    }
    return [_rows(finding, drawn, of) for finding in memory.findings]


def _rows(
    finding: MemoryFinding, drawn: MemoryMap, of: dict[str, Callable[[], tuple[Rows, Rows]]]
) -> NDArray[np.uint32]:
    if finding.rule == "rounding":
        larger = (drawn.state == ACTIVE) & (drawn.size > drawn.requested)
        if int((drawn.size - drawn.requested)[larger].sum()) == finding.bytes:
            return np.flatnonzero(larger).astype(np.uint32)
    elif finding.rule in of:
        shown, counted = of[finding.rule]()
        if int(drawn.size[counted].sum()) == finding.bytes:
            return np.flatnonzero(shown).astype(np.uint32)
    return np.zeros(0, np.uint32)


def _owner(memory: Memory) -> tuple[int, tuple[int, ...]]:
    """The stream and pool that free memory is judged for: the request's, else the busiest of the ordinary pool."""
    if memory.request is not None:
        return memory.request.stream, tuple(memory.request.pool)
    reserved: dict[int, int] = defaultdict(int)
    for segment in memory.segments:
        if tuple(segment.pool) == DEFAULT_POOL:
            reserved[segment.stream] += segment.size
    return max(reserved, key=lambda stream: (reserved[stream], -stream), default=0), DEFAULT_POOL


def _sparse(drawn: MemoryMap, segment: NDArray[np.int64]) -> Rows:
    """Rows in segments of the large pool that are mostly free and in which every live block is small."""
    sizes = np.fromiter((one.size for one in drawn.segments), np.int64, len(drawn.segments))
    used = np.fromiter((one.active_bytes for one in drawn.segments), np.int64, len(drawn.segments))
    fits = np.fromiter(
        (one.kind == "large" and not one.expandable for one in drawn.segments), np.bool_, len(drawn.segments)
    )
    live = (drawn.state == ACTIVE) | (drawn.state == PENDING)
    largest = np.zeros(len(sizes), np.int64)
    np.maximum.at(largest, segment[live], drawn.size[live])
    fits &= (used > 0) & (used < MOSTLY_FREE * sizes) & (largest < SMALL_PART * sizes)
    rows: Rows = fits[segment]
    return rows
