"""How sure a median is: intervals from order statistics, which assume nothing about the distribution."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

from foretrace.timing.spread import median

__all__ = ["median_interval", "paired_ratio"]


def median_interval(samples: Sequence[float], confidence: float) -> tuple[float, float] | None:
    """The interval that holds the true median with at least this confidence (0..1), in the samples' unit.

    The r-th smallest and r-th largest sample enclose the median except with probability 2·P(Bin(n, ½) < r); r is
    the largest for which that is at most 1 - ``confidence``. ``None`` with too few samples: below six for 95 %.
    Samples are taken as independent.
    """
    n = len(samples)
    allowed = (1 - confidence) * 2**n / 2
    rank, below = 0, 0
    while below + comb(n, rank) <= allowed and rank < n // 2:
        below += comb(n, rank)
        rank += 1
    if rank == 0:
        return None
    ordered = sorted(samples)
    return ordered[rank - 1], ordered[n - rank]


def paired_ratio(
    samples: Sequence[float], base: Sequence[float], confidence: float
) -> tuple[float, tuple[float, float] | None]:
    """Median of the ratios sample / base, round by round, with its interval.

    What slows a whole round (clocks, heat, another program) cancels in each ratio. Raises ``ValueError`` when the
    two are of different length or empty, or a base is not above zero.
    """
    if any(value <= 0 for value in base):
        raise ValueError("a ratio needs base samples above zero")
    ratios = [value / other for value, other in zip(samples, base, strict=True)]
    return median(ratios), median_interval(ratios, confidence)
