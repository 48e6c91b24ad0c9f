"""What of a kernel's operands the L2 cache still holds, call after call, step after step.

A cache of ``capacity`` bytes with no favourites: lines that come in push out lines at random, so of what another
storage has in the cache a share ``exp(-bytes / capacity)`` is left after ``bytes`` came in. Real caches favour recent
lines somewhat; the capacity that fits the measurements is therefore not the one of the datasheet.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

from foretrace.prediction.work import Access, Work

__all__ = ["missing_shares"]

# Passes over the step until it repeats itself: a working set near the capacity settles slowly.
_PASSES = 8


def missing_shares(work: Sequence[Work], capacity: float) -> list[float]:
    """For each item, the share of the bytes it reads that has to come from memory, 0..1, in a step that repeats."""
    cache = _Cache(capacity)
    shares: list[float] = []
    for _ in range(_PASSES):
        shares = [_run(item, cache) for item in work]
    return shares


class _Cache:
    """Bytes held of each storage. What came in since is kept as one running number, so that no entry is visited."""

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._held: dict[int, tuple[float, float]] = {}  # bytes, and the number at which they were right
        self._passed = 0.0  # bytes that came in, in capacities

    def holds(self, storage: int) -> float:
        """Bytes of a storage that are left."""
        size, then = self._held.get(storage, (0.0, 0.0))
        return size * exp(then - self._passed) if size else 0.0

    def bring(self, access: Access, incoming: float) -> None:
        """``incoming`` bytes of an access come in."""
        if incoming <= 0:
            return
        share = incoming / self._capacity
        self._passed += share
        # A stream longer than the cache pushes out its own beginning as well.
        stayed = self._capacity * (1 - exp(-share))
        size = min(self.holds(access.storage) + stayed, float(access.bytes), self._capacity)
        self._held[access.storage] = size, self._passed


def _run(item: Work, cache: _Cache) -> float:
    wanted = missed = 0.0
    for access in item.reads:
        found = min(cache.holds(access.storage), float(access.bytes))
        wanted += access.bytes
        missed += access.bytes - found
        cache.bring(access, access.bytes - found)
    for access in item.writes:
        cache.bring(access, access.bytes - min(cache.holds(access.storage), float(access.bytes)))
    return missed / wanted if wanted else 0.0
