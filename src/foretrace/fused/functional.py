"""The layers as functions of tensors.

x may have any leading dimensions. All tensors have one floating-point dtype and one device; under autocast they are
cast as `torch.nn.functional.linear` casts. Which kernels run is decided once for each problem, and
`foretrace.fused.explain` says which and why; where none of ours is right and faster, PyTorch's own operators run, with
their autograd.

``activation``: see `foretrace.fused.activations`. ``precision``: ``exact`` is as accurate as eager PyTorch everywhere;
``fast`` may use the hardware's tanh, which is wrong by tens of percent in the far negative tail. ``save``: what forward
keeps for backward. ``preact`` keeps pre-activations and hidden and is fastest, ``recompute`` keeps the pre-activations,
``input`` keeps x alone and runs the first products again; ``auto`` lets dispatch choose. ``plan``: use this plan; under
`torch.compile` and `torch.func` it is not looked at.

Every function raises :class:`InputError` for shapes, dtypes and devices that do not fit, for names that are not known,
and for DTensors.
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor

from foretrace.fused import eager
from foretrace.fused.activations import canonical
from foretrace.fused.autograd import passes
from foretrace.fused.autograd.functions import (
    GatedActFunction,
    GatedMLPFunction,
    LinearActFunction,
    MLPFunction,
    rows_of,
    shaped,
)
from foretrace.fused.inputs import autocast, check_words, direct, fail_shape
from foretrace.fused.plan import Packing, Plan, Precision, Save
from foretrace.fused.planning import call_for
from foretrace.fused.weights import check_packing

__all__ = ["gated_act", "gated_mlp", "linear_act", "mlp"]

SaveChoice = Save | Literal["auto"]
_LinearTensors = tuple[Tensor, Tensor, Tensor | None]
_MLPTensors = tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]
_GatedTensors = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor | None, Tensor | None, Tensor | None]


def gated_mlp(
    x: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None = None,
    up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    *,
    activation: str = "gelu_tanh",
    packing: Packing = "separate",
    save: SaveChoice = "auto",
    precision: Precision = "exact",
    plan: Plan | None = None,
) -> Tensor:
    """Return ``(act(x gateᵀ + gate_bias) * (x upᵀ + up_bias)) downᵀ + down_bias``: x [..., K] to [..., out].

    Gate and up weights are [N, K], the down weight [out, N], biases [N], [N] and [out]. With a ``packing`` other than
    ``separate``, ``gate_weight`` is the stacked weight [2N, K], ``gate_bias`` the stacked bias [2N], and ``up_weight``
    and ``up_bias`` are ``None``; `foretrace.fused.weights` lists the orders.
    """
    name = canonical(activation)
    tensors: _GatedTensors = autocast((x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias))
    out, n, k = _check_gated(tensors, packing)
    check_words(save, precision)
    ours, training = direct(tensors)
    if _traced():
        y = _operators().gated_mlp(_flat(tensors[0]), *tensors[1:], name, packing, save, precision)
        return _unflat(y, x)
    if ours:
        call = call_for(
            "gated_mlp",
            tensors[0],
            tensors[1:4],
            (x.numel() // k if k else 0, n, k, out),
            activation=name,
            training=training,
            bias=gate_bias is not None or up_bias is not None,
            packing=packing,
            precision=precision,
            save=save,
            plan=plan,
        )
        if training and not call.plain:
            return cast(Tensor, GatedMLPFunction.apply(*tensors, call)[0])  # type: ignore[no-untyped-call]
        if not call.plain:
            return shaped(passes.gated_mlp_forward(rows_of(tensors[0]), *tensors[1:], call)[0], x)
    return eager.gated_mlp(*tensors, name, packing)


def mlp(
    x: Tensor,
    weight1: Tensor,
    weight2: Tensor,
    bias1: Tensor | None = None,
    bias2: Tensor | None = None,
    *,
    activation: str = "gelu_tanh",
    save: SaveChoice = "auto",
    precision: Precision = "exact",
    plan: Plan | None = None,
) -> Tensor:
    """Return ``act(x weight1ᵀ + bias1) weight2ᵀ + bias2``: x [..., K] to [..., out].

    ``weight1`` is [N, K], ``weight2`` [out, N], the biases [N] and [out].
    """
    name = canonical(activation)
    tensors: _MLPTensors = autocast((x, weight1, weight2, bias1, bias2))
    n, k = _check_linear(tensors[0], tensors[1], tensors[3], "weight1", "bias1")
    out = _check_down(tensors[2], tensors[4], n, "weight2", "bias2")
    check_words(save, precision)
    ours, training = direct(tensors)
    if _traced():
        return _unflat(_operators().mlp(_flat(tensors[0]), *tensors[1:], name, save, precision), x)
    if ours:
        call = call_for(
            "mlp",
            tensors[0],
            tensors[1:3],
            (x.numel() // k if k else 0, n, k, out),
            activation=name,
            training=training,
            bias=bias1 is not None,
            precision=precision,
            save=save,
            plan=plan,
        )
        if training and not call.plain:
            return cast(Tensor, MLPFunction.apply(*tensors, call)[0])  # type: ignore[no-untyped-call]
        if not call.plain:
            return shaped(passes.mlp_forward(rows_of(tensors[0]), *tensors[1:], call)[0], x)
    return eager.mlp(*tensors, name)


def linear_act(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str = "gelu_tanh",
    *,
    save: SaveChoice = "auto",
    precision: Precision = "exact",
    plan: Plan | None = None,
) -> Tensor:
    """Return ``act(x weightᵀ + bias)``: x [..., K] to [..., N]; ``weight`` is [N, K], ``bias`` [N]."""
    name = canonical(activation)
    tensors: _LinearTensors = autocast((x, weight, bias))
    n, k = _check_linear(*tensors, "weight", "bias")
    check_words(save, precision)
    ours, training = direct(tensors)
    if _traced():
        return _unflat(_operators().linear_act(_flat(tensors[0]), *tensors[1:], name, save, precision), x)
    if ours:
        call = call_for(
            "linear_act",
            tensors[0],
            tensors[1:2],
            (x.numel() // k if k else 0, n, k, 0),
            activation=name,
            training=training,
            bias=bias is not None,
            precision=precision,
            save=save,
            plan=plan,
        )
        if training and not call.plain:
            return cast(Tensor, LinearActFunction.apply(*tensors, call)[0])  # type: ignore[no-untyped-call]
        if not call.plain:
            return shaped(passes.linear_act_forward(rows_of(tensors[0]), *tensors[1:], call)[0], x)
    return eager.linear_act(*tensors, name)


def gated_act(
    gate: Tensor,
    up: Tensor,
    activation: str = "gelu_tanh",
    *,
    precision: Precision = "exact",
    plan: Plan | None = None,
) -> Tensor:
    """Return ``act(gate) * up``; gate and up have one shape [..., N].

    Under autocast nothing is cast, as for the operators this replaces; both must have one dtype there too.
    """
    name = canonical(activation)
    if gate.shape != up.shape:
        fail_shape("up", up.shape, f"gate's {list(gate.shape)}")
    check_words("auto", precision)
    ours, training = direct((gate, up))
    if _traced():
        return _operators().gated_act(gate, up, name, precision)  # type: ignore[no-any-return]
    if ours and gate.dim():
        n = gate.shape[-1]
        call = call_for(
            "gated_act",
            gate,
            (up,) if up.dim() > 1 else (),
            (gate.numel() // n if n else 0, n, 0, 0),
            activation=name,
            training=training,
            precision=precision,
            plan=plan,
        )
        if training and not call.plain:
            return cast(Tensor, GatedActFunction.apply(gate, up, call)[0])  # type: ignore[no-untyped-call]
        if not call.plain:
            return shaped(passes.gated_act_forward(rows_of(gate), rows_of(up), call), gate)
    return eager.gated_act(gate, up, name)


def _traced() -> bool:
    """Whether a compiler is looking, which is to see one operator; inside a transform it sees PyTorch's own."""
    return torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()


