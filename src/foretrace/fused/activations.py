"""The activations: their names, what else they are called, and their values and gradients in plain PyTorch.

Two functions are called GELU. ``gelu`` is the exact one, z·Φ(z); ``gelu_tanh`` is its approximation by a hyperbolic
tangent. They differ by up to 5e-4 and are never exchanged for each other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrace.errors import InputError

__all__ = ["ACTIVATIONS", "apply", "canonical", "derivative", "gradient"]

ACTIVATIONS: Final = ("gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid")

# What configurations call them. The gelu_… names are those of transformers.activations.ACT2FN: all but
# gelu_python are written with a tanh.
_ALIASES: Final[dict[str, str]] = {
    **{name: name for name in ACTIVATIONS},
    "gelu_python": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "glu": "sigmoid",
    "relu_squared": "relu2",
    "squared_relu": "relu2",
    "swish": "silu",
}

# Classes of transformers.activations, by name: the package is not imported for this.
_TRANSFORMERS: Final[dict[str, str]] = {
    "AccurateGELUActivation": "gelu_tanh",
    "FastGELUActivation": "gelu_tanh",
    "GELUActivation": "gelu",
    "GELUTanh": "gelu_tanh",
    "NewGELUActivation": "gelu_tanh",
    "PytorchGELUTanh": "gelu_tanh",
    "ReLUSquaredActivation": "relu2",
    "SiLUActivation": "silu",
}

# Functions are found by identity: torch.relu and functional.relu are two objects.
_FUNCTIONS: Final[tuple[tuple[Any, str], ...]] = (
    (functional.gelu, "gelu"),
    (functional.silu, "silu"),
    (functional.relu, "relu"),
    (torch.relu, "relu"),
    (functional.sigmoid, "sigmoid"),
    (torch.sigmoid, "sigmoid"),
)

_GELU: Final = {"none": "gelu", "tanh": "gelu_tanh"}


def canonical(activation: str | Callable[..., Any]) -> str:
    """Return the canonical name for a name or an alias in any case, a module or a function.

    Understood are the names of this module and of Hugging Face configurations, ``nn.GELU`` (with its
    ``approximate``), ``nn.SiLU``, ``nn.ReLU``, ``nn.Sigmoid``, the activation classes of transformers, the functions
    of `torch.nn.functional` and a ``functools.partial(gelu, approximate=…)``. Raises :class:`InputError` for
    anything else: what an unknown callable computes is never guessed.
    """
    if isinstance(activation, str):
        found = _ALIASES.get(activation) or _ALIASES.get(activation.lower())
    else:
        found = _recognised(activation)
    if found is None:
        if isinstance(activation, Tensor):
            raise InputError(
                f"a tensor {list(activation.shape)} was given where the activation's name goes: gated_act takes gate, "
                "up and activation, linear_act x, weight, bias and activation"
            )
        known = isinstance(activation, str | nn.Module) or activation is None
        what = repr(activation) if known else getattr(activation, "__name__", type(activation).__name__)
        raise InputError(f"activation {what} is not one of {', '.join(ACTIVATIONS)}; pass one of these names")
    return found


def _recognised(activation: Any) -> str | None:
    kind = type(activation)
    if kind is nn.GELU:
        return _GELU.get(activation.approximate)
    if kind in (nn.SiLU, nn.ReLU, nn.Sigmoid):
        return str(kind.__name__).lower()
    if isinstance(activation, nn.Module):
        return _TRANSFORMERS.get(kind.__name__) if kind.__module__ == "transformers.activations" else None
    if isinstance(activation, partial):
        known = activation.func is functional.gelu and not activation.args
        if known and set(activation.keywords) == {"approximate"}:
            return _GELU.get(activation.keywords["approximate"])
        return None
    return next((name for function, name in _FUNCTIONS if activation is function), None)


def apply(name: str, z: Tensor) -> Tensor:
    """Return the activation of ``z``, any shape and floating dtype, computed as eager PyTorch computes it.

    Differentiable any number of times. ``name`` is canonical.
    """
    return _VALUES[name](z)


def gradient(name: str, grad: Tensor, z: Tensor, out: Tensor | None = None) -> Tensor:
    """Return ``grad`` times the activation's derivative at ``z``, by the operators eager's backward uses.

    For use below autograd: not all of them can be differentiated again. ``out``: where to write, any strides; may be
    ``z`` itself.
    """
    return _GRADIENTS[name](grad, z) if out is None else _GRADIENTS_INTO[name](grad, z, out)


def derivative(name: str, z: Tensor) -> Tensor:
    """Return the activation's derivative at ``z``; differentiable itself."""
    if name == "silu":  # the operator has no derivative of its own
        sigmoid = torch.sigmoid(z)
        return sigmoid * (1 + z * (1 - sigmoid))
    return gradient(name, torch.ones_like(z), z)


def _relu2(z: Tensor) -> Tensor:
    positive = functional.relu(z)
    return positive * positive


_aten: Final = torch.ops.aten
# The overloads' own functions, without the look-up and the Python call that the names above them cost each time.
_gelu_backward: Final[Any] = _aten.gelu_backward.default._op
_silu_backward: Final[Any] = _aten.silu_backward.default._op
_threshold_backward: Final[Any] = _aten.threshold_backward.default._op
_sigmoid_backward: Final[Any] = _aten.sigmoid_backward.default._op
_gelu_backward_into: Final[Any] = _aten.gelu_backward.grad_input._op
_silu_backward_into: Final[Any] = _aten.silu_backward.grad_input._op
_threshold_backward_into: Final[Any] = _aten.threshold_backward.grad_input._op
_sigmoid_backward_into: Final[Any] = _aten.sigmoid_backward.grad_input._op

_VALUES: Final[dict[str, Callable[[Tensor], Tensor]]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "silu": functional.silu,
    "relu": functional.relu,
    "relu2": _relu2,
    "sigmoid": torch.sigmoid,
}

_GRADIENTS: Final[dict[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "gelu": lambda grad, z: _gelu_backward(grad, z),
    "gelu_tanh": lambda grad, z: _gelu_backward(grad, z, approximate="tanh"),
    "silu": lambda grad, z: _silu_backward(grad, z),
    "relu": lambda grad, z: _threshold_backward(grad, z, 0),
    # Both factors of relu(z)² pass 2 relu(z) grad on, and the threshold cuts it where z <= 0.
    "relu2": lambda grad, z: _threshold_backward(2 * functional.relu(z) * grad, z, 0),
    "sigmoid": lambda grad, z: _sigmoid_backward(grad, torch.sigmoid(z)),
}

# The same operators, written to a given tensor: each element is read before its gradient takes its place.
_GRADIENTS_INTO: Final[dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = {
    "gelu": lambda grad, z, out: _gelu_backward_into(grad, z, grad_input=out),
    "gelu_tanh": lambda grad, z, out: _gelu_backward_into(grad, z, approximate="tanh", grad_input=out),
    "silu": lambda grad, z, out: _silu_backward_into(grad, z, grad_input=out),
    "relu": lambda grad, z, out: _threshold_backward_into(grad, z, 0, grad_input=out),
    "relu2": lambda grad, z, out: _threshold_backward_into(2 * functional.relu(z) * grad, z, 0, grad_input=out),
    "sigmoid": lambda grad, z, out: _sigmoid_backward_into(grad, torch.sigmoid(z), grad_input=out),
}
