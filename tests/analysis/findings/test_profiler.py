"""What of a recording is the profiler's own."""

from __future__ import annotations

from timeline import found, found_in, work

from builders import TraceBuilder
from foretrace import explain
from foretrace.model.sidefile import SideFile, Unprofiled


def test_a_buffer_request_that_holds_the_launching_thread_is_named_with_the_gap_it_makes():
    build = TraceBuilder()
    build.step(1, 0, 2000)
    work(build, "aten::mm", 10, runs=100)
    build.op("aten::add", 150, 1700)
    build.overhead(160, 1600)
    launch = build.launch(1800)
    build.kernel("add", 1810, 50, launch=launch)
    (finding,) = found(build, "profiler_artefact")
    assert finding.title == "The profiler's own: Activity Buffer Request 1.60 ms"
    assert "The GPU had nothing to do for 1.69 ms because of it" in finding.explanation
    assert finding.saving_us is None


def test_a_buffer_request_beside_a_thread_that_goes_on_costs_nothing():
    build = TraceBuilder()
    build.step(1, 0, 2000)
    build.overhead(100, 1550)
    for i in range(18):
        work(build, "aten::mm", 100 * i + 10, runs=20)
    (finding,) = found(build, "profiler_artefact")
    assert "No idle time of the GPU is put down to it" in finding.explanation


def test_rows_of_other_overhead_are_not_the_profilers():
    build = TraceBuilder()
    build.step(1, 0, 2000)
    work(build, "aten::mm", 10, runs=100)
    build.overhead(100, 50, name="something else")
    build.overhead(200, 50, name="Lazy Function Loading")  # CUDA's, on a kernel's first use
    assert found(build, "profiler_artefact") == []


def test_the_final_synchronize_is_named():
    (finding,) = found_in("mlp_eager", "profiler_artefact")
    assert finding.title == "The profiler's own: a final cudaDeviceSynchronize 12.2 µs"
    (finding,) = found_in("ddp_rank0", "profiler_artefact")
    assert finding.title == "The profiler's own: Activity Buffer Request 4.61 ms, cudaDeviceSynchronize 3.93 ms"
    assert [e.name for e in finding.evidence] == ["Activity Buffer Request", "cudaDeviceSynchronize"]


def test_the_factor_of_profiling_needs_an_unprofiled_timing():
    build = TraceBuilder()
    for number in range(3):
        build.step(number, 500 * number, 500)
        work(build, "aten::mm", 500 * number + 10, runs=200)
    assert found(build, "profile_overhead") == []
    (finding,) = found(build, "profile_overhead", unprofiled_us=250)
    assert finding.title == "A profiled step takes 2× an unprofiled one (500 µs against 250 µs)"
    assert "of an unprofiled step the GPU works 80.0 % (200 µs)" in finding.explanation
    # Kernels that took longer while profiled than the whole step does without are no 100 % of it.
    (finding,) = found(build, "profile_overhead", unprofiled_us=190)
    assert "they took 200 µs while profiled, more than a whole unprofiled step" in finding.explanation
    assert "100 %" not in finding.explanation


def cpu_steps(*durations: float) -> TraceBuilder:
    build, at = TraceBuilder(gpu=None), 0.0
    for number, duration in enumerate(durations):
        build.step(number, at, duration)
        build.op("aten::mm", at + 1, duration - 2)
        at += duration + 1000
    return build


def test_a_slow_profiled_step_of_a_cpu_program_is_told():
    (finding,) = found(cpu_steps(40_000, 23_000, 22_000), "profile_overhead", unprofiled_us=51)
    assert finding.title == "A profiled step takes 450× an unprofiled one (23.0 ms against 51.0 µs)"
    assert finding.severity == "note"
    assert len(finding.evidence) == 3


def test_a_cpu_step_hardly_slower_than_unprofiled_is_not():
    assert found(cpu_steps(60, 60), "profile_overhead", unprofiled_us=50) == []
    assert found(cpu_steps(66, 66), "profile_overhead", unprofiled_us=50)
    assert found(cpu_steps(66, 66), "profile_overhead") == []


def test_without_steps_in_the_trace_the_side_file_has_the_profiled_times():
    build = TraceBuilder(gpu=None)
    build.op("aten::mm", 0, 10)
    timing = Unprofiled(median_us=50, iqr_us=1.0, runs=9, method="perf_counter")
    side = SideFile(unprofiled=timing, profiled_steps_us=[90.0, 100.0, 110.0])
    (finding,) = [f for f in explain(build.trace(), side=side).findings if f.rule == "profile_overhead"]
    assert "2× an unprofiled one (100 µs against 50.0 µs)" in finding.title
    unknown = SideFile(unprofiled=timing)
    assert not [f for f in explain(build.trace(), side=unknown).findings if f.rule == "profile_overhead"]
