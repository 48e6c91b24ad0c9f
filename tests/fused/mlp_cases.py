"""Inputs and plans for the tests of `foretrace.fused` that run PyTorch's own operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from foretrace.fused.plan import Implementation, Plan, Save

PACKINGS = ("separate", "gate_up", "up_gate", "interleaved")
SAVES: tuple[Save, ...] = ("preact", "recompute", "input")


def plain_plan(save: Save = "preact") -> Plan:
    """A plan that is asked for: our own autograd functions run, with PyTorch's operators for kernels."""
    plain = Implementation("plain")
    return Plan(plain, plain, plain, save, "override", "a test asks for it")


def randn(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0, grad: bool = True) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 31 * sum(shape))
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_(grad)


def gated_tensors(
    packing: str = "separate",
    *,
    rows: tuple[int, ...] = (3,),
    k: int = 4,
    n: int = 5,
    out: int = 6,
    bias: bool = True,
    dtype: torch.dtype = torch.float64,
    grad: bool = True,
) -> list[Tensor | None]:
    """x, gate, up and down weight, gate, up and down bias, all leaves."""

    def new(*shape: int, seed: int) -> Tensor:
        return randn(*shape, dtype=dtype, seed=seed, grad=grad)

    two = packing == "separate"
    wide = n if two else 2 * n
    return [
        new(*rows, k, seed=1),
        new(wide, k, seed=2),
        new(n, k, seed=3) if two else None,
        new(out, n, seed=4),
        new(wide, seed=5) if bias else None,
        new(n, seed=6) if bias and two else None,
        new(out, seed=7) if bias else None,
    ]


def mlp_tensors(
    *, rows: tuple[int, ...] = (3,), k: int = 4, n: int = 5, out: int = 6, dtype: torch.dtype = torch.float64
) -> list[Tensor]:
    """x, weight1, weight2, bias1, bias2, all leaves."""
    shapes = ((*rows, k), (n, k), (out, n), (n,), (out,))
    return [randn(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)]


def gradients(y: Tensor, tensors: list[Any], grad: Tensor | None = None, **words: Any) -> list[Tensor | None]:
    """The gradients of y for those tensors that want one."""
    leaves = [one for one in tensors if one is not None and one.requires_grad]
    found = iter(torch.autograd.grad(y, leaves, torch.ones_like(y) if grad is None else grad, **words))
    return [next(found) if one is not None and one.requires_grad else None for one in tensors]
