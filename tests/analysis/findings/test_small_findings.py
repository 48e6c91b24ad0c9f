"""Many short kernels, and optimizers that launch them."""

from __future__ import annotations

import pytest
from timelines import GEMM, Program, of_trace, pointwise

ADD = pointwise("CUDAFunctor_add<float>")
FOREACH = "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::{0}>"


def test_a_step_of_tiny_kernels() -> None:
    program = Program().step()
    for _ in range(150):
        program.run("aten::add", [64], [64], kernel=ADD, us=1.5)
    (finding,) = program.findings("tiny_kernels")
    assert finding.title.startswith("150 of 150 kernels a step take less than 5 µs")
    assert finding.count == 150


def test_long_kernels_are_not_tiny() -> None:
    program = Program().step()
    for _ in range(150):
        program.run("aten::mm", [4096, 4096], [4096, 4096], kernel=GEMM, us=200)
    assert not program.findings("tiny_kernels")


def test_an_optimizer_loop_over_parameters() -> None:
    program = Program().step()
    start = program.now
    for _ in range(60):
        program.run("aten::add_", [64], [64], kernel=ADD, us=1.5, dtypes="float")
    program.build.annotation("Optimizer.step#Adam.step", start - 0.5, program.now - start)
    (finding,) = program.findings("for_loop_optimizer")
    assert "Adam updates parameters one by one: 60 kernels a step" in finding.title
    assert "fused=True" in (finding.suggestion or "")


def test_foreach_adam_goes_over_the_parameters_more_often_than_fused() -> None:
    program = Program().step()
    start = program.now
    lists = {
        "aten::_foreach_lerp_": 2,
        "aten::_foreach_mul_": 1,
        "aten::_foreach_addcmul_": 3,
        "aten::_foreach_sqrt": 1,
        "aten::_foreach_div_": 1,
        "aten::_foreach_add_": 1,
        "aten::_foreach_addcdiv_": 3,
    }
    for op, count in lists.items():
        shapes = [[[]]] * count
        program.run(op, *shapes, kernel=FOREACH.format(op), us=100, dtypes=["TensorList"] * count)  # type: ignore[arg-type]
    program.build.annotation("Optimizer.step#AdamW.step", start - 0.5, program.now - start)
    (finding,) = program.findings("foreach_optimizer")
    # 12 lists read and 7 written against the fused step's 7.
    assert finding.saving_us == pytest.approx(700 * (1 - 7 / 19))


def test_a_fused_optimizer_is_silent() -> None:
    assert not of_trace("ddp_rank0", "foreach_optimizer")
    assert not of_trace("ddp_rank0", "for_loop_optimizer")
