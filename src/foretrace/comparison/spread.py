"""Medians, the interval their samples lie in, and whether two of them differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from foretrace.knowledge.comparing import DRIFT, FEWEST_QUARTILES
from foretrace.model.comparison import Change, Measure

__all__ = ["against_prediction", "change_of", "counted", "measure", "unknown"]

INSIDE = "inside the spread over steps"
_DRIFTING = f"below {100 * DRIFT:g} %, which recordings of the same kernel differ by"


def measure(samples: Sequence[float], reason: str | None = None) -> Measure:
    """Median and interval of samples: quartiles from five on, extremes below; no samples need a reason."""
    if not samples:
        return Measure(median=None, reason=reason or "not measured")
    middle = float(statistics.median(samples))
    if len(samples) == 1:
        return Measure(median=middle, samples=1, reason="one step: the spread is unknown")
    if len(samples) < FEWEST_QUARTILES:
        low, high = min(samples), max(samples)
    else:
        low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Measure(median=middle, low=float(low), high=float(high), samples=len(samples))


def unknown(reason: str) -> Measure:
    """A measure of nothing, with the reason."""
    return Measure(median=None, reason=reason)


def change_of(a: Measure, b: Measure) -> Change:
    """From ``a`` to ``b``: no difference where their intervals meet or it is below ``DRIFT``.

    Unknown where one of them was not measured. A single sample has no interval of its own, and the reason says so.
    """
    if a.median is None or b.median is None:
        return Change(direction="unknown", reason=(a if a.median is None else b).reason)
    absolute = round(b.median - a.median, 6)
    relative = absolute / a.median if a.median else None
    if absolute == 0:
        return Change(direction="same", absolute=0.0, relative=0.0)
    if relative is not None and abs(relative) < DRIFT:
        return Change(direction="same", absolute=absolute, relative=relative, reason=_DRIFTING)
    # A single sample is a point: it may lie inside the interval of the other.
    low_a, high_a = (a.median if end is None else end for end in (a.low, a.high))
    low_b, high_b = (b.median if end is None else end for end in (b.low, b.high))
    if low_a <= high_b and low_b <= high_a:
        return Change(direction="same", absolute=absolute, relative=relative, reason=INSIDE)
    reason = "the spread is unknown" if a.low is None or b.low is None else None
    return Change(direction="more" if absolute > 0 else "less", absolute=absolute, relative=relative, reason=reason)


def against_prediction(a: Measure, b: Measure, *, outside: bool) -> Change:
    """Like ``change_of`` where one of the two carries the interval it was predicted with.

    ``outside``: whether a measured median lies outside it, which the spread of the measured steps does not excuse.
    """
    change = change_of(a, b)
    if change.reason == INSIDE:
        change.reason = "inside the predicted interval"
    if outside and change.absolute:
        change.direction = "more" if change.absolute > 0 else "less"
        change.reason = "outside the predicted interval"
    return change


def counted(a: Measure, b: Measure) -> Change:
    """Like ``change_of`` for numbers that are counted: every difference of the medians is one."""
    change = change_of(a, b)
    if change.absolute and change.direction == "same":
        change.direction = "more" if change.absolute > 0 else "less"
        change.reason = None
    return change
