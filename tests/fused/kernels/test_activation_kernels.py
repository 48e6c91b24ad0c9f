"""Activations inside kernels: no bfloat16 input gives a worse result than eager PyTorch does."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from interpreter import interpreted

from activation_truth import ACTIVATIONS, EAGER, bfloat16_ulps, every_bfloat16, slope, truth


def evaluate(z: torch.Tensor, activation: str, precision: str) -> tuple[torch.Tensor, torch.Tensor]:
    """activate and activate_with_slope of float32 values, run as a kernel."""
    from activation_probe import evaluate as run

    return run(z, activation, precision)


def check_values(activation: str, precision: str) -> None:
    z = every_bfloat16()
    value, _ = evaluate(z, activation, precision)
    true = truth(z.double(), activation)
    ours, eager = bfloat16_ulps(value, true), bfloat16_ulps(EAGER[activation](z), true)
    # 0.01: what an error of 2^-15 adds to the rounding of half an ulp.
    worse = ours > eager + 0.01
    assert not worse.any(), f"{activation} at {z[worse][:5].tolist()}: {ours[worse][:5]} ulps, eager {eager[worse][:5]}"


def check_slopes(activation: str, precision: str) -> None:
    z = every_bfloat16()
    z = z[z.abs() < 1e4]
    _, derivative = evaluate(z, activation, precision)
    true = slope(z.double(), activation)
    # Eager's own error, in bfloat16: gradient of the activation of a bfloat16 tensor.
    leaf = z.clone().requires_grad_()
    (eager,) = torch.autograd.grad(EAGER[activation](leaf), leaf, torch.ones_like(leaf))
    ours, theirs = bfloat16_ulps(derivative, true), bfloat16_ulps(eager, true)
    # 0.02: as above, for an error of 2^-14.4.
    worse = ours > theirs + 0.02
    assert not worse.any(), (
        f"{activation} at {z[worse][:5].tolist()}: {ours[worse][:5]} ulps, eager {theirs[worse][:5]}"
    )


def check_float16(activation: str) -> None:
    """float16 has three bits more than bfloat16: the fit's error adds up to 0.09 to the half ulp of rounding."""
    z = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(torch.float16)
    z = z[z.abs() < 1e4]
    value, derivative = evaluate(z, activation, "exact")
    leaf = z.clone().requires_grad_()
    eager = EAGER[activation](leaf)
    (eager_slope,) = torch.autograd.grad(eager, leaf, torch.ones_like(leaf))
    for what, ours, theirs, true in (
        ("value", value, eager, truth(z.double(), activation)),
        ("slope", derivative, eager_slope, slope(z.double(), activation)),
    ):
        errors = float16_ulps(ours, true)
        worse = errors > float16_ulps(theirs, true).clamp(min=0.59)
        assert not worse.any(), f"{what} of {activation} at {z[worse][:5].tolist()}: {errors[worse][:5].tolist()} ulps"


def float16_ulps(value: torch.Tensor, true: torch.Tensor) -> torch.Tensor:
    """Distance from the truth in units of float16's last place at the truth; values above its range do not count."""
    ulp = torch.exp2(torch.floor(torch.log2(true.abs().clamp(min=2.0**-14))) - 10)
    error = (value.to(torch.float16).double() - true).abs() / ulp
    return torch.where(true.abs() < 65504, error, 0.0)


def check_slope_at_its_zero() -> None:
    """erf-GELU has its minimum at z = -0.7518. Around it the slope is small, and correct to a bfloat16 all the same."""
    z = every_bfloat16()
    z = z[(z > -3) & (z <= -1e-3)]
    _, derivative = evaluate(z, "gelu", "exact")
    errors = bfloat16_ulps(derivative, slope(z.double(), "gelu"))
    assert errors.max() < 0.51, f"{errors.max()} ulps at {z[errors.argmax()]}"


def check_slope_changes_sign_at_the_minimum() -> None:
    """A float32 z beside the minimum: what is left of the two terms is float32's rounding, not the fit's error."""
    beside = torch.linspace(-1e-3, 1e-3, 2001) - 0.7517915
    _, derivative = evaluate(beside, "gelu", "exact")
    torch.testing.assert_close(derivative.double(), slope(beside.double(), "gelu"), rtol=2.0**-14.4, atol=1e-7)


def check_deep_tail() -> None:
    """erf-GELU down to bfloat16's smallest subnormal, though exp(-z^2 / 2) alone would be flushed to 0 before it."""
    from activation_probe import hardware_exp2

    z = every_bfloat16()
    z = z[(z <= -8) & (z > -20)]
    with hardware_exp2():
        value, derivative = evaluate(z, "gelu", "exact")
    for what, ours, true in (
        ("value", value, truth(z.double(), "gelu")),
        ("slope", derivative, slope(z.double(), "gelu")),
    ):
        errors = bfloat16_ulps(ours, true)
        assert errors.max() < 0.51, f"{what}: {errors.max()} ulps at {z[errors.argmax()]}"
    # By hand, at -13.25: exp(-z^2 / 2) = 7.5e-39 is below float32's normal range, the slope is not. So far out it is
    # (z - 1 / z) phi(z).
    density = math.exp(-(13.25**2) / 2) / math.sqrt(2 * math.pi)
    at = int((z == -13.25).nonzero())
    assert derivative[at].item() == pytest.approx((1 / 13.25 - 13.25) * density, rel=2e-4)


