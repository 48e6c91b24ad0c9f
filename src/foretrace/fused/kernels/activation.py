"""Activations and their derivatives inside kernels: float32 in, float32 out, as few instructions as they allow.

Every smooth activation is ``z * factor(z)`` (``sigmoid``: the factor alone), and the factor is a sigmoid or the normal
distribution function. Written this way the far negative tail keeps its relative accuracy; the textbook
``0.5 * z * (1 + tanh(...))`` loses it by cancellation.

``PRECISION`` is one of

- ``"exact"``: for float16 and bfloat16 results. One ``ex2.approx`` and one ``rcp.approx`` an element. The factor is
  within 2^-15 of itself and erf-GELU's slope within 2^-14.4: beside the half ulp of rounding the result, at most 0.012
  ulps of bfloat16 and 0.09 of float16. Exceptions lie far out: results of silu and sigmoid below z = -92 and of
  tanh-GELU below z = -10, where the reciprocal leaves float32's normal range and the hardware returns 0.
- ``"full"``: for float32 results: a few ulps.
- ``"fast"``: one ``tanh.approx.f32`` an element; absolute error near 2^-11 of the factor, so the negative tail is off
  by tens of percent.

The erf form. With ``t = 1 / (1 + p |z|)`` and coefficients c, the lower tail of the normal distribution is

    Phi(-|z|) = exp(-z^2 / 2) * (c1 t + c2 t^2 + c3 t^3 + c4 t^4 + c5 t^5)

c minimises the largest relative error against ``0.5 * erfcx(|z| / sqrt 2)`` on 0 <= |z| <= 14 (Remez exchange on a
dense grid in float64, for p = 0.376): 2^-15.06, and no more after rounding c to float32. The shape is that of
Abramowitz and Stegun 7.1.26, which minimises the absolute error instead.

The slope, Phi(z) + z exp(-z^2 / 2) / sqrt(2 pi), is zero at z = -0.7518. With c so fitted and 1 / sqrt(2 pi) exact its
two terms would leave 6e-6 there, which is much beside a slope that itself vanishes. So the slope takes the constant
under which the fit is zero at that very z: 1 / sqrt(2 pi) less 2.7e-5 of itself. The slope's relative error is then
below 2^-14.4 for -14 <= z <= 14, float32's rounding of the two terms (1e-7) aside.

exp(-z^2 / 2) becomes subnormal at z = -13.2, and ``ex2.approx.ftz`` returns 0 for it; but the slope is 5 times as
large, and bfloat16 has subnormals. So the kernels form 2^16 exp(-z^2 / 2), the shift riding on a multiply-add, and c
and the slope's constant carry the 2^-16, which leaves their roundings as they are.

`tests/fused/kernels/test_activation_kernels.py` checks the fit, the slope and the tail.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from typing import Literal

import torch
import triton
import triton.language as tl

__all__ = ["KernelPrecision", "activate", "activate_with_slope", "kernel_precision", "times_slope"]

KernelPrecision = Literal["exact", "full", "fast"]

# Constants shared with the Gluon kernels. A kernel may read a global only if it is a constexpr. In expressions they
# stand right of the tensor: the interpreter would turn `constexpr * tensor` into a constexpr.
LOG2_E = tl.constexpr(1.4426950408889634)
LOG2_E_HIGH = tl.constexpr(1.44269502162933349609375)  # log2(e) rounded to float32
LOG2_E_LOW = tl.constexpr(1.9259629911266175e-08)  # and what that lost
LN_2 = tl.constexpr(0.6931471805599453)
SQRT_HALF = tl.constexpr(0.7071067811865476)
INVERSE_SQRT_2PI = tl.constexpr(0.3989422804014327)
# tanh-GELU: z * sigmoid(2 u), u = sqrt(2 / pi) * (z + 0.044715 z^3) = z * (LINEAR + CUBIC z^2).
GELU_TANH_LINEAR = tl.constexpr(0.7978845608028654)
GELU_TANH_CUBIC = tl.constexpr(0.7978845608028654 * 0.044715)
# exp(-2 u) as a power of two: the above times -2 log2(e).
GELU_TANH_LINEAR_EXP2 = tl.constexpr(-2.0 * 1.4426950408889634 * 0.7978845608028654)
GELU_TANH_CUBIC_EXP2 = tl.constexpr(-2.0 * 1.4426950408889634 * 0.7978845608028654 * 0.044715)
# Phi(-|z|) and its slope's constant, see above. 2^16 exp(-z^2 / 2) = exp2(ERFC_EXP2 z^2 + ERFC_SHIFT).
ERFC_EXP2 = tl.constexpr(-0.5 * 1.4426950408889634)
ERFC_SHIFT = tl.constexpr(16.0)
ERFC_P = tl.constexpr(0.376)
ERFC_C1 = tl.constexpr(0.149477586 * 2.0**-16)
ERFC_C2 = tl.constexpr(0.157913819 * 2.0**-16)
ERFC_C3 = tl.constexpr(0.0847120732 * 2.0**-16)
ERFC_C4 = tl.constexpr(0.198743582 * 2.0**-16)
ERFC_C5 = tl.constexpr(-0.0908569172 * 2.0**-16)
ERFC_SLOPE = tl.constexpr(0.398931473 * 2.0**-16)
# "fast" erf-GELU: Phi(z) = 0.5 + 0.5 tanh(z (LINEAR + CUBIC z^2)), minimax in the absolute error of GELU (2.8e-4).
GELU_FAST_LINEAR = tl.constexpr(0.80018839)
GELU_FAST_CUBIC = tl.constexpr(0.03468376)
# rcp.approx.ftz flushes results below 2^-126, and sigmoid(z) lies there for z < -87.3. Scaled by 2^8 it does not
# down to z = -92. A larger shift would round the exponent more coarsely where silu's slope crosses 0 (z = -1.28), and
# float16 would show it.
SIGMOID_SHIFT = tl.constexpr(8.0)
SIGMOID_SCALE = tl.constexpr(0.00390625)


@triton.jit
def _probe() -> None:
    pass


# PTX by hand exists neither in the interpreter nor on AMD.
PTX = tl.constexpr(isinstance(_probe, triton.runtime.JITFunction) and torch.version.hip is None)


def kernel_precision(precision: str, dtype: torch.dtype) -> KernelPrecision:
    """Return the kernels' ``PRECISION`` for the caller's ``"exact"`` or ``"fast"`` and the dtype of the results."""
    if precision == "fast":
        return "fast"
    return "full" if dtype == torch.float32 else "exact"


@triton.jit
def _reciprocal(x: tl.tensor) -> tl.tensor:
    """1 / x to one ulp. Results below 2^-126 become 0, as 1 / inf does."""
    if PTX:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        return 1.0 / x


@triton.jit
def _tanh_approx(x: tl.tensor) -> tl.tensor:
    """The hardware's tanh, sm_75 and later; elsewhere the same function with more care."""
    if PTX:
        return tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:
        return 2.0 / (1.0 + tl.exp2(x * (-2.0 * LOG2_E))) - 1.0


