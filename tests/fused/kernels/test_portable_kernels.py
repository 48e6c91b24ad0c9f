"""GEMM with activation through plain pointers: sizes, strides and packings, in the interpreter."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from interpreter import interpreted

from activation_truth import ACTIVATIONS, truth
from foretrace.errors import InputError
from guarded import guarded_allocations

# Results are sums of up to 96 products of values of size one.
TOLERANCE = {torch.float16: {"rtol": 2e-3, "atol": 2e-3}, torch.float32: {"rtol": 1e-5, "atol": 2e-5}}
# Several tiles in every direction from small sizes.
SMALL_TILES = {"block_m": 16, "block_n": 32, "block_k": 16, "group": 2}
# M, N, K: one, odd, whole tiles, one more than a tile, one less.
SIZES = ((1, 1, 1), (5, 43, 37), (32, 64, 32), (33, 65, 33), (31, 63, 47), (2, 200, 96))
PACKINGS = ("separate", "gate_up", "up_gate", "interleaved")


def data(*shape: int, dtype: torch.dtype, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def packed(n: int, k: int, packing: str, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Gate and up weight as they lie in each packing."""
    if packing == "separate":
        return data(n, k, dtype=dtype, seed=1), data(n, k, dtype=dtype, seed=2)
    stacked = data(2 * n, k, dtype=dtype, seed=1)
    if packing == "interleaved":
        return stacked[0::2], stacked[1::2]
    return (stacked[:n], stacked[n:]) if packing == "gate_up" else (stacked[n:], stacked[:n])


def check_gate_up(
    activation: str,
    dtype: torch.dtype,
    size: tuple[int, int, int] = (5, 43, 37),
    packing: str = "separate",
    bias: bool = True,
    options: dict[str, int] | None = None,
) -> None:
    from foretrace.fused.kernels.portable import gate_up

    m, n, k = size
    x, (gate, up) = data(m, k, dtype=dtype, seed=0), packed(n, k, packing, dtype)
    gate_bias, up_bias = (data(n, dtype=dtype, seed=3), data(n, dtype=dtype, seed=4)) if bias else (None, None)
    with guarded_allocations():
        hidden, preact = gate_up(x, gate, up, gate_bias, up_bias, activation, keep=True, **(options or {}))
    with guarded_allocations():
        again, nothing = gate_up(x, gate, up, gate_bias, up_bias, activation, keep=False, **(options or {}))
    left = x.double() @ gate.double().t() + (0 if gate_bias is None else gate_bias.double())
    right = x.double() @ up.double().t() + (0 if up_bias is None else up_bias.double())
    assert preact is not None
    torch.testing.assert_close(preact.double(), torch.cat([left, right], 1), **TOLERANCE[dtype])
    torch.testing.assert_close(hidden.double(), truth(left, activation) * right, **TOLERANCE[dtype])
    assert torch.equal(again, hidden)
    assert nothing is None


def check_linear_act(
    activation: str,
    dtype: torch.dtype,
    size: tuple[int, int, int] = (5, 43, 37),
    bias: bool = True,
    options: dict[str, int] | None = None,
) -> None:
    from foretrace.fused.kernels.portable import linear_act

    m, n, k = size
    x, weight = data(m, k, dtype=dtype, seed=0), data(n, k, dtype=dtype, seed=1)
    offset = data(n, dtype=dtype, seed=3) if bias else None
    with guarded_allocations():
        hidden, preact = linear_act(x, weight, offset, activation, keep=True, **(options or {}))
    right = x.double() @ weight.double().t() + (0 if offset is None else offset.double())
    assert preact is not None
    torch.testing.assert_close(preact.double(), right, **TOLERANCE[dtype])
    torch.testing.assert_close(hidden.double(), truth(right, activation), **TOLERANCE[dtype])


