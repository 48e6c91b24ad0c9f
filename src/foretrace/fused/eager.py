"""The layers in PyTorch's own differentiable operators, on every device and in every dtype.

This is what the fused layers compute, written down; it is also what runs where no kernel of ours does: on CPUs, in
float64, under `torch.func` transforms, for tensor subclasses and meta tensors.
"""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import linear

from foretrace.fused.activations import apply
from foretrace.fused.weights import split

__all__ = ["gated_act", "gated_mlp", "linear_act", "mlp"]


def gated_act(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """Return ``act(gate) * up``; any equal shapes."""
    return apply(activation, gate) * up


def linear_act(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    """Return ``act(x weightᵀ + bias)``: x [..., K] to [..., N]."""
    return apply(activation, linear(x, weight, bias))


def mlp(
    x: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor | None, bias2: Tensor | None, activation: str
) -> Tensor:
    """Return ``act(x weight1ᵀ + bias1) weight2ᵀ + bias2``: x [..., K] to [..., out]."""
    return linear(linear_act(x, weight1, bias1, activation), weight2, bias2)


def gated_mlp(
    x: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
    packing: str,
) -> Tensor:
    """Return ``(act(x gateᵀ) * (x upᵀ)) downᵀ`` with biases: x [..., K] to [..., out]; weights packed as they say."""
    if packing == "gate_up":  # one product reads x once
        gate, up = linear(x, gate_weight, gate_bias).chunk(2, dim=-1)
    else:
        weights, biases = split(gate_weight, up_weight, packing), split(gate_bias, up_bias, packing)
        assert weights[1] is not None
        gate, up = linear(x, weights[0], biases[0]), linear(x, weights[1], biases[1])
    return linear(gated_act(gate, up, activation), down_weight, down_bias)
