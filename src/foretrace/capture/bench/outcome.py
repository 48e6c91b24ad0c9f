"""From samples to statements: medians with intervals, faster or slower or neither, and when compiling pays."""

from __future__ import annotations

import math
from typing import Literal

from foretrace.knowledge.benching import CONFIDENCE, SAME_RATIO
from foretrace.model.bench import PaysAfter, Ratio, Result, Work
from foretrace.timing import Measurement, iqr, median, median_interval, paired_ratio

__all__ = ["compare", "note_timing", "pays_after"]


def note_timing(result: Result, timing: Measurement, work: Work, *, compiled: bool) -> None:
    """Fill in what the rounds say of one variant by itself."""
    samples = list(timing.samples_us)
    result.samples_us = samples
    result.median_us = median(samples)
    result.min_us = min(samples)
    result.iqr_us = iqr(samples)
    result.interval_us = median_interval(samples, CONFIDENCE)
    if result.interval_us is None:
        result.missing["interval_us"] = f"{len(samples)} rounds are too few for a {100 * CONFIDENCE:g} % interval"
    if work.floor_us:
        result.of_floor = result.median_us / work.floor_us
    else:
        result.missing["of_floor"] = work.missing.get("floor_us", "there is no floor")
    if compiled or result.cuda_graph:
        result.setup_us = sum(max(0.0, spent - result.median_us) for spent in result.first_calls_us)
    else:
        result.missing["setup_us"] = "it is not compiled"


def compare(results: list[Result]) -> None:
    """Hold every variant against the first, from the ratios within rounds."""
    first = results[0]
    for result in results:
        if result is first:
            result.difference = "first"
            if result.median_us is not None:
                result.ratio = Ratio(median=1.0)
            result.missing["pays_after"] = "it is the one the others are held against"
            continue
        reason = _why_not(result, first)
        if reason is not None:
            result.difference = "unknown"
            result.missing["ratio"] = result.missing["pays_after"] = reason
            continue
        middle, interval = paired_ratio(result.samples_us, first.samples_us, CONFIDENCE)
        low, high = interval or (None, None)
        result.ratio = Ratio(median=middle, low=low, high=high)
        if low is None or high is None:
            result.missing["ratio.low"] = result.missing["ratio.high"] = result.missing["interval_us"]
        else:
            result.difference = _difference(middle, low, high)
        if result.setup_us is None:
            result.missing["pays_after"] = result.missing["setup_us"]
        else:
            result.pays_after = pays_after(result.setup_us, first.median_us or 0.0, result.ratio, result.difference)


def _why_not(result: Result, first: Result) -> str | None:
    if not result.samples_us:
        return result.reason or "it was not timed"
    if result.state == "wrong":
        return "its results are wrong, so its time is of no use"
    if not first.samples_us:
        return f"{first.name}, the first variant, was not timed"
    if first.state == "wrong":
        return f"the results of {first.name}, the first variant, are wrong"
    return None if min(first.samples_us) > 0 else f"the clock shows no time for {first.name}"


def _difference(middle: float, low: float, high: float) -> Literal["faster", "slower", "none"]:
    """No difference where the interval holds 1, or where it is below what two equal calls differ by."""
    if low <= 1 <= high or abs(1 - middle) < SAME_RATIO:
        return "none"
    return "faster" if high < 1 else "slower"


def pays_after(setup_us: float, base_us: float, ratio: Ratio, difference: str) -> PaysAfter:
    """Calls until ``setup_us`` is won back, with a call of ``base_us`` before and ``ratio`` times that after."""
    if difference == "slower":
        return PaysAfter(state="never", reason="a call is slower than before")
    if difference != "faster" or ratio.low is None or ratio.high is None:
        return PaysAfter(state="unknown", reason="no difference between the calls was found")
    return PaysAfter(
        state="after",
        calls=_calls(setup_us, base_us, ratio.median),
        low=_calls(setup_us, base_us, ratio.low),
        high=_calls(setup_us, base_us, ratio.high),
    )


def _calls(setup_us: float, base_us: float, ratio: float) -> int:
    calls = setup_us / (base_us * (1 - ratio))
    return math.ceil(calls * (1 - 1e-9))  # 50000.0000001 is the division's rounding, not one more call
