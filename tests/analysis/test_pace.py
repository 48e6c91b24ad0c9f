"""Who sets the pace: CPU, GPU, both, or unknown."""

from __future__ import annotations

import pytest

from foretrace.analysis.pace import pace_of
from foretrace.knowledge.limits import PROFILING_INFLATION, PROFILING_INFLATION_STACKS
from foretrace.model.report import Step


def step(period: float, busy: float) -> Step:
    return Step(
        index=0, label="s", wall_us=period, period_us=period, gpu_busy_us=busy, gpu_idle_us=max(0.0, period - busy),
        kernels=1, memcpys=0, memsets=0, launches=1, kernel_launches=1, occupancy_queries=0, synchronizations=0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("busy", "unprofiled", "stacks", "setter"),
    [
        (90, None, False, "gpu"),
        (50, None, False, "unknown"),
        (10, None, False, "cpu"),
        (15, None, True, "unknown"),  # stacks lengthen CPU time more
        (5, None, True, "cpu"),
        (50, 52, False, "gpu"),
        (50, 70, False, "both"),
        (50, 100, False, "cpu"),
        (10, 10.5, False, "gpu"),  # the timing decides, whatever the profiled steps look like
    ],
)
def test_setter(busy, unprofiled, stacks, setter):
    assert pace_of([step(100, busy)] * 3, unprofiled, stacks).setter == setter


def test_inflation_depends_on_stacks():
    assert pace_of([step(100, 50)], None, False).inflation == PROFILING_INFLATION
    assert pace_of([step(100, 50)], None, True).inflation == PROFILING_INFLATION_STACKS


def test_idle_time_without_the_profiler_is_shared_out():
    pace = pace_of([step(100, 40)], 70, False)
    assert pace.real_idle_us == 30
    assert pace.without_profiler(60) == 30
    assert pace.without_profiler(20) == pytest.approx(10)


def test_not_timed_means_all_of_it():
    pace = pace_of([step(100, 40)], None, False)
    assert pace.real_idle_us is None
    assert pace.without_profiler(20) == 20


def test_a_step_faster_than_its_gpu_work_has_no_idle_time():
    assert pace_of([step(100, 40)], 39, False).without_profiler(20) == 0


def test_no_gpu_work():
    assert pace_of([step(100, 0)], None, False) is None
