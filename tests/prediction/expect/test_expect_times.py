"""What accounts for a time or a ratio: by the direction of the miss, in the step that misses by most."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import check, expect
from foretrace.analysis.context import Context
from foretrace.analysis.explain import explain
from foretrace.model.expectations import Account, Outcome
from foretrace.model.sidefile import SideFile, Unprofiled
from foretrace.prediction.expect.checker import judge

H200 = Path(str(files("foretrace.cli") / "samples" / "h200_mlp_eager.trace.json.gz"))


def outcome(line: str) -> Outcome:
    (one,) = check(H200, line).outcomes
    assert one.state == "broken"
    return one


def rules(line: str) -> list[str | None]:
    return [account.rule for account in outcome(line).accounts]


@pytest.mark.parametrize(
    ("line", "because"),
    [
        # The GPU waits too long: what it waits for.
        ("gpu_idle_us <= 50", ["cold_step", "idle_causes"]),
        ("gpu_idle_us / period_us <= 10%", ["cold_step", "idle_causes"]),
        ("gpu_busy_us / period_us >= 50%", ["cold_step", "idle_causes"]),
        ("gpu_busy_us / wall_us >= 80%", ["cold_step", "idle_causes"]),
        # It works too long: its kernels.
        ("gpu_busy_us <= 100", ["time_of_kernels"]),
        ("gpu_busy_us / period_us <= 10%", ["time_of_kernels"]),
        ("gemm_us <= 10", ["time_of_kernels"]),
        # A step is too long: both, and without the profiler nothing that the profiled steps waited for.
        ("period_us <= 300", ["cold_step", "idle_causes", "time_of_kernels"]),
        ("unprofiled_us <= 200", ["time_of_kernels", "unprofiled_rest"]),
        ("gpu_busy_us / unprofiled_us >= 99%", ["unprofiled_rest"]),
        # The CPU takes too long: its operators.
        ("cpu_us <= 10", ["cold_step", "time_of_host"]),
        ("mlp_fwd: wall_us <= 20", ["time_of_host"]),
        # Nothing can be named for a step that is too fast, or for a ratio of counts.
        ("period_us >= 5 ms", []),
        ("gpu_idle_us >= 5 ms", []),
        ("kernels / launches >= 95%", []),
        # Of a ratio of two times on the CPU neither is known to be the wrong one.
        ("wall_us / period_us <= 10%", []),
        # A step that idles too little works too much.
        ("gpu_idle_us / period_us >= 90%", ["time_of_kernels"]),
        ("period_us / gpu_busy_us >= 9", ["time_of_kernels"]),
    ],
)
def test_a_miss_is_explained_by_its_direction(line: str, because: list[str]):
    assert rules(line) == because


def test_the_worst_step_explains_and_is_named():
    idle = outcome("gpu_idle_us <= 50").accounts[1]
    assert idle.text.startswith("in ProfilerStep#2: the GPU was idle: waiting for the CPU (Python in the step) 753 µs")
    idle = outcome("step #4: gpu_idle_us <= 50").accounts[0]
    assert idle.text.startswith("the GPU was idle: ")


def test_kernels_of_too_little_time_are_listed_and_not_blamed():
    (account,) = outcome("gpu_busy_us >= 300").accounts
    assert (account.rule, account.why) == ("time_of_kernels", None)


def test_a_share_of_the_gpu_s_work_is_lowered_by_the_other_kernels():
    (account,) = outcome("gemm_us / gpu_busy_us >= 90%").accounts
    assert "nvjet" not in account.text
    assert account.text.startswith(
        "in ProfilerStep#4: elementwise<8> mul 37.6 µs (16.0 %), elementwise<8> gelu 32.8 µs"
    )
    assert account.why is None  # they are not most of the time


def test_what_the_gpu_works_of_an_unprofiled_step_is_said():
    (account,) = outcome("gpu_busy_us / unprofiled_us >= 99%").accounts
    assert account.text.startswith("without the profiler a step takes 240 µs; the GPU works 235 µs of it (97.8 %)")


def _on_a_cpu() -> list[Account]:
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 900)
    build.op("aten::linear", 10, 500)
    build.op("aten::addmm", 20, 480)  # inside, and not counted again
    build.op("aten::gelu", 600, 100)
    (one,) = check(build.trace(), "period_us <= 300").outcomes
    return one.accounts


def test_without_a_gpu_operators_account_for_the_time():
    (account,) = _on_a_cpu()
    assert (account.rule, account.text) == ("time_of_host", "aten::linear 500 µs, aten::gelu 100 µs")
    assert [one.name for one in account.evidence] == ["aten::linear", "aten::gelu"]


def _against_timed(unprofiled_us: float, line: str = "unprofiled_us <= 1") -> list[Account]:
    """A step on a CPU whose operators took 600 µs under the profiler, and so long without it."""
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 900)
    build.op("aten::linear", 10, 450)
    build.op("aten::gelu", 600, 150)
    trace = build.trace()
    timing = Unprofiled(median_us=unprofiled_us, iqr_us=1.0, runs=5, method="perf_counter")
    side = SideFile(unprofiled=timing)
    (one,) = judge(explain(trace, side=side), expect(line), context=Context(trace=trace, side=side)).outcomes
    assert one.state == "broken"
    return one.accounts


@pytest.mark.parametrize(
    ("unprofiled_us", "rule", "text"),
    [
        (800, "time_of_host", "aten::linear 450 µs, aten::gelu 150 µs"),
        (400, "shares_of_host", "of 600 µs of CPU time under the profiler: aten::linear 75.0 %, aten::gelu 25.0 %"),
        (2, "recorded_apart", "the operators of the recorded step took 600 µs, 300 times as long"),
    ],
)
def test_parts_that_exceed_the_time_they_are_of_are_shares_or_withheld(unprofiled_us: float, rule: str, text: str):
    (account,) = _against_timed(unprofiled_us)
    assert (account.rule, account.text) == (rule, text)


def test_operators_of_two_threads_at_once_are_shares_of_a_step():
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 500)
    build.op("aten::linear", 10, 480)
    build.op("aten::mul", 10, 480, tid=77)
    (one,) = check(build.trace(), "wall_us <= 300").outcomes
    total = sum(float(account.text.count("480")) for account in one.accounts)
    assert [account.rule for account in one.accounts] in (["shares_of_host"], ["time_of_host"])
    assert total <= 1, "no two parts of 480 µs stand for 500 µs"


def test_kernels_that_ran_at_once_are_said_to():
    build = TraceBuilder()
    build.step(1, 0, 300)
    build.op("aten::mm", 10, 30)
    for stream, at in ((7, 60), (8, 61)):
        build.kernel("first" if stream == 7 else "other", at, 100, launch=build.launch(at - 45), stream=stream)
    (one,) = check(build.trace(), "gpu_busy_us <= 50").outcomes
    assert one.accounts[0].text.startswith("of 200 µs of kernels, some of which ran at once: ")


def test_a_gpu_that_worked_longer_than_the_unprofiled_step_is_told_as_another_step():
    trace = Path(H200)
    from foretrace.trace import load

    loaded = load(trace)
    side = SideFile(unprofiled=Unprofiled(median_us=100, iqr_us=1.0, runs=5, method="cuda_events"))
    (one,) = judge(
        explain(loaded, side=side), expect("unprofiled_us <= 1"), context=Context(trace=loaded, side=side)
    ).outcomes
    assert "less than the 235 µs that the GPU worked in the recorded one" in one.accounts[-1].text
