"""Thresholds of ``foretrace bench``, each with the reason for its value."""

from __future__ import annotations

__all__ = [
    "CONFIDENCE",
    "DRIFT",
    "EAGER_UNUSABLE",
    "GPU_AHEAD_SHARE",
    "MAX_WORSE",
    "NORM_WORSE",
    "SAME_RATIO",
    "SLOWED",
    "rounding_slack",
]

# Coverage of the intervals that are quoted.
CONFIDENCE = 0.95

# Two copies of one program, timed in turn, differ by some thousandths that no number of rounds takes away: their data
# lies at other addresses. Of 50 such pairs (100 rounds each, on a busy CPU) one ratio was off by more than this, 11
# had an interval without 1.
SAME_RATIO = 0.01

# How much worse than eager's error a variant's may be. Another order of summation or a fused epilogue changes the
# error's norm by less than this factor; the largest of millions of errors has a longer tail.
NORM_WORSE = 2.0
MAX_WORSE = 4.0

# When eager itself is off by this much (norm of the error over norm of the result), nothing can be told from it.
EAGER_UNUSABLE = 0.10

# The GPU sets the pace when enqueueing takes at most this share of the time until the GPU is done.
GPU_AHEAD_SHARE = 0.6

# GEMM or copy rate at the end of the run against its beginning: a card that lost more slowed down in between.
DRIFT = 0.05

# Bits of NVML's clocks-event (throttle) reasons that lower clocks against one's will (nvml.h,
# nvmlClocksEventReason*): what they are, in words. Idle and application clocks are no throttling.
SLOWED = {
    0x4: "the power limit",
    0x8: "a hardware slowdown",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "the external power brake",
}


def rounding_slack(epsilon: float, itemsize: int) -> float:
    """Error that is added to eager's before a variant counts as worse, relative to the size of the result.

    Types of two bytes or less are summed in fp32, so that only the last rounding is theirs: an eighth of
    ``epsilon`` (the spacing at 1) is below its usual norm. Wider types also carry the order of summation, which
    for some ten thousand terms is worth some tens of ``epsilon``.
    """
    return epsilon / 8 if itemsize <= 2 else 32 * epsilon
