"""Our own autograd functions, in float64 and with PyTorch's operators for kernels: all gradients, only those wanted."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from mlp_cases import PACKINGS, SAVES, gated_tensors, gradients, mlp_tensors, plain_plan, randn
from torch import Tensor
from torch.nn import functional

from foretrace.errors import InputError
from foretrace.fused.activations import ACTIVATIONS
from foretrace.fused.autograd import passes
from foretrace.fused.autograd.functions import gradient_rows
from foretrace.fused.functional import gated_act, gated_mlp, linear_act, mlp
from foretrace.fused.plan import Save
from foretrace.fused.weights import split

gradcheck = torch.autograd.gradcheck


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("save", SAVES)
def test_gradcheck_of_every_layer_and_activation(activation: str, save: Save) -> None:
    plan = plain_plan(save)
    assert gradcheck(lambda *t: gated_mlp(*t, activation=activation, plan=plan), gated_tensors())
    assert gradcheck(lambda *t: mlp(*t, activation=activation, plan=plan), mlp_tensors())
    x, weight, _, bias, _ = mlp_tensors()
    assert gradcheck(lambda *t: linear_act(*t, activation=activation, plan=plan), [x, weight, bias])
    assert gradcheck(lambda *t: gated_act(*t, activation=activation, plan=plan), [randn(3, 4), randn(3, 4, seed=1)])


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packing", PACKINGS)
def test_gradcheck_of_every_packing(packing: Any, bias: bool) -> None:
    tensors = gated_tensors(packing, bias=bias)
    assert gradcheck(lambda *t: gated_mlp(*t, packing=packing, plan=plain_plan()), tensors)


def subsets(count: int) -> list[tuple[bool, ...]]:
    return [wanted for wanted in itertools.product((True, False), repeat=count) if any(wanted)]


def check_subsets(layer: Callable[..., Tensor], tensors: list[Any]) -> None:
    """Whatever is frozen, the other gradients are bitwise what they are when nothing is."""
    y = layer(*tensors)
    grad = randn(*y.shape, grad=False)
    everything = gradients(y, tensors, grad)
    for wanted in subsets(len(tensors)):
        some = [
            one if one is None else one.detach().requires_grad_(want) for one, want in zip(tensors, wanted, strict=True)
        ]
        if not any(one is not None and one.requires_grad for one in some):
            continue
        found = gradients(layer(*some), some, grad)
        for tensor, one, expected in zip(some, found, everything, strict=True):
            if tensor is not None and tensor.requires_grad:
                assert one is not None
                torch.testing.assert_close(one, expected)
            else:
                assert one is None


@pytest.mark.parametrize("save", SAVES)
@pytest.mark.parametrize("packing", PACKINGS)
def test_frozen_tensors_of_a_gated_mlp(packing: Any, save: Save) -> None:
    check_subsets(lambda *t: gated_mlp(*t, packing=packing, plan=plain_plan(save)), gated_tensors(packing))


@pytest.mark.parametrize("save", SAVES)
def test_frozen_tensors_of_the_other_layers(save: Save) -> None:
    plan = plain_plan(save)
    check_subsets(lambda *t: mlp(*t, plan=plan), mlp_tensors())
    x, weight, _, bias, _ = mlp_tensors()
    check_subsets(lambda *t: linear_act(*t, plan=plan), [x, weight, bias])
    check_subsets(lambda *t: gated_act(*t, plan=plan), [randn(3, 4), randn(3, 4, seed=1)])


@pytest.mark.parametrize("save", SAVES)
def test_rows_in_pieces_are_the_same_layer(save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    # As many rows as a real batch take long here; let seven be worth four pieces.
    monkeypatch.setattr("foretrace.fused.autograd.inner._LEAST_ROWS", 1)
    monkeypatch.setattr("foretrace.fused.autograd.inner._TILE_ROWS", 1)
    plan = plain_plan(save)
    for packing in PACKINGS:
        tensors = gated_tensors(packing, rows=(7,))
        layer = lambda *t: gated_mlp(*t, packing=packing, plan=plan)  # noqa: B023, E731
        assert gradcheck(layer, tensors)
        check_subsets(layer, tensors)
    check_subsets(lambda *t: mlp(*t, plan=plan), mlp_tensors(rows=(7,)))
    x, weight, _, bias, _ = mlp_tensors(rows=(7,))
    check_subsets(lambda *t: linear_act(*t, plan=plan), [x, weight, bias])


def products(packing: str, x: Tensor, *weights: Any) -> Tensor:
    """`linear_act`, `mlp` or `gated_mlp` with silu, by the number of weights, in PyTorch's own operators."""
    if len(weights) == 3:
        gate, up = split(weights[0], weights[1], packing)
        return functional.linear(functional.silu(x @ gate.t()) * (x @ up.t()), weights[2])
    hidden: Tensor = functional.silu(x @ weights[0].t())
    return hidden if len(weights) == 1 else hidden @ weights[1].t()


