"""The autograd functions: they keep what the plan says, and give it back as early as the graph allows.

x may have any number of dimensions; kernels see rows. All tensors have one dtype and device, as `functional` checks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from foretrace.errors import InputError
from foretrace.fused.autograd import passes
from foretrace.fused.autograd.kept import Kept, Saved, forbid_second_derivative, graph_is_released, memory_of
from foretrace.fused.planning import Call

__all__ = [
    "GatedActFunction",
    "GatedMLPFunction",
    "LinearActFunction",
    "MLPFunction",
    "gradient_rows",
    "rows_of",
    "shaped",
    "unsafe_view",
]

# An output that autograd knows to be a view could not be changed in place by its user (x = mlp(x); x += residual).
unsafe_view: Final = torch.ops.aten._unsafe_view.default
# Bound once, as all that is asked of every gradient: each look-up is paid again in every backward.
_is_wrapped: Final[Callable[[Tensor], bool]] = torch._C._functorch.is_functorch_wrapped_tensor
_is_legacy_batch: Final[Callable[[Tensor], bool]] = torch._C._functorch.is_legacy_batchedtensor


def rows_of(x: Tensor) -> Tensor:
    """Return x [..., K] as [M, K] with last stride 1 and rows that do not overlap; a view where there is one."""
    if x.dim() != 2:
        x = x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)
    row, column = x.stride()
    if (column != 1 and x.shape[1] > 1) or (row < x.shape[1] and x.shape[0] > 1):
        return x.contiguous()
    return x


def shaped(y: Tensor, like: Tensor) -> Tensor:
    """Return y [M, out] as [..., out] with the leading dimensions of ``like``."""
    if like.dim() == 2:
        return y
    shaped_: Tensor = unsafe_view(y, (*like.shape[:-1], y.shape[-1]))
    return shaped_


def gradient_rows(grad: Tensor) -> Tensor:
    """Return the incoming gradient [..., N] as contiguous [M, N] at an address that kernels can read.

    It may be expanded from one number, transposed, or begin anywhere inside another tensor: what forward knew of
    alignment says nothing of it. Raises :class:`InputError` for a batch of gradients, which no kernel takes.
    """
    if _is_wrapped(grad) or _is_legacy_batch(grad):
        raise InputError(
            "foretrace.fused takes one gradient at a time: for is_grads_batched or vectorize=True compute this layer "
            "with torch.nn.functional.linear and an activation, or differentiate with torch.func"
        )
    if not grad.is_contiguous():
        grad = grad.contiguous()
    if grad.is_neg():  # its sign is in a flag that kernels do not see
        grad = grad.resolve_neg()
    if grad.data_ptr() & 15:
        grad = grad.clone()
    dimensions = grad.dim()
    if dimensions == 2:
        return grad
    return grad.unsqueeze(0) if dimensions == 1 else grad.flatten(0, -2)


class GatedMLPFunction(torch.autograd.Function):
    """x, gate, up and down weight, gate, up and down bias; and the call."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        gate_weight: Tensor,
        up_weight: Tensor | None,
        down_weight: Tensor,
        gate_bias: Tensor | None,
        up_bias: Tensor | None,
        down_bias: Tensor | None,
        call: Call,
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the token of `forbid_second_derivative`."""
        wanted = ctx.needs_input_grad[:7]
        rows = rows_of(x)
        y, preact, hidden = passes.gated_mlp_forward(
            rows,
            gate_weight,
            up_weight,
            down_weight,
            gate_bias,
            up_bias,
            down_bias,
            call,
            wanted,
        )
        through_inner = wanted[0] or wanted[1] or wanted[2] or wanted[4] or wanted[5]
        again = call.save == "input" and (through_inner or wanted[3])
        token = x.new_empty(0)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            rows if again or wanted[1] or wanted[2] else None,
            gate_weight if again or wanted[0] else None,
            up_weight if again or wanted[0] else None,
            down_weight if through_inner else None,
            gate_bias if again else None,
            up_bias if again else None,
            preact,
            hidden,
            token,
        )
        ctx.call, ctx.shape = call, x.shape
        ctx.made = None if preact is None else memory_of(preact)
        ctx.unread = _unread(again or wanted[0], gate_weight, up_weight), _unread(through_inner, down_weight, None)
        return shaped(y, x), token

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor, saved: Saved | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradients that are wanted."""
        x, gate_weight, up_weight, down_weight, gate_bias, up_bias, preact, hidden, _ = (
            ctx.saved_tensors if saved is None else saved
        )
        released = graph_is_released(ctx)
        kept = Kept(x, preact, hidden, ctx.made)
        del preact, hidden
        (unread_gate, unread_up), (unread_down, _) = ctx.unread
        dx, *others = passes.gated_mlp_backward(
            gradient_rows(grad),
            kept,
            unread_gate if gate_weight is None else gate_weight,
            unread_up if up_weight is None else up_weight,
            unread_down if down_weight is None else down_weight,
            gate_bias,
            up_bias,
            ctx.call,
            wanted=ctx.needs_input_grad[:7],
            donate=released,
        )
        return dx if dx is None else dx.view(ctx.shape), *others, None


