"""The portable and the elementwise kernels on a GPU: accuracy against float64, canaries, repeatability, bandwidth."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from activation_truth import ACTIVATIONS, EAGER, bfloat16_ulps, every_bfloat16, slope, truth
from foretrace.timing import iqr, median
from guarded import guarded_allocations

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
# M, N, K: odd, rows that cannot be loaded 16 bytes at a time, multiples of 8 but not of a tile, whole tiles, one row.
SIZES = ((5, 43, 37), (300, 431, 1023), (257, 1096, 520), (512, 1024, 768), (1, 512, 256), (2000, 3072, 768))


def data(*shape: int, dtype: torch.dtype, seed: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, generator=generator, device="cuda").mul(scale).to(dtype)


def error(result: torch.Tensor | None, expected: torch.Tensor) -> float:
    """Relative error in the Frobenius norm."""
    assert result is not None
    return float((result.double() - expected).norm() / expected.norm().clamp(min=1e-30))


def no_worse(result: torch.Tensor | None, eager: torch.Tensor, expected: torch.Tensor) -> None:
    """As close to float64 as eager's result, but for rounding."""
    ours, theirs = error(result, expected), error(eager, expected)
    # In float32 the error is that of the order of summation, which is another than the library's: sums of one row are
    # a tree there, and one chain of some hundred terms here, which loses 2 eps.
    factor, slack = (3.0, 4.0) if eager.dtype == torch.float32 else (1.05, 0.05)
    bound = factor * theirs + slack * torch.finfo(eager.dtype).eps
    assert ours <= bound, f"error {ours:.3g}, eager {theirs:.3g}"


@pytest.fixture(autouse=True)
def exact_float32_products() -> None:
    torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_no_bfloat16_input_is_worse_than_eager(activation: str) -> None:
    from foretrace.fused.kernels.elementwise import act, act_backward

    z = every_bfloat16().cuda().reshape(1, -1)
    ours = bfloat16_ulps(act(z, activation), truth(z.double(), activation))
    eager = bfloat16_ulps(EAGER[activation](z), truth(z.double(), activation))
    # 0.02: 2^-15 of the formula, and the hardware's exponential and reciprocal.
    worse = ours > eager + 0.02
    assert not worse.any(), f"at {z[worse][:5].tolist()}: {ours[worse][:5].tolist()}, {eager[worse][:5].tolist()}"

    z = z[z.abs() < 1e4].reshape(1, -1)
    leaf = z.clone().requires_grad_()
    (theirs,) = torch.autograd.grad(EAGER[activation](leaf), leaf, torch.ones_like(leaf))
    derivative, _, _ = act_backward(torch.ones_like(z), z, activation)
    true = slope(z.double(), activation)
    worse = bfloat16_ulps(derivative, true) > bfloat16_ulps(theirs, true) + 0.05
    assert not worse.any(), f"slope at {z[worse][:5].tolist()}"


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_infinities_and_nan_come_out_as_from_pytorch(activation: str) -> None:
    from foretrace.fused.kernels.elementwise import act

    for dtype in DTYPES:
        z = torch.tensor([[float("inf"), float("-inf"), float("nan"), 0.0, -0.0]], device="cuda", dtype=dtype)
        torch.testing.assert_close(act(z, activation), EAGER[activation](z), equal_nan=True)


