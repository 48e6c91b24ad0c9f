"""Gated MLPs in a program: which modules are one, by their parts, and never by a guess at their activation.

A module is one if it has three linear projections under one of the usual sets of names and says its activation, as a
module (``act_fn = nn.SiLU()``), a function, or a name (``activation = "gelu_tanh"``). Tanh and erf GELU are different
functions, so one whose activation stands only in its ``forward`` is not taken.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

__all__ = ["GatedParts", "activation_of", "gated_parts"]

# gate, up and down projection as Llama and its kin call them, the built-in workload, and Meta's own Llama.
_PROJECTIONS = (("gate_proj", "up_proj", "down_proj"), ("gate", "up", "down"), ("w1", "w3", "w2"))
_SAYS_ACTIVATION = ("act_fn", "activation_fn", "activation", "act")
# Spellings of activations, those of Hugging Face's configurations included, to one name each.
_NAMES = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "silu": "silu",
    "swish": "silu",
    "relu": "relu",
    "relu2": "relu2",
    "relu_squared": "relu2",
    "sigmoid": "sigmoid",
}


@dataclass(frozen=True)
class GatedParts:
    """``down(activation(gate(x)) * up(x))``; ``activation`` by one of the names gelu, gelu_tanh, silu, relu, relu2,
    sigmoid."""

    gate: nn.Linear
    up: nn.Linear
    down: nn.Linear
    activation: str


def gated_parts(module: nn.Module) -> GatedParts | str | None:
    """The parts of a gated MLP; ``None`` for another module, and a sentence for one that hides its activation."""
    for names in _PROJECTIONS:
        gate, up, down = (getattr(module, name, None) for name in names)
        if not (isinstance(gate, nn.Linear) and isinstance(up, nn.Linear) and isinstance(down, nn.Linear)):
            continue
        if gate.in_features != up.in_features or not gate.out_features == up.out_features == down.in_features:
            continue
        said = [getattr(module, name) for name in _SAYS_ACTIVATION if getattr(module, name, None) is not None]
        activation = activation_of(said[0]) if said else None
        if activation is None:
            what = f"{type(module).__name__} has the projections of a gated MLP ({', '.join(names)})"
            if said:
                return f"{what} and an activation that is not known ({_shown(said[0])})"
            return f"{what} and does not say its activation; give it an attribute such as activation = 'gelu_tanh'"
        return GatedParts(gate, up, down, activation)
    return None


def activation_of(value: Any) -> str | None:
    """The name of an activation given as a module, a function or a text; ``None`` where it is not known for sure."""
    if isinstance(value, str):
        return _NAMES.get(value)
    if isinstance(value, nn.GELU):
        return "gelu_tanh" if value.approximate == "tanh" else "gelu"
    for kind, name in ((nn.SiLU, "silu"), (nn.ReLU, "relu"), (nn.Sigmoid, "sigmoid")):
        if type(value) is kind:
            return name
    functional = nn.functional
    functions = {functional.silu: "silu", functional.relu: "relu", torch.relu: "relu", torch.sigmoid: "sigmoid"}
    functions[functional.gelu] = "gelu"
    try:
        return functions.get(value) or _of_transformers(value)
    except TypeError:  # not hashable
        return None


def _of_transformers(value: Any) -> str | None:
    """Activations of Hugging Face's transformers, by their classes (transformers/activations.py)."""
    kind = type(value)
    if not kind.__module__.startswith("transformers."):
        return None
    if kind.__name__ == "GELUTanh":
        return "gelu_tanh"
    known = {
        "PytorchGELUTanh": "gelu_tanh",
        "NewGELUActivation": "gelu_tanh",
        "GELUActivation": "gelu",
        "SiLUActivation": "silu",
        "ReLUSquaredActivation": "relu2",
    }
    return known.get(kind.__name__)


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else getattr(value, "__name__", None) or type(value).__name__
