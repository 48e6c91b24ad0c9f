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
    held: dict[int, float] = {}
    shares: list[float] = []
    for _ in range(_PASSES):
        shares = [_run(item, held, capacity) for item in work]
    return shares


def _run(item: Work, held: dict[int, float], capacity: float) -> float:
    wanted = missed = 0.0
    for access in item.reads:
        found = min(held.get(access.storage, 0.0), float(access.bytes))
        wanted += access.bytes
        missed += access.bytes - found
        _bring(access, access.bytes - found, held, capacity)
    for access in item.writes:
        found = min(held.get(access.storage, 0.0), float(access.bytes))
        _bring(access, access.bytes - found, held, capacity)
    return missed / wanted if wanted else 0.0


def _bring(access: Access, incoming: float, held: dict[int, float], capacity: float) -> None:
    if incoming <= 0:
        return
    left = exp(-incoming / capacity)
    for storage in list(held):
        held[storage] *= left
        if held[storage] < 1.0:
            del held[storage]
    # A stream longer than the cache pushes out its own beginning as well.
    stayed = capacity * (1 - left)
    held[access.storage] = min(held.get(access.storage, 0.0) + stayed, float(access.bytes), capacity)
