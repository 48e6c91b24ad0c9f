"""The most frequent calls without detours: in training every gradient is wanted and everything was kept for it.

Results are bitwise those of `foretrace.fused.autograd.functions`, which handles all calls; what is left out is deciding
about things that are decided here. Each operator and each Python call costs the host microseconds, and small layers are
bound by them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

from foretrace.fused.autograd.functions import gradient_rows, unsafe_view
from foretrace.fused.autograd.kept import graph_is_released, is_held_once, memory_of, refusing
from foretrace.fused.autograd.weight_gradient import weight_gradient_of, weights_come_last
from foretrace.fused.planning import Call

__all__ = [
    "StraightGatedMLPFunction",
    "StraightLinearActFunction",
    "StraightMLPFunction",
    "gated_mlp_forward",
    "is_straight",
    "linear_act_forward",
    "mlp_forward",
]

Gradients = tuple[Tensor | None, ...]

_halves: Final = torch.split_with_sizes
# Autograd knows these as no views: a gradient may be changed in place.
_separate_halves: Final = torch.unsafe_split_with_sizes
# Asking costs a fifth of entering a context and leaving it.
_any_autocast: Final[Callable[[], bool]] = torch._C._is_any_autocast_enabled
_grad_mode: Final[Callable[[], bool]] = torch.is_grad_enabled
# Implementations of the backward steps of one product whose sums are those of the gradient as it was rounded: for the
# others they are made before that, by the same kernel.
_SUM_WHAT_IS_ROUNDED: Final = ("plain", "hopper")


def is_straight(call: Call, x: Tensor, weights: tuple[Tensor | None, ...], others: tuple[Tensor | None, ...]) -> bool:
    """Whether the functions of this module may serve a call: no tensor has gaps, and in training all want gradients.

    ``others``: biases, which may be absent. They are not saved, so that a bias that does not lead to itself, being no
    leaf, would be missing in the error for second derivatives.
    """
    training = call.save is not None
    return (
        call.save in ("preact", None)
        and not call.plain
        and call.packing == "separate"
        and x.dim() > 1
        and all(
            one is not None and one.is_contiguous() and (one.requires_grad or not training) for one in (x, *weights)
        )
        and all(
            one is None or (one.is_contiguous() and ((one.requires_grad and one.is_leaf) or not training))
            for one in others
        )
    )


def gated_mlp_forward(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, call: Call) -> Tensor:
    """Return the output for inference; without biases."""
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    hidden, _ = call.bound.expand(rows, gate, up, None, None, call.activation, keep=False, precision=call.precision)
    y: Tensor = call.bound.project(hidden, down, None)
    return y if rows is x else unsafe_view(y, (*x.shape[:-1], y.shape[1]))


def mlp_forward(
    x: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor | None, bias2: Tensor | None, call: Call
) -> Tensor:
    """Return the output for inference."""
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    hidden, _ = call.bound.expand(rows, weight1, bias1, call.activation, keep=False, precision=call.precision)
    y: Tensor = call.bound.project(hidden, weight2, bias2)
    return y if rows is x else unsafe_view(y, (*x.shape[:-1], y.shape[1]))


def linear_act_forward(x: Tensor, weight: Tensor, bias: Tensor | None, call: Call) -> Tensor:
    """Return the output for inference."""
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    y: Tensor = call.bound.expand(rows, weight, bias, call.activation, keep=False, precision=call.precision)[0]
    return y if rows is x else unsafe_view(y, (*x.shape[:-1], y.shape[1]))


def _guarded(gradients: Callable[..., Gradients], matrices: int, ctx: Any, grad: Tensor) -> Gradients:
    """Return the gradients where autocast is on, or where they are asked to be differentiable.

    Without autocast: it cast what there was to cast in forward, and would now cast some products and not others. Of the
    inputs the first ``matrices`` were saved.
    """
    with torch._C._DisableAutocast():
        if not _grad_mode():
            return gradients(ctx, grad)
        # Biases are leaves, and the graph has them at its ends; see `is_straight`.
        biases = [end.variable for end, _ in ctx.next_functions[matrices:] if end is not None]
        saved = ctx.saved_tensors  # a checkpoint lets them be read once
        with torch.no_grad():
            results = gradients(ctx, grad, saved)
        return refusing(results, *saved[:matrices], *biases, grad)


class StraightGatedMLPFunction(torch.autograd.Function):
    """x, gate, up and down weight, without biases; and the call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, gate: Tensor, up: Tensor, down: Tensor, call: Call) -> Tensor:
        """Return the output."""
        bound = call.bound
        rows = x if x.dim() == 2 else x.flatten(0, -2)
        hidden, preact = bound.expand(rows, gate, up, None, None, call.activation, keep=True, precision=call.precision)
        y: Tensor = bound.project(hidden, down, None)
        ctx.save_for_backward(x, gate, up, down, preact, hidden)
        ctx.call, ctx.made, ctx.of_weight = call, memory_of(preact), weight_gradient_of(call, rows, hidden, y)
        return y if rows is x else unsafe_view(y, (*x.shape[:-1], y.shape[1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        """Return all gradients."""
        if _grad_mode() or _any_autocast():
            return _guarded(_gated_gradients, 4, ctx, grad)
        return _gated_gradients(ctx, grad)


def _gated_gradients(ctx: Any, grad: Tensor, saved: tuple[Tensor, ...] | None = None) -> Gradients:
    x, gate, up, down, preact, hidden = ctx.saved_tensors if saved is None else saved
    released = graph_is_released(ctx)
    call, of_weight = ctx.call, ctx.of_weight
    grad = gradient_rows(grad)
    last = weights_come_last(grad)
    if not last:
        ddown = of_weight(grad, hidden)
        del hidden  # goes back before gradients of the same size are made
    into = preact if released and is_held_once(preact, ctx.made) else None
    dpreact = call.bound.backward(grad, down, preact, call.activation, want_hidden=False, want_bias=False, into=into)[0]
    del preact, into
    sizes = (gate.shape[0],) * 2
    for_gate, for_up = _halves(dpreact, sizes, 1)
    dx = torch.mm(for_gate, gate).addmm_(for_up, up)
    if last:
        ddown = of_weight(grad, hidden)
        del hidden
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    dgate, dup = _separate_halves(of_weight(dpreact, rows), sizes)
    return dx if rows is x else dx.view(x.shape), dgate, dup, ddown, None


def _sums_come_later(call: Call) -> bool:
    """Whether a bias's gradient is ``dpreact.sum(0)`` to the bit, which adds up in float32 and casts in one kernel."""
    return call.bound.plan.backward.name in _SUM_WHAT_IS_ROUNDED


def _bias_gradient(dpreact: Tensor, sums: Tensor | None) -> Tensor:
    """Return the sums [N] of the pre-activations' gradient [M, N], in its dtype."""
    return dpreact.sum(0) if sums is None else sums.to(dpreact.dtype)


class StraightMLPFunction(torch.autograd.Function):
    """x, weight1, weight2, and the biases if there are any; and the call."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor | None, bias2: Tensor | None, call: Call
    ) -> Tensor:
        """Return the output."""
        bound = call.bound
        rows = x if x.dim() == 2 else x.flatten(0, -2)
        hidden, preact = bound.expand(rows, weight1, bias1, call.activation, keep=True, precision=call.precision)
        y: Tensor = bound.project(hidden, weight2, bias2)
        ctx.save_for_backward(x, weight1, weight2, preact, hidden)
        ctx.call, ctx.made, ctx.of_weight = call, memory_of(preact), weight_gradient_of(call, rows, hidden, y)
        return y if rows is x else unsafe_view(y, (*x.shape[:-1], y.shape[1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        """Return all gradients."""
        if _grad_mode() or _any_autocast():
            return _guarded(_mlp_gradients, 3, ctx, grad)
        return _mlp_gradients(ctx, grad)


def _mlp_gradients(ctx: Any, grad: Tensor, saved: tuple[Tensor, ...] | None = None) -> Gradients:
    x, weight1, weight2, preact, hidden = ctx.saved_tensors if saved is None else saved
    released = graph_is_released(ctx)
    call, of_weight, wanted = ctx.call, ctx.of_weight, ctx.needs_input_grad
    grad = gradient_rows(grad)
    last = weights_come_last(grad)
    if not last:
        dweight2 = of_weight(grad, hidden)
        del hidden  # goes back before gradients of the same size are made
    into = preact if released and is_held_once(preact, ctx.made) else None
    want_sums = wanted[3] and not _sums_come_later(call)
    dpreact, _, sums = call.bound.backward(
        grad, weight2, preact, call.activation, want_hidden=False, want_bias=want_sums, into=into
    )
    del preact, into
    dx = torch.mm(dpreact, weight1)
    if last:
        dweight2 = of_weight(grad, hidden)
        del hidden
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    return (
        dx if rows is x else dx.view(x.shape),
        of_weight(dpreact, rows),
        dweight2,
        _bias_gradient(dpreact, sums) if wanted[3] else None,
        grad.sum(0) if wanted[4] else None,
        None,
    )


class StraightLinearActFunction(torch.autograd.Function):
    """x, weight, and the bias if there is one; and the call."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, call: Call) -> Tensor:
        """Return the output."""
        rows = x if x.dim() == 2 else x.flatten(0, -2)
        y: Tensor
        y, preact = call.bound.expand(rows, weight, bias, call.activation, keep=True, precision=call.precision)
        ctx.save_for_backward(x, weight, preact)
        ctx.call, ctx.made, ctx.of_weight = call, memory_of(preact), weight_gradient_of(call, rows, y)
        return y if rows is x else unsafe_view(y, (*x.shape[:-1], y.shape[1]))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        """Return all gradients."""
        if _grad_mode() or _any_autocast():
            return _guarded(_linear_act_gradients, 2, ctx, grad)
        return _linear_act_gradients(ctx, grad)


def _linear_act_gradients(ctx: Any, grad: Tensor, saved: tuple[Tensor, ...] | None = None) -> Gradients:
    x, weight, preact = ctx.saved_tensors if saved is None else saved
    released = graph_is_released(ctx)
    call, want_bias = ctx.call, ctx.needs_input_grad[2]
    want_sums = want_bias and not _sums_come_later(call)
    into = preact if released and is_held_once(preact, ctx.made) else None
    dpreact, _, sums = call.bound.backward(
        gradient_rows(grad), preact, call.activation, into=into, want_hidden=False, want_bias=want_sums
    )
    del preact, into
    dx = torch.mm(dpreact, weight)
    rows = x if x.dim() == 2 else x.flatten(0, -2)
    return (
        dx if rows is x else dx.view(x.shape),
        ctx.of_weight(dpreact, rows),
        _bias_gradient(dpreact, sums) if want_bias else None,
        None,
    )
