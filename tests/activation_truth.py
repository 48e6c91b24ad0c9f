"""Activations and their slopes in float64, eager's versions of them, and errors in bfloat16's last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import gelu, silu

ACTIVATIONS = ("gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid")
EAGER: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": gelu,
    "gelu_tanh": partial(gelu, approximate="tanh"),
    "silu": silu,
    "relu": torch.relu,
    "relu2": lambda z: torch.relu(z).square(),
    "sigmoid": torch.sigmoid,
}


def truth(z: torch.Tensor, activation: str) -> torch.Tensor:
    """The activation in float64, in forms that keep their accuracy in the negative tail."""
    if activation == "gelu":
        return z * 0.5 * torch.special.erfc(-z * math.sqrt(0.5))
    if activation == "gelu_tanh":
        return z * torch.sigmoid(2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
    if activation == "silu":
        return z * torch.sigmoid(z)
    return EAGER[activation](z)


def slope(z: torch.Tensor, activation: str) -> torch.Tensor:
    """Its derivative in float64, by autograd."""
    z = z.detach().requires_grad_()
    (result,) = torch.autograd.grad(truth(z, activation).sum(), z)
    return result


def every_bfloat16() -> torch.Tensor:
    """All 65 280 finite values."""
    z = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    return z[torch.isfinite(z)]


def bfloat16_ulps(value: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Distance from the truth in units of bfloat16's last place at the truth; values above its range do not count."""
    ulp = torch.exp2(torch.floor(torch.log2(true.abs().clamp(min=2.0**-126))) - 7)
    error = (value.to(torch.bfloat16).double() - true).abs() / ulp
    return torch.where(torch.isfinite(true) & (true.abs() < 3.3e38), error, 0.0)