@triton.jit
def _exp_full(x: tl.tensor) -> tl.tensor:
    """exp(x) to two ulps: x log2(e) is formed in two float32 parts, since its rounding error grows with |x|."""
    high = x * LOG2_E_HIGH
    low = tl.fma(x, LOG2_E_HIGH, -high) + x * LOG2_E_LOW
    low = tl.where(tl.abs(high) < 1024.0, low, 0.0)  # inf - inf
    return tl.exp2(high) * (1.0 + low * LN_2)


@triton.jit
def _factor(z: tl.tensor, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr) -> tl.tensor:
    """What z is multiplied by: sigmoid(z), Phi(z), or tanh-GELU's approximation of Phi(z)."""
    square = z * z
    if PRECISION == "fast":
        if ACTIVATION == "gelu":
            half = z * (square * GELU_FAST_CUBIC + GELU_FAST_LINEAR)
        elif ACTIVATION == "gelu_tanh":
            half = z * (square * GELU_TANH_CUBIC + GELU_TANH_LINEAR)
        else:
            half = 0.5 * z
        return 0.5 + 0.5 * _tanh_approx(half)
    elif PRECISION == "full":
        if ACTIVATION == "gelu":
            return 0.5 + 0.5 * tl.erf(z * SQRT_HALF)
        elif ACTIVATION == "gelu_tanh":
            return 1.0 / (1.0 + _exp_full(z * -2.0 * (square * GELU_TANH_CUBIC + GELU_TANH_LINEAR)))
        else:
            return 1.0 / (1.0 + _exp_full(-z))
    else:
        tl.static_assert(PRECISION == "exact", "PRECISION is exact, full or fast")
        if ACTIVATION == "gelu":
            t = _reciprocal(tl.abs(z) * ERFC_P + 1.0)
            series = t * (t * (t * (t * (t * ERFC_C5 + ERFC_C4) + ERFC_C3) + ERFC_C2) + ERFC_C1)
            tail = tl.exp2(square * ERFC_EXP2 + ERFC_SHIFT) * series
            return tl.where(z < 0.0, tail, 1.0 - tail)
        elif ACTIVATION == "gelu_tanh":
            return _reciprocal(1.0 + tl.exp2(z * (square * GELU_TANH_CUBIC_EXP2 + GELU_TANH_LINEAR_EXP2)))
        else:
            return _reciprocal(tl.exp2(z * -LOG2_E - SIGMOID_SHIFT) + SIGMOID_SCALE) * SIGMOID_SCALE


