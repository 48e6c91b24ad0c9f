"""The short way of the most frequent training calls: bitwise the long way, with the same promises."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mlp_cases import gated_tensors, gradients, mlp_tensors, plain_plan, randn
from torch import Tensor

from foretrace.errors import InputError
from foretrace.fused import plain, planning, seen, steps
from foretrace.fused.autograd import straight, weight_gradient
from foretrace.fused.functional import gated_mlp, linear_act, mlp
from foretrace.fused.plan import Operation, Plan
from foretrace.fused.planning import Call

Layer = Callable[..., Tensor]
PLAN = plain_plan()


def gated(*tensors: Any, **words: Any) -> Tensor:
    x, gate, up, down = tensors
    return gated_mlp(x, gate, up, down, plan=PLAN, **words)


def plain_mlp(*tensors: Any, **words: Any) -> Tensor:
    return mlp(*tensors, plan=PLAN, **words)


def linear(*tensors: Any, **words: Any) -> Tensor:
    return linear_act(*tensors, plan=PLAN, **words)


def linear_tensors(**words: Any) -> list[Any]:
    """x, weight, bias, all leaves."""
    x, weight, _, bias, _ = mlp_tensors(**words)
    return [x, weight, bias]


CASES: dict[str, tuple[Layer, Callable[..., list[Any]], tuple[bool, ...]]] = {
    "gated": (gated, lambda **words: gated_tensors(bias=False, **words)[:4], (True,) * 4),
    "mlp": (plain_mlp, mlp_tensors, (True,) * 5),
    "mlp, first bias": (plain_mlp, mlp_tensors, (True, True, True, True, False)),
    "mlp, second bias": (plain_mlp, mlp_tensors, (True, True, True, False, True)),
    "mlp, no bias": (plain_mlp, mlp_tensors, (True, True, True, False, False)),
    "linear_act": (linear, linear_tensors, (True, True, True)),
    "linear_act, no bias": (linear, linear_tensors, (True, True, False)),
}
case = pytest.mark.parametrize("case", CASES)


def made(name: str, rows: tuple[int, ...] = (3,), **words: Any) -> tuple[Layer, list[Any]]:
    layer, tensors, there = CASES[name]
    return layer, [one if has else None for one, has in zip(tensors(rows=rows, **words), there, strict=True)]


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Whether two gradients are bitwise equal, or both not wanted."""
    return one is other is None or (one is not None and other is not None and one.equal(other))


def is_single(case: str) -> bool:
    return case.startswith("linear_act")


def is_straight(y: Tensor) -> bool:
    return type(y.grad_fn).__name__.startswith("Straight")


