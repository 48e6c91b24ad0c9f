"""A kernel that only activates, for the tests of `foretrace.fused.kernels.activation`. Importing it imports Triton."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import triton
import triton.language as tl
from triton.runtime.interpreter import InterpreterBuilder

from foretrace.fused.kernels.activation import activate, activate_with_slope


@triton.jit
def _kernel(z_ptr, value_ptr, slope_ptr, count, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * 4096 + tl.arange(0, 4096)
    z = tl.load(z_ptr + at, mask=at < count, other=0.0)
    alone = activate(z, ACTIVATION, PRECISION)
    value, slope = activate_with_slope(z, ACTIVATION, PRECISION)
    # Both functions give the same value, or the result is visibly wrong.
    same = (value == alone) | (value != value)
    tl.store(value_ptr + at, tl.where(same, alone, 12345.0), mask=at < count)
    tl.store(slope_ptr + at, slope, mask=at < count)


@contextmanager
def hardware_exp2() -> Iterator[None]:
    """Let the interpreter's exp2 return 0 for results below 2^-126, as ``ex2.approx.ftz`` does and numpy does not."""
    kept = InterpreterBuilder.create_exp2

    def flushed(x: np.ndarray) -> np.ndarray:
        result = np.exp2(x)
        return np.where(result < 2.0**-126, 0.0, result).astype(x.dtype)

    InterpreterBuilder.create_exp2 = lambda self, arg: self.unary_op(arg, flushed)
    try:
        yield
    finally:
        InterpreterBuilder.create_exp2 = kept


def evaluate(z: torch.Tensor, activation: str, precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Activation and slope of z, both float32."""
    z = z.float()
    value, slope = torch.empty_like(z), torch.empty_like(z)
    _kernel[(triton.cdiv(z.numel(), 4096),)](z, value, slope, z.numel(), activation, precision)
    return value, slope
