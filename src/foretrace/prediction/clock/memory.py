"""How long a memory-bound kernel takes, before measured calls correct it: a latency and a bandwidth."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MemoryRates", "memory_us"]


@dataclass(frozen=True, slots=True)
class MemoryRates:
    """The constants for one GPU: µs and TB/s, operands in memory or in the L2 cache."""

    latency_us: float
    cold_tbps: float
    warm_tbps: float


def memory_us(rates: MemoryRates, moved: int, *, warm: bool) -> float:
    """µs to read and write ``moved`` bytes in one kernel."""
    return rates.latency_us + moved / ((rates.warm_tbps if warm else rates.cold_tbps) * 1e6)