@case
@pytest.mark.parametrize("rows", [(3,), (2, 3), (1,), (0,), (2, 0)])
def test_it_is_bitwise_the_long_way(case: str, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    check_bits(*made(case, rows), monkeypatch)


@pytest.mark.parametrize("case", ["mlp", "linear_act"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_biases_of_halves_are_bitwise_the_long_way(
    case: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which adds up in float32 and casts the sums; PyTorch's sum in 16 bits does the same."""
    check_bits(*made(case, (300,), k=8, n=40, dtype=dtype), monkeypatch)


def check_bits(layer: Layer, tensors: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    y = layer(*tensors)
    assert is_straight(y)
    grad = randn(*y.shape, dtype=y.dtype, grad=False)
    found = gradients(y, tensors, grad)
    monkeypatch.setattr(straight, "is_straight", lambda *_: False)
    monkeypatch.setattr(seen, "find", lambda *_: None)
    monkeypatch.setattr(seen, "remember", lambda *_: None)
    expected = layer(*tensors)
    assert not is_straight(expected)
    assert y.equal(expected)
    assert y.shape == expected.shape
    for one, right in zip(found, gradients(expected, tensors, grad), strict=True):
        assert same(one, right)


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plain steps pass for kernels of ours: in inference, PyTorch's own operators would be called at once."""

    def bind(operation: Operation, plan: Plan) -> steps.Bound:
        bound = steps.Bound(operation, plan)
        bound.plain = False
        return bound

    monkeypatch.setattr(planning, "bind", bind)


@case
@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("rows", [(3,), (2, 3), (1,), (0,), (2, 0)])
def test_inference_is_bitwise_the_long_way(case: str, rows: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    layer, tensors = made(case, rows)
    short: list[Call] = []
    with torch.no_grad():
        for name in ("gated_mlp_forward", "mlp_forward", "linear_act_forward"):
            way = getattr(straight, name)
            monkeypatch.setattr(straight, name, lambda *given, way=way: (short.append(given[-1]), way(*given))[1])
        y = layer(*tensors)
        assert [call.save for call in short] == [None]
        with monkeypatch.context() as patched:
            patched.setattr(straight, "is_straight", lambda *_: False)
            patched.setattr(seen, "find", lambda *_: None)
            expected = layer(*tensors)
    assert len(short) == 1
    assert y.shape == expected.shape == (*rows, y.shape[-1])
    assert y.equal(expected)


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize("other", ["one dimension", "gaps in x", "gaps in a weight", "a bias"])
def test_inference_of_other_calls_goes_the_long_way(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x, gate, up, down = (one.detach() for one in made("gated")[1])
    bias = None
    if other == "one dimension":
        x = x[0]
    elif other == "gaps in x":
        x = torch.cat([x, x], 1)[:, : x.shape[1]]
    elif other == "gaps in a weight":
        up = torch.cat([up, up], 1)[:, : up.shape[1]]
    else:
        bias = randn(gate.shape[0], grad=False)
    monkeypatch.setattr(straight, "gated_mlp_forward", None)
    y = gated_mlp(x, gate, up, down, bias, plan=PLAN)
    linear = torch.nn.functional.linear
    hidden = torch.nn.functional.gelu(linear(x, gate, bias), approximate="tanh") * linear(x, up)
    torch.testing.assert_close(y, linear(hidden, down))


@case
def test_gradcheck(case: str) -> None:
    layer, tensors = made(case, (2, 3))
    assert torch.autograd.gradcheck(layer, tensors)


def test_other_calls_go_the_long_way() -> None:
    x, gate, up, down = made("gated")[1]
    assert is_straight(gated(x, gate, up, down))
    for frozen in range(4):
        tensors = [one.detach().requires_grad_(place != frozen) for place, one in enumerate((x, gate, up, down))]
        assert not is_straight(gated(*tensors))
    assert not is_straight(gated(x, gate, up, down, save="recompute"))
    assert not is_straight(gated_mlp(*gated_tensors(), plan=PLAN))  # type: ignore[arg-type]
    assert not is_straight(gated_mlp(*gated_tensors("gate_up", bias=False), packing="gate_up", plan=PLAN))  # type: ignore[arg-type]
    assert not is_straight(gated(x, gate.t().contiguous().t(), up, down))
    assert not is_straight(gated(x[0], gate, up, down))
    assert not is_straight(gated_mlp(x, gate, up, down))  # PyTorch's own operators do it all


def test_a_bias_that_is_no_leaf_goes_the_long_way_even_where_a_leaf_was_seen() -> None:
    x, weight1, weight2, bias1, bias2 = mlp_tensors()
    for _ in range(3):
        assert is_straight(plain_mlp(x, weight1, weight2, bias1, bias2))
        assert is_straight(linear(x, weight1, bias1))
    for biases in ((bias1 * 1, bias2), (bias1, bias2 * 1)):
        assert not is_straight(plain_mlp(x, weight1, weight2, *biases))
    assert not is_straight(linear(x, weight1, bias1 * 1))


@pytest.mark.parametrize("wanted", [one for one in product((True, False), repeat=3) if any(one)])
def test_whatever_is_frozen_in_linear_act_the_other_gradients_are_the_same(wanted: tuple[bool, ...]) -> None:
    tensors = made("linear_act")[1]
    everything = gradients(linear(*tensors), tensors)
    some = [one.detach().requires_grad_(want) for one, want in zip(tensors, wanted, strict=True)]
    y = linear(*some)
    assert is_straight(y) == all(wanted)
    for one, right, want in zip(gradients(y, some), everything, wanted, strict=True):
        assert same(one, right if want else None)


def test_other_calls_of_linear_act_go_the_long_way() -> None:
    x, weight, bias = made("linear_act")[1]
    assert not is_straight(linear(x, weight, bias, save="input"))
    assert not is_straight(linear(x, weight.t().contiguous().t(), bias))
    assert not is_straight(linear(x[0], weight, bias))
    assert not is_straight(linear_act(x, weight, bias))  # PyTorch's own operators do it all


@case
def test_backward_runs_as_forward_ran_whatever_autocast_says(case: str) -> None:
    layer, tensors = made(case, dtype=torch.float32)
    expected = gradients(layer(*tensors), tensors)
    y = layer(*tensors)
    assert is_straight(y)
    with torch.autocast("cpu", torch.bfloat16):
        found = gradients(y, tensors)
    for one, right in zip(found, expected, strict=True):
        assert same(one, right)


@case
def test_a_second_derivative_is_an_error_whatever_leads_there(case: str) -> None:
    layer, tensors = made(case)
    y = layer(*tensors)
    grad = torch.ones_like(y).requires_grad_()
    found = gradients(y, tensors, grad, create_graph=True)
    for one, right in zip(found, gradients(layer(*tensors), tensors), strict=True):
        assert same(one, right)
    penalty = sum(one.pow(2).sum() for one in found if one is not None)
    for source in (*tensors, grad):
        if source is not None:
            with pytest.raises(InputError, match="has no second derivative"):
                torch.autograd.grad(penalty, source, retain_graph=True, allow_unused=True)  # type: ignore[arg-type]


Overwritten = list[bool]


@pytest.fixture
def overwritten(case: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Of each backward step, whether it wrote over the pre-activations."""
    calls: Overwritten = []

    def spy(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*given: Any, **words: Any) -> Any:
            calls.append(words["into"] is given[-2])
            return real(*given, **words)

        return step

    steps.find.cache_clear()
    for name in ("act_backward",) if is_single(case) else ("gate_up_backward", "linear_act_backward"):
        monkeypatch.setattr(plain, name, spy(getattr(plain, name)))
    monkeypatch.setitem(globals(), "PLAN", plain_plan())
    yield calls
    steps.find.cache_clear()


@case
def test_preactivations_are_written_over_unless_the_graph_is_kept(case: str, overwritten: Overwritten) -> None:
    layer, tensors = made(case)
    y = layer(*tensors)
    first = gradients(y, tensors, retain_graph=True)
    for one, right in zip(gradients(y, tensors), first, strict=True):
        assert same(one, right)
    assert overwritten == [False, True]
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        gradients(y, tensors)


@case
@pytest.mark.parametrize("hold", [lambda one: one, lambda one: one[:1], lambda one: one.detach()])
def test_preactivations_that_someone_holds_are_not(
    case: str, hold: Callable[[Tensor], Tensor], overwritten: Overwritten
) -> None:
    layer, tensors = made(case)
    y = layer(*tensors)
    held = hold(y.grad_fn.saved_tensors[-1 if is_single(case) else -2])  # type: ignore[union-attr]
    before = held.clone()
    gradients(y, tensors)
    assert overwritten == [False]
    assert held.equal(before)


@case
def test_an_output_changed_in_place_and_a_gradient_at_any_address(case: str) -> None:
    layer, tensors = made(case, (4, 2))
    y = layer(*tensors)
    right = layer(*tensors)
    grad = randn(y.numel() + 1, grad=False)[1:].view(y.shape)
    y += 1
    for one, two in zip(gradients(y, tensors, grad), gradients(right, tensors, grad.clone()), strict=True):
        assert same(one, two)


@pytest.mark.parametrize(
    ("shapes", "changes", "expected"),
    [
        (((32, 8), (32, 5)), {}, "small"),
        (((33, 8), (33, 5)), {}, "library"),
        (((0, 8), (0, 5)), {}, "library"),
        (((4, 8), (4, 5)), {"is_cuda": False}, "library"),
        (((4, 8), (4, 5)), {"dtype": torch.float32}, "library"),
        (((4, 8), (4, 1)), {}, "whoever fits"),
        (((4, 1), (4, 5)), {}, "whoever fits"),
    ],
)
def test_who_makes_gradients_of_weights_is_known_in_forward(
    shapes: tuple[tuple[int, int], ...], changes: dict[str, Any], expected: str
) -> None:
    """Nothing here has a GPU: what is asked of a tensor there is answered by something else."""
    there = {"is_cuda": True, "dtype": torch.bfloat16, **changes}
    call: Any = SimpleNamespace(bound=SimpleNamespace(plain=False))
    factors: list[Any] = [SimpleNamespace(shape=shape, **there) for shape in shapes]
    of_weight: Any = weight_gradient.weight_gradient_of(call, *factors)
    if expected == "whoever fits":
        assert of_weight.func is weight_gradient.weight_gradient
        assert of_weight.args == (call,)
    else:
        assert of_weight is (weight_gradient._few_rows if expected == "small" else weight_gradient._by_library)
    plain: Any = SimpleNamespace(bound=SimpleNamespace(plain=True))
    assert weight_gradient.weight_gradient_of(plain, *factors) is weight_gradient._by_library


def test_what_a_hook_laid_out_anew_goes_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Tensor, ...]] = []

    def kernel(*given: Tensor) -> Tensor:
        asked.append(given)
        return given[0].t() @ given[1]

    monkeypatch.setattr(weight_gradient, "find", lambda *_: kernel)
    grad, x = randn(4, 5, grad=False), randn(4, 6, grad=False)
    for given, through in ((x, True), (x.t().contiguous().t(), False)):
        asked.clear()
        torch.testing.assert_close(weight_gradient._few_rows(grad, given), grad.t() @ x)
        assert bool(asked) == through


@case
def test_x_and_weights_changed_before_backward_are_an_error(case: str) -> None:
    matrices = sum(one is not None and one.dim() > 1 for one in made(case)[1])
    for place in range(matrices):
        layer, tensors = made(case)
        y = layer(*tensors)
        with torch.no_grad():
            tensors[place].add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            gradients(y, tensors)
