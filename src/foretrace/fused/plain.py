"""Every step in PyTorch's operators, without autograd: any device, any dtype, and what the kernels must agree with.

Shapes and conventions are those of `foretrace.fused.steps`. Rounding is eager's: each operator rounds to the dtype.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import linear

from foretrace.fused.activations import apply, gradient
from foretrace.fused.weights import stacked

__all__ = [
    "act",
    "act_backward",
    "column_sums",
    "gate_up",
    "gate_up_backward",
    "gated_act",
    "gated_act_backward",
    "gated_preactivations",
    "linear_act",
    "linear_act_backward",
    "project",
]


def gated_preactivations(
    x: Tensor, gate: Tensor, up: Tensor, gate_bias: Tensor | None, up_bias: Tensor | None, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return x gateᵀ and x upᵀ, [M, N] each, with their biases and, if ``keep``, both side by side, [M, 2N].

    One product where the weights are one tensor, else two. Every result is rounded once, as by `torch.nn.Linear`.
    """
    n = gate.shape[0]
    weight = stacked(gate, up)
    bias = stacked(gate_bias, up_bias) if gate_bias is not None and up_bias is not None else None
    if weight is not None and (bias is not None or (gate_bias is None and up_bias is None)):
        preact = linear(x, weight, bias)
        return preact[:, :n], preact[:, n:], preact if keep else None
    if not keep:
        return linear(x, gate, gate_bias), linear(x, up, up_bias), None
    preact = x.new_empty((x.shape[0], 2 * n))
    halves = preact[:, :n], preact[:, n:]
    for weight, bias, half in zip((gate, up), (gate_bias, up_bias), halves, strict=True):
        if bias is None:
            torch.mm(x, weight.t(), out=half)
        else:
            # Written to rows with a gap, cuBLAS adds a bias to the product when that is rounded already.
            half.copy_(linear(x, weight, bias))
    return *halves, preact


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
    """Return hidden [M, N] and, if ``keep``, the pre-activations [M, 2N]."""
    for_gate, for_up, preact = gated_preactivations(x, gate, up, gate_bias, up_bias, keep=keep)
    return gated_act(for_gate, for_up, activation, precision=precision), preact


def linear_act(
    x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, *, keep: bool, precision: str = "exact"
) -> tuple[Tensor, Tensor | None]:
    """Return hidden [M, N] and, if ``keep``, the pre-activations [M, N]."""
    preact = linear(x, weight, bias)
    return act(preact, activation, precision=precision), preact if keep else None


def project(hidden: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return hidden weightᵀ + bias, [M, out]."""
    return linear(hidden, weight, bias)


def gated_act(gate: Tensor, up: Tensor, activation: str, *, precision: str = "exact") -> Tensor:  # noqa: ARG001
    """Return ``act(gate) * up``, contiguous."""
    # The activation's result is ours alone: multiply in place.
    return apply(activation, gate).contiguous().mul_(up)


def act(preact: Tensor, activation: str, *, precision: str = "exact") -> Tensor:  # noqa: ARG001
    """Return the activation of the pre-activations."""
    return apply(activation, preact)


def gated_act_backward(
    grad_hidden: Tensor,
    gate: Tensor,
    up: Tensor,
    activation: str,
    *,
    grad_gate: Tensor | None = None,
    grad_up: Tensor | None = None,
    want_hidden: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of gate and up and, if wanted, hidden again.

    ``grad_gate``, ``grad_up``: buffers to write; they may be ``gate`` and ``up`` themselves.
    """
    activated = apply(activation, gate)
    hidden = activated * up if want_hidden else None
    # The first result may overwrite gate, the second up: by then all that reads up has read it.
    for_gate = gradient(activation, grad_hidden * up, gate, out=grad_gate)
    for_up = activated.mul_(grad_hidden) if grad_up is None else torch.mul(activated, grad_hidden, out=grad_up)
    return for_gate, for_up, hidden


def act_backward(
    grad_hidden: Tensor,
    preact: Tensor,
    activation: str,
    *,
    into: Tensor | None = None,
    want_hidden: bool = False,
    want_bias: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the gradient of the pre-activations, hidden again if wanted, and the gradient's column sums if wanted.

    ``into`` may be ``preact``.
    """
    hidden = apply(activation, preact) if want_hidden else None
    result = gradient(activation, grad_hidden, preact, out=into)
    return result, hidden, column_sums(result) if want_bias else None


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
    """Return the gradient of the pre-activations [M, 2N], hidden if wanted, and their column sums if wanted [2N].

    The sums are float32, or float64 in float64.
    """
    result = torch.empty_like(preact) if into is None else into
    sizes = (down.shape[1],) * 2
    gate, up = torch.split_with_sizes(preact, sizes, 1)
    grad_gate, grad_up = (gate, up) if result is preact else torch.split_with_sizes(result, sizes, 1)
    hidden = gated_act_backward(
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
    """As `gate_up_backward` for one product: pre-activations and their gradient are [M, N]."""
    grad_hidden = torch.mm(grad_out, down)
    return act_backward(grad_hidden, preact, activation, into=into, want_hidden=want_hidden, want_bias=want_bias)


def column_sums(gradient: Tensor) -> Tensor:
    """Return the sums over rows, [N]: a bias's gradient, in float32 or wider."""
    return gradient.sum(0, dtype=torch.promote_types(gradient.dtype, torch.float32))