def _operators() -> Any:
    """Return the operators of `torch.library`, which are defined when a compiler first wants them."""
    from foretrace.fused import operators

    return operators


def _flat(x: Tensor) -> Tensor:
    """Return x [..., K] as [M, K], for a tracer: the rows may be a symbol."""
    return x if x.dim() == 2 else x.unsqueeze(0) if x.dim() == 1 else x.flatten(0, -2)


def _unflat(y: Tensor, x: Tensor) -> Tensor:
    return y if x.dim() == 2 else y.reshape(*x.shape[:-1], y.shape[-1])


def _check_gated(tensors: _GatedTensors, packing: str) -> tuple[int, int, int]:
    """Return out, N and K."""
    x, gate, up, down, gate_bias, up_bias, down_bias = tensors
    check_packing(packing)
    n, k = _check_linear(x, gate, gate_bias, "gate_weight", "gate_bias")
    if packing == "separate":
        if up is None or up.shape != gate.shape:
            fail_shape("up_weight", None if up is None else up.shape, f"gate_weight's {[n, k]}")
        if up_bias is not None and up_bias.shape != (n,):
            fail_shape("up_bias", up_bias.shape, f"[{n}]")
    else:
        if n % 2:
            fail_shape("the stacked gate_weight", gate.shape, "an even number of rows")
        for name, tensor in (("up_weight", up), ("up_bias", up_bias)):
            if tensor is not None:
                fail_shape(name, tensor.shape, f"None (packing={packing!r} stacks it with gate)")
        n //= 2
    return _check_down(down, down_bias, n, "down_weight", "down_bias"), n, k


def _check_linear(x: Tensor, weight: Tensor, bias: Tensor | None, weight_name: str, bias_name: str) -> tuple[int, int]:
    """Return N and K of a weight [N, K] that fits x [..., K]."""
    if weight.dim() != 2:
        fail_shape(weight_name, weight.shape, "[N, K]")
    n, k = weight.shape
    if x.dim() == 0 or x.shape[-1] != k:
        fail_shape("x", x.shape, f"[..., {k}] (for {weight_name} {[n, k]})")
    if bias is not None and bias.shape != (n,):
        fail_shape(bias_name, bias.shape, f"[{n}]")
    return n, k


def _check_down(down: Tensor, bias: Tensor | None, n: int, weight_name: str, bias_name: str) -> int:
    """Return the columns of the output."""
    if down.dim() != 2 or down.shape[1] != n:
        fail_shape(weight_name, down.shape, f"[out, {n}]")
    out = down.shape[0]
    if bias is not None and bias.shape != (out,):
        fail_shape(bias_name, bias.shape, f"[{out}]")
    return out
