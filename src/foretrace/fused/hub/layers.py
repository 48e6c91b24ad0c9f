"""Layers for ``kernelize`` of Hugging Face `kernels`: a ``forward`` for modules that exist already.

A layer has no state and no ``__init__``: ``kernelize`` puts its ``forward`` on a model's own module, whose projections
and activation it uses. Where calling them is more than a product (adapters, hooks, parametrizations), or the activation
is one that is not known here, the module's parts run as they are, so that the result is always the module's own.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from foretrace.errors import InputError
from foretrace.fused import activations, functional
from foretrace.fused.modules import _bare, _hooked_everywhere

__all__ = ["MLP", "GatedMLP", "LinearAct"]


class GatedMLP(nn.Module):
    """``down_proj(act_fn(gate_proj(x)) * up_proj(x))``: the MLP of Llama, Gemma, Mistral, Qwen."""

    has_backward = True
    can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [..., hidden size], result [..., out features]."""
        gate, up, down, act = _parts(self, "gate_proj", "up_proj", "down_proj", "act_fn")
        name = _known(act)
        if name is None or not _are_bare(gate, up, down):
            composed: Tensor = down(act(gate(x)) * up(x))
            return composed
        return functional.gated_mlp(
            x, gate.weight, up.weight, down.weight, gate.bias, up.bias, down.bias, activation=name
        )


class MLP(nn.Module):
    """``fc2(activation_fn(fc1(x)))``: the MLP of ViT, CLIP, Phi and others; without the dropout of training."""

    has_backward = True
    can_torch_compile = True

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [..., hidden size], result [..., out features]."""
        first, second = _parts(self, "fc1", "fc2")
        act = _activation_of(self)
        name = _known(act)
        if name is None or not _are_bare(first, second):
            composed: Tensor = second(act(first(x)))
            return composed
        return functional.mlp(x, first.weight, second.weight, first.bias, second.bias, activation=name)


class LinearAct(nn.Module):
    """``intermediate_act_fn(dense(x))``: the intermediate layer of BERT and ViT."""

    has_backward = True
    can_torch_compile = True

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Shapes: hidden_states [..., in features], result [..., out features]."""
        dense, act = _parts(self, "dense", "intermediate_act_fn")
        name = _known(act)
        if name is None or not _are_bare(dense):
            composed: Tensor = act(dense(hidden_states))
            return composed
        return functional.linear_act(hidden_states, dense.weight, dense.bias, name)


def _parts(module: nn.Module, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(module, name) for name in names)


def _activation_of(module: nn.Module) -> Any:
    for name in ("activation_fn", "act_fn", "act"):
        if hasattr(module, name):
            return getattr(module, name)
    raise InputError(f"{type(module).__name__} has no activation_fn, act_fn or act; this layer needs one of them")


def _known(activation: Any) -> str | None:
    """The canonical name of an activation; ``None`` where it is none of those that are fused."""
    try:
        return activations.canonical(activation)
    except InputError:
        return None


def _are_bare(*layers: Any) -> bool:
    """Whether calling each of these is a product and nothing else."""
    return all(_bare(layer) is not None for layer in layers) and not _hooked_everywhere()
