"""What bounds the steps, said only as far as the evidence goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import explain
from foretrace.analysis.context import Context
from foretrace.analysis.pace import NEEDED_CHECKS
from foretrace.analysis.verdict import verdict
from foretrace.model.report import Health, Kernel, Step, Timing
from foretrace.trace.load import parse
from foretrace.trace.source import read_source


def step(period: float, busy: float, idle: float | None = None) -> Step:
    return Step(
        index=0, label="s", wall_us=period, period_us=period, gpu_busy_us=busy,
        gpu_idle_us=max(0.0, period - busy) if idle is None else idle,
        kernels=1, memcpys=0, memsets=0, launches=1, kernel_launches=1, occupancy_queries=0, synchronizations=0,
    )  # fmt: skip


def kernel(bound: str, us: float, kind: str = "gemm") -> Kernel:
    return Kernel(
        event=0, name="k", short_name="k", kind=kind, decoded={}, step=0, phase=None, op=None, op_path=[], module=None,
        start_us=0, duration_us=us, stream=7, grid=None, block=None, registers=None, shared_memory_bytes=None,
        flops=None, bytes=None, bound=bound, achieved_tflops=None, achieved_gbps=None, of_peak=None, peak=None,
    )  # fmt: skip


def with_gpu(*, steps: bool = True) -> Context:
    build = TraceBuilder()
    if steps:
        build.step(1, 0, 100)
    build.kernel("k", 20, 5, launch=build.launch(10))
    return Context(trace=build.trace())


def of(busy, kernels=(("compute", 100.0),), *, unprofiled=None, stacks=False, health=(), context=None):
    timing = None if unprofiled is None else Timing(median_us=unprofiled, iqr_us=1, runs=9, method="cuda_events")
    listed = [kernel(bound, us) for bound, us in kernels]
    return verdict(context or with_gpu(), [step(100, busy)] * 3, listed, list(health), timing, stacks)


@pytest.mark.parametrize(
    ("busy", "unprofiled", "bound"),
    [
        (95, None, "compute"),  # busy even in the profiled step
        (50, None, "unknown"),  # profiling alone can do this
        (10, None, "overhead"),  # profiling cannot
        (50, 53, "compute"),  # the timing decides
        (50, 70, "mixed"),
        (10, 100, "overhead"),
        (10, 10, "compute"),
    ],
)
def test_who_waits_for_whom(busy, unprofiled, bound):
    found = of(busy, unprofiled=unprofiled)
    assert found.bound == bound
    assert found.because


def test_kernels_slower_than_an_unprofiled_step_are_no_share_of_it():
    said = of(60, unprofiled=57).because[0]
    assert said.startswith("GPU busy 60.0 µs as profiled, more than an unprofiled step of 57.0 µs: kernels took longer")
    assert "%" not in said


def test_stacks_lengthen_cpu_time_more():
    assert of(15).bound == "overhead"
    assert of(15, stacks=True).bound == "unknown"


def test_unknown_says_how_to_find_out():
    reasons = " ".join(of(50).because)
    assert "time the step without the profiler: at 58.8 µs or less it is GPU-bound" in reasons


@pytest.mark.parametrize(
    ("kernels", "bound"),
    [
        ([("compute", 70), ("memory", 30)], "compute"),
        ([("compute", 30), ("memory", 70)], "memory"),
        ([("compute", 50), ("memory", 50)], "mixed"),
        ([("latency", 90), ("memory", 10)], "overhead"),
        ([("compute", 60), ("unknown", 40)], "unknown"),  # too much is unknown
        ([("compute", 85), ("unknown", 15)], "compute"),
    ],
)
def test_a_busy_gpu_is_bound_by_what_its_kernels_are_bound_by(kernels, bound):
    assert of(95, kernels).bound == bound


def test_communication_decides_nothing():
    kernels = [kernel("compute", 50), kernel("unknown", 500, kind="communication")]
    assert verdict(with_gpu(), [step(100, 95)], kernels, [], None, False).bound == "compute"


@pytest.mark.parametrize("check", NEEDED_CHECKS)
def test_a_trace_that_cannot_be_trusted_has_no_verdict(check):
    bad = Health(check=check, state="bad", detail="records were dropped", count=1)
    found = of(10, health=[bad])
    assert found.bound == "unknown"
    assert "records were dropped" in found.because[0]
    suspect = Health(check=check, state="suspect", detail="a few records were dropped", count=1)
    assert of(10, health=[suspect]).bound == "overhead"


def test_lost_launches_make_the_verdict_unknown():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    for i in range(100):
        launch = build.launch(10 * i, 5)
        if i in (0, 99):
            build.kernel("k", 10 * i + 8, 5, launch=launch)
    found = explain(build.trace()).verdict
    assert found.bound == "unknown"
    assert "cannot be trusted" in found.because[0]


def test_ranks_merged_into_one_file_make_the_verdict_unknown():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    for rank in (0, 1):
        launch = build.launch(10, 5, correlation=1, pid=100 + rank)
        build.kernel("k", 20, 5, launch=launch, device=rank)
    assert explain(build.trace()).verdict.bound == "unknown"


def test_work_that_runs_after_its_step_is_not_idleness():
    late = step(100, 95, idle=100.0)  # everything it launched runs in the next step
    assert verdict(with_gpu(), [late], [kernel("compute", 95)], [], None, False).bound == "compute"


def test_without_gpu_work_nothing_is_said_of_a_gpu():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 50)
    report = explain(build.trace())
    assert report.verdict.bound == "unknown"
    assert "no GPU work" in report.verdict.because[0]


def test_steps_that_launched_nothing():
    assert verdict(with_gpu(), [step(100, 0)], [], [], None, False).bound == "unknown"


def test_idle_time_of_a_trace_without_steps_bounds_nothing():
    """Start-up is inside it: only the GPU's own pace, or an unprofiled timing, can say something."""
    found = of(10, context=with_gpu(steps=False))
    assert found.bound == "unknown"
    assert any("no profiler steps" in reason for reason in found.because)
    assert of(95, context=with_gpu(steps=False)).bound == "compute"
    assert of(10, unprofiled=100, context=with_gpu(steps=False)).bound == "overhead"


def test_a_trace_that_is_cut_off_gets_no_verdict_and_no_savings():
    """Kineto writes GPU rows last: what is left looks like a GPU that hardly worked."""
    text = read_source(Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz").text
    report = explain(parse(text[: int(len(text) * 0.8)], path="cut.json"))
    assert report.verdict.bound == "unknown"
    assert "cut off" in report.verdict.because[0]
    assert all(finding.saving_us is None for finding in report.findings)


def test_the_busy_share_can_be_followed():
    found = of(10)
    assert found.because[0].startswith("GPU busy 10.0 % of the profiled time; the median step takes 100 µs")
    assert "even then the GPU would be busy 30.0 % of an unprofiled step at most" in found.because[1]


def test_kernels_without_a_duration_are_no_idle_gpu():
    build = TraceBuilder()
    for number in range(3):
        build.step(number, 1000 * number, 950)
        for i in range(10):
            build.kernel("k", 1000 * number + 95 * i + 20, 90, launch=build.launch(1000 * number + 95 * i + 2))
    for event in build.events[3::4]:
        if event["cat"] == "kernel":
            del event["dur"]
    assert explain(build.trace()).verdict.bound == "unknown"
