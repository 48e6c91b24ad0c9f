"""``foretrace bench`` as a whole, on a CPU with tiny shapes, variants made for the test, and a clock that obeys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from foretrace.capture.bench import Request, Tools, run_bench
from foretrace.capture.workloads import WORKLOADS, Program, build
from foretrace.errors import CaptureError, InputError
from foretrace.model.bench import Bench, Result
from foretrace.timing import HostClock

torch = pytest.importorskip("torch")
# Dynamo's own modules warn where they are imported.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class Clock:
    """Time that passes only when a variant lets it: so many ns a call."""

    def __init__(self) -> None:
        self.now = 0

    def __call__(self) -> int:
        return self.now


TIME = Clock()


def spending(function: Callable[..., Any], ns: int) -> Callable[..., Any]:
    def call(*inputs: Any) -> Any:
        TIME.now += ns
        return function(*inputs)

    return call


def fails(*_: Any) -> Any:
    raise RuntimeError("no kernel image is available\nand pages of advice")


CHANGES: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "eager": lambda f: spending(f, 10_000),
    "again": lambda f: spending(f, 10_000),
    "fast": lambda f: spending(f, 8_000),
    "slow": lambda f: spending(f, 12_000),
    "scaled": lambda f: spending(lambda *x: f(*x) * 1.001, 5_000),
    "nan": lambda f: spending(lambda *x: f(*x) * float("nan"), 5_000),
    "one element": lambda f: spending(lambda *x: one_off(f(*x)), 5_000),
    "half": lambda f: spending(lambda *x: f(*x).half(), 5_000),
    "fails": lambda f: fails,
    "dynamo": lambda f: torch.compile(f, backend="eager"),
}


def one_off(tensor: Any) -> Any:
    changed = tensor.clone()
    changed.view(-1)[3] += 0.5
    return changed


def check(variant: str, device: str) -> str | None:
    if variant == "missing":
        raise CaptureError("missing on a CPU needs a C++ compiler")
    return None


TOOLS = Tools(
    transform=lambda function, variant: CHANGES[variant](function),
    check=check,
    replays_graphs=lambda variant: False,
    compiles=lambda variant: variant in ("fast", "slow", "again", "dynamo"),
    start_compiler=lambda device: None,
    clock=HostClock(TIME),
    limits=False,
)


def make_with(sizes: Any) -> Program:
    return build(WORKLOADS["mlp"], {"batch": 2, "seq": 4, "dim": 16, "hidden": 32, **sizes}, "fp32", "cpu", train=False)


def bench(*variants: str, make: Callable[[], Program] | None = None, **more: Any) -> Bench:
    request = Request(
        workload="mlp",
        make=make or (lambda: make_with({})),
        make_with=make_with,
        device="cpu",
        variants=variants,
        rounds=more.pop("rounds", 12),
        **more,
    )
    return run_bench(request, tools=TOOLS)


def last(*variants: str, **more: Any) -> Result:
    return bench(*variants, **more).variants[-1]


# ---- before anything is timed ----


def test_where_nothing_can_be_replaced_the_bench_ends_before_it_times_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretrace.capture.bench.contest.make_yardstick", lambda *_: pytest.fail("too late"))
    tools = replace(
        TOOLS, refuses=lambda _, variant: f"{variant} found nothing to replace" if variant == "fast" else None
    )
    request = Request(
        workload="mlp", make=lambda: make_with({}), make_with=make_with, device="cpu", variants=("eager", "fast")
    )
    with pytest.raises(InputError, match="fast found nothing to replace"):
        run_bench(request, tools=tools)


def test_where_others_are_left_they_are_timed() -> None:
    tools = replace(TOOLS, refuses=lambda _, variant: "nothing to replace" if variant == "slow" else None)
    request = Request(
        workload="mlp",
        make=lambda: make_with({}),
        make_with=make_with,
        device="cpu",
        variants=("eager", "fast", "missing", "slow"),
        rounds=3,
    )
    said: list[str] = []
    found = run_bench(request, tools=tools, say=said.append)
    assert [item.state for item in found.variants] == ["ok", "ok", "failed", "ok"]
    assert "slow: nothing to replace" in said


# ---- times ----


def test_a_faster_variant_is_said_to_be_faster_and_when_it_pays() -> None:
    found = bench("eager", "fast")
    eager, fast = found.variants
    assert (eager.median_us, fast.median_us) == (10.0, 8.0)
    assert eager.difference == "first"
    assert fast.difference == "faster"
    assert fast.ratio is not None
    assert (fast.ratio.median, fast.ratio.low, fast.ratio.high) == pytest.approx((0.8, 0.8, 0.8))
    assert fast.pays_after is not None
    assert fast.setup_us == pytest.approx(sum(max(0.0, spent - 8.0) for spent in fast.first_calls_us))
    assert fast.pays_after.state == "after"
    assert abs((fast.pays_after.calls or 0) - fast.setup_us / 2.0) <= 1
    assert eager.missing["pays_after"] == "it is the one the others are held against"
    assert found.compiler_start_us is not None
    assert (found.rounds, found.method, len(fast.samples_us)) == (12, "perf_counter", 12)


def test_a_slower_variant_never_pays() -> None:
    slow = last("eager", "slow")
    assert slow.difference == "slower"
    assert slow.pays_after is not None
    assert slow.pays_after.state == "never"
    assert slow.pays_after.calls is None


def test_what_is_inside_the_interval_is_no_difference() -> None:
    again = last("eager", "again")
    assert again.difference == "none"
    assert again.pays_after is not None
    assert again.pays_after.state == "unknown"


def test_too_few_rounds_leave_the_difference_unknown() -> None:
    fast = last("eager", "fast", rounds=4)
    assert fast.difference == "unknown"
    assert fast.interval_us is None
    assert "4 rounds are too few" in fast.missing["interval_us"]


# ---- results ----


@pytest.mark.parametrize(
    ("variant", "said"),
    [
        ("scaled", "off by 0.001 of its norm"),
        ("nan", "NaN"),
        ("one element", "output is off by"),
        ("half", "fp16"),
    ],
)
def test_a_wrong_variant_gets_no_speed_up(variant: str, said: str) -> None:
    wrong = last("eager", variant)
    assert wrong.state == "wrong"
    assert said in (wrong.reason or "")
    assert wrong.ratio is None
    assert "wrong" in wrong.missing["ratio"]
    assert wrong.median_us == 5.0  # it was timed all the same


def test_nothing_is_held_against_a_wrong_variant() -> None:
    eager = last("nan", "eager")
    assert eager.state == "ok"
    assert eager.ratio is None
    assert "nan, the first variant, are wrong" in eager.missing["ratio"]


def test_gradients_are_checked_in_training() -> None:
    class Detached(torch.nn.Module):  # type: ignore[misc]
        """The right output, and no gradient for the bias."""

        def __init__(self, linear: Any) -> None:
            super().__init__()
            self.linear = linear

        def forward(self, x: Any) -> Any:
            return torch.nn.functional.linear(x, self.linear.weight, self.linear.bias.detach())

    def make() -> Program:
        return Program(torch.nn.Linear(4, 3), (torch.randn(5, 4),), {})

    tools = replace(TOOLS, transform=lambda f, variant: Detached(f) if variant == "detached" else f)
    request = Request("x", make, lambda _: make(), "cpu", ("eager", "detached"), mode="train", rounds=6)
    eager, wrong = run_bench(request, tools=tools).variants
    assert eager.check is not None
    assert {item.name for item in eager.check.tensors} == {"output", "gradient of weight", "gradient of bias"}
    assert wrong.state == "wrong"
    assert wrong.reason == "there is no gradient of bias"


def test_random_results_are_not_checked_and_say_so() -> None:
    eager = last("eager", make=lambda: Program(lambda x: x + torch.rand(4), (torch.ones(4),), {}))
    assert eager.state == "unchecked"
    assert "dropout, sampling" in (eager.reason or "")


def test_a_program_that_casts_has_no_float64_reference() -> None:
    eager = last("eager", make=lambda: Program(lambda x: x.float() * 2, (torch.ones(4),), {}))
    assert eager.state == "unchecked"
    assert "casts its output to float32" in (eager.reason or "")


def test_nan_passes_without_a_reference_neither() -> None:
    eager = last("eager", make=lambda: Program(lambda x: torch.log(x), (-torch.ones(4),), {}))
    assert eager.state == "wrong"
    assert "NaN" in (eager.reason or "")


def test_the_error_is_that_of_rounding() -> None:
    eager = last("eager")
    assert eager.check is not None
    assert eager.check.relative_error is not None
    assert 0 < eager.check.relative_error < 1e-5
    assert eager.check.max_error_ulps is not None
    assert eager.check.max_error_ulps < 100


# ---- variants that fail ----


@pytest.mark.parametrize(("variant", "said"), [("fails", "no kernel image is available"), ("missing", "C++ compiler")])
def test_a_variant_that_fails_says_why_and_the_others_go_on(variant: str, said: str) -> None:
    found = bench("eager", variant, "fast")
    eager, failed, fast = found.variants
    assert failed.state == "failed"
    assert said in (failed.reason or "")
    assert "advice" not in (failed.reason or "")
    assert failed.median_us is None
    assert fast.difference == "faster"
    assert eager.state == "ok"


def test_with_every_variant_failed_there_is_no_document() -> None:
    with pytest.raises(CaptureError, match="no kernel image"):
        bench("fails")


def test_a_program_that_fails_is_one_sentence() -> None:
    with pytest.raises(CaptureError, match=r"^the program failed \(eager\): RuntimeError: no kernel .* available$"):
        bench("eager", make=lambda: Program(fails, (), {}))


def test_a_graph_needs_a_gpu_and_nothing_else_fails() -> None:
    found = bench("eager", cuda_graph=True)
    assert [result.name for result in found.variants] == ["eager", "eager + graph"]
    assert found.variants[1].reason == "CUDA graphs need a GPU"
    assert found.variants[0].state == "ok"


@pytest.mark.parametrize("more", [{"rounds": 0}, {"mode": "backward"}, {"flush": True}])
def test_what_cannot_be_asked_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        bench("eager", **more)


# ---- what is unknown ----


def test_memory_of_a_cpu_is_unknown_and_never_zero() -> None:
    eager = last("eager")
    assert eager.peak_memory_bytes is None
    assert "GPUs only" in eager.missing["peak_memory_bytes"]
    assert eager.of_floor is None
    assert eager.missing["of_floor"]


def test_with_limits_there_is_a_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretrace.timing import limits

    monkeypatch.setitem(limits._GEMM_SIZES, "cpu", (32, 32))
    monkeypatch.setitem(limits._COPY_BYTES, "cpu", 1 << 16)
    tools = replace(TOOLS, limits=True, clock=None)
    request = Request("mlp", lambda: make_with({}), make_with, "cpu", ("eager",), rounds=6)
    found = run_bench(request, tools=tools)
    assert found.work.flops == 3 * 2 * 8 * 16 * 32
    (gemm,) = found.limits.gemm
    assert gemm.dtype == "fp32"
    assert found.work.compute_us == pytest.approx(found.work.flops / max(gemm.tflops, gemm.end_tflops or 0) / 1e6)
    assert found.work.floor_us == max(found.work.compute_us or 0, found.work.memory_us or 0)
    assert found.variants[0].of_floor == pytest.approx((found.variants[0].median_us or 0) / found.work.floor_us)


# ---- shapes ----


def test_automatic_dynamic_shapes_need_four_compiles_for_eight_shapes() -> None:
    found = bench("dynamo", "eager", sweep={"batch": [2, 4, 8, 1], "seq": [16, 32]}, rounds=6)
    assert found.sweep is not None
    compiled, eager = found.sweep.totals
    assert compiled.compiles == 4  # the first, batch becomes dynamic, seq becomes dynamic, batch = 1
    assert eager.compiles is None
    rows = [row for row in found.sweep.shapes if row.variant == "dynamo"]
    assert [row.parameters["batch"] for row in rows] == [2, 2, 4, 4, 8, 8, 1, 1]
    assert sum(row.compiles or 0 for row in rows) == 4
    assert rows[-1].compiles == 0


def test_other_parameters_are_another_module() -> None:
    found = bench("dynamo", sweep={"dim": [8, 16]}, rounds=6)
    assert found.sweep is not None
    assert found.sweep.totals[0].compiles == 2
    assert "2 modules" in found.sweep.totals[0].notes[0]


def test_torch_s_limit_of_recompiles_is_said_where_it_is_reached() -> None:
    name = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    with torch._dynamo.config.patch({name: 2}):
        found = bench("dynamo", sweep={"dim": [8, 16, 24, 32]}, rounds=6)
    assert found.sweep is not None
    (total,) = found.sweep.totals
    assert total.compiles == 2
    assert "at most 2 times; shapes beyond that run uncompiled" in total.notes[0]


def test_a_variant_that_fails_in_the_sweep_ends_only_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = bench("eager", "fails", sweep={"batch": [1, 2]}, rounds=6)
    assert found.sweep is not None
    assert [total.reason is None for total in found.sweep.totals] == [True, False]
    assert len(found.sweep.shapes) == 2
    assert all(math.isfinite(row.first_call_us or math.nan) for row in found.sweep.shapes)
