"""The gradient of a weight, a product over the rows: by PyTorch, or by a kernel of ours where the rows are few."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import torch
from torch import Tensor

from foretrace.fused.dispatch.candidates import GRADIENT_ROWS
from foretrace.fused.planning import Call
from foretrace.fused.steps import find

__all__ = ["weight_gradient", "weight_gradient_of", "weights_come_last"]

_HALVES: Final = (torch.bfloat16, torch.float16)


def weight_gradient(call: Call, grad: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return gradᵀ·x [N, K] for grad [M, N] and x [M, K] of one dtype, written to ``out`` if given.

    `foretrace.fused.dispatch.candidates.weight_gradients` says the same of a problem: a plan of nothing but PyTorch's
    operators is kept to here too.
    """
    if (
        0 < grad.shape[0] <= GRADIENT_ROWS
        and grad.is_cuda
        and grad.dtype in _HALVES
        and not call.bound.plain
        and grad.stride(1) == x.stride(1) == 1
        and (out is None or (out.dtype == grad.dtype and out.stride(1) == 1))
    ):
        made: Tensor = find("weight_gradient", "small")(grad, x, out)
        return made
    return torch.mm(grad.t(), x) if out is None else torch.mm(grad.t(), x, out=out)


def weight_gradient_of(call: Call, *factors: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return `weight_gradient` of ``grad`` and ``x`` for a call, with all decided that ``factors`` tell.

    ``factors``: [M, …] of one dtype and device, as wide as whatever will be grad or x; both will be contiguous.
    """
    first = factors[0]
    rows = first.shape[0]
    if not 0 < rows <= GRADIENT_ROWS or not first.is_cuda or first.dtype not in _HALVES or call.bound.plain:
        return _by_library
    if any(factor.shape[1] == 1 for factor in factors):  # its stride may be anything, however contiguous
        return partial(weight_gradient, call)
    return _few_rows


def _few_rows(grad: Tensor, x: Tensor) -> Tensor:
    if not x.is_contiguous():  # a hook gave back what was saved in a layout of its own
        return _by_library(grad, x)
    made: Tensor = find("weight_gradient", "small")(grad, x)
    return made


def _by_library(grad: Tensor, x: Tensor) -> Tensor:
    return torch.mm(grad.t(), x)


def weights_come_last(grad: Tensor) -> bool:
    """Whether the gradient of the second weight waits for all products that read weights. ``grad``: [M, out].

    With few rows what those read may still be in L2, from which gradients of weights would drive it out: on an H200
    with 16 rows and weights of 2048 × 8192 the product with the second one takes 7 µs then, and not 13. Hidden lives
    a little longer, and is no larger than the gradient that is made with it.
    """
    rows, features = grad.shape
    return rows <= features
