"""Medians, the interval their samples lie in, and whether two of them differ."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from foretrace.knowledge.comparing import DRIFT, FEWEST_QUARTILES
from foretrace.model.comparison import Change, Measure

__all__ = ["DRIFTING", "INSIDE", "change_of", "counted", "measure", "signed", "unknown"]

INSIDE = "inside the spread over steps"
DRIFTING = f"below {100 * DRIFT:g} %, which recordings of the same kernel differ by"


def signed(share: float) -> str:
    """A relative change in words: ``-12.4 %``; from ten times on as a factor, ``18.6×``."""
    return f"{100 * share:+.1f} %" if abs(share) < 10 else f"{1 + share:.3g}×"


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

    Unknown where one of them was not measured. Where a spread is unknown, the medians alone tell, and the reason
    says so.
    """
    if a.median is None or b.median is None:
        return Change(direction="unknown", reason=(a if a.median is None else b).reason)
    absolute = round(b.median - a.median, 6)
    relative = absolute / a.median if a.median else None
    if absolute == 0:
        return Change(direction="same", absolute=0.0, relative=0.0)
    if relative is not None and abs(relative) < DRIFT:
        return Change(direction="same", absolute=absolute, relative=relative, reason=DRIFTING)
    reason = None
    if a.low is not None and a.high is not None and b.low is not None and b.high is not None:
        if a.low <= b.high and b.low <= a.high:
            return Change(direction="same", absolute=absolute, relative=relative, reason=INSIDE)
    else:
        reason = "the spread is unknown"
    return Change(direction="more" if absolute > 0 else "less", absolute=absolute, relative=relative, reason=reason)


def counted(a: Measure, b: Measure) -> Change:
    """Like ``change_of`` for numbers that are counted: every difference of the medians is one."""
    change = change_of(a, b)
    if change.absolute and change.direction == "same":
        change.direction = "more" if change.absolute > 0 else "less"
        change.reason = None
    return change
