"""TMA kernels on Hopper: accuracy against float64, every packing, odd sizes, all shipped configurations."""

from __future__ import annotations

import pytest
import torch

from fused_products import ACTIVATIONS, canaries, close, data, no_worse_than, pair, preactivation

pytest.importorskip("triton.tools.tensor_descriptor")
pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="needs Hopper"
)

from foretrace.fused.kernels.tma import (  # noqa: E402
    gate_up,
    gate_up_backward,
    linear_act,
    linear_act_backward,
)

BF16, FP16 = torch.bfloat16, torch.float16
LOST = 2e-4
PLAIN_FORM = {"block_n": 64, "num_warps": 4, "num_stages": 3, "persistent": 0}
# Whole tiles; none whole; less than a tile; one row; more tiles than processors, K not a multiple of a block.
SIZES = ((512, 512, 512), (300, 200, 136), (5, 40, 24), (1, 72, 72), (2048, 776, 3080))


@pytest.mark.parametrize("dtype", [BF16, FP16])
@pytest.mark.parametrize("packing", ["separate", "swapped", "gate_up", "up_gate", "interleaved"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
@pytest.mark.parametrize("options", [{}, PLAIN_FORM], ids=["persistent", "plain"])
def test_gate_up(m: int, k: int, n: int, packing: str, dtype: torch.dtype, options: dict[str, int]) -> None:
    x = data(m, k, dtype, 0, "cuda")
    gate, up = pair(n, k, dtype, packing, "cuda")
    bias = data(1, n, dtype, 3, "cuda")[0]
    gate_value, up_value = preactivation(x, gate, bias), preactivation(x, up, None)
    expected = ACTIVATIONS["gelu_tanh"](gate_value) * up_value
    with canaries():
        hidden, preact = gate_up(x, gate, up, bias, None, "gelu_tanh", keep=True, **options)
    close(hidden, expected, LOST)
    close(preact, torch.cat([gate_value, up_value], 1), LOST)
    for _ in range(3):
        again, none = gate_up(x, gate, up, bias, None, "gelu_tanh", keep=False, **options)
        assert none is None
        assert torch.equal(again, hidden)
    linear = torch.nn.functional.linear
    no_worse_than(ACTIVATIONS["gelu_tanh"](linear(x, gate, bias)) * linear(x, up), hidden, expected)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid"])
@pytest.mark.parametrize(("m", "k", "n"), SIZES)
def test_linear_act(m: int, k: int, n: int, activation: str) -> None:
    x, weight = data(m, k, BF16, 0, "cuda"), data(n, k, BF16, 1, "cuda")
    bias = data(1, n, BF16, 3, "cuda")[0]
    value = preactivation(x, weight, bias)
    for options in ({}, {"block_n": 128, "num_warps": 4, "persistent": 0}):
        with canaries():
            hidden, preact = linear_act(x, weight, bias, activation, keep=True, **options)
        close(hidden, ACTIVATIONS[activation](value), LOST)
        close(preact, value, LOST)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "silu", "relu"])
@pytest.mark.parametrize(("m", "out", "n"), SIZES)
def test_backward(gated: bool, m: int, out: int, n: int, activation: str) -> None:
    function = gate_up_backward if gated else linear_act_backward
    grad_out, down = data(m, out, BF16, 0, "cuda"), data(out, n, BF16, 1, "cuda")
    preact = data(m, 2 * n if gated else n, BF16, 2, "cuda")
    leaf = preact.double().requires_grad_()
    value = ACTIVATIONS[activation](leaf[:, :n])
    expected_hidden = value * leaf[:, n:] if gated else value
    # In this thread: autograd's own has no CUDA context before its first launch, and cuBLAS, if first, warns of that.
    with torch.autograd.set_multithreading_enabled(False):
        (expected_hidden @ down.double().T).backward(grad_out.double())
    assert leaf.grad is not None
    before = preact.clone()
    for options in (
        {},
        {"persistent": 1, "num_stages": 4},
        {"block_m": 64, "num_warps": 4, "maxnreg": 168, "subtiles": 4},
        {"block_n": 64, "num_warps": 4, "maxnreg": 168, "subtiles": 4},
    ):
        with canaries():
            gradient, hidden, sums = function(
                grad_out, down, preact, activation, want_hidden=True, want_bias=True, **options
            )
        assert torch.equal(preact, before)
        close(gradient, leaf.grad, 2 * LOST)
        close(hidden, expected_hidden.detach(), LOST)
        assert sums is not None
        torch.testing.assert_close(sums.double(), leaf.grad.sum(0), rtol=1e-3, atol=2e-2)
        again = function(grad_out, down, preact, activation, want_hidden=True, want_bias=True, **options)
        assert all(torch.equal(one, other) for one, other in zip(again, (gradient, hidden, sums), strict=True))
        place = preact.clone()
        written, _, _ = function(
            grad_out, down, place, activation, want_hidden=False, want_bias=False, into=place, **options
        )
        assert written is place
        assert torch.equal(place, gradient)


def test_captured_in_a_graph() -> None:
    x = data(256, 512, BF16, 0, "cuda")
    gate, up = pair(512, 512, BF16, "separate", "cuda")
    gate_up(x, gate, up, None, None, "silu", keep=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured, _ = gate_up(x, gate, up, None, None, "silu", keep=False)
    x.mul_(2.0)
    graph.replay()
    expected, _ = gate_up(x, gate, up, None, None, "silu", keep=False)
    torch.cuda.synchronize()
    assert torch.equal(captured, expected)


def test_more_than_two_to_the_31_elements() -> None:
    m, k, n = 160_000, 64, 14_336
    x = data(m, k, BF16, 0).cuda()
    gate, up = pair(n, k, BF16, "separate", "cuda")
    hidden, _ = gate_up(x, gate, up, None, None, "silu", keep=False)
    assert hidden.numel() > 1 << 31
    for rows in (slice(0, 64), slice(m - 64, m)):
        expected = ACTIVATIONS["silu"](preactivation(x[rows], gate, None)) * preactivation(x[rows], up, None)
        close(hidden[rows], expected, LOST)
