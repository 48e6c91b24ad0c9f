"""A fused layer as its plan runs it: each step by a kernel of its own, or by products of the library and what follows.

The predictor takes no part of the fused modules themselves: this says what they launch, in their order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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
        positive = functional.relu(x)
        return positive * positive
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


class Wanted(NamedTuple):
    """Whether each of x and the `Weights` gets a gradient."""

    x: bool
    first: bool
    up: bool
    down: bool
    bias: bool
    up_bias: bool
    down_bias: bool

    @property
    def sums(self) -> bool:
        """Whether the column sums of the pre-activations' gradient are somebody's gradient."""
        return self.bias or self.up_bias

    @property
    def inner(self) -> bool:
        """Whether anything is wanted that is made of the pre-activations' gradient."""
        return self.x or self.first or self.up or self.sums


def _dense(bias: Tensor | None) -> Tensor | None:
    """A bias as kernels read it: every other element of a stacked one is copied."""
    return bias if bias is None or bias.stride(0) == 1 else bias.contiguous()


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

    def _pace(self, step: str) -> tuple[float, float]:
        """Of its kernel: times as long as the Hopper kernel, and µs that are expected; 0 where nothing is."""
        return self.plan.beside_hopper.get(step, 1.0), self.plan.expected_us.get(step, 0.0)

    def gate_and_up(self, first: Any, up: Any) -> tuple[Any, Any]:
        """Weights or biases, each of which may be ``None``: themselves, or views of the stacked one."""
        if self.packing == "separate" or first is None:
            return first, up
        if self.packing == "interleaved":
            return first[0::2], first[1::2]
        half = first.shape[0] // 2
        return (first[:half], first[half:]) if self.packing == "gate_up" else (first[half:], first[:half])

    def expand(self, x: Tensor, weights: Weights, *, keep: bool) -> tuple[Tensor, Tensor | None]:
        """Hidden [M, N] and, if they are kept, the pre-activations."""
        first, up, _, bias, up_bias, _ = weights
        how = self.plan.expand
        if not self.gated:
            if how not in _NO_KERNEL:
                hidden, preact = operators.linear_act(x, first, bias, self.activation, keep, *self._pace("expand"))
                return hidden, preact if keep else None
            preact = _product(x, first, bias)
            plain = how == "plain"
            hidden = apply_activation(self.activation, preact) if plain else operators.act(preact, self.activation)
            return hidden, preact if keep else None
        if how not in _NO_KERNEL:
            gate, up = self.gate_and_up(first, up)
            bias, up_bias = (_dense(item) for item in self.gate_and_up(bias, up_bias))
            hidden, preact = operators.gate_up(x, gate, up, bias, up_bias, self.activation, keep, *self._pace("expand"))
            return hidden, preact if keep else None
        gate, other, preact = self._separately(x, weights, keep=keep)
        if how == "elementwise":
            return operators.gated_act(gate, other, self.activation), preact
        return apply_activation(self.activation, gate).mul_(other), preact

    def _separately(self, x: Tensor, weights: Weights, *, keep: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """Both halves of the pre-activations by the library, and the two side by side if they are kept."""
        first, up, _, bias, up_bias, _ = weights
        if self.packing == "gate_up":  # the one order in which both weights are one factor
            preact = _product(x, first, bias)
            gate, other = preact.chunk(2, dim=1)
            return gate, other, preact if keep else None
        factors = self.gate_and_up(first, up)
        biases = [_dense(item) for item in self.gate_and_up(bias, up_bias)]
        if not keep:
            gate, other = (_product(x, weight, own) for weight, own in zip(factors, biases, strict=True))
            return gate, other, None
        half = factors[0].shape[0]
        preact = x.new_empty(x.shape[0], 2 * half)
        gate, other = preact[:, :half], preact[:, half:]
        for weight, own, columns in zip(factors, biases, (gate, other), strict=True):
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
        self, grad: Tensor, down: Tensor | None, preact: Tensor, *, bias: bool, again: bool, straight: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Gradient of the pre-activations, its column sums, and hidden once more where it was not kept.

        ``straight``: everything was kept and every gradient is wanted.
        """
        how = self.plan.backward
        if down is not None and how not in _NO_KERNEL:
            step = operators.gate_up_backward if self.gated else operators.linear_act_backward
            inside = bias and how not in _SUM_AFTERWARDS
            result, sums, hidden = step(grad, down, preact, self.activation, inside, again, *self._pace("backward"))
            if bias and not inside:
                sums = self._sums(result, straight)
            return result, sums if bias else None, hidden if again else None
        if down is not None:
            grad = torch.mm(grad, down)
        if how != "plain" and not self.gated:
            return self._elementwise_sums(grad, preact, bias, again)
        result, hidden = self._elementwise(grad, preact, again) if how != "plain" else self._plain(grad, preact, again)
        return result, self._sums(result, straight) if bias else None, hidden

    def _sums(self, gradient: Tensor, straight: bool) -> Tensor:
        """A bias's gradient as a reduction of its own: in float32, to be cast later, but where it casts itself."""
        return gradient.sum(0) if straight and not self.gated else gradient.sum(0, dtype=torch.float32)

    def input_gradient(self, of_preact: Tensor, first: Tensor, up: Tensor | None) -> Tensor:
        """Gradient of x [M, K]: one product where the weights are one factor, else the second is added to the first."""
        if not self.gated or self.packing == "gate_up":
            return torch.mm(of_preact, first)
        gate, up = self.gate_and_up(first, up)
        half = gate.shape[0]
        return torch.mm(of_preact[:, :half], gate).addmm_(of_preact[:, half:], up)

    def weight_gradients(self, of_preact: Tensor, x: Tensor, want: Wanted) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of the first (or stacked) and the up weight, as far as they are wanted."""
        if not (want.first or want.up):
            return None, None
        if not self.gated or self.packing == "gate_up":
            return self.weight_gradient(of_preact, x), None
        half = of_preact.shape[1] // 2
        of_gate, of_up = of_preact[:, :half], of_preact[:, half:]
        if self.packing != "separate":
            both = of_preact.new_empty(2 * half, x.shape[1])
            for own, rows in zip((of_gate, of_up), self.gate_and_up(both, None), strict=True):
                self.weight_gradient(own, x, rows)
            return both, None
        if want.first and want.up:
            both = self.weight_gradient(of_preact, x)
            return both[:half], both[half:]
        only = self.weight_gradient(of_gate if want.first else of_up, x)
        return (only, None) if want.first else (None, only)

    def bias_gradients(self, sums: Tensor | None, dtype: torch.dtype) -> tuple[Tensor | None, Tensor | None]:
        """Gradients of the first (or stacked) and the up bias from the column sums, gate first."""
        if sums is None:
            return None, None
        sums = sums.to(dtype)
        if not self.gated or self.packing == "gate_up":
            return sums, None
        half = sums.shape[0] // 2
        if self.packing == "separate":
            return sums[:half], sums[half:]
        both = torch.empty_like(sums)
        for own, elements in zip((sums[:half], sums[half:]), self.gate_and_up(both, None), strict=True):
            elements.copy_(own)
        return both, None

    def weight_gradient(self, grad: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
        """gradᵀ·x [N, K] for grad [M, N] and x [M, K], written to ``out`` if given."""
        if 0 < grad.shape[0] <= FEW_ROWS and grad.dtype in _HALVES and not self.plan.is_plain:
            made: Tensor = operators.weight_gradient(grad, x)
            # The kernel writes where it is told to; without data nothing needs to arrive there.
            return made if out is None else out
        return torch.mm(grad.t(), x) if out is None else torch.mm(grad.t(), x, out=out)

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
    """A whole layer; it keeps what the plan says: pre-activations and hidden, the former alone, or the input alone.

    What no wanted gradient needs is neither kept nor computed.
    """

    @staticmethod
    def forward(context: Any, recipe: Recipe, x: Tensor, *weights: Any) -> Tensor:
        """Output [M, out] of a call with ``recipe`` on x [M, K] and the `Weights`."""
        want, save = Wanted(*context.needs_input_grad[1:]), recipe.plan.save
        result, hidden, preact = recipe.forward(x, weights, keep=want.inner and save != "input")
        # Where nothing inside is wanted, hidden is all that the second weight's gradient needs, and half as large.
        keep_hidden = want.down and (save == "preact" or (save == "recompute" and not want.inner))
        context.save_for_backward(x, hidden if keep_hidden else None, preact, *weights)
        context.recipe, context.want = recipe, want
        given = [wanted for wanted, item in zip(want, (x, *weights), strict=True) if item is not None]
        context.straight = save == "preact" and recipe.packing == "separate" and all(given)
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        """The wanted gradients of what forward was given, in the order in which the fused modules make them."""
        x, hidden, preact, *weights = context.saved_tensors
        first, up, down, *_ = weights
        recipe: Recipe = context.recipe
        want: Wanted = context.want
        grad = gradients[0].contiguous()
        last = hidden is not None and want.inner and weights_come_last(*grad.shape)
        from_input = preact is None and hidden is None and (want.inner or want.down)
        if from_input:
            inner, preact = recipe.expand(x, weights, keep=want.inner)
            hidden = inner if want.down else None
        of_down = None if hidden is None or last else recipe.weight_gradient(grad, hidden)
        of_x = of_first = of_up = sums = None
        if want.inner:
            again = want.down and hidden is None
            of_preact, sums, made = recipe.through(
                grad, down, preact, bias=want.sums, again=again, straight=context.straight
            )
            if made is not None:
                of_down = recipe.weight_gradient(grad, made)
            # Only where everything comes from the input, a piece of the rows at a time, do weights go before it.
            if from_input:
                of_first, of_up = recipe.weight_gradients(of_preact, x, want)
            if want.x:
                of_x = recipe.input_gradient(of_preact, first, up)
            if last:
                of_down = recipe.weight_gradient(grad, hidden)
            if not from_input:
                of_first, of_up = recipe.weight_gradients(of_preact, x, want)
        of_bias, of_up_bias = recipe.bias_gradients(sums, x.dtype)
        return (
            None,
            of_x,
            of_first,
            of_up,
            of_down,
            of_bias if want.bias else None,
            of_up_bias if want.up_bias else None,
            grad.sum(0) if want.down_bias else None,
        )
