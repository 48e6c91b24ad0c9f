"""Activations of tensors in memory: every activation, layout and odd size, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from interpreter import interpreted

from activation_truth import ACTIVATIONS, slope, truth

CANARY = 777.0
# Where a derivative crosses 0, what its terms lose to rounding is left: 3e-5 after products with data of this size.
TOLERANCE = {torch.float16: {"rtol": 1.1e-3, "atol": 3e-5}, torch.float32: {"rtol": 3e-6, "atol": 3e-6}}
# One element, odd sizes, more than one block of rows and of columns, 16 bytes at a time.
SHAPES = ((1, 1), (5, 43), (130, 8), (6, 1040), (2, 2048), (700, 1))


def data(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).mul(2).to(dtype)


def halves(rows: int, columns: int, dtype: torch.dtype, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Gate and up as the columns of one tensor."""
    both = data(rows, 2 * columns, dtype, seed)
    return both[:, :columns], both[:, columns:]


def framed(rows: int, columns: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """A tensor to write to, and the larger one around it, full of canaries."""
    around = torch.full((rows + 2, columns + 5), CANARY, dtype=dtype)
    return around[1:-1, 2:-3], around


def canaries_alive(around: torch.Tensor) -> bool:
    inner = torch.zeros_like(around, dtype=torch.bool)
    inner[1:-1, 2:-3] = True
    return bool((around[~inner] == CANARY).all())


def check_forward(activation: str, dtype: torch.dtype, shapes: tuple[tuple[int, int], ...]) -> None:
    from foretrace.fused.kernels.elementwise import act, gated_act

    for rows, columns in shapes:
        for gate, up in (
            (data(rows, columns, dtype, 0), data(rows, columns, dtype, 1)),
            halves(rows, columns, dtype, 2),
            (data(rows, columns, dtype, 3), halves(rows, columns, dtype, 4)[1]),
            (data(columns, rows, dtype, 5).t(), data(1, columns, dtype, 6).expand(rows, columns)),
        ):
            expected = truth(gate.double(), activation) * up.double()
            torch.testing.assert_close(gated_act(gate, up, activation).double(), expected, **TOLERANCE[dtype])
            out, around = framed(rows, columns, dtype)
            assert gated_act(gate, up, activation, out) is out
            torch.testing.assert_close(out.double(), expected, **TOLERANCE[dtype])
            assert canaries_alive(around)
            torch.testing.assert_close(
                act(gate, activation).double(), truth(gate.double(), activation), **TOLERANCE[dtype]
            )


def check_backward(activation: str, dtype: torch.dtype, shapes: tuple[tuple[int, int], ...]) -> None:
    from foretrace.fused.kernels.elementwise import act_backward, gated_act_backward

    for rows, columns in shapes:
        gate, up = halves(rows, columns, dtype, 0)
        for grad in (data(rows, columns, dtype, 1), torch.tensor(0.5, dtype=dtype).expand(rows, columns)):
            value, derivative = truth(gate.double(), activation), slope(gate.double(), activation)
            expected = (grad.double() * up.double() * derivative, grad.double() * value, value * up.double())
            before = gate.clone(), up.clone()
            results = gated_act_backward(grad, gate, up, activation, want_hidden=True)
            for result, right in zip(results, expected, strict=True):
                assert result is not None
                torch.testing.assert_close(result.double(), right, **TOLERANCE[dtype])
            assert torch.equal(gate, before[0])
            assert torch.equal(up, before[1])
            assert results[0].stride(0) == 2 * columns, "gradients are halves of one tensor"

            into, around = framed(rows, columns, dtype)
            grad_gate, grad_up, hidden = gated_act_backward(grad, gate, up, activation, grad_gate=into)
            assert grad_gate is into
            assert hidden is None
            assert torch.equal(into, results[0])
            assert torch.equal(grad_up, results[1])
            assert canaries_alive(around)

            single, value_again, _ = act_backward(grad, gate, activation, want_hidden=True)
            torch.testing.assert_close(single.double(), grad.double() * derivative, **TOLERANCE[dtype])
            assert value_again is not None
            torch.testing.assert_close(value_again.double(), value, **TOLERANCE[dtype])


def check_in_place() -> None:
    """The gradient may overwrite the pre-activations it belongs to."""
    from foretrace.fused.kernels.elementwise import act_backward, gated_act_backward

    gate, up = halves(33, 100, torch.float32, 0)
    grad = data(33, 100, torch.float32, 1)
    fresh = gated_act_backward(grad, gate, up, "silu")
    single, _, _ = act_backward(grad, gate, "silu")
    copy = gate.clone()
    assert torch.equal(act_backward(grad, copy, "silu", into=copy)[0], single)
    gated_act_backward(grad, gate, up, "silu", grad_gate=gate, grad_up=up)
    assert torch.equal(gate, fresh[0])
    assert torch.equal(up, fresh[1])


def check_nothing_to_do() -> None:
    from foretrace.fused.kernels.elementwise import gated_act, gated_act_backward

    for shape in ((0, 8), (3, 0)):
        empty = torch.empty(shape)
        assert gated_act(empty, empty, "silu").shape == shape
        assert gated_act_backward(empty, empty, empty, "silu")[0].shape == shape


def check_infinite_gradient_of_relu() -> None:
    """Where ReLU is off its gradient is 0, whatever comes in; NaN goes through."""
    from foretrace.fused.kernels.elementwise import act_backward

    preact = torch.tensor([[-1.0, -1.0, 2.0, float("nan")]])
    grad = torch.tensor([[float("inf"), float("nan"), float("inf"), 1.0]])
    leaf = preact.clone().requires_grad_()
    (expected,) = torch.autograd.grad(torch.relu(leaf), leaf, grad)
    torch.testing.assert_close(act_backward(grad, preact, "relu")[0], expected, equal_nan=True)


WAYS = {"forward": check_forward, "backward": check_backward}
CASES: dict[str, Callable[[], None]] = {
    **{
        f"{way} {name} {dtype}": partial(check, name, dtype, SHAPES[1:2])
        for way, check in WAYS.items()
        for name in ACTIVATIONS
        for dtype in (torch.float16, torch.float32)
    },
    **{
        f"{way} {rows}x{columns}": partial(check, "silu", torch.float16, ((rows, columns),))
        for way, check in WAYS.items()
        for rows, columns in SHAPES
    },
    "in place": check_in_place,
    "nothing to do": check_nothing_to_do,
    "infinite gradient of relu": check_infinite_gradient_of_relu,
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_elementwise_in_the_interpreter(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
