"""``hbm_round_trip`` and ``gemm_then_pointwise``: chains and what they are not."""

from __future__ import annotations

import re

import pytest
from timelines import BF16, CAST, FP32, GEMM, Program, of_trace, pointwise

GELU = pointwise("GeluCUDAKernelImpl")
MUL = pointwise("BinaryFunctor<c10::BFloat16, MulFunctor<float>>")
ADD = pointwise("CUDAFunctor_add<c10::BFloat16>")
X = [8192, 3072]


def test_gelu_and_mul_hand_an_intermediate_through_memory() -> None:
    found = (
        Program().step().run("aten::gelu", X, kernel=GELU, us=30).run("aten::mul", X, X, kernel=MUL, us=36)
    ).findings("hbm_round_trip")

    (finding,) = found
    assert finding.title.startswith("gelu → mul: 101 MB")
    # Two of five trips of 50.3 MB at the rate of both kernels together.
    assert finding.saving_us == pytest.approx(66 * 2 / 5)
    assert len(finding.evidence) == 2


def test_a_lone_pointwise_operator_is_no_round_trip() -> None:
    assert not Program().step().run("aten::gelu", X, kernel=GELU).findings("hbm_round_trip")


def test_an_operand_of_another_size_comes_from_elsewhere() -> None:
    program = Program().step().run("aten::gelu", X, kernel=GELU).run("aten::mul", [4096, 768], kernel=MUL)
    assert not program.findings("hbm_round_trip")


def test_a_comparison_returns_booleans_and_feeds_no_arithmetic() -> None:
    program = Program().step().run("aten::gt", X, X, kernel=pointwise("CompareFunctor<float>"))
    assert not program.run("aten::gelu", X, kernel=GELU).findings("hbm_round_trip")


def test_a_cast_hands_on_the_new_type() -> None:
    program = Program().step()
    program.run("aten::copy_", X, X, dtypes=[FP32, BF16], kernel=CAST, inside=("aten::to", "aten::_to_copy"))
    program.run("aten::pow", X, dtypes=FP32, kernel=pointwise("pow_tensor_scalar_kernel_impl<float>"))
    (finding,) = program.findings("hbm_round_trip")
    assert finding.title.startswith("cast → pow")


def test_an_operator_between_takes_the_result_away() -> None:
    program = Program().step().run("aten::gelu", X, kernel=GELU)
    program.run("aten::mm", X, [3072, 3072], kernel=GEMM)
    assert not program.run("aten::add", X, X, kernel=ADD).findings("hbm_round_trip")


def test_the_two_products_of_a_mul_backward_are_side_by_side() -> None:
    program = Program().step()
    node = ("autograd::engine::evaluate_function: MulBackward0", "MulBackward0")
    start = program.now
    program.run("aten::mul", X, X, kernel=MUL)
    program.run("aten::mul", X, X, kernel=MUL)
    for depth, name in enumerate(node):
        program.build.op(name, start - 1 + depth / 2, 230 - depth)
    assert not program.findings("hbm_round_trip")


def test_an_expanded_operand_is_the_small_tensor_behind_it() -> None:
    program = Program().step().run("aten::gelu", X, kernel=GELU)
    program.run("aten::div", X, kernel=MUL, strides=[[1, 0]])
    assert not program.findings("hbm_round_trip")


def test_gradients_that_meet_are_added_to_one_another() -> None:
    program = Program().step()
    start = program.now
    program.run("aten::mul", X, X, kernel=MUL, us=30)
    program.build.op("autograd::engine::evaluate_function: MulBackward0", start - 1, 109)
    program.build.op("MulBackward0", start - 0.5, 107)
    start = program.now
    program.run("aten::add_", X, X, kernel=ADD, us=30)
    program.build.op("autograd::engine::evaluate_function: AddBackward0", start - 1, 109)
    (finding,) = program.findings("hbm_round_trip")
    assert finding.title.startswith("mul → add_")


def test_a_parameters_gradient_is_taken_by_no_kernel_of_the_backward_pass() -> None:
    program = Program().step()
    for _ in range(2):
        start = program.now
        program.run("aten::add_", X, X, kernel=ADD)
        name = "torch::autograd::AccumulateGrad"
        program.build.op(f"autograd::engine::evaluate_function: {name}", start - 1, 109)
        program.build.op(name, start - 0.5, 107)
    assert not program.findings("hbm_round_trip")


def test_in_training_the_forward_intermediate_is_still_written() -> None:
    """``mlp_train_eager`` keeps gelu's result for the backward pass: one trip of 50.3 MB, not two."""
    (finding,) = of_trace("mlp_train_eager", "hbm_round_trip")
    assert "gelu → mul 14.0 µs" in finding.explanation
    assert "counted as still written" in finding.explanation


def test_the_eager_mlp_saves_what_its_compiled_twin_saves() -> None:
    """Compiled, the pointwise kernels of a step take 31.8 µs less."""
    (finding,) = of_trace("mlp_eager", "hbm_round_trip")
    assert finding.saving_us == pytest.approx(31.8, rel=0.25)


@pytest.mark.parametrize("name", ["mlp_compile", "mlp_liger", "linear_eager", "mlp_cudagraph"])
def test_nothing_is_left_between_fused_kernels(name: str) -> None:
    assert not of_trace(name, "hbm_round_trip")


def test_gate_and_up_could_end_in_the_activation() -> None:
    program = Program().step()
    program.run("aten::mm", [8192, 768], [768, 3072], kernel=GEMM, us=56)
    program.run("aten::gelu", [64, 128, 3072], kernel=GELU, us=30)
    program.run("aten::mm", [8192, 768], [768, 3072], kernel=GEMM, us=56)
    program.run("aten::mul", [64, 128, 3072], [64, 128, 3072], kernel=MUL, us=36)
    report = program.report()

    (epilogue,) = [f for f in report.findings if f.rule == "gemm_then_pointwise"]
    (fusion,) = [f for f in report.findings if f.rule == "hbm_round_trip"]
    assert epilogue.title.startswith("2 mm, then gelu → mul")
    assert epilogue.saving_us is not None
    assert fusion.saving_us is not None
    # Both together never promise more than the pointwise kernels take.
    assert epilogue.saving_us + fusion.saving_us == pytest.approx(66)


def test_a_residual_addition_saves_two_of_its_three_trips() -> None:
    program = Program().step().run("aten::mm", [8192, 3072], [3072, 768], kernel=GEMM)
    (finding,) = program.run("aten::add", [8192, 768], [8192, 768], kernel=ADD, us=12).findings("gemm_then_pointwise")
    assert finding.saving_us == pytest.approx(12 * 2 / 3)


def test_heads_split_from_a_product_are_no_epilogue() -> None:
    program = Program().step().run("aten::mm", [4096, 1024], [1024, 1024], kernel=GEMM)
    program.run("aten::mul", [4, 16, 1024, 64], [1, 1, 1024, 64], kernel=MUL)
    assert not program.findings("gemm_then_pointwise")


def test_scaling_gradients_for_their_bucket_is_not_the_programs_work() -> None:
    for finding in of_trace("ddp_rank0", "gemm_then_pointwise"):
        assert not re.search(r"mm, then mul [\d.]+ µs", finding.explanation)


def test_small_tensors_are_a_matter_of_latency() -> None:
    program = Program().step().run("aten::mm", [8, 64], [64, 64], kernel=GEMM)
    program.run("aten::gelu", [8, 64], kernel=GELU).run("aten::mul", [8, 64], [8, 64], kernel=MUL)
    report = program.report()
    assert not [f for f in report.findings if f.rule in ("hbm_round_trip", "gemm_then_pointwise")]