@pytest.mark.parametrize("activation", ["gelu_tanh", "silu", "sigmoid", "gelu"])
def test_fast_is_near(activation: str) -> None:
    from foretrace.fused.kernels.elementwise import act

    z = torch.linspace(-10, 10, 4096, device="cuda").reshape(1, -1)
    # tanh.approx.f32: 2^-11 relative (PTX ISA), times up to half of |z|.
    result = act(z, activation, precision="fast").double()
    torch.testing.assert_close(result, truth(z.double(), activation), rtol=6e-4, atol=5e-3)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gate_up(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    from foretrace.fused.kernels.portable import gate_up

    m, n, k = size
    x = data(m, k, dtype=dtype, seed=0)
    weight = data(2 * n, k, dtype=dtype, seed=1, scale=k**-0.5)
    bias = data(2 * n, dtype=dtype, seed=2)
    for gate, up in ((weight[:n], weight[n:]), (weight[0::2], weight[1::2])):
        arguments = (x, gate, up, bias[:n], bias[n:], "gelu")
        with guarded_allocations():
            hidden, preact = gate_up(*arguments, keep=True)
        left = x.double() @ gate.double().t() + bias[:n].double()
        right = x.double() @ up.double().t() + bias[n:].double()
        eager_left = torch.nn.functional.linear(x, gate.contiguous(), bias[:n])
        eager_right = torch.nn.functional.linear(x, up.contiguous(), bias[n:])
        no_worse(preact, torch.cat([eager_left, eager_right], 1), torch.cat([left, right], 1))
        no_worse(hidden, EAGER["gelu"](eager_left) * eager_right, truth(left, "gelu") * right)
        again, _ = gate_up(*arguments, keep=False)
        assert torch.equal(again, hidden)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_linear_act(activation: str) -> None:
    from foretrace.fused.kernels.portable import linear_act

    for dtype in DTYPES:
        x, weight = data(300, 520, dtype=dtype, seed=0), data(1096, 520, dtype=dtype, seed=1, scale=520**-0.5)
        bias = data(1096, dtype=dtype, seed=2)
        with guarded_allocations():
            hidden, preact = linear_act(x, weight, bias, activation, keep=True)
        expected = x.double() @ weight.double().t() + bias.double()
        eager = torch.nn.functional.linear(x, weight, bias)
        no_worse(preact, eager, expected)
        no_worse(hidden, EAGER[activation](eager), truth(expected, activation))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_gate_up_backward(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    from foretrace.fused.kernels.portable_backward import gate_up_backward

    m, n, k = size
    grad_out, down = data(m, k, dtype=dtype, seed=0), data(k, n, dtype=dtype, seed=1, scale=k**-0.5)
    preact = data(m, 2 * n, dtype=dtype, seed=2)
    before = preact.clone()
    with guarded_allocations():
        grad, hidden, bias = gate_up_backward(grad_out, down, preact, "silu", want_hidden=True, want_bias=True)
    assert torch.equal(preact, before)

    def reference(cast: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        leaf = preact.to(cast).requires_grad_()
        value = torch.nn.functional.silu(leaf[:, :n]) * leaf[:, n:]
        (result,) = torch.autograd.grad(value, leaf, grad_out.to(cast) @ down.to(cast))
        return result, value.detach()

    (expected, expected_hidden), (eager, eager_hidden) = reference(torch.float64), reference(dtype)
    no_worse(grad, eager, expected)
    no_worse(hidden, eager_hidden, expected_hidden)
    assert bias is not None
    assert error(bias, expected.sum(0)) <= 1.05 * error(eager.sum(0), expected.sum(0)) + 1e-6

    again = gate_up_backward(grad_out, down, preact, "silu", want_hidden=True, want_bias=True)
    assert torch.equal(again[0], grad)
    assert again[2] is not None
    assert torch.equal(again[2], bias)
    in_place, _, _ = gate_up_backward(grad_out, down, preact, "silu", want_hidden=False, want_bias=False, into=preact)
    assert in_place is preact
    assert torch.equal(preact, grad)


def test_linear_act_backward() -> None:
    from foretrace.fused.kernels.portable_backward import linear_act_backward

    for activation in ACTIVATIONS:
        grad_out = torch.ones((), device="cuda", dtype=torch.bfloat16).expand(300, 520)
        down = data(520, 1096, dtype=torch.bfloat16, seed=1, scale=520**-0.5)
        preact = data(300, 1096, dtype=torch.bfloat16, seed=2)
        with guarded_allocations():
            grad, hidden, bias = linear_act_backward(
                grad_out, down, preact, activation, want_hidden=True, want_bias=True
            )
        expected = grad_out.double() @ down.double() * slope(preact.double(), activation)
        assert error(grad, expected) < 4e-3
        assert error(hidden, truth(preact.double(), activation)) < 4e-3
        # Before rounding: the sums are better than those of rounded gradients.
        assert error(bias, expected.sum(0)) < 1e-4


@pytest.mark.parametrize("parts", [1, 2, 4])
def test_parts_of_the_epilogue_change_no_element(parts: int) -> None:
    from foretrace.fused.kernels.portable import gate_up
    from foretrace.fused.kernels.portable_backward import gate_up_backward

    x, weight = data(300, 512, dtype=torch.bfloat16, seed=0), data(2048, 512, dtype=torch.bfloat16, seed=1)
    usual, preact = gate_up(x, weight[:1024], weight[1024:], None, None, "silu", keep=True)
    hidden, _ = gate_up(x, weight[:1024], weight[1024:], None, None, "silu", keep=False, subtiles=parts)
    torch.testing.assert_close(hidden, usual)
    assert preact is not None
    down = data(512, 1024, dtype=torch.bfloat16, seed=3)
    wanted = {"want_hidden": False, "want_bias": True}
    usual_grad, _, usual_bias = gate_up_backward(x, down, preact, "silu", **wanted)
    grad, _, bias = gate_up_backward(x, down, preact, "silu", **wanted, subtiles=parts)
    torch.testing.assert_close(grad, usual_grad)
    # Another layout adds the rows up in another order, and the sum may be small beside its terms.
    torch.testing.assert_close(bias, usual_bias, rtol=1e-4, atol=1e-6 * float(usual_bias.abs().max()))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_column_sums_of_the_elementwise_backward(activation: str, dtype: torch.dtype) -> None:
    """The gradient is the other kernel's to the bit, the sums are no worse than eager's and the same every time."""
    from foretrace.fused import plain
    from foretrace.fused.kernels.elementwise import act_backward

    for m, n in ((1, 512), (5, 43), (300, 431), (4100, 3), (2000, 3072), (8192, 4096)):
        wide, grad = data(m, 2 * n, dtype=dtype, seed=0), data(m, n, dtype=dtype, seed=1)
        for preact in (wide[:, n:], wide[:, n:].contiguous()):
            usual, value, _ = act_backward(grad, preact, activation, want_hidden=True)
            with guarded_allocations():
                result, hidden, sums = act_backward(grad, preact, activation, want_hidden=True, want_bias=True)
            assert sums is not None
            assert sums.dtype == torch.float32
            assert torch.equal(result, usual)
            assert torch.equal(hidden, value)
            expected = (grad.double() * slope(preact.double(), activation)).sum(0)
            eager = plain.act_backward(grad, preact, activation, want_bias=True)[2]
            assert eager is not None
            # 3e-6: what one element's slope may be wrong by in float32, where both sum up exactly.
            assert error(sums, expected) <= 1.05 * error(eager, expected) + 3e-6
            place = preact.clone()
            into, _, again = act_backward(grad, place, activation, into=place, want_bias=True)
            assert torch.equal(into, usual)
            torch.testing.assert_close(again, sums, rtol=1e-5, atol=1e-5 * float(sums.abs().max()))
            into, _, once_more = act_backward(grad, preact.clone(), activation, want_bias=True)
            assert torch.equal(into, usual)
            assert torch.equal(once_more, again)


def test_column_sums_of_more_than_two_to_the_31_elements() -> None:
    """160 000 x 14 336 in place: sums of ones whose gradient is known, and the last rows."""
    from foretrace.fused.kernels.elementwise import act_backward

    rows, columns, tail = 160_000, 14_336, 64
    if torch.cuda.get_device_properties(0).total_memory < 12 << 30:
        pytest.skip("needs 12 GB of GPU memory")
    preact = torch.full((rows, columns), 2.0, dtype=torch.bfloat16, device="cuda")
    preact[-tail:] = 3.0
    grad = torch.full((1, columns), 0.5, dtype=torch.bfloat16, device="cuda").expand(rows, columns)
    result, _, sums = act_backward(grad, preact, "relu2", into=preact, want_bias=True)
    assert result is preact
    assert (preact[-tail:] == 3.0).all()
    assert (preact[:-tail] == 2.0).all()
    assert sums is not None
    assert sums.tolist() == [2.0 * (rows - tail) + 3.0 * tail] * columns


@pytest.mark.parametrize("columns", [4096, 14336])
def test_column_sums_cost_little_beside_the_gradient(columns: int) -> None:
    """At least 0.8 of the bytes a second of a copy, the reduction of partial sums included."""
    from foretrace.fused.kernels.elementwise import act_backward

    rows = (1 << 27) // columns
    grad, preact = (data(rows, columns, dtype=torch.bfloat16, seed=seed) for seed in (0, 1))
    into, copy = torch.empty_like(preact), torch.empty_like(preact)
    ratios = []
    for _ in range(30):
        ours = microseconds(lambda: act_backward(grad, preact, "gelu_tanh", into, want_bias=True)) / 3
        theirs = microseconds(lambda: copy.copy_(preact)) / 2
        ratios.append(theirs / ours)
    assert median(ratios) > 0.8, f"{median(ratios):.3f} of a copy's bandwidth, spread {iqr(ratios):.3f}"


def microseconds(call: Callable[[], object]) -> float:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e3


def test_more_than_two_to_the_31_elements() -> None:
    """160 000 x 14 336: offsets do not fit 32 bits. The last rows are right, in both kernels."""
    from foretrace.fused.kernels.elementwise import gated_act, gated_act_backward
    from foretrace.fused.kernels.portable import gate_up

    rows, columns, tail = 160_000, 14_336, 64
    if torch.cuda.get_device_properties(0).total_memory < 60 << 30:
        pytest.skip("needs 60 GB of GPU memory")
    x, weight = data(rows, 64, dtype=torch.bfloat16, seed=0), data(2 * columns, 64, dtype=torch.bfloat16, seed=1)
    hidden, preact = gate_up(x, weight[:columns], weight[columns:], None, None, "silu", keep=True)
    assert preact is not None
    products = x[-tail:].double() @ weight.double().t()
    expected = truth(products[:, :columns], "silu") * products[:, columns:]
    assert error(hidden[-tail:], expected) < 4e-3
    assert error(preact[-tail:], products) < 4e-3
    gate, up = preact[:, :columns], preact[:, columns:]
    assert error(gated_act(gate, up, "silu", hidden)[-tail:], expected) < 1e-2
    grad_gate, _, _ = gated_act_backward(hidden, gate, up, "silu", grad_gate=gate, grad_up=up)
    right = hidden[-tail:].double() * products[:, columns:] * slope(products[:, :columns], "silu")
    assert error(grad_gate[-tail:], right) < 1e-2


@pytest.mark.parametrize("columns", [3072, 12288, 14336, 28672])
def test_elementwise_runs_at_the_speed_of_a_copy(columns: int) -> None:
    """Wide rows too: at least 0.85 of the bytes a second of a copy, from halves of one tensor."""
    from foretrace.fused.kernels.elementwise import gated_act

    rows = (1 << 28) // columns
    preact = data(rows, 2 * columns, dtype=torch.bfloat16, seed=0)
    gate, up = preact[:, :columns], preact[:, columns:]
    out, copy = torch.empty(rows, columns, dtype=torch.bfloat16, device="cuda"), torch.empty_like(preact)

    ratios = []
    for _ in range(30):
        ours = microseconds(lambda: gated_act(gate, up, "silu", out)) / (3 * rows * columns)
        theirs = microseconds(lambda: copy.copy_(preact)) / (4 * rows * columns)
        ratios.append(theirs / ours)
    assert median(ratios) > 0.85, f"{median(ratios):.3f} of a copy's bandwidth, spread {iqr(ratios):.3f}"
