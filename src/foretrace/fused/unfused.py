"""Steps that leave the products to the library: cuBLAS and one elementwise kernel of ours, or cuBLASLt's epilogue.

They need a CUDA device. Where a fused kernel cannot keep up with cuBLAS's main loop, at large K, the first wins.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from foretrace.errors import InputError
from foretrace.fused.kernels import elementwise
from foretrace.fused.plain import column_sums, gated_preactivations

__all__ = ["gate_up", "gate_up_backward", "library_linear_act", "linear_act", "linear_act_backward"]


def gate_up(
    x: Tensor,
    gate: Tensor,
    up: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
) -> tuple[Tensor, Tensor | None]:
    """As the step of `foretrace.fused.steps`: cuBLAS, then the elementwise kernel."""
    for_gate, for_up, preact = gated_preactivations(x, gate, up, gate_bias, up_bias, keep=keep)
    return elementwise.gated_act(for_gate, for_up, activation, precision=precision), preact


def linear_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
) -> tuple[Tensor, Tensor | None]:
    """As the step of `foretrace.fused.steps`: cuBLAS, then the elementwise kernel."""
    preact = linear(x, weight, bias)
    return elementwise.act(preact, activation, precision=precision), preact if keep else None


def library_linear_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",  # noqa: ARG001
) -> tuple[Tensor, None]:
    """Return act(x weightᵀ + bias) by cuBLASLt's epilogue: the tanh GELU, on CUDA, with a bias, for inference only.

    Elsewhere the same call of PyTorch computes the exact GELU, so it is refused: raises :class:`InputError`.
    """
    if activation != "gelu_tanh" or bias is None or keep or not x.is_cuda:
        raise InputError(
            "the library's epilogue computes Linear with a bias and gelu_tanh on CUDA, and keeps no pre-activations; "
            "choose another implementation for this call"
        )
    return torch._addmm_activation(bias, x, weight.t(), use_gelu=True), None


def gate_up_backward(
    grad_out: Tensor,
    down: Tensor,
    preact: Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As the step of `foretrace.fused.steps`: cuBLAS, then the elementwise kernel."""
    result = torch.empty_like(preact) if into is None else into
    sizes = (down.shape[1],) * 2
    gate, up = torch.split_with_sizes(preact, sizes, 1)
    grad_gate, grad_up = (gate, up) if result is preact else torch.split_with_sizes(result, sizes, 1)
    hidden = elementwise.gated_act_backward(
        torch.mm(grad_out, down), gate, up, activation, grad_gate=grad_gate, grad_up=grad_up, want_hidden=want_hidden
    )[2]
    return result, hidden, column_sums(result) if want_bias else None


def linear_act_backward(
    grad_out: Tensor,
    down: Tensor,
    preact: Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: Tensor | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """As the step of `foretrace.fused.steps`: cuBLAS, then the elementwise kernel."""
    grad_hidden = torch.mm(grad_out, down)
    return elementwise.act_backward(
        grad_hidden, preact, activation, into=into, want_hidden=want_hidden, want_bias=want_bias
    )