def check_float32(activation: str) -> None:
    z = torch.cat([torch.linspace(-12, 12, 20001), torch.logspace(-6, 0, 999), -torch.logspace(-6, 0, 999)])
    value, derivative = evaluate(z, activation, "full")
    error = (value.double() - truth(z.double(), activation)).abs()
    eager = (EAGER[activation](z).double() - truth(z.double(), activation)).abs()
    assert bool((error <= eager + 16 * 2.0**-24 * value.abs().double()).all())
    torch.testing.assert_close(derivative.double(), slope(z.double(), activation), rtol=2e-6, atol=5e-7)


def check_special(activation: str, precision: str) -> None:
    """Infinities and NaN as from eager, in value and slope."""
    z = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 3e38, -3e38])
    value, derivative = evaluate(z, activation, precision)
    leaf = z.clone().requires_grad_()
    eager = EAGER[activation](leaf)
    (grad,) = torch.autograd.grad(eager, leaf, torch.ones_like(z))
    eager = eager.detach().clone()
    if activation == "gelu":
        # The CPU's vectorised erf gives NaN from 2e19 on; a GPU's gives 1.
        eager[0], eager[5] = z[0], z[5]
    torch.testing.assert_close(value, eager, equal_nan=True, rtol=0, atol=0)
    # At infinity inf * 0 stands in several formulas of a slope, eager's among them: finite inputs and NaN count.
    torch.testing.assert_close(derivative[2:5], grad[2:5], equal_nan=True, rtol=1e-4, atol=1e-6)


def check_fast(activation: str) -> None:
    """fast is a smooth approximation of its own, off by no more than the hardware's tanh and the fit."""
    z = torch.linspace(-20, 20, 4001)
    value, derivative = evaluate(z, activation, "fast")
    # 2.8e-4: the fit of erf-GELU. In the interpreter tanh itself is exact.
    torch.testing.assert_close(value.double(), truth(z.double(), activation), rtol=1e-6, atol=3e-4)
    torch.testing.assert_close(derivative.double(), slope(z.double(), activation), rtol=1e-3, atol=2e-3)


CASES: dict[str, Callable[[], None]] = {
    **{f"values {name}": partial(check_values, name, "exact") for name in ACTIVATIONS},
    **{f"slopes {name}": partial(check_slopes, name, "exact") for name in ACTIVATIONS},
    **{f"float16 {name}": partial(check_float16, name) for name in ACTIVATIONS},
    "erf-GELU's slope at its zero": check_slope_at_its_zero,
    "erf-GELU's slope changes sign at the minimum": check_slope_changes_sign_at_the_minimum,
    "erf-GELU in the deep tail": check_deep_tail,
    **{f"float32 {name}": partial(check_float32, name) for name in ACTIVATIONS},
    **{f"special {name} {how}": partial(check_special, name, how) for name in ACTIVATIONS for how in ("exact", "full")},
    **{f"fast {name}": partial(check_fast, name) for name in ACTIVATIONS},
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_activation_in_the_interpreter(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""


def fit(z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Phi(-z) exp(z^2 / 2) as the kernels fit it, and their z / sqrt(2 pi): constants as float32 holds them."""
    from foretrace.fused.kernels import activation as kernels

    names = ("ERFC_C1", "ERFC_C2", "ERFC_C3", "ERFC_C4", "ERFC_C5", "ERFC_SLOPE")
    scaled = torch.tensor([getattr(kernels, name).value for name in names]).double()
    *coefficients, rise = scaled * 2.0**kernels.ERFC_SHIFT.value
    t = 1 / (1 + kernels.ERFC_P.value * z)
    return sum((c * t ** (power + 1) for power, c in enumerate(coefficients)), torch.zeros_like(z)), rise * z


def test_erfc_fit_is_within_two_to_the_minus_fifteen() -> None:
    """The series for Phi(-|z|) exp(z^2 / 2), coefficients rounded to float32, on 0 <= |z| <= 14."""
    z = torch.linspace(0, 14, 100_001, dtype=torch.float64)
    series, _ = fit(z)
    true = 0.5 * torch.special.erfcx(z * math.sqrt(0.5))
    assert ((series / true) - 1).abs().max() < 2.0**-15


def test_slope_fit_is_within_two_to_the_minus_fourteen_point_four() -> None:
    """Relative to the slope, also where it nears its zero: only 2e-8, the constants' rounding, is left there."""
    z = torch.linspace(0, 14, 100_001, dtype=torch.float64)
    series, rise = fit(z)
    true = 0.5 * torch.special.erfcx(z * math.sqrt(0.5)) - z / math.sqrt(2 * math.pi)
    assert ((series - rise - true).abs() <= 2.0**-14.4 * true.abs() + 2e-8).all()
