"""Forward and backward of each layer as plain functions, for the autograd functions and the operators alike.

x is [M, K], its last stride 1. ``call.save`` is what forward keeps. ``preact``: the pre-activations and hidden, from
which backward is fastest. ``recompute``: the pre-activations alone. ``input``: nothing but x. ``None``: inference.
``wanted`` says of each tensor argument whether its gradient is wanted; only what they need is kept and computed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foretrace.fused.autograd.inner import GatedInner, Inner, LinearInner, accumulate, chunks, rounded
from foretrace.fused.autograd.kept import Kept
from foretrace.fused.autograd.weight_gradient import weight_gradient, weights_come_last
from foretrace.fused.planning import Call
from foretrace.fused.weights import dense_rows

__all__ = [
    "gated_act_backward",
    "gated_act_forward",
    "gated_mlp_backward",
    "gated_mlp_forward",
    "linear_act_backward",
    "linear_act_forward",
    "mlp_backward",
    "mlp_forward",
]

# Pieces of the rows in backward where memory is to be saved.
_RECOMPUTE_PIECES = 2
_INPUT_PIECES = 4

Gradients = tuple[Tensor | None, ...]


def gated_mlp_forward(
    x: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    call: Call,
    wanted: Sequence[bool] = (True,) * 7,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return y [M, out], and the pre-activations [M, 2N] and hidden [M, N] if they are kept.

    ``wanted``: of x, gate weight, up weight, down weight, gate bias, up bias, down bias.
    """
    inner = GatedInner((gate_weight, up_weight), (gate_bias, up_bias), call)
    through_inner = wanted[0] or wanted[1] or wanted[2] or wanted[4] or wanted[5]
    return _forward(inner, x, down_weight, down_bias, call, through_inner, wanted[3])


