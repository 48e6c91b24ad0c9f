"""Gluon kernels on Hopper: accuracy against float64, every packing, odd sizes, nothing written past an end."""

from __future__ import annotations

import pytest
import torch

from fused_products import ACTIVATIONS, canaries, data, no_worse_than, pair, preactivation

triton = pytest.importorskip("triton")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available()
    or torch.cuda.get_device_capability() != (9, 0)
    or not triton.__version__.startswith("3.6."),
    reason="needs Hopper and Triton 3.6",
)

BF16, FP16 = torch.bfloat16, torch.float16
# Whole tiles; none whole; less than a tile; one row; a single k-step; more tiles than processors.
SIZES = ((512, 512, 512), (300, 200, 136), (5, 40, 24), (1, 72, 72), (700, 8, 264), (2048, 776, 3080))


def rounded_as_eager(result: torch.Tensor | None, expected: torch.Tensor) -> None:
    """Within the roundings eager makes too: of gate, of up and of the product."""
    assert result is not None
    rounding = {FP16: 2.0**-11, BF16: 2.0**-8}[result.dtype]
    torch.testing.assert_close(result.double(), expected, rtol=3.1 * rounding, atol=3 * rounding)


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("packing", ["separate", "swapped", "gate_up", "up_gate", "interleaved"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_gate_up(m: int, k: int, n: int, packing: str, dtype: torch.dtype) -> None:
    from foretrace.fused.kernels.hopper.products import gate_up

    x = data(m, k, dtype, 0, "cuda")
    gate, up = pair(n, k, dtype, packing, "cuda")
    bias = data(1, n, dtype, 3, "cuda")[0]
    gate_value, up_value = preactivation(x, gate, bias), preactivation(x, up, None)
    expected = ACTIVATIONS["gelu_tanh"](gate_value) * up_value
    with canaries():
        hidden, preact = gate_up(x, gate, up, bias, None, "gelu_tanh", keep=True)
    rounded_as_eager(hidden, expected)
    rounded_as_eager(preact, torch.cat([gate_value, up_value], 1))
    for _ in range(3):
        again, none = gate_up(x, gate, up, bias, None, "gelu_tanh", keep=False)
        assert none is None
        assert torch.equal(again, hidden)
    narrow, _ = gate_up(x, gate, up, bias, None, "gelu_tanh", keep=True, block_n=128, stages=6)
    assert torch.equal(narrow, hidden)
    if hidden.numel() > 10_000:  # few elements say little about a norm
        linear = torch.nn.functional.linear
        no_worse_than(ACTIVATIONS["gelu_tanh"](linear(x, gate, bias)) * linear(x, up), hidden, expected)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_linear_act(m: int, k: int, n: int, activation: str) -> None:
    from foretrace.fused.kernels.hopper.products import linear_act

    x, weight = data(m, k, BF16, 0, "cuda"), data(n, k, BF16, 1, "cuda")
    bias = data(1, n, BF16, 3, "cuda")[0]
    for each in (bias, None):
        value = preactivation(x, weight, each)
        with canaries():
            hidden, preact = linear_act(x, weight, each, activation, keep=True)
        rounded_as_eager(hidden, ACTIVATIONS[activation](value))
        rounded_as_eager(preact, value)
        assert torch.equal(linear_act(x, weight, each, activation, keep=False)[0], hidden)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu"])
@pytest.mark.parametrize(("m", "out", "n"), SIZES)
def test_backward(gated: bool, m: int, out: int, n: int, activation: str) -> None:
    from foretrace.fused.kernels.hopper import products

    function = products.gate_up_backward if gated else products.linear_act_backward
    grad_out, down = data(m, out, BF16, 0, "cuda"), data(out, n, BF16, 1, "cuda")
    preact = data(m, 2 * n if gated else n, BF16, 2, "cuda")
    leaf = preact.double().requires_grad_()
    value = ACTIVATIONS[activation](leaf[:, :n])
    expected_hidden = value * leaf[:, n:] if gated else value
    (expected_hidden @ down.double().T).backward(grad_out.double())
    assert leaf.grad is not None
    before = preact.clone()
    with canaries():
        gradient, hidden, sums = function(grad_out, down, preact, activation, want_hidden=True, want_bias=True)
    assert torch.equal(preact, before)
    rounded_as_eager(gradient, leaf.grad)
    rounded_as_eager(hidden, expected_hidden.detach())
    assert sums is not None
    # Sums of what was stored: each addend carries its rounding.
    assert gradient is not None
    torch.testing.assert_close(sums.double(), gradient.double().sum(0), rtol=1e-4, atol=1e-2)
    for options in ({}, {"stages": 4, "slots": 1}, {"group": 4}, {"block_n": 128, "stages": 4}):
        place = preact.clone()
        written, _, _ = function(
            grad_out, down, place, activation, want_hidden=False, want_bias=False, into=place, **options
        )
        assert written is place
        assert torch.equal(place, gradient)


def test_what_cannot_be_addressed_is_refused_in_a_sentence() -> None:
    from foretrace.errors import InputError
    from foretrace.fused.kernels.hopper.products import linear_act

    x, weight = data(8, 40, BF16, 0, "cuda"), data(20, 40, BF16, 1, "cuda")
    with pytest.raises(InputError, match="16-byte boundary"):
        linear_act(x, weight, None, "relu", keep=False)
    with pytest.raises(InputError, match="16-bit types"):
        linear_act(x.float(), weight.float(), None, "relu", keep=False)


def test_more_than_two_to_the_31_elements() -> None:
    from foretrace.fused.kernels.hopper.products import gate_up

    m, k, n = 160_000, 64, 14_336
    x = data(m, k, BF16, 0).cuda()
    gate, up = pair(n, k, BF16, "separate", "cuda")
    hidden, _ = gate_up(x, gate, up, None, None, "silu", keep=False)
    assert hidden.numel() > 1 << 31
    for rows in (slice(0, 64), slice(m - 64, m)):
        expected = ACTIVATIONS["silu"](preactivation(x[rows], gate, None)) * preactivation(x[rows], up, None)
        rounded_as_eager(hidden[rows], expected)
