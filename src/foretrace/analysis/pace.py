"""Who sets the pace of a step, the CPU or the GPU, as far as the evidence goes; the profiler's share in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from foretrace.knowledge.limits import (
    COLD_STEP_RATIO,
    GPU_BOUND_SHARE,
    OVERHEAD_SHARE,
    PROFILING_INFLATION,
    PROFILING_INFLATION_STACKS,
)
from foretrace.model.report import Step

__all__ = ["NEEDED_CHECKS", "Pace", "is_cold", "pace_of"]

# Checks of a trace's health whose failure makes busy and idle times meaningless.
NEEDED_CHECKS = (
    "empty",
    "repaired",
    "cut_steps",
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
        inflation: how many times longer profiling is taken to make CPU time at most; 1 in a predicted trace.
        cpu_us: the CPU time to dispatch a step, of a predicted trace, where ``period_us`` is the longer of this and
            the GPU work; None in a recording.
    """

    setter: Literal["cpu", "gpu", "both", "unknown"]
    busy_us: float
    idle_us: float
    period_us: float
    share: float
    unprofiled_us: float | None
    inflation: float
    cpu_us: float | None = None

    @property
    def predicted(self) -> bool:
        """Whether all of this is a model's, not a recording's."""
        return self.cpu_us is not None

    @property
    def slower_profiled(self) -> bool:
        """Whether the kernels took longer while profiled than a whole step takes without the profiler.

        Clocks and neighbours differ between the two timings. The GPU works throughout then, and a share of the step
        would be more than all of it.
        """
        return self.unprofiled_us is not None and self.busy_us > self.unprofiled_us

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


def is_cold(first_us: float, others_us: Sequence[float]) -> bool:
    """Whether a first recorded step is no measure: it loads, asks and fills what the ``others`` find ready."""
    if len(others_us) < 2:
        return False  # of two steps neither is a measure for the other
    return first_us > max(others_us) and first_us > COLD_STEP_RATIO * median(others_us)


def pace_of(steps: list[Step], unprofiled_us: float | None, stacks: bool, predicted: bool = False) -> Pace | None:
    """Weigh the steps; None without GPU work in them. No profiler lengthens the steps of a ``predicted`` trace."""
    timed = [s for s in steps if s.gpu_busy_us and s.gpu_idle_us is not None and s.period_us > 0]
    if not timed:
        return None
    busy = median(s.gpu_busy_us or 0.0 for s in timed)
    if predicted:
        return _predicted_pace(timed, busy)
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


def _predicted_pace(timed: list[Step], busy: float) -> Pace:
    """A predicted step stands alone and begins with an idle GPU; in a loop the CPU runs ahead as far as it can.

    The slower of the two then sets the pace, so the step's CPU time and its GPU work are held against each other.
    """
    cpu = median(s.wall_us for s in timed)
    period = max(cpu, busy)
    share = busy / period
    return Pace(
        setter="cpu" if share < OVERHEAD_SHARE else "both" if share < GPU_BOUND_SHARE else "gpu",
        busy_us=busy,
        idle_us=period - busy,
        period_us=period,
        share=share,
        unprofiled_us=None,
        inflation=1.0,
        cpu_us=cpu,
    )