def check_strided_inputs() -> None:
    """Columns of a larger tensor, every second row, transposed, expanded."""
    from foretrace.fused.kernels.portable import linear_act

    weight = data(43, 37, dtype=torch.float32, seed=1)
    wide = data(12, 50, dtype=torch.float32, seed=0)
    for x in (
        wide[:, 3:40],
        wide[::2, :37],
        data(37, 6, dtype=torch.float32, seed=2).t(),
        wide[:1, :37].expand(9, 37),
    ):
        hidden, _ = linear_act(x, weight, None, "relu", keep=False)
        torch.testing.assert_close(hidden, torch.relu(x @ weight.t()), **TOLERANCE[torch.float32])
    x = data(6, 37, dtype=torch.float32, seed=3)
    for weight in (data(43, 99, dtype=torch.float32, seed=4)[:, 5:42], data(37, 43, dtype=torch.float32, seed=5).t()):
        bias = data(86, dtype=torch.float32, seed=6)[::2]
        hidden, _ = linear_act(x, weight, bias, "relu", keep=False)
        torch.testing.assert_close(hidden, torch.relu(x @ weight.t() + bias), **TOLERANCE[torch.float32])


def check_nothing_to_do() -> None:
    """No rows, no columns: empty results. No input features: the activation of the bias."""
    from foretrace.fused.kernels.portable import gate_up, linear_act

    weight = torch.ones(4, 8)
    hidden, preact = gate_up(torch.ones(0, 8), weight, weight, None, None, "silu", keep=True)
    assert hidden.shape == (0, 4)
    assert preact is not None
    assert preact.shape == (0, 8)
    assert linear_act(torch.ones(3, 8), torch.ones(0, 8), None, "silu", keep=False)[0].shape == (3, 0)
    nothing, _ = linear_act(torch.ones(3, 0), torch.ones(4, 0), torch.full((4,), 2.0), "relu", keep=False)
    assert torch.equal(nothing, torch.full((3, 4), 2.0))


def check_non_finite_rows_stay_apart() -> None:
    """NaN and infinity in one row of x reach that row of the result, no other."""
    from foretrace.fused.kernels.portable import gate_up

    x, gate = data(20, 37, dtype=torch.float32, seed=0), data(43, 37, dtype=torch.float32, seed=1)
    clean, _ = gate_up(x, gate, gate, None, None, "silu", keep=False, **SMALL_TILES)
    x[7, 3], x[19, 36] = float("nan"), float("inf")
    hidden, _ = gate_up(x, gate, gate, None, None, "silu", keep=False, **SMALL_TILES)
    rows = [row for row in range(20) if row not in (7, 19)]
    assert torch.equal(hidden[rows], clean[rows])
    assert bool(hidden[7].isnan().all())
    assert not bool(hidden[19].isfinite().any())


def check_options() -> None:
    from foretrace.fused.kernels.portable import linear_act

    x = torch.ones(2, 16)
    with pytest.raises(InputError, match="block_q"):
        linear_act(x, x, None, "silu", keep=False, block_q=16)
    with pytest.raises(InputError, match="powers of two"):
        linear_act(x, x, None, "silu", keep=False, block_m=48)
    with pytest.raises(InputError, match="subtiles"):
        linear_act(x, x, None, "silu", keep=False, subtiles=3)


CASES: dict[str, Callable[[], None]] = {
    **{
        f"{what} {name} {dtype}": partial(check, name, dtype)
        for what, check in (("gate_up", check_gate_up), ("linear_act", check_linear_act))
        for name in ACTIVATIONS
        for dtype in (torch.float16, torch.float32)
    },
    **{
        f"gate_up {m}x{n}x{k}": partial(check_gate_up, "silu", torch.float16, (m, n, k), options=SMALL_TILES)
        for m, n, k in SIZES
    },
    **{
        f"linear_act {m}x{n}x{k}": partial(check_linear_act, "gelu", torch.float16, (m, n, k), options=SMALL_TILES)
        for m, n, k in SIZES
    },
    **{f"packing {name}": partial(check_gate_up, "gelu_tanh", torch.float32, (9, 43, 37), name) for name in PACKINGS},
    "no bias": partial(check_gate_up, "silu", torch.float16, bias=False),
    "no bias, linear": partial(check_linear_act, "silu", torch.float16, bias=False),
    **{
        f"subtiles {parts}": partial(
            check_gate_up,
            "gelu",
            torch.float16,
            (33, 100, 37),
            options=SMALL_TILES | {"block_n": 64, "subtiles": parts},
        )
        for parts in (1, 2, 4)
    },
    "strided inputs": check_strided_inputs,
    "nothing to do": check_nothing_to_do,
    "non-finite rows stay apart": check_non_finite_rows_stay_apart,
    "options": check_options,
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_portable_in_the_interpreter(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
