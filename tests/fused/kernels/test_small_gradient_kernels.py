"""Gradients of weights from few rows, in the interpreter: odd sizes, slices, and nothing is written outside."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from interpreter import interpreted

from fused_products import canaries, close, data

HALF = torch.float16


def check(rows: int, n: int, k: int) -> None:
    from foretrace.fused.kernels.small_gradient import weight_gradient

    # Rows further apart than they are long, as in the two halves of pre-activations.
    grad, x = data(rows, n + 8, HALF, 0)[:, 8:], data(rows, k + 8, HALF, 1)[:, :k]
    expected = grad.double().t() @ x.double()
    with canaries():
        close(weight_gradient(grad, x), expected)


def check_out() -> None:
    """Every other row of a weight, as an interleaved gate and up have them; what lies between is left alone."""
    from foretrace.fused.kernels.small_gradient import weight_gradient

    for rows in (1, 7, 20):
        grad, x = data(rows, 70, HALF, 0), data(rows, 130, HALF, 1)
        both = torch.full((140, 130), 7.0, dtype=HALF)
        made = weight_gradient(grad, x, both[1::2])
        assert made.data_ptr() == both[1].data_ptr()
        close(both[1::2], grad.double().t() @ x.double())
        assert torch.equal(both[::2], torch.full((70, 130), 7.0, dtype=HALF))


def check_not_finite() -> None:
    from foretrace.fused.kernels.small_gradient import weight_gradient

    for rows in (1, 3):
        grad, x = data(rows, 5, HALF, 0), data(rows, 6, HALF, 1)
        grad[0, 2], x[0, 3] = torch.inf, torch.nan
        expected = grad.float().t() @ x.float()
        torch.testing.assert_close(weight_gradient(grad, x).float(), expected, equal_nan=True, rtol=1e-2, atol=1e-2)


def check_refused() -> None:
    from foretrace.errors import InputError
    from foretrace.fused.kernels.small_gradient import weight_gradient

    for grad in (data(0, 4, HALF, 0), data(33, 4, HALF, 0), data(2, 4, torch.float32, 0), data(4, 2, HALF, 0).T):
        with pytest.raises(InputError, match=r"use torch\.mm"):
            weight_gradient(grad, data(grad.shape[0], 8, grad.dtype, 1))
    grad, x = data(4, 6, HALF, 0), data(4, 8, HALF, 1)
    for other in (x[:2], data(5, 8, HALF, 1), x.float(), data(8, 4, HALF, 1).T):
        with pytest.raises(InputError, match=r"use torch\.mm"):
            weight_gradient(grad, other)
    for out in (data(6, 7, HALF, 2), data(6, 8, torch.float32, 2), data(8, 6, HALF, 2).T):
        with pytest.raises(InputError, match="it must be"):
            weight_gradient(grad, x, out)


CASES = {
    **{
        f"{rows} rows, {n}x{k}": partial(check, rows, n, k)
        for rows, n, k in (
            (1, 64, 512),
            (1, 43, 300),
            (1, 1, 1),
            (2, 64, 128),
            (3, 70, 200),
            (16, 5, 130),
            (17, 256, 128),
            (20, 300, 43),
            (32, 1, 1),
        )
    },
    "written to rows with gaps": check_out,
    "not a number and infinite": check_not_finite,
    "what is too much is refused": check_refused,
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_weight_gradient_kernel(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
