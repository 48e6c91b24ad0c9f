"""From a model to a measurement: correct a modelled time by what the nearest measured calls say of the model.

Each measured call is a point in a space of logarithms (a doubling along any axis is 1), with the logarithm of
measured over modelled time. A new point takes the average of its neighbours, the nearer the heavier; their
disagreement says how far to trust it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import NDArray

__all__ = ["COUNT", "SOFTENING", "Correction", "Measured"]

Floats = NDArray[np.float64]

# Chosen by leaving points of the calibration out, one at a time (benchmarks/predictor/README.md).
COUNT = 7
SOFTENING = 0.02  # squared distance within which neighbours weigh the same
# Beyond this distance nothing measured is near: a factor of four in one size, of 2.6 where it changes the tiles too.
_FAR = 2.0


@dataclass(frozen=True, slots=True)
class Correction:
    """What the neighbours of one point say."""

    cold: float  # logarithm of measured over modelled time, operands in memory
    warm: float  # the same with operands in the cache
    spread: float  # standard deviation of the neighbours around it
    pattern: int  # the rows that most of them launched, by weight
    extra: float  # share of the time that rows after the main kernel take, among neighbours of that pattern
    distance: float

    @property
    def is_near(self) -> bool:
        """Whether anything was measured close enough to be evidence."""
        return self.distance <= _FAR


@dataclass(frozen=True, slots=True)
class Measured:
    """Measured calls: ``features`` (calls, axes) float64; the rest one entry a call."""

    features: Floats
    cold: Floats
    warm: Floats
    pattern: NDArray[np.int64]
    extra: Floats

    def near(self, point: Floats) -> Correction:
        """The correction for one point, shape ``(axes,)``."""
        squared = ((self.features - point) ** 2).sum(axis=1)
        count = min(COUNT, len(squared))
        nearest = np.argpartition(squared, count - 1)[:count]
        nearest = nearest[np.argsort(squared[nearest], kind="stable")]
        weight = 1 / (squared[nearest] + SOFTENING)
        weight /= weight.sum()
        cold, warm = float(weight @ self.cold[nearest]), float(weight @ self.warm[nearest])
        deviation = (self.warm[nearest] - warm) ** 2 + (self.cold[nearest] - cold) ** 2
        votes: dict[int, float] = {}
        for pattern, vote in zip(self.pattern[nearest].tolist(), weight.tolist(), strict=True):
            votes[pattern] = votes.get(pattern, 0.0) + vote
        chosen = max(votes, key=votes.__getitem__)
        alike = self.pattern[nearest] == chosen
        extra = float((weight * self.extra[nearest])[alike].sum() / weight[alike].sum())
        return Correction(
            cold=cold,
            warm=warm,
            spread=sqrt(float(weight @ deviation) / 2),
            pattern=chosen,
            extra=extra,
            distance=sqrt(float(squared[nearest[0]])),
        )
