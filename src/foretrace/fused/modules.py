"""Fused layers as modules: parameters, names and behaviour of the `nn.Linear` layers they are made of.

A module hands the weights of its layers to `functional` only where calling those layers would do no more than
``F.linear``. A layer that was replaced (an adapter, a quantised layer, a shard), hooked, parametrized, or that holds a
tensor subclass is called as it is, one after the other: slower, and never bypassed.
"""

from __future__ import annotations

import math
from typing import Any, Final, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _globals

from foretrace.errors import InputError
from foretrace.fused import activations, functional
from foretrace.fused.functional import SaveChoice
from foretrace.fused.inputs import check_words
from foretrace.fused.plan import Packing, Precision
from foretrace.fused.weights import check_packing

__all__ = ["MLP", "GatedMLP", "LinearAct"]

Layer = TypeVar("Layer", bound=nn.Module)


_LINEAR_FORWARD: Final = nn.Linear.forward


class LinearAct(nn.Module):
    """``act(x weightᵀ + bias)``, with the parameters, their names and their initial values of `nn.Linear`.

    x [..., in_features] to [..., out_features], in x's dtype. It is no subclass of `nn.Linear`: whatever rewrites
    linear layers (adapters, quantisers) would lose the activation. Raises `InputError` for an unknown activation,
    ``save`` or ``precision``; see `functional.linear_act` for what they mean.
    """

    weight: nn.Parameter
    bias: nn.Parameter | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str = "gelu_tanh",
        *,
        save: SaveChoice = "auto",
        precision: Precision = "exact",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.activation, self.save, self.precision = _rules(activation, save, precision)
        self.weight = nn.Parameter(torch.empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = nn.Parameter(torch.empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initial values as `nn.Linear` draws them: uniform within ``1 / sqrt(in_features)``."""
        if self.in_features:
            nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
            if self.bias is not None:
                bound = 1 / math.sqrt(self.in_features)
                nn.init.uniform_(self.bias, -bound, bound)

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        *,
        activation: str | None = None,
        save: SaveChoice = "auto",
        precision: Precision = "exact",
    ) -> Self:
        """The same layer from ``nn.Sequential(Linear, activation)``; the parameters are shared, not copied."""
        return _converted(cls, module, activation=activation, save=save, precision=precision)

    def forward(self, x: Tensor) -> Tensor:
        """X [..., in_features] to [..., out_features]."""
        weight = self.weight
        if _is_subclass(weight):
            return activations.apply(self.activation, nn.functional.linear(x, weight, self.bias))
        return functional.linear_act(x, weight, self.bias, self.activation, save=self.save, precision=self.precision)

    def extra_repr(self) -> str:
        """What `repr` says of the module beside its layers."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}, "
            f"activation={self.activation!r}{_said(self.save, self.precision)}"
        )


class GatedMLP(nn.Module):
    """``down_proj(act(gate_proj(x)) * up_proj(x))``, with the `state_dict` of the MLP of Llama, Gemma, Mistral, Qwen.

    x [..., hidden_size] to [..., out_features] (``hidden_size`` unless given), in x's dtype. With a stacked ``packing``
    ("gate_up", "up_gate", "interleaved") one layer ``gate_up_proj`` holds both weights [2 * intermediate_size,
    hidden_size], as Phi-3 does. Raises `InputError` for an unknown activation, ``packing``, ``save`` or ``precision``;
    see `functional.gated_mlp` for what they mean.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        activation: str = "gelu_tanh",
        bias: bool = False,
        out_features: int | None = None,
        packing: Packing = "separate",
        save: SaveChoice = "auto",
        precision: Precision = "exact",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation, self.save, self.precision = _rules(activation, save, precision)
        check_packing(packing)
        self.packing = packing
        made: Any = {"bias": bias, "device": device, "dtype": dtype}
        if packing == "separate":
            self.gate_proj = nn.Linear(hidden_size, intermediate_size, **made)
            self.up_proj = nn.Linear(hidden_size, intermediate_size, **made)
        else:
            self.gate_up_proj = nn.Linear(hidden_size, 2 * intermediate_size, **made)
        self.down_proj = nn.Linear(intermediate_size, hidden_size if out_features is None else out_features, **made)

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        *,
        activation: str | None = None,
        packing: Packing | None = None,
        save: SaveChoice = "auto",
        precision: Precision = "exact",
    ) -> Self:
        """The same layer from a gated MLP of another library; parameters are shared, not copied.

        The activation is read from the module, the ``packing`` of a stacked weight cannot be and must be given. See
        `foretrace.fused.convert.from_module` for the modules it knows and the errors.
        """
        return _converted(cls, module, activation=activation, packing=packing, save=save, precision=precision)

    def forward(self, x: Tensor) -> Tensor:
        """X [..., hidden_size] to [..., out_features]."""
        layers = self._modules
        down: Any = layers["down_proj"]
        if self.packing != "separate":
            return self._forward_stacked(x, layers["gate_up_proj"], down)
        gate: Any = layers["gate_proj"]
        up: Any = layers["up_proj"]
        gate_own, up_own, down_own = _bare(gate), _bare(up), _bare(down)
        if gate_own and up_own and down_own and not _hooked_everywhere():
            return functional.gated_mlp(
                x,
                gate_own["weight"],
                up_own["weight"],
                down_own["weight"],
                gate_own["bias"],
                up_own["bias"],
                down_own["bias"],
                activation=self.activation,
                save=self.save,
                precision=self.precision,
            )
        projected: Tensor = down(self._combine(gate(x), up(x)))
        return projected

    def _forward_stacked(self, x: Tensor, gate_up: Any, down: Any) -> Tensor:
        both_own, down_own = _bare(gate_up), _bare(down)
        if both_own and down_own and not _hooked_everywhere():
            return functional.gated_mlp(
                x,
                both_own["weight"],
                None,
                down_own["weight"],
                both_own["bias"],
                None,
                down_own["bias"],
                activation=self.activation,
                packing=self.packing,
                save=self.save,
                precision=self.precision,
            )
        projected: Tensor = down(self._combine(*halves(gate_up(x), self.packing)))
        return projected

    def _combine(self, gate: Tensor, up: Tensor) -> Tensor:
        # An adapter may return a wider dtype than the layer beside it: the product is then PyTorch's own.
        if _is_subclass(gate) or _is_subclass(up) or gate.dtype != up.dtype:
            return activations.apply(self.activation, gate) * up
        return functional.gated_act(gate, up, self.activation, precision=self.precision)

    def extra_repr(self) -> str:
        """What `repr` says of the module beside its layers."""
        packing = "" if self.packing == "separate" else f", packing={self.packing!r}"
        return f"activation={self.activation!r}{packing}{_said(self.save, self.precision)}"


class MLP(nn.Module):
    """``fc2(act(fc1(x)))``.

    x [..., hidden_size] to [..., out_features] (``hidden_size`` unless given), in x's dtype. Raises `InputError` for
    an unknown activation, ``save`` or ``precision``; see `functional.mlp` for what they mean.
    """

    def __init__(
        self,
        hidden_size: int,
        intermediate_size: int,
        *,
        activation: str = "gelu_tanh",
        bias: bool = True,
        out_features: int | None = None,
        save: SaveChoice = "auto",
        precision: Precision = "exact",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.activation, self.save, self.precision = _rules(activation, save, precision)
        made: Any = {"bias": bias, "device": device, "dtype": dtype}
        self.fc1 = nn.Linear(hidden_size, intermediate_size, **made)
        self.fc2 = nn.Linear(intermediate_size, hidden_size if out_features is None else out_features, **made)

    @classmethod
    def from_module(
        cls,
        module: nn.Module,
        *,
        activation: str | None = None,
        save: SaveChoice = "auto",
        precision: Precision = "exact",
    ) -> Self:
        """The same layer from another library's; parameters are shared. See `foretrace.fused.convert.from_module`."""
        return _converted(cls, module, activation=activation, save=save, precision=precision)

    def forward(self, x: Tensor) -> Tensor:
        """X [..., hidden_size] to [..., out_features]."""
        layers = self._modules
        first: Any = layers["fc1"]
        second: Any = layers["fc2"]
        first_own, second_own = _bare(first), _bare(second)
        if not first_own or _hooked_everywhere():
            hidden = activations.apply(self.activation, first(x))
        elif second_own:
            return functional.mlp(
                x,
                first_own["weight"],
                second_own["weight"],
                first_own["bias"],
                second_own["bias"],
                activation=self.activation,
                save=self.save,
                precision=self.precision,
            )
        else:
            hidden = functional.linear_act(
                x,
                first_own["weight"],
                first_own["bias"],
                self.activation,
                save=self.save,
                precision=self.precision,
            )
        projected: Tensor = second(hidden)
        return projected

    def extra_repr(self) -> str:
        """What `repr` says of the module beside its layers."""
        return f"activation={self.activation!r}{_said(self.save, self.precision)}"


def halves(both: Tensor, packing: Packing) -> tuple[Tensor, Tensor]:
    """Gate and up [..., N] as views of the output [..., 2N] of one layer with a stacked weight."""
    if packing == "interleaved":
        return both[..., 0::2], both[..., 1::2]
    first, second = both.chunk(2, dim=-1)
    return (first, second) if packing == "gate_up" else (second, first)


def _bare(layer: Any) -> dict[str, Any] | None:
    """Return weight and bias of a layer if calling it is ``F.linear`` with them and nothing else; about 1 µs.

    From the dictionary of parameters, because an attribute of a module that is no plain attribute costs ten times that.
    """
    if (
        type(layer) is not nn.Linear
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        # Libraries that offload or wrap layers put their own ``forward`` on the instance.
        or "forward" in layer.__dict__
        # Others put it on the class.
        or nn.Linear.forward is not _LINEAR_FORWARD
    ):
        return None
    own: dict[str, Any] = layer._parameters
    weight = own.get("weight")
    # Data parallelism may have made them plain attributes, which the layer itself finds.
    if weight is None or "bias" not in own:
        return None
    return None if type(weight) is not nn.Parameter and _is_subclass(weight) else own


def _is_subclass(tensor: Tensor) -> bool:
    """Whether ``tensor`` only wraps others (a DTensor shard, a quantised weight), so that no kernel can read it."""
    kind = type(tensor)
    return kind is not nn.Parameter and kind is not Tensor and hasattr(kind, "__tensor_flatten__")


def _hooked_everywhere() -> bool:
    """Whether hooks for every module of the process are registered, as some profilers do."""
    return bool(
        _globals._global_forward_hooks
        or _globals._global_forward_pre_hooks
        or _globals._global_backward_hooks
        or _globals._global_backward_pre_hooks
    )


def _rules(activation: str, save: SaveChoice, precision: Precision) -> tuple[str, SaveChoice, Precision]:
    check_words(save, precision)
    return activations.canonical(activation), save, precision


def _said(save: str, precision: str) -> str:
    """What differs from the defaults, for ``repr``."""
    return ("" if save == "auto" else f", save={save!r}") + (
        "" if precision == "exact" else f", precision={precision!r}"
    )


def _converted(cls: type[Layer], module: nn.Module, **given: Any) -> Layer:
    from foretrace.fused import convert

    made = convert.from_module(module, **given)
    if not isinstance(made, cls):
        raise InputError(
            f"{type(module).__name__} is a {type(made).__name__}, not a {cls.__name__}: convert it as that"
        )
    return made
