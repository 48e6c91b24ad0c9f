"""The activations in PyTorch's own words, so that no opponent is built from what it is compared with."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["ACTIVATIONS"]


def _relu_squared(z: Tensor) -> Tensor:
    return functional.relu(z).square()


def _gelu_tanh(z: Tensor) -> Tensor:
    return functional.gelu(z, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": functional.silu,
    "relu": functional.relu,
    "relu2": _relu_squared,
    "sigmoid": torch.sigmoid,
}