def mlp_forward(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    bias2: Tensor | None,
    call: Call,
    wanted: Sequence[bool] = (True,) * 5,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return y [M, out], and the pre-activations [M, N] and hidden [M, N] if they are kept.

    ``wanted``: of x, weight1, weight2, bias1, bias2.
    """
    inner = LinearInner(weight1, bias1, call)
    return _forward(inner, x, weight2, bias2, call, wanted[0] or wanted[1] or wanted[3], wanted[2])


def _forward(
    inner: Inner,
    x: Tensor,
    down: Tensor,
    down_bias: Tensor | None,
    call: Call,
    through_inner: bool,
    want_down: bool,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    # Without gradients inside, hidden is all that the down weight's gradient needs, and half as large.
    keep_preact = through_inner and call.save in ("preact", "recompute")
    keep_hidden = want_down and (call.save == "preact" or (call.save == "recompute" and not through_inner))
    hidden, preact = inner.expand(x, keep_preact)
    y = call.bound.project(hidden, dense_rows(down), down_bias)
    return y, preact, hidden if keep_hidden else None


def gated_mlp_backward(
    grad: Tensor,
    kept: Kept,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    call: Call,
    wanted: Sequence[bool],
    donate: bool = False,
) -> Gradients:
    """Return the gradients of x, gate, up and down weight and of gate, up and down bias; ``None``: not wanted.

    ``grad`` [M, out] is contiguous. What ``kept`` lacks is computed again. ``donate``: pre-activations that ``kept``
    alone holds may be overwritten.
    """
    inner = GatedInner(
        (gate_weight, up_weight),
        (gate_bias, up_bias),
        call,
        (wanted[1], wanted[2], wanted[4], wanted[5]),
    )
    request = _Request(wanted[0], wanted[1] or wanted[2], wanted[3], wanted[4] or wanted[5], donate)
    dx, weights, ddown, biases = _backward(inner, grad, kept, _through(down_weight, call), request)
    return dx, *weights, ddown, *biases, grad.sum(0) if wanted[6] else None


def mlp_backward(
    grad: Tensor,
    kept: Kept,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    call: Call,
    wanted: Sequence[bool],
    donate: bool = False,
) -> Gradients:
    """Return the gradients of x, weight1, weight2, bias1, bias2, as `gated_mlp_backward` does."""
    inner = LinearInner(weight1, bias1, call, (wanted[1], wanted[3]))
    request = _Request(wanted[0], wanted[1], wanted[2], wanted[3], donate)
    dx, (dweight1,), dweight2, (dbias1,) = _backward(inner, grad, kept, _through(weight2, call), request)
    return dx, dweight1, dweight2, dbias1, grad.sum(0) if wanted[4] else None


def linear_act_forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    call: Call,
    wanted: Sequence[bool] = (True,) * 3,
) -> tuple[Tensor, Tensor | None]:
    """Return y [M, N] and, if they are kept (``preact`` and ``recompute``), the pre-activations [M, N]."""
    inner = LinearInner(weight, bias, call)
    return inner.expand(x, any(wanted) and call.save in ("preact", "recompute"))


def linear_act_backward(
    grad: Tensor,
    kept: Kept,
    weight: Tensor,
    bias: Tensor | None,
    call: Call,
    wanted: Sequence[bool],
    donate: bool = False,
) -> Gradients:
    """Return the gradients of x, weight and bias; ``grad`` [M, N] is contiguous."""

    def pull(
        rows: Tensor, preact: Tensor, into: Tensor | None, want_hidden: bool, want_bias: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        result: tuple[Tensor, Tensor | None, Tensor | None] = call.bound.backward(
            rows, preact, call.activation, into=into, want_hidden=want_hidden, want_bias=want_bias
        )
        return result

    inner = LinearInner(weight, bias, call, wanted[1:])
    request = _Request(wanted[0], wanted[1], False, wanted[2], donate)
    dx, (dweight,), _, (dbias,) = _backward(inner, grad, kept, pull, request)
    return dx, dweight, dbias


def gated_act_forward(gate: Tensor, up: Tensor, call: Call) -> Tensor:
    """Return hidden of gate and up, all [M, N]."""
    hidden: Tensor = call.bound.expand(gate, up, call.activation, precision=call.precision)
    return hidden


def gated_act_backward(grad: Tensor, gate: Tensor, up: Tensor, call: Call, wanted: Sequence[bool]) -> Gradients:
    """Return the gradients of gate and up; ``grad`` [M, N] is contiguous."""
    for_gate, for_up, _ = call.bound.backward(grad, gate, up, call.activation, want_hidden=False)
    return for_gate if wanted[0] else None, for_up if wanted[1] else None


# From the output's gradient to the pre-activations': rows of either, a buffer, whether hidden and the sums are wanted.
_Pull = Callable[[Tensor, Tensor, Tensor | None, bool, bool], tuple[Tensor, Tensor | None, Tensor | None]]


def _through(down: Tensor, call: Call) -> _Pull:
    down = dense_rows(down)

    def pull(
        grad: Tensor, preact: Tensor, into: Tensor | None, want_hidden: bool, want_bias: bool
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        result: tuple[Tensor, Tensor | None, Tensor | None] = call.bound.backward(
            grad, down, preact, call.activation, want_hidden=want_hidden, want_bias=want_bias, into=into
        )
        return result

    return pull


class _Request(NamedTuple):
    """Which gradients are wanted, and whether kept pre-activations may be overwritten."""

    x: bool
    weights: bool
    down: bool
    bias: bool
    donate: bool

    @property
    def inner(self) -> bool:
        """Whether anything is wanted for which the pre-activations' gradient is needed."""
        return self.x or self.weights or self.bias


def _backward(
    inner: Inner, grad: Tensor, kept: Kept, pull: _Pull, want: _Request
) -> tuple[Tensor | None, Gradients, Tensor | None, Gradients]:
    """Return the gradients of x, of the inner weights, of the down weight and of the inner biases."""
    ddown = None
    if want.down and kept.hidden is not None and not (want.inner and weights_come_last(grad)):
        # What it was made of goes back before gradients of the same size are made.
        ddown = weight_gradient(inner.call, grad, kept.take_hidden())
    want_down = want.down and ddown is None
    if not want.inner:
        ddown = _down_gradient(inner, grad, kept) if want_down else ddown
        return None, inner.weight_gradients(), ddown, inner.bias_gradients(None)
    if kept.preact is None:
        return _backward_from_input(inner, grad, kept, pull, want)
    overwrite = want.donate and kept.owns_preact()
    preact = kept.take_preact()
    assert preact is not None
    if want_down and kept.hidden is None:
        # Hidden comes again from the same kernel, in pieces: never all of it at once.
        dpreact, sums = preact if overwrite else torch.empty_like(preact), None
        pieces = chunks(grad.shape[0], _RECOMPUTE_PIECES)
        for rows in pieces:
            _, hidden, some = pull(grad[rows], preact[rows], dpreact[rows], True, want.bias)
            assert hidden is not None
            ddown = accumulate(inner.call, ddown, grad[rows], hidden, len(pieces) > 1)
            del hidden
            sums = _added(sums, some)
        ddown = rounded(ddown, grad.dtype)
    else:
        dpreact, _, sums = pull(grad, preact, preact if overwrite else None, False, want.bias)
    del preact
    dx = inner.input_gradient(dpreact) if want.x else None
    if kept.hidden is not None and want_down:
        ddown = weight_gradient(inner.call, grad, kept.take_hidden())
    if want.weights:
        assert kept.x is not None
        inner.add_weight_gradients(dpreact, kept.x)
    return dx, inner.weight_gradients(), ddown, inner.bias_gradients(sums)


def _backward_from_input(
    inner: Inner, grad: Tensor, kept: Kept, pull: _Pull, want: _Request
) -> tuple[Tensor | None, Gradients, Tensor | None, Gradients]:
    """Run forward's first half again, a piece of the rows at a time: only one piece's pre-activations ever exist."""
    x = kept.x
    assert x is not None
    dx = x.new_empty(x.shape) if want.x else None
    ddown = sums = None
    pieces = chunks(grad.shape[0], _INPUT_PIECES)
    several = len(pieces) > 1
    for rows in pieces:
        hidden, preact = inner.expand(x[rows], True)
        assert preact is not None
        if want.down:
            ddown = accumulate(inner.call, ddown, grad[rows], hidden, several)
        del hidden
        dpreact, _, some = pull(grad[rows], preact, preact, False, want.bias)
        del preact
        sums = _added(sums, some)
        if want.weights:
            inner.add_weight_gradients(dpreact, x[rows], several)
        if dx is not None:
            inner.input_gradient(dpreact, dx[rows])
        del dpreact
    # One after the other: a sum in float32 goes back before the next is rounded.
    ddown = rounded(ddown, grad.dtype)
    return dx, inner.weight_gradients(), ddown, inner.bias_gradients(sums)


def _down_gradient(inner: Inner, grad: Tensor, kept: Kept) -> Tensor | None:
    assert kept.x is not None
    total = None
    pieces = chunks(grad.shape[0], _INPUT_PIECES)
    for rows in pieces:
        total = accumulate(inner.call, total, grad[rows], inner.expand(kept.x[rows], False)[0], len(pieces) > 1)
    return rounded(total, grad.dtype)


def _added(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if total is None or more is None else total.add_(more)
