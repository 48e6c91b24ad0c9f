"""FLOPs of matrix products and convolutions against torch's own counter; shapes, layouts and bytes by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the name torch's own documentation uses

from foretrace.knowledge.costs import op_cost

BF16 = "c10::BFloat16"


def randn(*size: int) -> torch.Tensor:
    return torch.randn(*size, requires_grad=True)


PROGRAMS: dict[str, Callable[[], Any]] = {
    "mm": lambda: (randn(6, 8) @ randn(8, 5)).sum().backward(),
    "addmm": lambda: F.linear(randn(6, 8), randn(5, 8), randn(5)).sum().backward(),
    "linear_3d": lambda: F.linear(randn(2, 3, 8), randn(5, 8), randn(5)).sum().backward(),
    "bmm": lambda: torch.bmm(randn(2, 3, 4), randn(2, 4, 5)).sum().backward(),
    "baddbmm": lambda: torch.baddbmm(randn(2, 3, 5), randn(2, 3, 4), randn(2, 4, 5)).sum().backward(),
    "matmul_broadcast": lambda: torch.matmul(randn(2, 1, 3, 4), randn(5, 4, 6)).sum().backward(),
    "conv1d": lambda: F.conv1d(randn(2, 4, 9), randn(6, 4, 3), randn(6)).sum().backward(),
    "conv2d": lambda: F.conv2d(randn(2, 4, 9, 9), randn(6, 4, 3, 3), randn(6)).sum().backward(),
    "conv2d_stride": lambda: F.conv2d(randn(2, 4, 9, 9), randn(6, 4, 3, 3), stride=2, padding=1).sum().backward(),
    "conv2d_dilation": lambda: F.conv2d(randn(1, 4, 9, 9), randn(6, 4, 3, 3), dilation=2).sum().backward(),
    "conv2d_groups": lambda: F.conv2d(randn(1, 4, 9, 9), randn(6, 2, 3, 3), groups=2),
    "conv3d": lambda: F.conv3d(randn(1, 2, 5, 6, 7), randn(3, 2, 2, 3, 3), padding=1).sum().backward(),
    "transposed": lambda: F.conv_transpose2d(randn(2, 4, 5, 5), randn(4, 6, 3, 3), randn(6)).sum().backward(),
    "transposed_stride": lambda: (
        F.conv_transpose2d(randn(2, 4, 5, 5), randn(4, 6, 3, 3), stride=2, padding=1, output_padding=1).sum().backward()
    ),
    "frozen_weight": lambda: F.conv2d(randn(1, 4, 9, 9), torch.randn(6, 4, 3, 3)).sum().backward(),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_flops_are_those_torch_counts(name: str, rows: Any) -> None:
    counted = [row for row in rows(PROGRAMS[name]) if row.torch_flops is not None]
    assert counted
    for row in counted:
        assert row.cost.flops == row.torch_flops, row.op
        assert row.cost.bytes == row.bytes_touched or "backward" in row.op, row.op


def test_grouped_weight_gradient_counts_each_group_once(one_row: Any) -> None:
    # torch's counter multiplies the weight gradient of a grouped convolution by the groups once too often;
    # every pair of gradient and input channel of one group meets once, as in the forward.
    x, w = randn(1, 4, 9, 9), randn(6, 2, 3, 3)
    forward = one_row(lambda: F.conv2d(x, w, groups=2), "aten::convolution").cost.flops
    backward = one_row(lambda: F.conv2d(x, w, groups=2).sum().backward(), "aten::convolution_backward")
    assert backward.cost.flops == 2 * forward
    assert backward.torch_flops == 3 * forward


def test_the_gate_projection_of_the_geglu_mlp() -> None:
    # x [8192, 768] @ w.T, w [3072, 768]: 2 · 8192 · 3072 · 768
    cost = op_cost("aten::mm", shapes=[[8192, 768], [768, 3072]], dtypes=[BF16, BF16], strides=[[768, 1], [1, 768]])
    assert cost.flops == 38_654_705_664
    assert cost.bytes == 2 * (8192 * 768 + 768 * 3072 + 8192 * 3072)
    (gemm,) = cost.gemms
    assert (gemm.m, gemm.n, gemm.k, gemm.batch, gemm.dtype, gemm.layout, gemm.bias) == (
        8192, 3072, 768, 1, "bf16", "TN", False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("product", "strides", "layout"),
    [
        ("x @ w.T", [[768, 1], [1, 768]], "TN"),
        ("x @ w", [[768, 1], [3072, 1]], "NN"),
        ("x.T @ g, the weight gradient", [[1, 8192], [3072, 1]], "NT"),
        ("x.T @ w.T", [[1, 8192], [1, 768]], "TT"),
        ("padded rows", [[1024, 1], [4096, 1]], "NN"),
        ("not recorded", None, None),
    ],
)
def test_layout_letters_are_cublas_ones(product: str, strides: Any, layout: str | None) -> None:
    cost = op_cost("aten::mm", shapes=[[8192, 768], [768, 3072]], dtypes=[BF16, BF16], strides=strides)
    assert cost.gemms[0].layout == layout


def test_addmm_reads_its_bias_unless_beta_is_zero() -> None:
    row = {
        "shapes": [[64], [1024, 32], [32, 64], [], []],
        "dtypes": [BF16, BF16, BF16, "Scalar", "Scalar"],
        "strides": [[1], [32, 1], [1, 32], [], []],
    }
    product = 2 * (1024 * 32 + 32 * 64 + 1024 * 64)
    with_bias = op_cost("aten::addmm", concrete=["", "", "", "1", "1"], **row)
    assert (with_bias.bytes, with_bias.gemms[0].bias) == (product + 2 * 64, True)
    without = op_cost("aten::addmm", concrete=["", "", "", "0", "1"], **row)
    assert (without.bytes, without.gemms[0].bias) == (product, False)


def test_the_out_operand_of_a_compiled_addmm_is_the_result() -> None:
    cost = op_cost(
        "aten::addmm",
        shapes=[[64], [1024, 32], [32, 64], [], [], [1024, 64]],
        dtypes=[BF16, BF16, BF16, "Scalar", "Scalar", BF16],
        concrete=["", "", "", "1", "1", ""],
    )
    assert cost.flops == 2 * 1024 * 32 * 64
    assert cost.bytes == 2 * (64 + 1024 * 32 + 32 * 64 + 1024 * 64)


def test_fp8_product_has_the_result_type_it_was_asked_for() -> None:
    fp8 = "c10::Float8_e4m3fn"
    row: dict[str, Any] = {
        "shapes": [[16, 32], [32, 64], [], [], [], [], [], []],
        "dtypes": [fp8, fp8, "float", "float", "", "", "Scalar", "Scalar"],
    }
    cost = op_cost("aten::_scaled_mm", concrete=["", "", "", "", "", "", "15", "False"], **row)
    assert cost.flops == 2 * 16 * 32 * 64
    assert cost.bytes == 16 * 32 + 32 * 64 + 4 + 4 + 2 * 16 * 64
    unrecorded = op_cost("aten::_scaled_mm", **row)
    assert (unrecorded.flops, unrecorded.bytes) == (cost.flops, None)
    assert unrecorded.reason is not None


def test_grouped_products_count_every_row_once() -> None:
    # four experts [4, 32, 64], 128 rows shared out among them
    cost = op_cost(
        "aten::_grouped_mm",
        shapes=[[128, 32], [4, 32, 64], [4], [], []],
        dtypes=[BF16, BF16, "int", "", ""],
        concrete=["", "", "", "", ""],
    )
    assert cost.flops == 2 * 128 * 32 * 64
    assert cost.bytes == 2 * (128 * 32 + 4 * 32 * 64 + 128 * 64) + 4 * 4


def test_vector_products() -> None:
    assert op_cost("aten::mv", shapes=[[6, 8], [8]], dtypes=["float"] * 2).flops == 2 * 6 * 8
    assert op_cost("aten::dot", shapes=[[8], [8]], dtypes=["float"] * 2).flops == 2 * 8
    addmv = op_cost("aten::addmv", shapes=[[6], [6, 8], [8]], dtypes=["float"] * 3)
    assert (addmv.flops, addmv.bytes) == (96, 4 * (6 + 48 + 8 + 6))


def test_cudnn_row_keeps_padding_before_stride() -> None:
    # torch's cudnn_convolution: (self, weight, padding, stride, dilation, groups, …)
    cost = op_cost(
        "aten::cudnn_convolution",
        shapes=[[128, 3, 224, 224], [64, 3, 11, 11], [], [], [], []],
        dtypes=["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
        concrete=["", "", "[2, 2]", "[4, 4]", "[1, 1]", "1"],
    )
    assert cost.flops == 2 * 128 * 64 * 55 * 55 * 3 * 11 * 11  # AlexNet's first layer


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        ("aten::mm", [[2, 3], [4, 5]]),
        ("aten::mm", [[2, 3]]),
        ("aten::bmm", [[2, 3, 4], [3, 4, 5]]),
        ("aten::linear", [[2, 3], [4, 5]]),
        ("aten::convolution", [[1, 3, 8, 8], [4, 3, 3, 3]]),  # no stride recorded
    ],
)
def test_what_cannot_be_known_has_a_reason(op: str, shapes: list[list[int]]) -> None:
    cost = op_cost(op, shapes=shapes, dtypes=["float"] * len(shapes))
    assert cost.flops is None
    assert cost.bytes is None
    assert cost.reason
