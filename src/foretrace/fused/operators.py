"""The fused layers as operators of `torch.library`, so that ``torch.compile`` and ``torch.export`` see one node each.

The kernels are chosen when an operator runs, from the shapes it then sees; only the shapes of its results must be known
while tracing. So one graph serves every batch size, and nothing asks for a device while it is traced.

Shapes: x [M, K]; gate and up weights [N, K], or one stacked [2N, K]; down weight [out, N]; pre-activations [M, 2N],
gate first; hidden [M, N]. One floating-point dtype for all: callers cast under autocast, as `functional` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from foretrace.fused.autograd import compute
from foretrace.fused.autograd.weight_gradient import has_kernel
from foretrace.fused.registration import (
    NAMESPACE,
    ProductLayer,
    Shape,
    define,
    operator,
    refuse_second_derivative,
    register_gradient,
)
from foretrace.fused.weights import stacked

__all__ = ["NAMESPACE", "gated_act", "gated_mlp", "linear_act", "mlp"]


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
    save: str,
    precision: str,
) -> Tensor:
    """``(act(x gateᵀ) * (x upᵀ)) downᵀ`` with biases: x [M, K] to [M, out]. A stacked packing has no ``up_weight``."""
    tensors = (x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    return cast(Tensor, operator("gated_mlp")(*tensors, activation, packing, save, precision))


def mlp(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None,
    bias2: Tensor | None,
    activation: str,
    save: str,
    precision: str,
) -> Tensor:
    """``act(x weight1ᵀ + bias1) weight2ᵀ + bias2``: x [M, K] to [M, out]."""
    return cast(Tensor, operator("mlp")(x, weight1, weight2, bias1, bias2, activation, save, precision))


def linear_act(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str, save: str, precision: str) -> Tensor:
    """``act(x weightᵀ + bias)``: x [M, K] to [M, N]."""
    return cast(Tensor, operator("linear_act")(x, weight, bias, activation, save, precision))


def gated_act(gate: Tensor, up: Tensor, activation: str, precision: str) -> Tensor:
    """``act(gate) * up``, element by element; a contiguous result."""
    return cast(Tensor, operator("gated_act")(gate, up, activation, precision))


def _gated_mlp_shapes(wanted: list[bool], x: Tensor, gate: Tensor, down: Tensor) -> tuple[Shape | None, ...]:
    rows = gate.shape[0] * (wanted[1] + wanted[2])
    biases = gate.shape[0] * (wanted[4] + wanted[5])
    return (
        tuple(x.shape) if wanted[0] else None,
        (rows, x.shape[1]) if wanted[1] or wanted[2] else None,
        tuple(down.shape) if wanted[3] else None,
        (biases,) if wanted[4] or wanted[5] else None,
        (down.shape[0],) if wanted[6] else None,
    )


def _join_gated_mlp(
    x: Tensor | None,
    gate: Tensor | None,
    up: Tensor | None,
    down: Tensor | None,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
) -> tuple[Tensor | None, ...]:
    return x, _one(gate, up), down, _one(gate_bias, up_bias), down_bias


def _one(gate: Tensor | None, up: Tensor | None) -> Tensor | None:
    """Both gradients as one tensor, gate's rows first: they are halves of one, and results may not share memory."""
    if gate is None or up is None:
        return up if gate is None else gate
    both = stacked(gate, up) if gate.dim() == 2 else None
    return torch.cat((gate, up)) if both is None else both


def _part_gated_mlp(
    wanted: list[bool], x: Tensor, weights: Tensor, down: Tensor, biases: Tensor, down_bias: Tensor
) -> tuple[Tensor, ...]:
    gate, up = _two(weights, wanted[1] and wanted[2])
    gate_bias, up_bias = _two(biases, wanted[4] and wanted[5])
    return x, gate, up, down, gate_bias, up_bias, down_bias


def _two(both: Tensor, halves: bool) -> tuple[Tensor, Tensor]:
    """The halves, or the one tensor in the place of either: the one that is not wanted is not looked at."""
    half = both.shape[0] // 2
    return (both[:half], both[half:]) if halves else (both, both)


def _plain_shapes(wanted: list[bool], x: Tensor, *weights: Tensor) -> tuple[Shape | None, ...]:
    """The shapes of x, of the weights and of a bias for each weight."""
    shapes: tuple[Any, ...] = (x.shape, *(one.shape for one in weights), *(one.shape[:1] for one in weights))
    return tuple(tuple(shape) if want else None for shape, want in zip(shapes, wanted, strict=True))


def _few(grad: Tensor) -> bool:
    """Whether weights' gradients are better made inside the operator, as `autograd.weight_gradient` does on a GPU.

    A number of rows that is not settled when the graph is made is none.
    """
    return isinstance(grad.shape[0], int) and has_kernel(grad)


def _open_gated_mlp(
    wanted: list[bool],
    grad: Tensor,
    tensors: list[Tensor],
    preact: Tensor,
    hidden: Tensor,
    *,
    activation: str,
    packing: str,
    precision: str,
    **_: Any,
) -> tuple[Tensor | None, ...] | None:
    x, gate, up, down, *_biases = tensors
    if packing != "separate" or preact.dim() != 2 or _few(grad):
        return None
    ddown = torch.mm(grad.t(), hidden) if wanted[3] else None
    dpreact = operator("gated_mlp_through")(grad, x, gate, up, down, preact, activation, precision)
    n = gate.shape[0]
    for_gate, for_up = dpreact[:, :n], dpreact[:, n:]
    dgate = dup = None
    if wanted[1] and wanted[2]:
        both = torch.mm(dpreact.t(), x)
        dgate, dup = both[:n], both[n:]
    elif wanted[1]:
        dgate = torch.mm(for_gate.t(), x)
    elif wanted[2]:
        dup = torch.mm(for_up.t(), x)
    return (
        torch.addmm(torch.mm(for_gate, gate), for_up, up) if wanted[0] else None,
        dgate,
        dup,
        ddown,
        for_gate.sum(0) if wanted[4] else None,
        for_up.sum(0) if wanted[5] else None,
        grad.sum(0) if wanted[6] else None,
    )