def _unread(saved: bool, first: Tensor, second: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return weights of which backward needs the shape alone: their values may change before it runs."""
    if saved:
        return None, None
    return first.detach(), None if second is None else second.detach()


class MLPFunction(torch.autograd.Function):
    """x, weight1, weight2, bias1, bias2; and the call."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight1: Tensor,
        weight2: Tensor,
        bias1: Tensor | None,
        bias2: Tensor | None,
        call: Call,
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the token of `forbid_second_derivative`."""
        wanted = ctx.needs_input_grad[:5]
        rows = rows_of(x)
        y, preact, hidden = passes.mlp_forward(
            rows,
            weight1,
            weight2,
            bias1,
            bias2,
            call,
            wanted,
        )
        through_inner = wanted[0] or wanted[1] or wanted[3]
        again = call.save == "input" and (through_inner or wanted[2])
        token = x.new_empty(0)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            rows if again or wanted[1] else None,
            weight1 if again or wanted[0] else None,
            weight2 if through_inner else None,
            bias1 if again else None,
            preact,
            hidden,
            token,
        )
        ctx.call, ctx.shape = call, x.shape
        ctx.made = None if preact is None else memory_of(preact)
        ctx.unread = _unread(again or wanted[0], weight1, None)[0], _unread(through_inner, weight2, None)[0]
        return shaped(y, x), token

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor, saved: Saved | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradients that are wanted."""
        x, weight1, weight2, bias1, preact, hidden, _ = ctx.saved_tensors if saved is None else saved
        released = graph_is_released(ctx)
        kept = Kept(x, preact, hidden, ctx.made)
        del preact, hidden
        dx, *others = passes.mlp_backward(
            gradient_rows(grad),
            kept,
            ctx.unread[0] if weight1 is None else weight1,
            ctx.unread[1] if weight2 is None else weight2,
            bias1,
            ctx.call,
            wanted=ctx.needs_input_grad[:5],
            donate=released,
        )
        return dx if dx is None else dx.view(ctx.shape), *others, None


class LinearActFunction(torch.autograd.Function):
    """x, weight, bias; and the call."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        call: Call,
    ) -> tuple[Tensor, Tensor]:
        """Return the output and the token of `forbid_second_derivative`."""
        wanted = ctx.needs_input_grad[:3]
        rows = rows_of(x)
        y, preact = passes.linear_act_forward(rows, weight, bias, call, wanted)
        again = call.save == "input"
        token = x.new_empty(0)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(
            rows if again or wanted[1] else None,
            weight if again or wanted[0] else None,
            bias if again else None,
            preact,
            token,
        )
        ctx.call, ctx.shape = call, x.shape
        ctx.made = None if preact is None else memory_of(preact)
        ctx.unread = _unread(again or wanted[0], weight, None)[0]
        return shaped(y, x), token

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor, saved: Saved | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradients that are wanted."""
        x, weight, bias, preact, _ = ctx.saved_tensors if saved is None else saved
        released = graph_is_released(ctx)
        kept = Kept(x, preact, None, ctx.made)
        del preact
        dx, *others = passes.linear_act_backward(
            gradient_rows(grad),
            kept,
            ctx.unread if weight is None else weight,
            bias,
            ctx.call,
            wanted=ctx.needs_input_grad[:3],
            donate=released,
        )
        return dx if dx is None else dx.view(ctx.shape), *others, None


class GatedActFunction(torch.autograd.Function):
    """gate and up of one shape; and the call."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, call: Call) -> tuple[Tensor, Tensor]:
        """Return the output and the token of `forbid_second_derivative`."""
        rows = rows_of(gate), rows_of(up)
        hidden = passes.gated_act_forward(*rows, call)
        ctx.set_materialize_grads(False)
        token = gate.new_empty(0)
        ctx.save_for_backward(*rows, token)
        ctx.call, ctx.shape = call, gate.shape
        return shaped(hidden, gate), token

    @staticmethod
    @forbid_second_derivative
    def backward(ctx: Any, grad: Tensor, saved: Saved | None = None) -> tuple[Tensor | None, ...]:
        """Return the gradients that are wanted."""
        gate, up, _ = ctx.saved_tensors if saved is None else saved
        wanted: Sequence[bool] = ctx.needs_input_grad[:2]
        for_gate, for_up = passes.gated_act_backward(gradient_rows(grad), gate, up, ctx.call, wanted)
        return (
            None if for_gate is None else for_gate.reshape(ctx.shape),
            None if for_up is None else for_up.reshape(ctx.shape),
            None,
        )
