"""The passes of `passes` for callers that have tensors and words only: the operators of `torch.library`.

Plans are looked up here, from the shapes of the call. Nothing that came in is written, and no result shares memory with
an argument. x is [M, K]. ``save``: what a training forward keeps, ``None`` in inference. A forward returns output,
pre-activations or ``None``, hidden or ``None``; a backward one gradient or ``None`` for each tensor of its forward.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from foretrace.fused.autograd import passes
from foretrace.fused.autograd.functions import gradient_rows, rows_of
from foretrace.fused.autograd.kept import Kept
from foretrace.fused.autograd.passes import Gradients
from foretrace.fused.plan import Plan
from foretrace.fused.planning import Call, call_for
from foretrace.fused.weights import dense_rows

__all__ = [
    "gated_act_backward",
    "gated_act_forward",
    "gated_mlp_backward",
    "gated_mlp_forward",
    "gated_mlp_through",
    "linear_act_backward",
    "linear_act_forward",
    "mlp_backward",
    "mlp_forward",
    "mlp_through",
]

Forward = tuple[Tensor, Tensor | None, Tensor | None]


def gated_mlp_forward(
    x: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    *,
    activation: str,
    packing: str,
    precision: str,
    save: str | None,
    plan: Plan | None = None,
) -> Forward:
    """Return y [M, out], pre-activations [M, 2N], hidden [M, N]."""
    weights = (gate_weight, up_weight, down_weight)
    bias = gate_bias is not None or up_bias is not None
    call = _gated_mlp(x, weights, bias, activation, packing, precision, save, plan)
    return passes.gated_mlp_forward(rows_of(x), *weights, gate_bias, up_bias, down_bias, call)


def gated_mlp_backward(
    grad: Tensor,
    x: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    preact: Tensor | None,
    hidden: Tensor | None,
    *,
    activation: str,
    packing: str,
    precision: str,
    wanted: Sequence[bool],
    save: str = "auto",
    plan: Plan | None = None,
) -> Gradients:
    """Return the gradients of x, gate, up and down weight, gate, up and down bias."""
    weights = (gate_weight, up_weight, down_weight)
    bias = gate_bias is not None or up_bias is not None
    call = _gated_mlp(x, weights, bias, activation, packing, precision, save, plan)
    kept = Kept(rows_of(x), preact, hidden)
    return passes.gated_mlp_backward(gradient_rows(grad), kept, *weights, gate_bias, up_bias, call, wanted)


def _gated_mlp(
    x: Tensor,
    weights: tuple[Tensor, Tensor | None, Tensor],
    bias: bool,
    activation: str,
    packing: str,
    precision: str,
    save: str | None,
    plan: Plan | None,
) -> Call:
    out, n = weights[2].shape
    return call_for(
        "gated_mlp",
        x,
        weights,
        (x.shape[0], n, x.shape[1], out),
        activation=activation,
        training=save is not None,
        bias=bias,
        packing=packing,
        precision=precision,
        save=save or "auto",
        plan=plan,
    )


def gated_mlp_through(
    grad: Tensor, x: Tensor, gate: Tensor, up: Tensor, down: Tensor, preact: Tensor, activation: str, precision: str
) -> Tensor:
    """Return the gradient of the pre-activations [M, 2N]; gate and up weights are separate."""
    call = _gated_mlp(x, (gate, up, down), False, activation, "separate", precision, "preact", None)
    return _through(grad, down, preact, call)


def mlp_through(
    grad: Tensor, x: Tensor, weight1: Tensor, weight2: Tensor, preact: Tensor, activation: str, precision: str
) -> Tensor:
    """Return the gradient of the pre-activations [M, N]."""
    return _through(grad, weight2, preact, _mlp(x, (weight1, weight2), False, activation, precision, "preact", None))


def _through(grad: Tensor, down: Tensor, preact: Tensor, call: Call) -> Tensor:
    result: Tensor = call.bound.backward(
        gradient_rows(grad), dense_rows(down), preact, call.activation, want_hidden=False, want_bias=False, into=None
    )[0]
    return result


def mlp_forward(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    bias2: Tensor | None,
    *,
    activation: str,
    precision: str,
    save: str | None,
    plan: Plan | None = None,
) -> Forward:
    """Return y [M, out], pre-activations [M, N], hidden [M, N]."""
    call = _mlp(x, (weight1, weight2), bias1 is not None, activation, precision, save, plan)
    return passes.mlp_forward(rows_of(x), weight1, weight2, bias1, bias2, call)


def mlp_backward(
    grad: Tensor,
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    preact: Tensor | None,
    hidden: Tensor | None,
    *,
    activation: str,
    precision: str,
    wanted: Sequence[bool],
    save: str = "auto",
    plan: Plan | None = None,
) -> Gradients:
    """Return the gradients of x, weight1, weight2, bias1, bias2."""
    call = _mlp(x, (weight1, weight2), bias1 is not None, activation, precision, save, plan)
    return passes.mlp_backward(
        gradient_rows(grad), Kept(rows_of(x), preact, hidden), weight1, weight2, bias1, call, wanted
    )


def _mlp(
    x: Tensor,
    weights: tuple[Tensor, Tensor],
    bias: bool,
    activation: str,
    precision: str,
    save: str | None,
    plan: Plan | None,
) -> Call:
    out, n = weights[1].shape
    return call_for(
        "mlp",
        x,
        weights,
        (x.shape[0], n, x.shape[1], out),
        activation=activation,
        training=save is not None,
        bias=bias,
        precision=precision,
        save=save or "auto",
        plan=plan,
    )


def linear_act_forward(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    *,
    activation: str,
    precision: str,
    save: str | None,
    plan: Plan | None = None,
) -> Forward:
    """Return y [M, N], pre-activations [M, N], ``None``."""
    call = _linear_act(x, weight, bias, activation, precision, save, plan)
    return *passes.linear_act_forward(rows_of(x), weight, bias, call), None


def linear_act_backward(
    grad: Tensor,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    preact: Tensor | None,
    hidden: Tensor | None = None,
    *,
    activation: str,
    precision: str,
    wanted: Sequence[bool],
    save: str = "auto",
    plan: Plan | None = None,
) -> Gradients:
    """Return the gradients of x, weight and bias. The bias is read where there is no ``preact``; hidden never is."""
    del hidden
    call = _linear_act(x, weight, bias, activation, precision, save, plan)
    return passes.linear_act_backward(gradient_rows(grad), Kept(rows_of(x), preact, None), weight, bias, call, wanted)


def _linear_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activation: str,
    precision: str,
    save: str | None,
    plan: Plan | None,
) -> Call:
    return call_for(
        "linear_act",
        x,
        (weight,),
        (x.shape[0], *weight.shape, 0),
        activation=activation,
        training=save is not None,
        bias=bias is not None,
        precision=precision,
        save=save or "auto",
        plan=plan,
    )


def gated_act_forward(
    gate: Tensor, up: Tensor, *, activation: str, precision: str, training: bool = False, plan: Plan | None = None
) -> Tensor:
    """Return hidden, of the shape of gate and up."""
    call = _gated_act(gate, up, activation, precision, training, plan)
    return passes.gated_act_forward(rows_of(gate), rows_of(up), call).view(gate.shape)


def gated_act_backward(
    grad: Tensor, gate: Tensor, up: Tensor, *, activation: str, precision: str, plan: Plan | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradients of gate and up."""
    call = _gated_act(gate, up, activation, precision, True, plan)
    for_gate, for_up = passes.gated_act_backward(gradient_rows(grad), rows_of(gate), rows_of(up), call, (True, True))
    assert for_gate is not None
    assert for_up is not None
    return for_gate.reshape(gate.shape), for_up.reshape(up.shape)


def _gated_act(gate: Tensor, up: Tensor, activation: str, precision: str, training: bool, plan: Plan | None) -> Call:
    n = gate.shape[-1]
    return call_for(
        "gated_act",
        gate,
        (up,) if up.dim() > 1 else (),
        (gate.numel() // n if n else 0, n, 0, 0),
        activation=activation,
        training=training,
        precision=precision,
        plan=plan,
    )
