"""A kernel that only activates, for the tests of `foretrace.fused.kernels.activation`. Importing it imports Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

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


def evaluate(z: torch.Tensor, activation: str, precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Activation and slope of z, both float32."""
    z = z.float()
    value, slope = torch.empty_like(z), torch.empty_like(z)
    _kernel[(triton.cdiv(z.numel(), 4096),)](z, value, slope, z.numel(), activation, precision)
    return value, slope
