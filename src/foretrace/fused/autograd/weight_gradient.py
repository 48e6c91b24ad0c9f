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

__all__ = ["has_kernel", "weight_gradient", "weight_gradient_of", "weights_come_last"]

_HALVES: Final = (torch.bfloat16, torch.float16)


def has_kernel(factor: Tensor) -> bool:
    """Whether there is a kernel for gradients of weights from such rows: few of bf16 or fp16, on a GPU."""
    return 0 < factor.shape[0] <= GRADIENT_ROWS and factor.is_cuda and factor.dtype in _HALVES


def weight_gradient(call: Call, grad: Tensor, x: Tensor, out: Tensor | None = None) -> Tensor:
    """Return gradᵀ·x [N, K] for grad [M, N] and x [M, K] of one dtype, written to ``out`` if given.

    `foretrace.fused.dispatch.candidates.weight_gradients` says the same of a problem: a plan of nothing but PyTorch's
    operators is kept to here too.
    """
    if (
        has_kernel(grad)
        and not call.bound.plain
        and grad.stride(1) == x.stride(1) == 1
        and (out is None or (out.dtype == grad.dtype and out.stride(1) == 1))
    ):
        made: Tensor = find("weight_gradient", "small")(grad, x, out)
        return made
    return _by_library(grad, x) if out is None else torch.mm(grad.t(), x, out=out)


def weight_gradient_of(call: Call, *factors: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Return `weight_gradient` of ``grad`` and ``x`` for a call, with all decided that ``factors`` tell.

    ``factors``: [M, …] of one dtype and device, as wide as whatever will be grad or x; both will be contiguous.
    """
    if call.bound.plain or not has_kernel(factors[0]):
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
