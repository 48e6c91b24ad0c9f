"""Names are never guessed, values and gradients are eager PyTorch's."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from foretrace.errors import InputError
from foretrace.fused.activations import ACTIVATIONS, apply, canonical, derivative, gradient

FORMULAS = {
    "gelu": lambda z: z * 0.5 * (1 + torch.erf(z / math.sqrt(2))),
    "gelu_tanh": lambda z: 0.5 * z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "silu": lambda z: z / (1 + torch.exp(-z)),
    "relu": lambda z: z.clamp(min=0),
    "relu2": lambda z: z.clamp(min=0) ** 2,
    "sigmoid": lambda z: 1 / (1 + torch.exp(-z)),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_values_follow_the_formula(name: str) -> None:
    z = torch.linspace(-6, 6, 101, dtype=torch.float64)
    torch.testing.assert_close(apply(name, z), FORMULAS[name](z))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_derivative_is_autograds(name: str) -> None:
    z = torch.linspace(-6, 6, 100, dtype=torch.float64).requires_grad_()
    (expected,) = torch.autograd.grad(apply(name, z).sum(), z)
    torch.testing.assert_close(derivative(name, z), expected)
    torch.testing.assert_close(gradient(name, torch.full_like(z, 3), z), 3 * expected)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_the_derivative_is_differentiable(name: str) -> None:
    z = torch.tensor([-2.0, -0.3, 0.4, 1.7], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: derivative(name, z), z)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_a_gradient_may_be_written_over_its_preactivation(name: str, dtype: torch.dtype) -> None:
    """To the bit what other memory of the same strides would hold; with any strides, those of gradients included."""
    both = torch.randn(33, 86, generator=torch.Generator().manual_seed(0)).mul(3).to(dtype)
    whole, half = both[:, 43:].contiguous(), both[:, 43:]
    for grad in (whole.flip(0), whole[:1].expand(33, 43), both[:, 1::2]):
        expected = gradient(name, grad, whole)
        elsewhere = torch.empty_like(whole)
        assert gradient(name, grad, whole, out=elsewhere) is elsewhere
        assert torch.equal(elsewhere, expected)
        over = whole.clone()
        gradient(name, grad, over, out=over)
        assert torch.equal(over, expected)

        others = torch.empty_like(both)[:, 43:]
        gradient(name, grad, half, out=others)
        # PyTorch's loops over a CPU's vectors and over single elements differ in a last bit.
        torch.testing.assert_close(others, expected)
        copy = both.clone()
        gradient(name, grad, copy[:, 43:], out=copy[:, 43:])
        assert torch.equal(copy[:, 43:], others)
        assert torch.equal(copy[:, :43], both[:, :43])


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_special_values_are_eagers(name: str) -> None:
    z = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e30, -1e30], requires_grad=True)
    (expected,) = torch.autograd.grad(apply(name, z).sum(), z)
    torch.testing.assert_close(derivative(name, z), expected, equal_nan=True)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("gelu_python", "gelu"),
        ("swish", "silu"),
        ("relu_squared", "relu2"),
        ("SiLU", "silu"),
        ("GELU", "gelu"),
        (nn.GELU(), "gelu"),
        (nn.GELU(approximate="tanh"), "gelu_tanh"),
        (nn.SiLU(), "silu"),
        (nn.ReLU(), "relu"),
        (nn.Sigmoid(), "sigmoid"),
        (functional.gelu, "gelu"),
        (functional.silu, "silu"),
        (torch.relu, "relu"),
        (partial(functional.gelu, approximate="tanh"), "gelu_tanh"),
    ],
)
def test_names_modules_and_functions_are_understood(given: object, name: str) -> None:
    assert canonical(given) == name  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given", ["quick_gelu", "geglu", "", nn.Tanh(), torch.tanh, lambda z: z, partial(functional.gelu, torch.ones(1))]
)
def test_what_is_not_known_is_not_guessed(given: object) -> None:
    with pytest.raises(InputError, match="is not one of gelu, gelu_tanh, silu, relu, relu2, sigmoid"):
        canonical(given)  # type: ignore[arg-type]


def test_a_tensor_in_the_place_of_the_name_is_told() -> None:
    with pytest.raises(InputError, match=r"a tensor \[2, 3\] was given .*: gated_act takes gate, up and activation"):
        canonical(torch.ones(2, 3))  # type: ignore[arg-type]


def test_a_subclass_may_compute_something_else() -> None:
    class Louder(nn.SiLU):
        def forward(self, z: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(z)

    with pytest.raises(InputError, match=r"Louder\(\) is not one of"):
        canonical(Louder())


def test_transformers_classes_are_known_by_name() -> None:
    kind = type("NewGELUActivation", (nn.Module,), {"__module__": "transformers.activations"})
    assert canonical(kind()) == "gelu_tanh"
