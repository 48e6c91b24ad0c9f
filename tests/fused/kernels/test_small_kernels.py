"""Decode kernels in the interpreter: one row and up to 16, odd sizes, split sums, nothing written outside."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from interpreter import interpreted

from fused_products import ACTIVATIONS, canaries, close, data, pair, preactivation

HALF, SINGLE = torch.float16, torch.float32
# Rows, input and output features, element type: whole blocks of K, a rest, less than a block; a single feature.
SIZES = (
    (1, 4096, 16, HALF),
    (1, 2100, 7, HALF),
    (1, 37, 43, SINGLE),
    (1, 1, 1, HALF),
    (2, 1024, 64, HALF),
    (5, 600, 43, HALF),
    (16, 37, 5, HALF),
    (3, 37, 1, HALF),
)


def check_gate_up(m: int, k: int, n: int, dtype: torch.dtype, packing: str, activation: str) -> None:
    from foretrace.fused.kernels.small import gate_up

    x = data(m, k, dtype, 0)
    gate, up = pair(n, k, dtype, packing)
    up_bias = data(1, n, dtype, 3)[0]
    gate_value, up_value = preactivation(x, gate, None), preactivation(x, up, up_bias)
    for keep in (False, True):
        with canaries():
            hidden, preact = gate_up(x, gate, up, None, up_bias, activation, keep=keep)
        close(hidden, ACTIVATIONS[activation](gate_value) * up_value)
        assert (preact is not None) == keep
    close(preact, torch.cat([gate_value, up_value], 1))


def check_linear_act(m: int, k: int, n: int, dtype: torch.dtype, activation: str) -> None:
    from foretrace.fused.kernels.small import linear_act

    # Rows further apart than they are long, as in a slice.
    x, weight = data(m, k + 8, dtype, 0)[:, :k], data(n, k + 8, dtype, 1)[:, 8:]
    bias = data(1, n, dtype, 3)[0]
    value = preactivation(x, weight, bias)
    for split in (1, 2, 4):
        with canaries():
            hidden, preact = linear_act(x, weight, bias, activation, keep=True, split=split)
        close(hidden, ACTIVATIONS[activation](value))
        close(preact, value)


def check_project() -> None:
    from foretrace.fused.kernels.small import project

    for m in (0, 1, 7):
        hidden, weight = data(m, 1024, HALF, 0), data(40, 1024, HALF, 1)
        bias = data(1, 40, HALF, 3)[0]
        for block_k in (128, 256):
            close(project(hidden, weight, bias, block_k=block_k, pdl=1), preactivation(hidden, weight, bias))
        close(project(hidden, weight, None), preactivation(hidden, weight, None))


def check_counters_are_left_zero() -> None:
    """The last of the programs that share a tile sets its counter back, so that the next launch finds zeros."""
    from foretrace.fused.kernels import small

    counters = torch.zeros(2, dtype=torch.int32)
    small.zeroed_counters = lambda like, count: counters
    hidden, weight = data(3, 1024, HALF, 0), data(40, 1024, HALF, 1)
    for _ in range(3):
        close(small.project(hidden, weight, None, split=4), preactivation(hidden, weight, None))
        assert torch.equal(counters, torch.zeros(2, dtype=torch.int32))


def check_refused() -> None:
    from foretrace.errors import InputError
    from foretrace.fused.kernels.small import project

    for hidden in (
        data(17, 64, HALF, 0),
        data(2, 64, SINGLE, 0),
        data(1, 64, torch.float64, 0),
        data(64, 3, HALF, 0).T,
    ):
        with pytest.raises(InputError, match="use the portable kernels"):
            project(hidden, data(8, hidden.shape[1], hidden.dtype, 1), None)


CASES = {
    **{
        f"{step} {m}x{k}x{n} {dtype} {activation}": check
        for number, ((m, k, n, dtype), activation) in enumerate(
            zip(
                SIZES,
                ["gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid", "silu", "gelu"],
                strict=True,
            )
        )
        for step, check in (
            (
                "gate_up",
                partial(
                    check_gate_up, m, k, n, dtype, ["separate", "interleaved", "up_gate", "gate_up"][number % 4],
                    activation,
                ),
            ),
            ("linear_act", partial(check_linear_act, m, k, n, dtype, activation)),
        )
    },
    "project": check_project,
    "counters are left zero": check_counters_are_left_zero,
    "what is too much is refused": check_refused,
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_small_kernel(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
