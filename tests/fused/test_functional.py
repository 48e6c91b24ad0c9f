"""The layers as functions: what they compute, for which tensors, and what they refuse."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp_cases import gated_tensors, gradients, mlp_tensors, plain_plan, randn
from torch import Tensor
from torch.nn.functional import linear

from foretrace.errors import InputError
from foretrace.fused import steps
from foretrace.fused.activations import ACTIVATIONS, apply
from foretrace.fused.functional import gated_act, gated_mlp, linear_act, mlp
from foretrace.fused.plan import Implementation, Plan

# None: what dispatch says, on a CPU eager PyTorch; else our own functions, with PyTorch's operators for kernels.
PLANS = [None, plain_plan()]
both = pytest.mark.parametrize("plan", PLANS, ids=["default", "ours"])


def reference(x: Tensor, gate: Tensor, up: Tensor, down: Tensor, *biases: Tensor, activation: str) -> Tensor:
    gate_bias, up_bias, down_bias = biases
    hidden = apply(activation, linear(x, gate, gate_bias)) * linear(x, up, up_bias)
    return linear(hidden, down, down_bias)


@both
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_gated_mlp_is_its_formula(activation: str, plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors()
    expected = reference(*tensors, activation=activation)
    torch.testing.assert_close(gated_mlp(*tensors, activation=activation, plan=plan), expected)
    with torch.no_grad():
        torch.testing.assert_close(gated_mlp(*tensors, activation=activation, plan=plan), expected.detach())


@both
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_other_layers_are_their_formulas(activation: str, plan: Plan | None) -> None:
    x, weight1, weight2, bias1, bias2 = mlp_tensors()
    hidden = apply(activation, linear(x, weight1, bias1))
    torch.testing.assert_close(linear_act(x, weight1, bias1, activation, plan=plan), hidden)
    y = mlp(x, weight1, weight2, bias1, bias2, activation=activation, plan=plan)
    torch.testing.assert_close(y, linear(hidden, weight2, bias2))
    torch.testing.assert_close(
        gated_act(hidden, bias1.expand(3, 5), activation, plan=plan), apply(activation, hidden) * bias1
    )


@both
@pytest.mark.parametrize("rows", [(), (1,), (0,), (2, 3), (2, 0, 3), (2, 1, 3, 2)])
def test_any_leading_dimensions(rows: tuple[int, ...], plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors(rows=rows)
    y = gated_mlp(*tensors, plan=plan)
    assert y.shape == (*rows, 6)
    found = gradients(y, tensors)
    for one, right in zip(found, gradients(reference(*tensors, activation="gelu_tanh"), tensors), strict=True):
        torch.testing.assert_close(one, right)
    assert mlp(*mlp_tensors(rows=rows), plan=plan).shape == (*rows, 6)
    x, weight, *_ = mlp_tensors(rows=rows)
    assert linear_act(x, weight, plan=plan).shape == (*rows, 5)
    assert gated_act(x, x, plan=plan).shape == (*rows, 4)


@both
def test_inference_is_bitwise_training(plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors(dtype=torch.float32)
    with torch.no_grad():
        inference = gated_mlp(*tensors, plan=plan)
    assert inference.grad_fn is None
    with torch.inference_mode():
        assert gated_mlp(*tensors, plan=plan).equal(inference)
    assert gated_mlp(*tensors, plan=plan).equal(inference)


@both
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_and_infinity_are_eagers(activation: str, plan: Plan | None) -> None:
    special = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0])
    gate, up = (one.flatten().requires_grad_() for one in torch.meshgrid(special, special, indexing="ij"))
    found = gated_act(gate[None], up[None], activation, plan=plan)
    expected = (apply(activation, gate) * up)[None]
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=0, atol=0)
    for one, right in zip(gradients(found, [gate, up]), gradients(expected, [gate, up]), strict=True):
        torch.testing.assert_close(one, right, equal_nan=True, rtol=0, atol=0)


@both
def test_halves_of_one_tensor_and_strided_gates(plan: Plan | None) -> None:
    both_halves = randn(2, 3, 8)
    gate, up = both_halves.chunk(2, dim=-1)
    torch.testing.assert_close(gated_act(gate, up, plan=plan), apply("gelu_tanh", gate) * up)
    gate, up = both_halves[..., 0::2], both_halves[..., 1::2]
    torch.testing.assert_close(gated_act(gate, up, plan=plan), apply("gelu_tanh", gate) * up)
    assert torch.autograd.gradcheck(lambda t: gated_act(*t.chunk(2, dim=-1), plan=plan), both_halves)


def test_transposed_weights_and_strided_biases() -> None:
    x, gate, up, down, *_ = (one for one in gated_tensors(bias=False))
    wide = randn(10)
    biases = wide[0::2], wide[:1].expand(5), None
    expected = reference(x, gate, up, down, *biases, activation="silu")  # type: ignore[arg-type]
    turned = [one.t().contiguous().t() for one in (gate, up, down)]  # type: ignore[union-attr]
    found = gated_mlp(x, *turned, *biases, activation="silu", plan=plain_plan())  # type: ignore[arg-type, misc]
    torch.testing.assert_close(found, expected)


@both
def test_autocast_is_linears(plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = gated_mlp(*tensors, plan=plan)
        expected = reference(*tensors, activation="gelu_tanh")
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
    for one, right in zip(gradients(found, tensors), gradients(expected, tensors), strict=True):
        assert one is None or one.dtype == torch.float32
        torch.testing.assert_close(one, right, rtol=2e-2, atol=2e-2)


@both
def test_autocast_reconciles_dtypes(plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors(dtype=torch.float32)
    tensors[0] = tensors[0].detach().bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert gated_mlp(*tensors, plan=plan).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):  # float64 is left alone, as linear leaves it
        assert gated_mlp(*gated_tensors(), plan=plan).dtype == torch.float64  # type: ignore[arg-type]


@both
def test_backward_under_autocast(plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        gated_mlp(*tensors, plan=plan).sum().backward()
    assert all(one.grad is not None and one.grad.dtype == torch.float32 for one in tensors)


def bad(change: Callable[[list[Any]], None]) -> list[Any]:
    tensors: list[Any] = gated_tensors(dtype=torch.float32, grad=False)
    change(tensors)
    return tensors


def put(index: int, tensor: Any) -> Callable[[list[Any]], None]:
    return lambda tensors: tensors.__setitem__(index, tensor)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(0, torch.ones(3, 4).bfloat16()), "must have one dtype, and these have bfloat16 and float32"),
        (put(4, torch.ones(5).double()), "must have one dtype, and these have float32 and float64"),
        (put(0, torch.ones(3, 7)), r"x is \[3, 7\], and must be \[\.\.\., 4\]"),
        (put(0, torch.ones(())), r"x is \[\], and must be"),
        (put(1, torch.ones(5)), r"gate_weight is \[5\], and must be \[N, K\]"),
        (put(2, torch.ones(6, 4)), r"up_weight is \[6, 4\], and must be gate_weight's \[5, 4\]"),
        (put(3, torch.ones(5, 6)), r"down_weight is \[5, 6\], and must be \[out, 5\]"),
        (put(4, torch.ones(6)), r"gate_bias is \[6\], and must be \[5\]"),
        (put(5, torch.ones(1)), r"up_bias is \[1\], and must be \[5\]"),
        (put(6, torch.ones(5)), r"down_bias is \[5\], and must be \[6\]"),
        (put(3, torch.ones(6, 5, device="meta")), "must be on one device, these are on cpu and meta"),
    ],
)
def test_what_does_not_fit_is_said(change: Callable[[list[Any]], None], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gated_mlp(*bad(change))


def test_words_that_are_not_known_are_said() -> None:
    tensors: list[Any] = gated_tensors()
    with pytest.raises(InputError, match="save 'all' is not one of auto, preact, recompute, input"):
        gated_mlp(*tensors, save="all")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="precision 'high' is not one of exact, fast"):
        gated_mlp(*tensors, precision="high")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="packing 'x' is not one of"):
        gated_mlp(*tensors, packing="x")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="activation 'gleu' is not one of"):
        gated_mlp(*tensors, activation="gleu")
    with pytest.raises(InputError, match=r"up is \[3, 5\], and must be gate's \[3, 4\]"):
        gated_act(torch.ones(3, 4), torch.ones(3, 5))
    with pytest.raises(InputError, match="x is int64, and fused layers need a floating-point dtype"):
        linear_act(torch.ones(3, 4).long(), torch.ones(5, 4).long())


def test_a_dtensor_is_refused() -> None:
    # By its name: making a real one takes a process group, and the check must not import torch.distributed.
    kind = type("DTensor", (Tensor,), {})
    x = torch.ones(3, 4).as_subclass(kind)
    with pytest.raises(InputError, match=r"a DTensor was given: .* FSDP2 .* tensor parallelism is not supported"):
        linear_act(x, torch.ones(5, 4))


def test_a_subclass_brings_its_own_operators() -> None:
    seen: list[str] = []

    class Noting(Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(getattr(func, "__name__", ""))
            return super().__torch_function__(func, types, args, kwargs or {})

    weight = torch.ones(5, 4).as_subclass(Noting)
    y = linear_act(torch.ones(3, 4), weight)
    assert type(y) is Noting
    assert {"linear", "gelu"} <= set(seen)


def test_shapes_without_memory() -> None:
    tensors = [one if one is None else one.detach().to("meta").requires_grad_() for one in gated_tensors()]
    y = gated_mlp(*tensors)  # type: ignore[arg-type]
    assert y.is_meta
    assert [one is None or one.shape for one in gradients(y, tensors)] == [one is None or one.shape for one in tensors]


# torch.func.jvp scripts decompositions of its own when it is first used.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
@both
def test_transforms_of_functions(plan: Plan | None) -> None:
    tensors: list[Any] = gated_tensors()

    def loss(x: Tensor, gate: Tensor) -> Tensor:
        return gated_mlp(x, gate, *tensors[2:], plan=plan).pow(2).sum()

    found = torch.func.grad(loss, argnums=(0, 1))(*tensors[:2])
    expected = torch.autograd.grad(loss(*tensors[:2]), tensors[:2])
    for one, right in zip(found, expected, strict=True):
        torch.testing.assert_close(one, right)
    _, pull = torch.func.vjp(lambda x: gated_mlp(x, *tensors[1:], plan=plan), tensors[0])
    (dx,) = pull(torch.ones(3, 6, dtype=torch.float64))
    torch.testing.assert_close(dx, gradients(gated_mlp(*tensors), tensors)[0])
    rows = torch.vmap(lambda x: gated_mlp(x, *tensors[1:], plan=plan))(tensors[0])
    torch.testing.assert_close(rows, gated_mlp(*tensors))
    each = torch.vmap(torch.func.grad(loss), in_dims=(0, None))(tensors[0], tensors[1])
    torch.testing.assert_close(each, found[0])
    _, forward = torch.func.jvp(
        lambda x: gated_mlp(x, *tensors[1:], plan=plan), (tensors[0],), (torch.ones_like(tensors[0]),)
    )
    torch.testing.assert_close(
        forward, torch.func.jvp(lambda x: gated_mlp(x, *tensors[1:]), (tensors[0],), (torch.ones_like(tensors[0]),))[1]
    )


def test_counting_modes_see_the_products() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        gated_mlp(*gated_tensors(), plan=plain_plan())  # type: ignore[arg-type]
    assert counter.get_total_flops() == 2 * 3 * (4 * 5 * 2 + 5 * 6)


def test_a_plan_that_cannot_be_run_is_said() -> None:
    unknown = Plan(*[Implementation("fastest")] * 3, "preact", "override", "")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'fastest' has no step 'gate_up'; implementations of it: plain, elementwise"):
        gated_mlp(*gated_tensors(), plan=unknown)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="save='all' is not known"):
        gated_mlp(*gated_tensors(), plan=plain_plan("all"))  # type: ignore[arg-type]


def test_options_reach_the_implementation(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, int] = {}

    def tuned(x: Tensor, weight: Tensor, *_: Any, keep: bool, precision: str, tile: int) -> tuple[Tensor, Tensor]:
        given["tile"] = tile
        return linear(x, weight), x

    monkeypatch.setattr(steps, "find", lambda step, name: tuned if name == "tuned" else linear)
    plan = Plan(Implementation("tuned", (("tile", 128),)), *[Implementation("plain")] * 2, "preact", "override", "")  # type: ignore[arg-type]
    linear_act(torch.ones(3, 4), torch.ones(5, 4), plan=plan)
    assert given == {"tile": 128}


def test_the_plain_path_needs_neither_triton_nor_the_operators() -> None:
    code = (
        "import sys, torch; from foretrace import fused; "
        "x = torch.ones(2, 4, requires_grad=True); fused.linear_act(x, torch.ones(3, 4)).sum().backward(); "
        "print('triton' in sys.modules, 'foretrace.fused.operators' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_room_is_entered_without_torch() -> None:
    code = "import sys; import foretrace.fused as f; print('torch' in sys.modules, sorted(f.__all__) == dir(f))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]


def test_a_negative_view_is_left_to_pytorch() -> None:
    """The imaginary part of a conjugate has its sign in a flag, which no kernel of ours would see."""
    from foretrace.fused.autograd.functions import gradient_rows
    from foretrace.fused.inputs import direct

    x = torch.complex(torch.zeros(5, 1), torch.arange(5.0)[:, None]).conj().imag
    weight = torch.ones(3, 1)
    assert x.is_neg()
    assert direct((x, weight)) == (False, False)
    assert direct((x.resolve_neg(), weight)) == (True, False)
    assert linear_act(x, weight, activation="relu").sum() == 0.0
    assert gradient_rows(x).equal(x)
    assert not gradient_rows(x).is_neg()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, w, d: gated_mlp(None, w, w, d), "x is None, and must be a tensor"),
        (lambda x, w, d: gated_mlp(x.numpy(), w, w, d), "x is of type ndarray, and must be a tensor"),
        (lambda x, w, d: gated_mlp(x, w, w, None), "down_weight is None, and must be a tensor"),
        (lambda x, w, d: gated_mlp(x, w, w, d, [0.0] * 8), "gate_bias is of type list, and must be a tensor"),
        (lambda x, w, d: linear_act([[1.0]], w), "x is of type list, and must be a tensor"),
        (lambda x, w, d: gated_act(x, None), "up is None, and must be a tensor"),
        (lambda x, w, d: mlp(x, w, "d"), "weight2 is of type str, and must be a tensor"),
        (lambda x, w, d: gated_mlp(x, w, w, d, activation=None), "activation None is not one of gelu"),
    ],
)
def test_what_is_no_tensor_is_said_by_name(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(torch.randn(2, 4), torch.randn(8, 4), torch.randn(4, 8))
