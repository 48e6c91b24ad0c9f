"""Who sets the pace of a step, the CPU or the GPU, as far as the evidence goes; the profiler's share in it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Literal

from foretrace.knowledge.limits import (
    GPU_BOUND_SHARE,
    OVERHEAD_SHARE,
    PROFILING_INFLATION,
    PROFILING_INFLATION_STACKS,
)
from foretrace.model.report import Step

__all__ = ["NEEDED_CHECKS", "Pace", "pace_of"]

# Checks of a trace's health whose failure makes busy and idle times meaningless.
NEEDED_CHECKS = (
    "empty",
    "repaired",
    "rows_without_time",
    "rows_without_duration",
    "durations_beyond_reason",
    "negative_durations",
    "args_unreadable",
    "launch_delays",
    "gpu_rows_unlinked",
    "gpu_rows",
    "zero_timestamps",
    "duration_unit",
    "row_longer_than_trace",
    "merged_recordings",
    "launches_without_kernels",
    "graph_replays",
    "stream_overlap",
    "profiler_log",
)


@dataclass(frozen=True)
class Pace:
    """Medians over the steps that launched GPU work; µs.

    Attributes:
        setter: who sets the pace; ``unknown`` where profiling alone could have made the GPU wait.
        busy_us: GPU work of a step.
        idle_us: GPU idle time of a profiled step.
        period_us: a profiled step.
        share: part of the profiled steps in which the GPU worked, or had been given work for, 0..1.
        unprofiled_us: a step without the profiler; None when it was not timed.
        inflation: how many times longer profiling is taken to make CPU time at most.
    """

    setter: Literal["cpu", "gpu", "both", "unknown"]
    busy_us: float
    idle_us: float
    period_us: float
    share: float
    unprofiled_us: float | None
    inflation: float

    @property
    def real_idle_us(self) -> float | None:
        """GPU idle time of a step without the profiler, as far as the two timings tell; None when not timed."""
        return None if self.unprofiled_us is None else max(0.0, self.unprofiled_us - self.busy_us)

    def without_profiler(self, idle_us: float) -> float:
        """The part of a profiled idle time that is there without the profiler too; all of it when not timed.

        Which causes the profiler lengthens is not known, so all are shortened alike.
        """
        real = self.real_idle_us
        if real is None or not self.idle_us:
            return idle_us
        return idle_us * min(1.0, real / self.idle_us)


def pace_of(steps: list[Step], unprofiled_us: float | None, stacks: bool) -> Pace | None:
    """Weigh the steps; None without GPU work in them."""
    timed = [s for s in steps if s.gpu_busy_us and s.gpu_idle_us is not None and s.period_us > 0]
    if not timed:
        return None
    busy = median(s.gpu_busy_us or 0.0 for s in timed)
    total = sum(s.period_us for s in timed)
    # A step may launch work that runs after it (the GPU is behind): then what it launched says more than its period.
    launched = sum(s.gpu_busy_us or 0.0 for s in timed)
    share = min(1.0, max(total - sum(s.gpu_idle_us or 0.0 for s in timed), launched) / total)
    inflation = PROFILING_INFLATION_STACKS if stacks else PROFILING_INFLATION
    setter: Literal["cpu", "gpu", "both", "unknown"] = "unknown"
    if unprofiled_us is not None:
        real = busy / unprofiled_us
        setter = "cpu" if real < OVERHEAD_SHARE else "both" if real < GPU_BOUND_SHARE else "gpu"
    elif share >= GPU_BOUND_SHARE:
        setter = "gpu"
    elif share * inflation < OVERHEAD_SHARE:
        setter = "cpu"
    return Pace(
        setter=setter,
        busy_us=busy,
        idle_us=median(s.gpu_idle_us or 0.0 for s in timed),
        period_us=median(s.period_us for s in timed),
        share=share,
        unprofiled_us=unprofiled_us,
        inflation=inflation,
    )
