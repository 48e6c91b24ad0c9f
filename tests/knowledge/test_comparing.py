"""Facts a comparison rests on."""

import pytest

from foretrace.knowledge.comparing import absorbs, accumulates, contains, copy_reason, is_part
from foretrace.knowledge.compiled import code_name, compile_row_label, is_compile_row


@pytest.mark.parametrize(
    ("part", "op", "fits"),
    [
        ("gelu", "aten::gelu", True),
        ("add", "aten::add_", True),
        ("_to_copy", "aten::copy_", True),
        ("softmax", "aten::_softmax", True),
        ("mul", "aten::mm", False),
        ("mul", None, False),
    ],
)
def test_parts_of_fused_kernels(part, op, fits):
    assert is_part(part, op) is fits


def test_a_fused_kernel_contains_another_where_it_names_all_of_its_parts():
    assert contains(["mm", "gelu_tanh", "mul"], ["gelu", "mul"])
    assert not contains(["mm", "gelu_tanh", "mul"], ["gelu", "mul", "add"])
    # The activation is evaluated anew in its backward.
    assert contains(["mm", "gelu_tanh_backward", "mul"], ["gelu", "gelu_backward", "mul"])
    assert not contains(["mm", "gelu_tanh", "mul"], ["gelu_backward", "mul"])


def test_products_that_add_to_something():
    assert accumulates("aten::addmm_")
    assert accumulates("aten::baddbmm")
    assert not accumulates("aten::mm")
    assert not accumulates(None)


def test_what_may_become_one_kernel_by_its_place_alone():
    assert absorbs("attention", ["gemm", "softmax", "gemm"])
    assert absorbs("fused", ["elementwise", "copy"])
    assert not absorbs("fused", ["elementwise"])
    assert not absorbs("fused", ["gemm", "elementwise"])
    assert not absorbs("elementwise", ["elementwise", "elementwise"])


def test_reasons_of_copies():
    assert "beta = 1" in copy_reason("aten::addmm", memcpy=True, graphs=False)
    assert "CUDA graph" in copy_reason("aten::_foreach_copy_", memcpy=False, graphs=True)
    assert copy_reason("aten::_foreach_copy_", memcpy=False, graphs=False) is None


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("TorchDynamo Cache Lookup", "TorchDynamo Cache Lookup"),
        ("Torch-Compiled Region: 0/1", "Torch-Compiled Region"),
        ("## Call CompiledFxGraph fabc ##", "## Call CompiledFxGraph"),
    ],
)
def test_rows_of_the_compiler(name, label):
    assert is_compile_row(name)
    assert compile_row_label(name) == label


def test_operators_are_no_rows_of_the_compiler():
    assert not is_compile_row("aten::mm")
    assert not is_compile_row("mlp_fwd")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("triton_poi_fused_gelu_mul_12", "triton_poi_fused_gelu_mul"),
        ("triton_red_fused_mean_0", "triton_red_fused_mean"),
        ("triton_mm", "triton_mm"),
        ("sgemm_128_64", "sgemm_128_64"),
    ],
)
def test_the_number_of_a_generated_kernel_is_left_out(name, code):
    assert code_name(name) == code
