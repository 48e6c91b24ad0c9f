"""The gradient through an activation with its column sums, in one kernel: against float64, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from interpreter import interpreted

from activation_truth import ACTIVATIONS, slope, truth

CANARY = 777.0
# One element, odd sizes, 16 bytes at a time, more than one block of columns, more than one strip of rows, one column.
SHAPES = ((1, 1), (5, 43), (130, 8), (70, 300), (3, 1040), (150, 257), (4100, 1))
HALF_PRECISION = (torch.float16, torch.bfloat16)


def data(rows: int, columns: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)).mul(2).to(dtype)


def error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative error in the Frobenius norm."""
    return float((result.double() - expected).norm() / expected.norm().clamp(min=1e-30))


def check(grad: torch.Tensor, preact: torch.Tensor, activation: str) -> None:
    """The gradient is the other kernel's to the bit, the sums are as close to float64 as those of eager's gradient."""
    from foretrace.fused import plain
    from foretrace.fused.kernels.elementwise import act_backward

    before = preact.clone()
    usual, value, nothing = act_backward(grad, preact, activation, want_hidden=True)
    assert nothing is None
    result, hidden, sums = act_backward(grad, preact, activation, want_hidden=True, want_bias=True)
    assert sums is not None
    assert value is not None
    assert hidden is not None
    assert torch.equal(result, usual)
    assert torch.equal(hidden, value)
    assert torch.equal(preact, before)
    assert (sums.shape, sums.dtype) == ((preact.shape[1],), torch.float32)

    expected = (grad.double() * slope(preact.double(), activation)).sum(0)
    eager = plain.act_backward(grad, preact, activation, want_bias=True)[2]
    assert eager is not None
    # The slope itself has an error of some 2^-22 of its terms, which a sum small beside them shows.
    assert error(sums, expected) <= 1.05 * error(eager, expected) + 2e-6

    # Alone it is the same; and so it is where it may overwrite what it was made from.
    again, no_hidden, sums_again = act_backward(grad, preact, activation, want_bias=True)
    assert no_hidden is None
    assert torch.equal(again, result)
    assert torch.equal(sums_again, sums)
    place = torch.full((preact.shape[0] + 2, preact.shape[1] + 5), CANARY, dtype=preact.dtype)
    into = place[1:-1, 2:-3].copy_(preact)
    same, _, sums_again = act_backward(grad, into, activation, into=into, want_bias=True)
    assert same is into
    assert torch.equal(into, result)
    assert torch.equal(sums_again, sums)
    into.fill_(CANARY)
    assert bool((place == CANARY).all()), "nothing was written around the gradient"


def check_shape(rows: int, columns: int, dtype: torch.dtype) -> None:
    check(data(rows, columns, dtype, 0), data(rows, columns, dtype, 1), "gelu_tanh")


def check_activation(activation: str, dtype: torch.dtype) -> None:
    check(data(37, 43, dtype, 0), data(37, 43, dtype, 1), activation)
    check(data(9, 64, dtype, 2), data(9, 64, dtype, 3), activation)


def check_any_strides() -> None:
    """Halves of a wider tensor, one row for all, columns that are not consecutive."""
    wide = data(70, 2 * 48, torch.float32, 0)
    check(data(70, 48, torch.float32, 1), wide[:, 48:], "silu")
    check(data(1, 48, torch.float32, 2).expand(70, 48), wide[:, :48], "silu")
    check(data(48, 70, torch.float32, 3).t(), wide[:, :48], "silu")


def check_big_strides() -> None:
    """Rows 2^30 elements apart: the third begins beyond 2^31. Only the pages that are touched exist."""
    from foretrace.fused.kernels.elementwise import act_backward

    far = torch.empty((3 << 30) + 64, dtype=torch.float16)
    preact = far.as_strided((4, 64), (1 << 30, 1)).copy_(data(4, 64, torch.float16, 0))
    grad = data(4, 64, torch.float16, 1)
    near, _, expected = act_backward(grad, preact.contiguous(), "silu", want_bias=True)
    result, _, sums = act_backward(grad, preact, "silu", into=preact, want_bias=True)
    assert torch.equal(result, near)
    assert torch.equal(sums, expected)


