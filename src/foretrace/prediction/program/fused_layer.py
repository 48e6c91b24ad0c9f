"""A fused layer as its plan runs it: each step by a kernel of its own, or by products of the library and what follows.

The predictor takes no part of the fused modules themselves: this says what they launch, in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from foretrace.knowledge.lowering.fused import FEW_ROWS, weights_come_last
from foretrace.prediction.dispatch import FusedPlan
from foretrace.prediction.program.fused_operators import operators

__all__ = ["FusedFunction", "Recipe", "apply_activation"]

_NO_KERNEL = ("plain", "elementwise")
# Fused backward steps that leave a bias's gradient to a reduction.
_SUM_AFTERWARDS = ("hopper",)
_HALVES = (torch.bfloat16, torch.float16)

# First weight (or gate, or the stacked one), up or None, second or None, and a bias for each.
Weights = tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, Tensor | None, Tensor | None]


def apply_activation(name: str, x: Tensor) -> Tensor:
    """The activation by PyTorch's operators."""
    if name == "relu2":
        return functional.relu(x).square()
    if name.startswith("gelu"):
        return functional.gelu(x, approximate="tanh" if name == "gelu_tanh" else "none")
    named: dict[str, Callable[[Tensor], Tensor]] = {
        "silu": functional.silu,
        "relu": functional.relu,
        "sigmoid": torch.sigmoid,
    }
    return named[name](x)


def _gradient(name: str, grad: Tensor, x: Tensor, out: Tensor) -> Tensor:
    """Written to ``out``: the pre-activations' memory, or memory like theirs."""
    aten: Any = torch.ops.aten
    if name.startswith("gelu"):
        approximate = "tanh" if name == "gelu_tanh" else "none"
        aten.gelu_backward.grad_input(grad, x, approximate=approximate, grad_input=out)
    elif name == "silu":
        aten.silu_backward.grad_input(grad, x, grad_input=out)
    elif name == "sigmoid":
        aten.sigmoid_backward.grad_input(grad, torch.sigmoid(x), grad_input=out)
    else:
        cut = 2 * functional.relu(x) * grad if name == "relu2" else grad
        aten.threshold_backward.grad_input(cut, x, 0, grad_input=out)
    return out


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight.t()) if bias is None else torch.addmm(bias, x, weight.t())


