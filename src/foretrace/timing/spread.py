"""Middle and spread of timing samples; not the mean, which one slow call can move."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

__all__ = ["iqr", "median"]


def median(samples: Sequence[float]) -> float:
    """Return the median, in the unit of the samples; raises ``ValueError`` without samples."""
    if not samples:
        raise ValueError("a median needs at least one sample")
    return float(statistics.median(samples))


def iqr(samples: Sequence[float]) -> float | None:
    """Return the interquartile range (third minus first quartile), in the unit of the samples.

    Quartiles are interpolated linearly between the order statistics (the method NumPy uses by default).
    ``None`` below two samples: one sample has no spread that could be known.
    """
    if len(samples) < 2:
        return None
    first, _, third = statistics.quantiles(samples, n=4, method="inclusive")
    return third - first