def check_nothing_to_do() -> None:
    from foretrace.fused.kernels.elementwise import act_backward

    for rows, columns in ((0, 8), (3, 0)):
        empty = torch.empty(rows, columns)
        result, hidden, sums = act_backward(empty, empty, "silu", want_hidden=True, want_bias=True)
        assert result.shape == hidden.shape == (rows, columns)
        assert sums.tolist() == [0.0] * columns


def check_sums_are_of_what_was_not_rounded() -> None:
    """256 gradients that each lose their last bits in bfloat16 are added up with them."""
    from foretrace.fused.kernels.elementwise import act_backward

    preact = torch.full((256, 2), 1.0 + 2.0**-7, dtype=torch.bfloat16)
    result, _, sums = act_backward(preact, preact, "relu2", want_bias=True)
    exact = 2.0 * float(preact[0, 0]) ** 2
    assert float(result[0, 0]) != exact
    assert sums.tolist() == [256 * exact] * 2


def check_infinite_gradient_of_relu() -> None:
    """Where ReLU is off its gradient adds 0, whatever comes in; where it is on, and at NaN, what came in."""
    from foretrace.fused.kernels.elementwise import act_backward

    preact = torch.tensor([[-1.0, -1.0, 2.0, float("nan"), 1.0], [1.0, -1.0, 1.0, 1.0, 1.0]])
    grad = torch.tensor([[float("inf"), float("nan"), float("inf"), 1.0, float("nan")], [1.0] * 5])
    sums = act_backward(grad, preact, "relu", want_bias=True)[2]
    torch.testing.assert_close(sums, torch.tensor([1.0, 0.0, float("inf"), 2.0, float("nan")]), equal_nan=True)


def check_hidden_is_the_activation() -> None:
    from foretrace.fused.kernels.elementwise import act_backward

    preact = data(70, 43, torch.float32, 0)
    hidden = act_backward(preact, preact, "gelu", want_hidden=True, want_bias=True)[1]
    torch.testing.assert_close(hidden.double(), truth(preact.double(), "gelu"), rtol=3e-6, atol=3e-6)


CASES: dict[str, Callable[[], None]] = {
    **{
        f"{activation} {dtype}": partial(check_activation, activation, dtype)
        for activation in ACTIVATIONS
        for dtype in (*HALF_PRECISION, torch.float32)
    },
    **{
        f"{rows}x{columns} {dtype}": partial(check_shape, rows, columns, dtype)
        for rows, columns in SHAPES
        for dtype in (torch.bfloat16, torch.float32)
    },
    "any strides": check_any_strides,
    "big strides": check_big_strides,
    "nothing to do": check_nothing_to_do,
    "sums are of what was not rounded": check_sums_are_of_what_was_not_rounded,
    "infinite gradient of relu": check_infinite_gradient_of_relu,
    "hidden is the activation": check_hidden_is_the_activation,
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_sums_in_the_interpreter(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""


def test_strips_cover_the_rows_and_follow_from_the_shape() -> None:
    pytest.importorskip("triton")
    from foretrace.fused.kernels.elementwise_sums import strips_of
    from foretrace.knowledge.lowering.fused import bias_strips

    assert strips_of(8192, 4096) == (64, 128)  # 16 blocks of columns: 1024 programs
    assert strips_of(64, 4096) == (1, 64)
    assert strips_of(65, 4096) == (2, 64)
    for rows in (1, 7, 63, 64, 65, 1000, 8192, 12_345, 1 << 20):
        for columns in (1, 3, 8, 255, 256, 257, 3072, 14_336, 400_000):
            strips, strip_rows = strips_of(rows, columns)
            assert (strips - 1) * strip_rows < rows <= strips * strip_rows
            assert strips == bias_strips(rows, columns), "the predictor knows the same rule"
