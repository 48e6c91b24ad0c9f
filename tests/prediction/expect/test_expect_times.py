"""What accounts for a time or a ratio: by the direction of the miss, in the step that misses by most."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import check
from foretrace.model.expectations import Account, Outcome

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
