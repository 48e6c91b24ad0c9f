"""Products through TMA descriptors, in the interpreter: values, every packing, odd sizes, nothing written outside."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from interpreter import interpreted

from fused_products import ACTIVATIONS, canaries, close, data, pair, preactivation

HALF = torch.float16
# Rows, input and output features: whole tiles; none whole; less than a tile of each; a single row.
SIZES = ((256, 128, 128), (130, 200, 136), (5, 40, 24), (1, 64, 72))


def check_gate_up(m: int, k: int, n: int, packing: str, activation: str, persistent: int, keep: bool) -> None:
    from foretrace.fused.kernels.tma import gate_up

    x = data(m, k, HALF, 0)
    gate, up = pair(n, k, HALF, packing)
    gate_bias = data(1, n, HALF, 3)[0]
    with canaries():
        hidden, preact = gate_up(x, gate, up, gate_bias, None, activation, keep=keep, block_n=64, persistent=persistent)
    gate_value, up_value = preactivation(x, gate, gate_bias), preactivation(x, up, None)
    close(hidden, ACTIVATIONS[activation](gate_value) * up_value)
    if keep:
        close(preact, torch.cat([gate_value, up_value], 1))
    else:
        assert preact is None


def check_linear_act(m: int, k: int, n: int, activation: str, persistent: int, bias: bool) -> None:
    from foretrace.fused.kernels.tma import linear_act

    x, weight = data(m, k, HALF, 0), data(n, k, HALF, 1)
    shift = data(1, n, HALF, 3)[0] if bias else None
    with canaries():
        hidden, preact = linear_act(x, weight, shift, activation, keep=True, persistent=persistent)
    value = preactivation(x, weight, shift)
    close(hidden, ACTIVATIONS[activation](value))
    close(preact, value)


def check_backward(gated: bool, m: int, out: int, n: int, activation: str, subtiles: int, persistent: int) -> None:
    from foretrace.fused.kernels.tma import gate_up_backward, linear_act_backward

    function = gate_up_backward if gated else linear_act_backward
    grad_out, down = data(m, out, HALF, 0), data(out, n, HALF, 1)
    preact = data(m, 2 * n if gated else n, HALF, 2)
    leaf = preact.double().requires_grad_()
    value = ACTIVATIONS[activation](leaf[:, :n])
    hidden = value * leaf[:, n:] if gated else value
    (hidden @ down.double().T).backward(grad_out.double())
    assert leaf.grad is not None
    before = preact.clone()
    with canaries():
        gradient, again, sums = function(
            grad_out, down, preact, activation, want_hidden=True, want_bias=True, subtiles=subtiles,
            persistent=persistent,
        )  # fmt: skip
    assert torch.equal(preact, before), "the saved pre-activations are left alone"
    close(gradient, leaf.grad)
    close(again, hidden.detach())
    assert sums is not None
    torch.testing.assert_close(sums.double(), leaf.grad.sum(0), rtol=1e-3, atol=1e-3)
    # In place, and with nothing else wanted, the same numbers.
    written, none, nothing = function(
        grad_out, down, preact, activation, want_hidden=False, want_bias=False, into=preact, subtiles=subtiles
    )
    assert written is preact
    assert torch.equal(preact, gradient)
    assert (none, nothing) == (None, None)


def check_expanded_gradient() -> None:
    """``out.sum().backward()`` hands over one number with strides 0."""
    from foretrace.fused.kernels.tma import gate_up_backward

    down, preact = data(64, 24, HALF, 1), data(5, 48, HALF, 2)
    one = torch.ones((), dtype=HALF)
    wants = {"want_hidden": False, "want_bias": False}
    expanded, _, _ = gate_up_backward(one.expand(5, 64), down, preact, "silu", **wants)
    dense, _, _ = gate_up_backward(torch.ones(5, 64, dtype=HALF), down, preact, "silu", **wants)
    assert torch.equal(expanded, dense)


def check_no_pair() -> None:
    """Weights that one descriptor cannot span still give the right answer."""
    from foretrace.fused.kernels.tma import gate_up

    x, gate = data(5, 64, HALF, 0), data(24, 64, HALF, 1)
    up = data(24, 128, HALF, 2)[:, :64]
    for second in (up, gate):
        hidden, _ = gate_up(x, gate, second, None, None, "silu", keep=False)
        gate_value, up_value = preactivation(x, gate, None), preactivation(x, second, None)
        close(hidden, ACTIVATIONS["silu"](gate_value) * up_value)


def check_nothing() -> None:
    from foretrace.fused.kernels.tma import gate_up, gate_up_backward, linear_act

    gate, up = data(24, 64, HALF, 1), data(24, 64, HALF, 2)
    none = data(0, 64, HALF, 0)
    hidden, preact = gate_up(none, gate, up, None, None, "silu", keep=True)
    assert preact is not None
    assert (hidden.shape, preact.shape) == ((0, 24), (0, 48))
    assert linear_act(none, gate, None, "silu", keep=False)[0].shape == (0, 24)
    gradient, _, sums = gate_up_backward(none, gate.T.contiguous(), preact, "silu", want_hidden=False, want_bias=True)
    assert gradient.shape == (0, 48)
    assert sums is not None
    assert torch.equal(sums, torch.zeros(48))


def check_refused() -> None:
    from foretrace.errors import InputError
    from foretrace.fused.kernels.tma import gate_up, linear_act

    x = data(5, 64, HALF, 0)
    for rows, features in ((x, 25), (x.float(), 24), (data(5, 72, HALF, 0)[:, 4:68], 24)):
        weight = data(features, 64, rows.dtype, 1)
        for run in (
            lambda rows=rows, weight=weight: gate_up(rows, weight, weight.clone(), None, None, "silu", keep=False),
            lambda rows=rows, weight=weight: linear_act(rows, weight, None, "silu", keep=False),
        ):
            with pytest.raises(InputError, match="use the portable kernels"):
                run()


CASES = {
    **{
        f"gate_up {m}x{k}x{n} {packing} {activation}": partial(
            check_gate_up, m, k, n, packing, activation, number % 2, number % 3 > 0
        )
        for number, ((m, k, n), packing, activation) in enumerate(
            zip(
                SIZES * 2,
                ["separate", "gate_up", "up_gate", "interleaved", "swapped", "separate", "interleaved", "up_gate"],
                ["gelu", "gelu_tanh", "silu", "relu", "relu2", "sigmoid", "silu", "gelu"],
                strict=True,
            )
        )
    },
    **{
        f"linear_act {m}x{k}x{n} {activation}": partial(check_linear_act, m, k, n, activation, number % 2, number > 1)
        for number, ((m, k, n), activation) in enumerate(zip(SIZES, ["gelu", "relu", "silu", "gelu_tanh"], strict=True))
    },
    **{
        f"backward {'gate_up' if gated else 'linear_act'} {m}x{out}x{n} {activation}": partial(
            check_backward, gated, m, out, n, activation, subtiles, number % 2
        )
        for gated in (True, False)
        for number, ((m, out, n), activation, subtiles) in enumerate(
            zip(SIZES, ["gelu_tanh", "silu", "relu", "gelu"], [4, 2, 1, 4], strict=True)
        )
    },
    "an expanded gradient": check_expanded_gradient,
    "weights that are no pair": check_no_pair,
    "no rows": check_nothing,
    "what TMA cannot do is refused": check_refused,
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_tma_kernel(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
