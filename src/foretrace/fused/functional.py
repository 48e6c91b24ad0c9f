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

from typing import Any, Final, Literal, cast

import torch
from torch import Tensor

from foretrace.fused import eager, seen
from foretrace.fused.activations import canonical
from foretrace.fused.autograd import passes, straight
from foretrace.fused.autograd.functions import (
    GatedActFunction,
    GatedMLPFunction,
    LinearActFunction,
    MLPFunction,
    rows_of,
    shaped,
)
from foretrace.fused.inputs import autocast, check_tensors, check_words, direct, fail_shape
from foretrace.fused.plan import Packing, Plan, Precision, Save
from foretrace.fused.planning import Call, call_for
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
    given = [one for one in (x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias) if one is not None]
    absent = (up_weight is None, gate_bias is None, up_bias is None, down_bias is None)
    compiling = torch.compiler.is_compiling()
    if not compiling:
        words = (
            "gated_mlp",
            name,
            packing,
            save,
            precision,
            absent,
            getattr(x, "shape", None),
            torch.is_grad_enabled(),
        )
        call = seen.find(words, given, plan)
        if call is not None:
            return _gated_mlp(x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias, call)
    check_tensors(
        ("x", "gate_weight", "down_weight"), x=x, gate_weight=gate_weight, up_weight=up_weight, down_weight=down_weight,
        gate_bias=gate_bias, up_bias=up_bias, down_bias=down_bias,
    )  # fmt: skip
    original = (x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    tensors: _GatedTensors = autocast(original)
    out, n, k = _check_gated(tensors, packing)
    check_words(save, precision)
    ours, training = direct(tensors)
    if compiling and _traced(tensors[0]):
        y = _operators().gated_mlp(_flat(tensors[0]), *tensors[1:], name, packing, save, precision)
        return _unflat(y, x)
    if not ours:
        return eager.gated_mlp(*tensors, name, packing)
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
    if absent == (False, True, True, True) and straight.is_straight(call, tensors[0], tensors[1:4], ()):
        call = call._replace(straight=True)
    if tensors is original:
        seen.remember(words, given, 3 if up_weight is None else 4, plan, call)
    return _gated_mlp(*tensors, call)


def _gated_mlp(
    x: Tensor,
    gate_weight: Tensor,
    up_weight: Tensor | None,
    down_weight: Tensor,
    gate_bias: Tensor | None,
    up_bias: Tensor | None,
    down_bias: Tensor | None,
    call: Call,
) -> Tensor:
    if call.straight and up_weight is not None:
        if call.save is None:
            return straight.gated_mlp_forward(x, gate_weight, up_weight, down_weight, call)
        y: Tensor = _straight_gated_mlp(x, gate_weight, up_weight, down_weight, call)
        return y
    if call.plain:
        packing = call.packing
        return eager.gated_mlp(
            x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias, call.activation, packing
        )
    tensors = (x, gate_weight, up_weight, down_weight, gate_bias, up_bias, down_bias)
    if call.save is not None:
        return cast(Tensor, _apply_gated_mlp(*tensors, call)[0])
    return shaped(passes.gated_mlp_forward(rows_of(x), *tensors[1:], call)[0], x)


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
    given = [one for one in (x, weight1, weight2, bias1, bias2) if one is not None]
    compiling = torch.compiler.is_compiling()
    if not compiling:
        absent = (bias1 is None, bias2 is None)
        words = ("mlp", name, save, precision, absent, getattr(x, "shape", None), torch.is_grad_enabled())
        call = seen.find(words, given, plan)
        if call is not None:
            return _mlp(x, weight1, weight2, bias1, bias2, call)
    check_tensors(("x", "weight1", "weight2"), x=x, weight1=weight1, weight2=weight2, bias1=bias1, bias2=bias2)
    original = (x, weight1, weight2, bias1, bias2)
    tensors: _MLPTensors = autocast(original)
    n, k = _check_linear(tensors[0], tensors[1], tensors[3], "weight1", "bias1")
    out = _check_down(tensors[2], tensors[4], n, "weight2", "bias2")
    check_words(save, precision)
    ours, training = direct(tensors)
    if compiling and _traced(tensors[0]):
        return _unflat(_operators().mlp(_flat(tensors[0]), *tensors[1:], name, save, precision), x)
    if not ours:
        return eager.mlp(*tensors, name)
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
    if straight.is_straight(call, tensors[0], tensors[1:3], tensors[3:]):
        call = call._replace(straight=True)
    if tensors is original:
        seen.remember(words, given, 3, plan, call)
    return _mlp(*tensors, call)


def _mlp(x: Tensor, weight1: Tensor, weight2: Tensor, bias1: Tensor | None, bias2: Tensor | None, call: Call) -> Tensor:
    if call.straight and call.save is None:
        return straight.mlp_forward(x, weight1, weight2, bias1, bias2, call)
    # Whether a bias is a leaf is the one thing about a straight call that may have changed unseen.
    if call.straight and (bias1 is None or bias1.is_leaf) and (bias2 is None or bias2.is_leaf):
        y: Tensor = _straight_mlp(x, weight1, weight2, bias1, bias2, call)
        return y
    if call.plain:
        return eager.mlp(x, weight1, weight2, bias1, bias2, call.activation)
    if call.save is not None:
        return cast(Tensor, _apply_mlp(x, weight1, weight2, bias1, bias2, call)[0])
    return shaped(passes.mlp_forward(rows_of(x), weight1, weight2, bias1, bias2, call)[0], x)


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
    given = (x, weight) if bias is None else (x, weight, bias)
    compiling = torch.compiler.is_compiling()
    if not compiling:
        words = ("linear_act", name, save, precision, bias is None, getattr(x, "shape", None), torch.is_grad_enabled())
        call = seen.find(words, given, plan)
        if call is not None:
            return _linear_act(x, weight, bias, call)
    check_tensors(("x", "weight"), x=x, weight=weight, bias=bias)
    original = (x, weight, bias)
    tensors: _LinearTensors = autocast(original)
    n, k = _check_linear(*tensors, "weight", "bias")
    check_words(save, precision)
    ours, training = direct(tensors)
    if compiling and _traced(tensors[0]):
        return _unflat(_operators().linear_act(_flat(tensors[0]), *tensors[1:], name, save, precision), x)
    if not ours:
        return eager.linear_act(*tensors, name)
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
    if straight.is_straight(call, tensors[0], tensors[1:2], tensors[2:]):
        call = call._replace(straight=True)
    if tensors is original:
        seen.remember(words, given, 2, plan, call)
    return _linear_act(*tensors, call)


def _linear_act(x: Tensor, weight: Tensor, bias: Tensor | None, call: Call) -> Tensor:
    if call.straight and call.save is None:
        return straight.linear_act_forward(x, weight, bias, call)
    if call.straight and (bias is None or bias.is_leaf):  # as in `_mlp`
        y: Tensor = _straight_linear_act(x, weight, bias, call)
        return y
    if call.plain:
        return eager.linear_act(x, weight, bias, call.activation)
    if call.save is not None:
        return cast(Tensor, _apply_linear_act(x, weight, bias, call)[0])
    return shaped(passes.linear_act_forward(rows_of(x), weight, bias, call)[0], x)


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
    compiling = torch.compiler.is_compiling()
    if not compiling:
        words = ("gated_act", name, precision, getattr(gate, "shape", None), torch.is_grad_enabled())
        call = seen.find(words, (gate, up), plan)
        if call is not None:
            return _gated_act(gate, up, call)
    check_tensors(("gate", "up"), gate=gate, up=up)
    if gate.shape != up.shape:
        fail_shape("up", up.shape, f"gate's {list(gate.shape)}")
    check_words("auto", precision)
    ours, training = direct((gate, up))
    if compiling and gate.dim() and _traced(gate):
        return _operators().gated_act(gate, up, name, precision)  # type: ignore[no-any-return]
    if not ours or not gate.dim():
        return eager.gated_act(gate, up, name)
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
    seen.remember(words, (gate, up), 2, plan, call)
    return _gated_act(gate, up, call)


def _gated_act(gate: Tensor, up: Tensor, call: Call) -> Tensor:
    if call.plain:
        return eager.gated_act(gate, up, call.activation)
    if call.save is not None:
        return cast(Tensor, _apply_gated_act(gate, up, call)[0])
    return shaped(passes.gated_act_forward(rows_of(gate), rows_of(up), call), gate)


def _past_python(function: type[torch.autograd.Function]) -> Any:
    """``function.apply`` without its Python half, which is about `torch.func` and wrappers: `direct` excluded both."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc]


_apply_gated_mlp: Final = _past_python(GatedMLPFunction)
_apply_mlp: Final = _past_python(MLPFunction)
_apply_linear_act: Final = _past_python(LinearActFunction)
_apply_gated_act: Final = _past_python(GatedActFunction)
_straight_gated_mlp: Final = _past_python(straight.StraightGatedMLPFunction)
_straight_mlp: Final = _past_python(straight.StraightMLPFunction)
_straight_linear_act: Final = _past_python(straight.StraightLinearActFunction)


def _traced(x: Tensor) -> bool:
    """Whether a compiler is looking, which is to see one operator.

    Inside a transform it sees PyTorch's own, and of tensors without values: there is nothing to run, and who traces
    them may know PyTorch's only.
    """
    return torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active() and not x.is_meta


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