@dataclass(frozen=True)
class Recipe:
    """How one call runs. ``operation``, ``activation``, ``packing`` and ``plan``: words of `foretrace.fused.plan`."""

    operation: str
    activation: str
    packing: str
    plan: FusedPlan

    @property
    def gated(self) -> bool:
        """Whether there is a gate."""
        return self.operation == "gated_mlp"

    def gate_and_up(self, both: Tensor) -> tuple[Tensor, Tensor]:
        """Views of a stacked weight or bias."""
        if self.packing == "interleaved":
            return both[0::2], both[1::2]
        first, second = both.chunk(2)
        return (first, second) if self.packing == "gate_up" else (second, first)

    def expand(self, x: Tensor, weights: Weights, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Hidden [M, N] and, if they are kept, the pre-activations."""
        first, up, _, bias, up_bias, _ = weights
        how = self.plan.expand
        if not self.gated:
            if how not in _NO_KERNEL:
                hidden, preact = operators.linear_act(x, first, bias, self.activation, keep)
                return hidden, preact if keep else None
            preact = _product(x, first, bias)
            plain = how == "plain"
            hidden = apply_activation(self.activation, preact) if plain else operators.act(preact, self.activation)
            return hidden, preact
        if how not in _NO_KERNEL:
            gate = first
            if up is None:
                gate, up = self.gate_and_up(first)
                bias, up_bias = (None, None) if bias is None else self.gate_and_up(bias)
            hidden, preact = operators.gate_up(x, gate, up, bias, up_bias, self.activation, keep)
            return hidden, preact if keep else None
        gate, other, preact = self._separately(x, weights, keep=keep)
        if how == "elementwise":
            return operators.gated_act(gate, other, self.activation), preact
        return apply_activation(self.activation, gate).mul_(other), preact

    def _separately(self, x: Tensor, weights: Weights, *, keep: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Both halves of the pre-activations by the library, and the two side by side if they are kept."""
        first, up, _, bias, up_bias, _ = weights
        if up is None:
            preact = _product(x, first, bias)
            gate, other = preact.chunk(2, dim=1)
            return gate, other, preact
        if not keep:
            return _product(x, first, bias), _product(x, up, up_bias), None
        half = first.shape[0]
        preact = x.new_empty(x.shape[0], 2 * half)
        gate, other = preact[:, :half], preact[:, half:]
        for weight, own, columns in ((first, bias, gate), (up, up_bias, other)):
            if own is None:
                torch.mm(x, weight.t(), out=columns)
            else:
                columns.copy_(torch.addmm(own, x, weight.t()))
        return gate, other, preact

    def forward(self, x: Tensor, weights: Weights, *, keep: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Output, hidden and pre-activations."""
        hidden, preact = self.expand(x, weights, keep=keep)
        down, bias = weights[2], weights[5]
        if down is None:
            return hidden, hidden, preact
        if self.plan.project == "small":
            return operators.project(hidden, down, bias), hidden, preact
        return _product(hidden, down, bias), hidden, preact

    def through(
        self, grad: Tensor, down: Tensor | None, preact: Tensor, *, bias: bool, again: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Gradient of the pre-activations, its column sums, and hidden once more where it was not kept."""
        how = self.plan.backward
        if down is not None and how not in _NO_KERNEL:
            step = operators.gate_up_backward if self.gated else operators.linear_act_backward
            inside = bias and how not in _SUM_AFTERWARDS
            result, sums, hidden = step(grad, down, preact, self.activation, inside, again)
            if bias and not inside:
                sums = self._sums(result)
            return result, sums if bias else None, hidden if again else None
        if down is not None:
            grad = torch.mm(grad, down)
        if how != "plain" and not self.gated:
            return self._elementwise_sums(grad, preact, bias, again)
        result, hidden = self._elementwise(grad, preact, again) if how != "plain" else self._plain(grad, preact, again)
        return result, self._sums(result) if bias else None, hidden

    def _sums(self, gradient: Tensor) -> Tensor:
        """A bias's gradient as a reduction of its own: in float32 where it is cast later, with the gate's and up's."""
        return gradient.sum(0, dtype=torch.float32) if self.gated else gradient.sum(0)

    def weight_gradient(self, grad: Tensor, x: Tensor) -> Tensor:
        """gradᵀ·x [N, K] for grad [M, N] and x [M, K]."""
        if 0 < grad.shape[0] <= FEW_ROWS and grad.dtype in _HALVES and not self.plan.is_plain:
            made: Tensor = operators.weight_gradient(grad, x)
            return made
        return torch.mm(grad.t(), x)

    def _elementwise_sums(
        self, grad: Tensor, preact: Tensor, bias: bool, again: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        result, partial = operators.act_backward(grad, preact, self.activation, bias)
        sums = (partial[0] if partial.shape[0] == 1 else partial.sum(0)) if bias else None
        return result, sums, operators.act(preact, self.activation) if again else None

    def _elementwise(self, grad: Tensor, preact: Tensor, again: bool) -> tuple[Tensor, Tensor | None]:
        name = self.activation
        gate, up = preact.chunk(2, dim=1)
        operators.gated_act_backward(grad, gate, up, name)
        # The kernel writes both gradients into the buffer of the pre-activations, or into one like it.
        return preact, operators.gated_act(gate, up, name) if again else None

    def _plain(self, grad: Tensor, preact: Tensor, again: bool) -> tuple[Tensor, Tensor | None]:
        name = self.activation
        result = torch.empty_like(preact)
        if not self.gated:
            hidden = apply_activation(name, preact) if again else None
            return _gradient(name, grad, preact, result), hidden
        gate, up = preact.chunk(2, dim=1)
        activated = apply_activation(name, gate)
        hidden = activated * up if again else None
        half = gate.shape[1]
        _gradient(name, grad * up, gate, result[:, :half])
        torch.mul(activated, grad, out=result[:, half:])
        return result, hidden


class FusedFunction(torch.autograd.Function):
    """A whole layer; it keeps what the plan says: pre-activations and hidden, the former alone, or the input alone."""

    @staticmethod
    def forward(context: Any, recipe: Recipe, x: Tensor, *weights: Any) -> Tensor:
        """Output [M, out] of a call with ``recipe`` on x [M, K] and the `Weights`."""
        save = recipe.plan.save
        result, hidden, preact = recipe.forward(x, weights, keep=save != "input")
        kept = hidden if save == "preact" and weights[2] is not None else None
        context.save_for_backward(x, kept, None if save == "input" else preact, *weights)
        context.recipe = recipe
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        """The gradients of what forward was given, in the order in which the fused modules make them."""
        x, hidden, preact, *weights = context.saved_tensors
        first, up, down, bias, up_bias, down_bias = weights
        recipe: Recipe = context.recipe
        grad = gradients[0].contiguous()
        from_input = preact is None
        last = hidden is not None and weights_come_last(*grad.shape)
        if preact is None:
            inner, preact = recipe.expand(x, weights, keep=True)
            hidden = None if down is None else inner
        of_down = None if hidden is None or last else recipe.weight_gradient(grad, hidden)
        has_bias = bias is not None or up_bias is not None
        again = hidden is None and down is not None
        of_preact, sums, made = recipe.through(grad, down, preact, bias=has_bias, again=again)
        if made is not None:
            of_down = recipe.weight_gradient(grad, made)
        # Only where everything comes from the input, a piece of the rows at a time, do weights go before it.
        of_first = recipe.weight_gradient(of_preact, x) if from_input else None
        half = first.shape[0]
        of_x = None
        if context.needs_input_grad[1]:
            if up is None:
                of_x = torch.mm(of_preact, first)
            else:
                of_x = torch.mm(of_preact[:, :half], first).addmm_(of_preact[:, half:], up)
        if last:
            of_down = recipe.weight_gradient(grad, hidden)
        if of_first is None:
            of_first = recipe.weight_gradient(of_preact, x)
        return (
            None,
            of_x,
            of_first[:half],
            None if up is None else of_first[half:],
            of_down,
            None if bias is None or sums is None else sums[:half].to(x.dtype),
            None if up_bias is None or sums is None else sums[half:].to(x.dtype),
            None if down_bias is None else grad.sum(0),
        )
