"""What the CPU pays for dispatching a row."""

import pytest

from foretrace.knowledge.dispatching import LAUNCH_US, row_us


def test_a_linear_without_bias_takes_what_it_takes_without_the_profiler():
    """23.3 µs on the host that was measured, the one launch call included; its views, the product, its output."""
    chain = ["aten::linear", "aten::t", "aten::transpose", "aten::as_strided", "aten::matmul", "aten::mm"]
    took = sum(row_us(name, launches=name == "aten::mm") for name in chain)
    took += 2 * row_us("aten::view", launches=False) + row_us("aten::_unsafe_view", launches=False)
    assert took + LAUNCH_US == pytest.approx(23.3, rel=0.1)


def test_a_view_costs_less_than_a_kernel():
    views = [row_us(name, launches=False) for name in ("aten::view", "aten::t", "aten::as_strided", "aten::detach")]
    assert max(views) < row_us("aten::copy_", launches=True) < row_us("aten::mm", launches=True)


def test_prefixes_and_names_nobody_measured():
    assert row_us("triton_poi_fused_gelu_mul_0", launches=True) == row_us("triton_red_fused_sum_1", launches=True)
    named = row_us("autograd::engine::evaluate_function: MmBackward0", launches=False)
    assert named == row_us("autograd::engine::evaluate_function: X", launches=False) != row_us("x", launches=False)
    # An exact name comes before a prefix, and a longer name is no exact one.
    assert row_us("CompiledFunctionBackward", launches=False) > row_us("CompiledFunction", launches=False)
    assert row_us("aten::mm_", launches=False) == row_us("anything", launches=False)


def test_putting_work_on_the_gpu_costs_the_cpu_more():
    assert row_us("aten::erfinv", launches=True) > row_us("aten::erfinv", launches=False) > 0