def _open_mlp(
    wanted: list[bool],
    grad: Tensor,
    tensors: list[Tensor],
    preact: Tensor,
    hidden: Tensor,
    *,
    activation: str,
    precision: str,
    **_: Any,
) -> tuple[Tensor | None, ...] | None:
    x, weight1, weight2, _bias = tensors
    if preact.dim() != 2 or _few(grad):
        return None
    dweight2 = torch.mm(grad.t(), hidden) if wanted[2] else None
    dpreact = operator("mlp_through")(grad, x, weight1, weight2, preact, activation, precision)
    return (
        torch.mm(dpreact, weight1) if wanted[0] else None,
        torch.mm(dpreact.t(), x) if wanted[1] else None,
        dweight2,
        dpreact.sum(0) if wanted[3] else None,
        grad.sum(0) if wanted[4] else None,
    )


def _run_through(through: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(*given: Any) -> Tensor:
        with torch._C._DisableAutocast():
            return through(*given)

    return run


def _fake_through(*given: Any) -> Tensor:
    preact: Tensor = given[-3]
    return preact.new_empty(preact.shape)


def _run_gated_act(gate: Tensor, up: Tensor, activation: str, precision: str) -> Tensor:
    with torch._C._DisableAutocast():
        return compute.gated_act_forward(gate, up, activation=activation, precision=precision)


def _run_gated_act_backward(
    grad: Tensor, gate: Tensor, up: Tensor, activation: str, precision: str
) -> tuple[Tensor, Tensor]:
    with torch._C._DisableAutocast():
        return compute.gated_act_backward(grad, gate, up, activation=activation, precision=precision)


def _fake_gated_act(gate: Tensor, *_: Any) -> Tensor:
    return gate.new_empty(gate.shape)


def _fake_gated_act_backward(_grad: Tensor, gate: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return gate.new_empty(gate.shape), gate.new_empty(gate.shape)


def _keep_gated_act(ctx: Any, inputs: tuple[Any, ...], **_: Any) -> None:
    gate, up, *ctx.rules = inputs
    ctx.save_for_backward(gate, up)


def _differentiate_gated_act(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    gradients = operator("gated_act_backward")(grad, *ctx.saved_tensors, *ctx.rules)
    wanted = ctx.needs_input_grad
    return (*(one if wanted[index] else None for index, one in enumerate(gradients)), None, None)


ProductLayer(
    name="gated_mlp",
    tensors="Tensor x, Tensor gate_weight, Tensor? up_weight, Tensor down_weight, "
    "Tensor? gate_bias, Tensor? up_bias, Tensor? down_bias",
    read=6,
    rules=("activation", "packing", "save", "precision"),
    forward=compute.gated_mlp_forward,
    backward=compute.gated_mlp_backward,
    sizes=lambda tensors: (tensors[3].shape[1], tensors[3].shape[0]),
    second=3,
    sides=2,
    shapes=lambda wanted, tensors: _gated_mlp_shapes(wanted, tensors[0], tensors[1], tensors[3]),
    join=_join_gated_mlp,
    part=_part_gated_mlp,
    open=_open_gated_mlp,
).register()
ProductLayer(
    name="mlp",
    tensors="Tensor x, Tensor weight1, Tensor weight2, Tensor? bias1, Tensor? bias2",
    read=4,
    rules=("activation", "save", "precision"),
    forward=compute.mlp_forward,
    backward=compute.mlp_backward,
    sizes=lambda tensors: (tensors[1].shape[0], tensors[2].shape[0]),
    second=2,
    shapes=lambda wanted, tensors: _plain_shapes(wanted, *tensors[:3]),
    open=_open_mlp,
).register()
ProductLayer(
    name="linear_act",
    tensors="Tensor x, Tensor weight, Tensor? bias",
    read=3,
    rules=("activation", "save", "precision"),
    forward=compute.linear_act_forward,
    backward=compute.linear_act_backward,
    sizes=lambda tensors: (tensors[1].shape[0], 0),
    shapes=lambda wanted, tensors: _plain_shapes(wanted, *tensors[:2]),
).register()
for _name, _weights, _through in (
    ("gated_mlp", "Tensor gate_weight, Tensor up_weight, Tensor down_weight", compute.gated_mlp_through),
    ("mlp", "Tensor weight1, Tensor weight2", compute.mlp_through),
):
    define(
        f"{_name}_through(Tensor grad, Tensor x, {_weights}, Tensor preact, str activation, str precision) -> Tensor",
        _run_through(_through),
        _fake_through,
    )
    register_gradient(f"{_name}_through", refuse_second_derivative, lambda **_: None)
define("gated_act(Tensor gate, Tensor up, str activation, str precision) -> Tensor", _run_gated_act, _fake_gated_act)
define(
    "gated_act_backward(Tensor grad, Tensor gate, Tensor up, str activation, str precision) -> (Tensor, Tensor)",
    _run_gated_act_backward,
    _fake_gated_act_backward,
)
register_gradient("gated_act", _differentiate_gated_act, _keep_gated_act)
register_gradient("gated_act_backward", refuse_second_derivative, lambda **_: None)
