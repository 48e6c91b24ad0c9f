"""Where the bias goes: ``bias_in_epilogue``, ``epilogue_lost``, ``convolution_bias``."""

from __future__ import annotations

import pytest
from timelines import GEMM, Program, of_trace, pointwise

ADD = pointwise("CUDAFunctor_add<c10::BFloat16>")
BIASED = "nvjet_sm90_tst_64x8_64x16_1x2_h_bz_bias_TNT"


@pytest.mark.parametrize("name", ["linear_eager", "linear_compile"])
def test_the_bias_of_a_linear_is_in_the_epilogue(name: str) -> None:
    (finding,) = of_trace(name, "bias_in_epilogue")
    assert finding.title == "The bias of aten::addmm (1 a step) is added inside the GEMM"
    assert finding.count == 3
    assert not of_trace(name, "epilogue_lost")


def test_a_product_without_bias_has_none_to_lose() -> None:
    assert not of_trace("mlp_eager", "bias_in_epilogue")
    assert not of_trace("mlp_eager", "epilogue_lost")


def test_an_addition_of_a_vector_after_a_product_is_a_lost_epilogue() -> None:
    (finding,) = of_trace("matmul_add_eager", "epilogue_lost")
    assert finding.saving_us == pytest.approx(1.984, abs=0.01)
    assert not of_trace("matmul_add_eager", "gemm_then_pointwise")


def test_an_addition_of_a_matrix_is_no_bias() -> None:
    program = Program().step().run("aten::mm", [1024, 32], [32, 64], kernel=GEMM)
    assert not program.run("aten::add", [1024, 64], [1024, 64], kernel=ADD).findings("epilogue_lost")


def test_linear_with_non_contiguous_input_adds_in_place() -> None:
    program = Program().step()
    program.run("aten::mm", [1024, 32], [32, 64], kernel=GEMM, inside=("aten::linear", "aten::matmul"))
    program.run("aten::add_", [4, 256, 64], [64], kernel=ADD, us=3, inside=("aten::linear",))
    (finding,) = program.findings("epilogue_lost")
    assert "non-contiguous" in finding.explanation
    assert finding.saving_us == pytest.approx(3)


def test_a_matrix_addend_is_copied_in_before_the_gemm() -> None:
    """What torch.compile makes of ``matmul + matrix``: a hidden copy, then a GEMM with beta = 1."""
    program = Program().step()
    copy = "Memcpy DtoD (Device -> Device)"
    program.run("aten::addmm", [64, 64], [64, 64], [64, 64], kernel=GEMM, us=33, seed=copy)
    (finding,) = program.findings("epilogue_lost")
    assert "beta = 1" in finding.explanation
    assert [e.name for e in finding.evidence] == [copy]
    assert not program.findings("bias_in_epilogue")


def test_a_vector_bias_inside_addmm_counts_whatever_the_kernel_is_called() -> None:
    program = Program().step()
    program.run("aten::addmm", [64], [1024, 32], [32, 64], kernel=GEMM)
    assert program.findings("bias_in_epilogue")
    program = Program().step()
    program.run("aten::addmm", [64], [1024, 32], [32, 64], kernel=BIASED)
    assert program.findings("bias_in_epilogue")


def test_a_convolution_adds_its_bias_afterwards() -> None:
    program = Program().step()
    inside = ("aten::conv2d", "aten::convolution", "aten::_convolution")
    program.run("aten::add_", [4, 768, 14, 14], [1, 768, 1, 1], kernel=ADD, us=4, inside=inside)
    (finding,) = program.findings("convolution_bias")
    assert finding.saving_us == pytest.approx(4)
    assert not program.findings("epilogue_lost")
