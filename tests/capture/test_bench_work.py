"""The least a step has to do: FLOPs of its products, bytes read and written once."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.capture.bench.work import count_work, hold_against
from foretrace.capture.variants import step_of
from foretrace.capture.workloads import WORKLOADS, Program, build
from foretrace.model.bench import CopyRate, GemmRate, Limits, Work

torch = pytest.importorskip("torch")


def counted(program: Program, mode: str = "forward") -> Work:
    return count_work(program, step_of(program, program.function, mode), mode)


def workload(name: str, mode: str = "forward", **sizes: int) -> Work:
    made = build(WORKLOADS[name], {**WORKLOADS[name].defaults, **sizes}, "bf16", "cpu", train=mode == "train")
    return counted(made, mode)


def test_the_mlp_is_three_products_and_its_operands_once() -> None:
    work = workload("mlp", batch=2, seq=8, dim=32, hidden=64)
    assert work.flops == 3 * 2 * 16 * 32 * 64
    assert work.flops_by_dtype == {"bf16": work.flops}
    assert work.bytes_read == 2 * (16 * 32 + 3 * 32 * 64)
    assert work.bytes_written == 2 * 16 * 32


def test_training_multiplies_three_times_and_writes_gradients() -> None:
    work = workload("linear", "train", batch=16, in_dim=32, out_dim=64)
    assert work.flops == 3 * 2 * 16 * 32 * 64
    assert work.bytes_read == 2 * (16 * 32 + 32 * 64 + 64)
    assert work.bytes_written == 2 * (16 * 32 + 32 * 64 + 64)  # as many gradients as operands


def test_tensors_in_a_closure_are_read_too_and_shared_ones_once() -> None:
    w = torch.ones(8, 8)
    work = counted(Program(lambda x: (x @ w) @ w.t(), (torch.ones(4, 8),), {}))
    # Two views of one storage; more than it holds need not be read.
    assert work.bytes_read == 4 * (4 * 8 + 8 * 8)
    assert work.bytes_written == 4 * 4 * 8


def test_of_an_embedding_only_the_rows_looked_up_are_read() -> None:
    work = counted(Program(torch.nn.Embedding(1000, 16), (torch.arange(4),), {}))
    assert work.bytes_read == 4 * 4 * 16 + 4 * 8
    assert work.flops is None
    assert "no matrix product" in work.missing["flops"]


def test_an_unused_parameter_and_an_expanded_operand_cost_what_is_touched() -> None:
    class Partly(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.used = torch.nn.Parameter(torch.ones(1, 8))
            self.idle = torch.nn.Parameter(torch.ones(1000))

        def forward(self, x: Any) -> Any:
            return x * self.used.expand(4, 8)

    assert counted(Program(Partly(), (torch.ones(4, 8),), {})).bytes_read == 4 * (32 + 8)


def test_what_is_changed_in_place_is_written() -> None:
    def step(cache: Any, row: Any) -> Any:
        cache[2].copy_(row)
        return row + 1

    work = counted(Program(step, (torch.zeros(10, 8), torch.ones(8)), {}))
    assert work.bytes_written == 4 * 8 + 4 * 8


def test_a_custom_operator_makes_the_flops_unknown() -> None:
    library = torch.library.Library("foretrace_test_work", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    work = counted(Program(lambda x: torch.ops.foretrace_test_work.twice(x @ x), (torch.ones(4, 4),), {}))
    assert work.flops is None
    assert "foretrace_test_work::twice" in work.missing["flops"]
    assert work.flops_by_dtype == {"fp32": 2 * 4**3}
    assert any("lower than it should be" in note for note in work.notes)


def test_a_step_that_fails_is_not_counted_and_says_why() -> None:
    def fails() -> Any:
        raise RuntimeError("no")

    work = count_work(Program(fails, (), {}), fails, "forward")
    assert work.bytes_read is None
    assert "RuntimeError: no" in work.missing["floor_us"]


# ---- the floor ----

GEMM = GemmRate(dtype="bf16", size=8, flops=1, tflops=500.0, best_us=1.0, median_us=1.0, runs=1, end_tflops=450.0)
COPY = CopyRate(size=1, bytes=2, gbps=4000.0, best_us=1.0, median_us=1.0, runs=1)


def floored(limits: Limits, **work: Any) -> Work:
    made = Work(**work)
    hold_against(made, limits)
    return made


def test_the_floor_is_the_longer_of_two_times() -> None:
    both = {"bytes_read": 30_000_000, "bytes_written": 10_000_000}
    compute = floored(Limits(gemm=[GEMM], copy=COPY), flops_by_dtype={"bf16": 10**11}, **both)
    assert (compute.compute_us, compute.memory_us) == pytest.approx((200.0, 10.0))
    assert (compute.floor_us, compute.floor_by) == (compute.compute_us, "compute")
    memory = floored(Limits(gemm=[GEMM], copy=COPY), flops_by_dtype={"bf16": 10**9}, **both)
    assert (memory.floor_us, memory.floor_by) == (memory.memory_us, "memory")


def test_without_a_rate_for_the_products_there_is_no_floor() -> None:
    limits = Limits(copy=COPY, missing={"gemm": "a large fp16 product could not be timed"})
    found = floored(limits, flops_by_dtype={"fp16": 10**9}, bytes_read=1, bytes_written=1)
    assert found.floor_us is None
    assert found.missing["compute_us"] == "a large fp16 product could not be timed"
    assert found.missing["floor_us"] == "a large fp16 product could not be timed"


def test_without_products_memory_alone_is_the_floor() -> None:
    found = floored(Limits(copy=COPY), bytes_read=4_000_000, bytes_written=0)
    assert (found.floor_us, found.floor_by) == (pytest.approx(1.0), "memory")
