"""Timing without a profiler: how long a call really takes, with its spread.

Profiling inflates host time, so a step must be timed a second time without it. Importing this room costs no
torch; torch is used only when it is already loaded and the calls run on a GPU.
"""

from __future__ import annotations

from foretrace.timing.clocks import Clock, CudaEventClock, HostClock, clock_for
from foretrace.timing.interval import median_interval, paired_ratio
from foretrace.timing.measure import Measurement, interleave, measure
from foretrace.timing.spread import iqr, median

__all__ = [
    "Clock",
    "CudaEventClock",
    "HostClock",
    "Measurement",
    "clock_for",
    "interleave",
    "iqr",
    "measure",
    "median",
    "median_interval",
    "paired_ratio",
]
