"""Idle time that launches, data loading, or nothing recorded explains."""

from __future__ import annotations

import pytest
from timeline import found, found_in, work

from builders import TraceBuilder


def starved(step_us: float = 1000.0, runs: float = 10.0, steps: int = 3) -> TraceBuilder:
    """Steps in which a slow operator launches one short kernel after the other."""
    build = TraceBuilder()
    for number in range(1, steps + 1):
        at = (number - 1) * step_us
        build.step(number, at, step_us)
        for i in range(4):
            begin = at + i * step_us / 4
            build.op("aten::slow", begin, step_us / 4 - 1)
            launch = build.launch(begin + step_us / 4 - 10 - runs, 5)
            build.kernel("short", begin + step_us / 4 - 2 - runs, runs, launch=launch)
    return build


def test_a_gpu_busy_a_few_percent_waits_whatever_the_profiler_does():
    (finding,) = found(starved(), "cpu_starved")
    assert finding.severity == "warning"
    assert finding.saving_us is None  # how long was not timed
    assert "aten::slow" in finding.explanation
    assert "no saving is claimed" in finding.explanation


def test_between_the_extremes_profiling_may_be_the_cause():
    build = starved(runs=100.0)  # busy 40 % of the profiled time
    assert found(build, "cpu_starved") == []
    (finding,) = found(build, "cpu_wait_unproven")
    assert (finding.severity, finding.saving_us) == ("info", None)


def test_the_unprofiled_timing_decides():
    build = starved(runs=100.0)
    assert found(build, "cpu_starved", unprofiled_us=410) == []  # 400 µs of GPU work in 410 µs
    assert found(build, "cpu_wait_unproven", unprofiled_us=410) == []
    (finding,) = found(build, "cpu_starved", unprofiled_us=800)
    idle_profiled = 600
    assert finding.saving_us == pytest.approx(800 - 400, abs=0.05 * idle_profiled)
    assert found(build, "cpu_wait_unproven", unprofiled_us=800) == []


def test_a_saving_is_never_more_than_the_idle_time_seen():
    (finding,) = found(starved(runs=100.0), "cpu_starved", unprofiled_us=50_000)
    assert finding.saving_us <= 600


def test_a_busy_gpu_is_not_starved():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    work(build, "aten::mm", 5, runs=960)
    assert found(build, "cpu_starved") == found(build, "cpu_wait_unproven") == []


def test_without_steps_start_up_is_not_told_apart():
    build = starved()
    build.events = [e for e in build.events if not e["name"].startswith("ProfilerStep")]
    assert found(build, "cpu_starved") == []
    (finding,) = found(build, "cpu_wait_whole")
    assert finding.severity == "info"


def test_a_trace_that_cannot_be_trusted_makes_no_claims_about_idle_time():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    for i in range(100):  # a hundred launches, of which the recording holds two kernels
        launch = build.launch(10 * i, 5)
        if i in (0, 99):
            build.kernel("k", 10 * i + 8, 5, launch=launch)
    for rule in ("cpu_starved", "cpu_wait_unproven", "idle_gap"):
        assert found(build, rule) == []


def test_the_wait_for_a_batch_is_data_loading():
    build = TraceBuilder()
    for number in (1, 2):
        at = number * 1000
        build.step(number, at, 1000)
        build.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", at + 5, 300)
        work(build, "aten::mm", at + 310, runs=670)
    (finding,) = found(build, "data_loading")
    assert finding.saving_us == pytest.approx(320, abs=25)
    assert "DataLoader" in finding.explanation


def test_a_quick_data_loader_is_not_mentioned():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    build.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 5, 20)
    work(build, "aten::mm", 30, runs=950)
    assert found(build, "data_loading") == []


def gap_of(us: float) -> TraceBuilder:
    """Two kernels with nothing recorded on the thread between them."""
    build = TraceBuilder()
    build.step(1, 0, 1000, tid=999)  # the step's annotation stands on another thread
    work(build, "aten::mm", 5, runs=500 - us / 2, kernel="before")
    work(build, "aten::mul", 505 + us / 2, runs=485 - us / 2, kernel="after")
    return build


def test_the_largest_gap_is_named_with_what_surrounds_it():
    (finding,) = found(gap_of(400), "idle_gap")
    assert "in ProfilerStep#1 (40.0 % of it)" in finding.title
    assert "before it ran aten::mm (before)" in finding.explanation
    assert "after it runs aten::mul (after)" in finding.explanation
    assert [e.name for e in finding.evidence] == ["before", "after"]


def test_a_small_gap_is_not():
    assert found(gap_of(100), "idle_gap") == []


def test_a_gap_inside_an_operator_is_explained_already():
    assert found(starved(runs=100.0), "idle_gap") == []


@pytest.mark.parametrize("name", ["mlp_eager", "mlp_compile", "mlp_liger", "mlp_cudagraph", "ddp_rank0"])
def test_gpu_bound_models_are_not_accused_of_a_slow_cpu(name):
    assert found_in(name, "cpu_starved") == []


def test_a_tiny_layer_is_starved():
    (finding,) = found_in("linear_eager", "cpu_starved")
    assert finding.title == "The GPU waits for the CPU to launch: 154 µs a step (98.3 % of it)"
