"""Attention: FLOPs against the formulas registered in torch's counter, bytes by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import sdpa_backward_flop_count, sdpa_flop_count

from foretrace.knowledge.costs import op_cost

BF16 = "c10::BFloat16"
Q, KV = [4, 16, 1024, 64], [4, 8, 1024, 64]  # grouped-query attention: 16 query heads, 8 key/value heads


def turned(shape: list[int]) -> list[int]:
    """[batch, heads, sequence, dim] → [batch, sequence, heads, dim]."""
    return [shape[0], shape[2], shape[1], shape[3]]


def row(tensors: list[list[int]], scalars: list[str]) -> dict[str, Any]:
    return {
        "shapes": tensors + [[] for _ in scalars],
        "dtypes": [BF16 if t else "" for t in tensors] + ["Scalar"] * len(scalars),
        "concrete": ["" for _ in tensors] + scalars,
    }


FORWARD = {
    "aten::scaled_dot_product_attention": row([Q, KV, KV, []], ["0.", "False", "0.125", "True"]),
    "aten::_scaled_dot_product_flash_attention": row([Q, KV, KV], ["0.", "False", "False", "0.125"]),
    "aten::_scaled_dot_product_efficient_attention": row([Q, KV, KV, []], ["True", "0.", "False", "0.125"]),
    "aten::_scaled_dot_product_cudnn_attention": row([Q, KV, KV, []], ["True", "0.", "False", "False"]),
    "aten::_cudnn_attention_forward": row([Q, KV, KV, [], [], []], ["1024", "1024", "True", "0.", "False", "False"]),
    "aten::_flash_attention_forward": row(
        [turned(Q), turned(KV), turned(KV), [], []], ["1024", "1024", "0.", "False", "False"]
    ),
    "aten::_efficient_attention_forward": row(
        [turned(Q), turned(KV), turned(KV), [], [], []], ["1024", "1024", "0.", "0", "True"]
    ),
    "flash_attn::_flash_attn_forward": row([turned(Q), turned(KV), turned(KV)], ["0.", "0.125", "False"]),
}
DENSE = 2 * (2 * 4 * 16 * 1024 * 64 + 2 * 4 * 8 * 1024 * 64)  # Q and output, K and V


@pytest.mark.parametrize("op", FORWARD)
def test_forward(op: str) -> None:
    cost = op_cost(op, **FORWARD[op])
    assert cost.flops == sdpa_flop_count(Q, KV, KV)
    log_sum_exp = 0 if op == "aten::scaled_dot_product_attention" else 4 * 4 * 16 * 1024
    assert cost.bytes == DENSE + log_sum_exp
    assert cost.note is None


BACKWARD = {
    "aten::_scaled_dot_product_flash_attention_backward": row(
        [Q, Q, KV, KV, Q, [], [], []], ["1024", "1024", "0.", "False"]
    ),
    "aten::_flash_attention_backward": row(
        [turned(s) for s in (Q, Q, KV, KV, Q)] + [[], [], []], ["1024", "1024", "0.", "False"]
    ),
    "aten::_scaled_dot_product_efficient_attention_backward": row(
        [Q, Q, KV, KV, [], Q, [], [], []], ["0.", "[True, True, True, False]", "False"]
    ),
    "aten::_efficient_attention_backward": row(
        [turned(Q), turned(Q), turned(KV), turned(KV), [], turned(Q), [], []],
        ["1024", "1024", "", "0.", "0", "0", "False"],
    ),
    "aten::_scaled_dot_product_cudnn_attention_backward": row(
        [Q, Q, KV, KV, Q, [], [], [], [], [], []], ["1024", "1024", "0.", "False"]
    ),
    "aten::_cudnn_attention_backward": row([Q, Q, KV, KV, Q, [], [], [], [], [], []], ["1024", "1024", "0.", "False"]),
}


@pytest.mark.parametrize("op", BACKWARD)
def test_backward(op: str) -> None:
    cost = op_cost(op, **BACKWARD[op])
    assert cost.flops == sdpa_backward_flop_count(Q, Q, KV, KV)
    # gradient, Q, K, V and the output are read; three gradients are written
    assert cost.bytes == 2 * (4 * 4 * 16 * 1024 * 64 + 4 * 4 * 8 * 1024 * 64)


def test_causal_attention_is_counted_in_full_and_says_so() -> None:
    full = FORWARD["aten::_scaled_dot_product_flash_attention"]
    causal = op_cost(
        "aten::_scaled_dot_product_flash_attention", **{**full, "concrete": ["", "", "", "0.", "True", "False", ""]}
    )
    assert causal.flops == sdpa_flop_count(Q, KV, KV)
    assert causal.note is not None
    assert "causal" in causal.note


def test_a_mask_is_read_too() -> None:
    plain = FORWARD["aten::scaled_dot_product_attention"]
    masked = op_cost(
        "aten::scaled_dot_product_attention",
        shapes=[Q, KV, KV, [1, 1, 1024, 1024], [], []],
        dtypes=[BF16, BF16, BF16, "bool", "Scalar", "Scalar"],
        concrete=["", "", "", "", "0.", "False"],
    )
    unmasked = op_cost("aten::scaled_dot_product_attention", **plain)
    assert masked.bytes is not None
    assert unmasked.bytes is not None
    assert masked.bytes - unmasked.bytes == 1024 * 1024


def test_a_value_dimension_of_its_own() -> None:
    cost = op_cost(
        "aten::_scaled_dot_product_cudnn_attention", **row([[1, 2, 8, 16], [1, 2, 8, 16], [1, 2, 8, 4], []], ["False"])
    )
    assert cost.flops == sdpa_flop_count([1, 2, 8, 16], [1, 2, 8, 16], [1, 2, 8, 4])
    assert cost.bytes == 2 * (2 * 8 * 16 * 2 + 2 * 8 * 4 * 2)


def test_packed_sequences_are_not_guessed() -> None:
    cost = op_cost(
        "aten::_flash_attention_forward",
        shapes=[[4096, 16, 64], [4096, 8, 64], [4096, 8, 64], [5], [5], [], []],
        dtypes=[BF16, BF16, BF16, "int", "int", "Scalar", "Scalar"],
    )
    assert cost.flops is None
    assert cost.reason is not None
    assert "unequal length" in cost.reason


def test_the_cpu_kernel_forward_and_backward(rows: Any) -> None:
    q = torch.randn(2, 4, 16, 8, requires_grad=True)
    attention = torch.nn.functional.scaled_dot_product_attention
    found = {r.op: r for r in rows(lambda: attention(q, q, q).sum().backward())}
    forward = found["aten::_scaled_dot_product_flash_attention_for_cpu"]
    backward = found["aten::_scaled_dot_product_flash_attention_for_cpu_backward"]
    assert forward.cost.flops == sdpa_flop_count(q.shape, q.shape, q.shape)
    assert forward.cost.bytes == forward.bytes_touched
    assert backward.cost.flops == sdpa_backward_flop_count(q.shape, q.shape, q.shape, q.shape)
    assert backward.cost.bytes == backward.bytes_touched
