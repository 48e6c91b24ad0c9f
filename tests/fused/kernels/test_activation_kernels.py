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
    # Where the derivative crosses 0 (near -0.75) two terms cancel, and 2^-15 of each is left.
    worse = (ours > theirs + 0.02) & ((derivative.double() - true).abs() > 1e-5)
    assert not worse.any(), (
        f"{activation} at {z[worse][:5].tolist()}: {ours[worse][:5]} ulps, eager {theirs[worse][:5]}"
    )


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


def test_erfc_fit_is_within_two_to_the_minus_fifteen() -> None:
    """The series for Phi(-|z|) exp(z^2 / 2), coefficients rounded to float32, on 0 <= |z| <= 14."""
    coefficients = torch.tensor([0.149477586, 0.157913819, 0.0847120732, 0.198743582, -0.0908569172]).double()
    z = torch.linspace(0, 14, 100_001, dtype=torch.float64)
    t = 1 / (1 + 0.376 * z)
    series = sum(c * t ** (power + 1) for power, c in enumerate(coefficients))
    true = 0.5 * torch.special.erfcx(z * math.sqrt(0.5))
    assert ((series / true) - 1).abs().max() < 2.0**-15
