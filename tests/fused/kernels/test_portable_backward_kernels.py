"""Gradient of the hidden activations with the activation's derivative in its epilogue, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from interpreter import interpreted
from test_portable_kernels import SIZES, SMALL_TILES, TOLERANCE, data

from activation_truth import ACTIVATIONS, slope, truth
from guarded import guarded_allocations


def close(result: torch.Tensor | None, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert result is not None
    # Gradients are products of three such values: up to ten times as large.
    how = TOLERANCE[dtype]
    torch.testing.assert_close(result.double(), expected, rtol=2 * how["rtol"], atol=5 * how["atol"])


def check_gate_up(
    activation: str,
    dtype: torch.dtype,
    size: tuple[int, int, int] = (5, 43, 37),
    options: dict[str, int] | None = None,
) -> None:
    """size: rows, intermediate features, output features."""
    from foretrace.fused.kernels.portable_backward import gate_up_backward

    m, n, k = size
    grad_out, down = data(m, k, dtype=dtype, seed=0), data(k, n, dtype=dtype, seed=1)
    preact = data(m, 2 * n, dtype=dtype, seed=2)
    before = preact.clone()
    run = partial(gate_up_backward, grad_out, down, activation=activation, **(options or {}))
    with guarded_allocations():
        grad, hidden, bias = run(preact=preact, want_hidden=True, want_bias=True)
    assert torch.equal(preact, before)

    gate, up = preact.double()[:, :n], preact.double()[:, n:]
    grad_hidden = grad_out.double() @ down.double()
    value = truth(gate, activation)
    expected = torch.cat([grad_hidden * up * slope(gate, activation), grad_hidden * value], 1)
    close(grad, expected, dtype)
    close(hidden, value * up, dtype)
    assert bias is not None
    assert bias.dtype == torch.float32
    close(bias, expected.sum(0), dtype)

    with guarded_allocations():
        in_place, no_hidden, no_bias = run(preact=preact, want_hidden=False, want_bias=False, into=preact)
    assert in_place is preact
    assert torch.equal(in_place, grad)
    assert no_hidden is None
    assert no_bias is None


def check_linear_act(
    activation: str,
    dtype: torch.dtype,
    size: tuple[int, int, int] = (5, 43, 37),
    options: dict[str, int] | None = None,
) -> None:
    from foretrace.fused.kernels.portable_backward import linear_act_backward

    m, n, k = size
    grad_out, down = data(m, k, dtype=dtype, seed=0), data(k, n, dtype=dtype, seed=1)
    preact = data(m, n, dtype=dtype, seed=2)
    with guarded_allocations():
        grad, hidden, bias = linear_act_backward(
            grad_out, down, preact, activation, want_hidden=True, want_bias=True, **(options or {})
        )
    expected = grad_out.double() @ down.double() * slope(preact.double(), activation)
    close(grad, expected, dtype)
    close(hidden, truth(preact.double(), activation), dtype)
    close(bias, expected.sum(0), dtype)


def check_strided() -> None:
    """Expanded gradient, transposed and sliced down weight, pre-activations and result inside larger tensors."""
    from foretrace.fused.kernels.portable_backward import gate_up_backward

    whole = data(6, 100, dtype=torch.float32, seed=2)
    preact = whole[:, 7:93]
    for grad_out in (torch.tensor(0.5).expand(6, 37), data(37, 6, dtype=torch.float32, seed=0).t()):
        for down in (
            data(43, 37, dtype=torch.float32, seed=1).t(),
            data(40, 60, dtype=torch.float32, seed=1)[3:, 9:52],
        ):
            around = torch.full((6, 100), 777.0)
            into = around[:, 7:93]
            result, _, _ = gate_up_backward(
                grad_out, down, preact, "silu", want_hidden=False, want_bias=False, into=into
            )
            assert result is into
            fresh, _, _ = gate_up_backward(
                grad_out.contiguous(),
                down.contiguous(),
                preact.contiguous(),
                "silu",
                want_hidden=False,
                want_bias=False,
            )
            torch.testing.assert_close(into, fresh)
            assert bool((around[:, :7] == 777.0).all())
            assert bool((around[:, 93:] == 777.0).all())


def check_nothing_to_do() -> None:
    """No rows: no gradient, and a bias gradient of zeros."""
    from foretrace.fused.kernels.portable_backward import gate_up_backward

    grad, hidden, bias = gate_up_backward(
        torch.ones(0, 8), torch.ones(8, 4), torch.ones(0, 8), "silu", want_hidden=True, want_bias=True
    )
    assert grad.shape == (0, 8)
    assert hidden is not None
    assert hidden.shape == (0, 4)
    assert bias is not None
    assert torch.equal(bias, torch.zeros(8))


def check_relu_hides_infinite_gradients() -> None:
    """Where the gate is off neither infinity nor NaN of the gradient comes through."""
    from foretrace.fused.kernels.portable_backward import linear_act_backward

    grad_out = torch.tensor([[float("inf")], [float("nan")], [1.0]])
    preact = torch.tensor([[-1.0, 1.0]]).expand(3, 2)
    grad, _, _ = linear_act_backward(grad_out, torch.ones(1, 2), preact, "relu", want_hidden=False, want_bias=False)
    assert torch.equal(grad[:, 0], torch.zeros(3))
    assert not bool(grad[:2, 1].isfinite().any())


CASES: dict[str, Callable[[], None]] = {
    **{
        f"{what} {name} {dtype}": partial(check, name, dtype)
        for what, check in (("gate_up", check_gate_up), ("linear_act", check_linear_act))
        for name in ACTIVATIONS
        for dtype in (torch.float16, torch.float32)
    },
    **{
        f"{m}x{n}x{k}": partial(check_gate_up, "silu", torch.float32, (m, n, k), SMALL_TILES | {"subtiles": 1})
        for m, n, k in SIZES
    },
    **{
        f"subtiles {parts}": partial(
            check_gate_up, "gelu", torch.float32, (33, 100, 37), SMALL_TILES | {"block_n": 64, "subtiles": parts}
        )
        for parts in (1, 2, 4)
    },
    "strided": check_strided,
    "nothing to do": check_nothing_to_do,
    "relu hides infinite gradients": check_relu_hides_infinite_gradients,
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_portable_backward_in_the_interpreter(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