@triton.jit
def activate(z: tl.tensor, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr) -> tl.tensor:
    """Return act(z).

    z: float32 of any shape. ACTIVATION: gelu (erf), gelu_tanh, silu, relu, relu2, sigmoid. NaN and infinities come out
    as from PyTorch: gelu and silu of -inf are NaN (-inf * 0), relu of NaN is NaN.
    """
    if ACTIVATION == "relu":
        return tl.where(z < 0.0, 0.0, z)
    elif ACTIVATION == "relu2":
        positive = tl.where(z < 0.0, 0.0, z)
        return positive * positive
    elif ACTIVATION == "sigmoid":
        return _factor(z, ACTIVATION, PRECISION)
    else:
        tl.static_assert(
            ACTIVATION == "gelu" or ACTIVATION == "gelu_tanh" or ACTIVATION == "silu", "unknown activation"
        )
        return z * _factor(z, ACTIVATION, PRECISION)


@triton.jit
def activate_with_slope(z: tl.tensor, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr) -> tuple[tl.tensor, tl.tensor]:
    """Return (act(z), act'(z)), both float32; the arguments of `activate`.

    With f the factor: silu' = f + z f (1 - f); tanh-GELU' = f + z f (1 - f) (2 u)'; erf-GELU' = f + z exp(-z^2 / 2) /
    sqrt(2 pi). At kinks the slope is PyTorch's: 0 at 0, and 1 at NaN. Near a slope's zero (erf-GELU: z = -0.75) its
    terms cancel, and in ``exact`` 1e-7 is left of them, the rounding of float32.
    """
    if ACTIVATION == "relu":
        return tl.where(z < 0.0, 0.0, z), tl.where(z <= 0.0, 0.0, 1.0)
    elif ACTIVATION == "relu2":
        positive = tl.where(z < 0.0, 0.0, z)
        return positive * positive, 2.0 * positive
    elif ACTIVATION == "sigmoid":
        factor = _factor(z, ACTIVATION, PRECISION)
        return factor, factor * (1.0 - factor)
    elif ACTIVATION == "silu":
        factor = _factor(z, ACTIVATION, PRECISION)
        value = z * factor
        return value, factor + value * (1.0 - factor)
    elif ACTIVATION == "gelu_tanh":
        factor = _factor(z, ACTIVATION, PRECISION)
        value = z * factor
        inner = (z * z) * (6.0 * GELU_TANH_CUBIC) + 2.0 * GELU_TANH_LINEAR
        return value, factor + value * (1.0 - factor) * inner
    else:
        tl.static_assert(ACTIVATION == "gelu", "unknown activation")
        factor = _factor(z, ACTIVATION, PRECISION)
        value = z * factor
        if PRECISION == "fast":
            inner = (z * z) * (6.0 * GELU_FAST_CUBIC) + 2.0 * GELU_FAST_LINEAR
            slope = factor + value * (1.0 - factor) * inner
        elif PRECISION == "full":
            slope = factor + z * INVERSE_SQRT_2PI * _exp_full((z * z) * -0.5)
        else:
            # The same exponential as the factor's: the compiler computes it once.
            slope = factor + z * ERFC_SLOPE * tl.exp2((z * z) * ERFC_EXP2 + ERFC_SHIFT)
        return value, slope


@triton.jit
def times_slope(grad: tl.tensor, slope: tl.tensor, ACTIVATION: tl.constexpr) -> tl.tensor:
    """Return grad * slope; where ReLU is off the result is 0 even for an infinite or NaN grad, as in PyTorch."""
    if ACTIVATION == "relu" or ACTIVATION == "relu2":
        return tl.where(slope == 0.0, 0.0, grad * slope)
    else:
        return grad * slope