def relative_errors(found: list[Tensor | None], exact: list[Tensor | None]) -> list[float]:
    """Of each gradient by its norm; 0 for those not wanted."""
    return [
        0.0 if one is None or right is None else float((one.double() - right).norm() / right.norm())
        for one, right in zip(found, exact, strict=True)
    ]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("save", ["recompute", "input"])
@pytest.mark.parametrize("call", ["linear_act", "mlp", *PACKINGS])
def test_pieces_are_rounded_once(call: str, save: Save, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    # Sixteen pieces of sixteen rows: many, so that rounding each would be seen through all other rounding.
    for name in ("inner._LEAST_ROWS", "inner._TILE_ROWS", "passes._RECOMPUTE_PIECES", "passes._INPUT_PIECES"):
        monkeypatch.setattr(f"foretrace.fused.autograd.{name}", 16)
    shape: dict[str, Any] = {"rows": (256,), "k": 48, "n": 40, "out": 56, "dtype": dtype}
    words: dict[str, Any] = {"activation": "silu", "plan": plain_plan(save)}
    layer: Callable[..., Tensor] = linear_act if call == "linear_act" else mlp
    if call in PACKINGS:
        layer = functools.partial(gated_mlp, packing=call)
    made = gated_tensors(call, **shape)[:4] if call in PACKINGS else mlp_tensors(**shape)[: 3 if call == "mlp" else 2]
    # Weights are small, as those of a network are: pre-activations are of the order of one.
    tensors: list[Any] = [one if one is None else (0.2 * one).detach().requires_grad_() for one in made]
    doubles: list[Any] = [one if one is None else one.detach().double().requires_grad_() for one in tensors]
    grad = randn(*products(call, *doubles).shape, dtype=dtype, grad=False)
    exact = gradients(products(call, *doubles), doubles, grad.double())
    eager = relative_errors(gradients(products(call, *tensors), tensors, grad), exact)
    limits = [1.1 * error + 0.1 * torch.finfo(dtype).eps / 2 for error in eager]
    # A frozen tensor makes the others take other ways: all, and each alone.
    for wanted in ([True] * len(tensors), *([one is only for one in tensors] for only in tensors if only is not None)):
        some = [None if one is None else one.detach().requires_grad_(w) for one, w in zip(tensors, wanted, strict=True)]
        found = gradients(layer(*some, **words), some, grad)
        assert {one.dtype for one in found if one is not None} == {dtype}
        errors = relative_errors(found, exact)
        assert all(error <= limit for error, limit in zip(errors, limits, strict=True)), (errors, limits)


def test_pieces_are_whole_tiles_and_cover_every_row() -> None:
    from foretrace.fused.autograd.inner import chunks

    assert chunks(8192, 2) == [slice(0, 4096), slice(4096, 8192)]
    assert chunks(1500, 4) == [slice(0, 1500)]  # too few rows to be worth it
    assert chunks(3000, 2) == [slice(0, 1536), slice(1536, 3000)]
    assert chunks(0, 4) == [slice(0, 0)]
    assert chunks(1, 4) == [slice(0, 1)]
    for rows in (2047, 2048, 5000, 65537):
        found = chunks(rows, 4)
        assert sum(piece.stop - piece.start for piece in found) == rows
        assert len(found) <= 4


def test_nothing_is_computed_for_frozen_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = gated_tensors()
    for tensor in tensors[:6]:
        if tensor is not None:
            tensor.requires_grad_(False)
    y = gated_mlp(*tensors, plan=plain_plan())  # type: ignore[arg-type]
    monkeypatch.setattr(passes, "_backward_from_input", None)
    assert all(one is None for one in y.grad_fn.saved_tensors[:-1])  # type: ignore[union-attr]
    assert gradients(y, tensors)[6] is not None


@pytest.mark.parametrize("layer", ["x.expand", "x.t", "x[::2]", "x[..., ::2]"])
def test_layouts_of_x(layer: str) -> None:
    views: dict[str, Callable[[Tensor], Tensor]] = {
        "x.expand": lambda x: x[:, :1].expand(3, 2, 4),
        "x.t": lambda x: x.transpose(0, 2).transpose(0, 1),
        "x[::2]": lambda x: x[::2],
        "x[..., ::2]": lambda x: x[..., ::2],
    }
    shapes = {"x.expand": (3, 1, 4), "x.t": (4, 3, 2), "x[::2]": (5, 2, 4), "x[..., ::2]": (3, 2, 8)}
    _, *weights = gated_tensors()

    def run(x: Tensor) -> Tensor:
        return gated_mlp(views[layer](x), *weights, plan=plain_plan())  # type: ignore[arg-type]

    assert gradcheck(run, [randn(*shapes[layer])])


def test_a_gradient_from_one_number() -> None:
    tensors = gated_tensors(rows=(2, 3))
    gated_mlp(*tensors, plan=plain_plan()).sum().backward()  # type: ignore[arg-type]
    found = [one if one is None else one.grad for one in tensors]
    for one, right in zip(found, gradients(gated_mlp(*tensors), tensors), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(one, right)


def test_a_transposed_gradient() -> None:
    tensors = gated_tensors(rows=(6,))
    grad = randn(6, 6, grad=False).t()
    found = gradients(gated_mlp(*tensors, plan=plain_plan()), tensors, grad)  # type: ignore[arg-type]
    for one, right in zip(found, gradients(gated_mlp(*tensors), tensors, grad), strict=True):  # type: ignore[arg-type]
        torch.testing.assert_close(one, right)


def test_a_gradient_at_any_address() -> None:
    found = gradient_rows(torch.arange(13.0)[1:].view(2, 2, 3))
    assert found.data_ptr() % 16 == 0
    assert found.equal(torch.arange(1.0, 13.0).view(4, 3))


def layers(save: Save) -> list[tuple[Callable[..., Tensor], list[Any]]]:
    plan = plain_plan(save)
    x, weight, _, bias, _ = mlp_tensors()
    return [
        (lambda *t: gated_mlp(*t, plan=plan), gated_tensors()),
        (lambda *t: mlp(*t, plan=plan), mlp_tensors()),
        (lambda *t: linear_act(*t, plan=plan), [x, weight, bias]),
        (lambda *t: gated_act(*t, plan=plan), [randn(3, 4), randn(3, 4, seed=1)]),
    ]


@pytest.mark.parametrize("save", SAVES)
def test_a_second_backward_equals_the_first(save: Save) -> None:
    for layer, tensors in layers(save):
        y = layer(*tensors)
        grad = randn(*y.shape, grad=False)
        first = gradients(y, tensors, grad, retain_graph=True)
        second = gradients(y, tensors, grad, retain_graph=True)
        last = gradients(y, tensors, grad)
        for one, two, three in zip(first, second, last, strict=True):
            torch.testing.assert_close(one, two, rtol=0, atol=0)
            torch.testing.assert_close(one, three, rtol=0, atol=0)
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            gradients(y, tensors, grad)


@pytest.mark.parametrize("save", SAVES)
def test_second_derivatives_are_an_error_and_first_ones_are_not(save: Save) -> None:
    for layer, tensors in layers(save):
        found = gradients(layer(*tensors), tensors, create_graph=True)
        plain = gradients(layer(*tensors), tensors)
        for one, right in zip(found, plain, strict=True):
            torch.testing.assert_close(one, right, check_stride=False)
        penalty = sum(one.pow(2).sum() for one in found if one is not None)
        for tensor in tensors:  # by itself, too: it must not seem unused
            with pytest.raises(InputError, match="has no second derivative"):
                torch.autograd.grad(penalty, tensor, retain_graph=True, allow_unused=True)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="has no second derivative"):
            penalty.backward()  # type: ignore[union-attr]


def test_the_derivative_by_the_incoming_gradient_is_an_error_too() -> None:
    tensors: list[Any] = gated_tensors()
    y = gated_mlp(*tensors, plan=plain_plan())
    grad = torch.ones_like(y).requires_grad_()
    (dx,) = torch.autograd.grad(y, tensors[0], grad, create_graph=True)
    with pytest.raises(InputError, match="has no second derivative"):
        torch.autograd.grad(dx.sum(), grad, allow_unused=True)


def test_without_a_plan_of_ours_second_derivatives_are_eagers() -> None:
    assert torch.autograd.gradgradcheck(gated_mlp, gated_tensors())


def test_outputs_may_be_changed_in_place() -> None:
    tensors = gated_tensors(rows=(2, 3), out=4)
    x = tensors[0]
    assert x is not None
    y = gated_mlp(*tensors, plan=plain_plan())  # type: ignore[arg-type]
    y += x
    expected = gated_mlp(*tensors) + x  # type: ignore[arg-type]
    torch.testing.assert_close(y, expected)
    for one, right in zip(gradients(y, tensors), gradients(expected, tensors), strict=True):
        torch.testing.assert_close(one, right)


def test_inputs_changed_before_backward_are_an_error() -> None:
    tensors = gated_tensors()
    y = gated_mlp(*tensors, plan=plain_plan())  # type: ignore[arg-type]
    with torch.no_grad():
        tensors[3].add_(1)  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_weights_that_no_gradient_needs_may_change() -> None:
    tensors = gated_tensors()
    tensors[0].requires_grad_(False)  # type: ignore[union-attr]
    y = gated_mlp(*tensors, plan=plain_plan())  # type: ignore[arg-type]
    expected = gradients(gated_mlp(*tensors), tensors)  # type: ignore[arg-type]
    with torch.no_grad():
        tensors[1].add_(1)  # type: ignore[union-attr]
    for one, right in zip(gradients(y, tensors), expected, strict=True):
        torch.testing.assert_close(one, right)
