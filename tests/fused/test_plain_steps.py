"""The steps in PyTorch's operators: what they may overwrite, and how often they pass over the data."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from foretrace.fused import plain
from foretrace.fused.activations import ACTIVATIONS


class Operators(TorchDispatchMode):
    """The names of the operators that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        del types
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def randn(rows: int, columns: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_gradients_may_overwrite_gate_and_up(activation: str, dtype: torch.dtype) -> None:
    grad, both = randn(33, 43, 0, dtype), randn(33, 86, 1, dtype)
    gate, up = both[:, :43], both[:, 43:]
    fresh = plain.gated_act_backward(grad, gate, up, activation, want_hidden=True)
    assert torch.equal(both, randn(33, 86, 1, dtype))
    places = torch.zeros_like(both)
    for into_gate, into_up in ((places[:, :43], places[:, 43:]), (gate, up)):
        results = plain.gated_act_backward(
            grad, gate, up, activation, grad_gate=into_gate, grad_up=into_up, want_hidden=True
        )
        assert results[0] is into_gate
        assert results[1] is into_up
        for result, expected in zip(results, fresh, strict=True):
            assert torch.equal(result, expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gradient_may_overwrite_its_preactivation(activation: str) -> None:
    grad, preact = randn(33, 43, 0), randn(33, 43, 1)
    fresh = plain.act_backward(grad, preact, activation, want_hidden=True, want_bias=True)
    results = plain.act_backward(grad, preact, activation, into=preact, want_hidden=True, want_bias=True)
    assert results[0] is preact
    for result, expected in zip(results, fresh, strict=True):
        assert torch.equal(result, expected)
    assert torch.equal(results[2], results[0].sum(0))
    assert plain.act_backward(grad, preact, activation)[1:] == (None, None)


def test_nothing_is_copied_into_a_given_place() -> None:
    grad, both = randn(33, 43, 0), randn(33, 86, 1)
    gate, up = both[:, :43], both[:, 43:]
    with Operators() as seen:
        plain.act_backward(grad, gate, "gelu_tanh", into=gate)
    assert seen.names == ["gelu_backward"]
    with Operators() as seen:
        plain.gated_act_backward(grad, gate, up, "silu", grad_gate=gate, grad_up=up)
    assert seen.names == ["silu", "mul", "silu_backward", "mul"]


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("biases", [(True, True), (True, False), (False, False)])
def test_preactivations_with_biases_are_rounded_once(biases: tuple[bool, bool], keep: bool) -> None:
    """No product is written to rows with a gap together with a bias: cuBLAS would round before it adds."""
    x, gate, up = (randn(rows, 40, seed, torch.bfloat16) for seed, rows in enumerate((5, 24, 24)))
    gate_bias, up_bias = (randn(1, 24, 3 + n, torch.bfloat16)[0] if there else None for n, there in enumerate(biases))
    with Operators() as ran:
        for_gate, for_up, preact = plain.gated_preactivations(x, gate, up, gate_bias, up_bias, keep=keep)
    assert torch.equal(for_gate, torch.nn.functional.linear(x, gate, gate_bias))
    assert torch.equal(for_up, torch.nn.functional.linear(x, up, up_bias))
    assert ran.names.count("copy_") == (sum(biases) if keep else 0)
    if keep:
        assert preact is not None
        assert torch.equal(preact, torch.cat([for_gate, for_up], 1))
    else:
        assert preact is None
