"""A call that was checked before is not checked again, and whatever changes is checked anew."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from mlp_cases import gated_tensors, gradients, mlp_tensors, plain_plan, randn
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from foretrace.errors import InputError
from foretrace.fused import functional, inputs, override, seen
from foretrace.fused.functional import gated_act, gated_mlp, linear_act, mlp


class Checks:
    """Counts the calls that were checked in full."""

    def __init__(self) -> None:
        self.count = 0

    def during(self, call: Callable[[], Any]) -> int:
        before = self.count
        call()
        return self.count - before


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Checks]:
    counted = Checks()
    real = inputs.direct

    def direct(tensors: Any) -> Any:
        counted.count += 1
        return real(tensors)

    monkeypatch.setattr(functional, "direct", direct)
    seen._seen.clear()
    yield counted
    seen._seen.clear()


def familiar(**words: Any) -> list[Any]:
    """Tensors whose call was made often enough to be remembered."""
    tensors = gated_tensors(bias=False, **words)
    for _ in range(3):
        gated_mlp(*tensors)  # type: ignore[arg-type]
    return tensors


def test_the_third_call_is_not_checked(checks: Checks) -> None:
    x, weight1, weight2, bias1, bias2 = mlp_tensors()
    gated: list[Any] = gated_tensors()
    layers: list[Callable[[], Tensor]] = [
        lambda: gated_mlp(*gated),
        lambda: gated_mlp(*gated, plan=PLAN),
        lambda: mlp(x, weight1, weight2, bias1, bias2),
        lambda: mlp(x, weight1, weight2, save="recompute"),
        lambda: linear_act(x, weight1, bias1),
        lambda: linear_act(x, weight1, plan=PLAN),
        lambda: gated_act(bias1, bias1 * 2),
        lambda: gated_act(weight1, weight1 * 2, plan=PLAN),
    ]
    for layer in layers:
        first = layer()
        assert checks.during(layer) <= 1  # row counts that come once only are not worth remembering
        for _ in range(3):
            assert checks.during(lambda: first.equal(layer())) == 0  # noqa: B023
        with torch.no_grad():
            assert layer().equal(first)


PLAN = plain_plan()


class Subclass(Tensor):
    pass


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


CHANGED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "dtype": lambda t: [one if one is None else one.float() for one in t],
    "rows": lambda t: [randn(7, 4), *t[1:]],
    "hidden features": lambda t: [t[0], *gated_tensors(n=9, bias=False)[1:]],
    "strides": lambda t: [t[0].detach().t().contiguous().t(), *t[1:]],
    "a frozen weight": lambda t: [t[0], t[1].detach(), *t[2:]],
    "a subclass": lambda t: [t[0].detach().as_subclass(Subclass), *t[1:]],
    "a bias": lambda t: [*t[:4], randn(5), None, None],
    "one weight twice": lambda t: [t[0], t[1], t[1], *t[3:]],
}


@pytest.mark.parametrize("change", CHANGED)
def test_other_tensors_are_checked(change: str, checks: Checks) -> None:
    tensors = CHANGED[change](familiar())
    assert checks.during(lambda: gated_mlp(*tensors)) == 1
    assert checks.during(lambda: gated_mlp(*familiar())) <= 3


MODES: dict[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a dispatch mode": Watching,
    "forward-mode differentiation": forward_ad.dual_level,
    "an override": lambda: override(save="recompute"),
}


@pytest.mark.parametrize("mode", MODES)
def test_other_modes_are_checked(mode: str, checks: Checks) -> None:
    tensors = familiar()
    with MODES[mode]():
        assert checks.during(lambda: gated_mlp(*tensors)) == 1
    assert checks.during(lambda: gated_mlp(*tensors)) == 0


def test_an_override_is_followed_at_once_and_forgotten_at_once(checks: Checks) -> None:
    tensors = familiar()
    for _ in range(3):
        with override(save="recompute"):
            assert "GatedMLP" in type(gated_mlp(*tensors).grad_fn).__name__
        assert "GatedMLP" not in type(gated_mlp(*tensors).grad_fn).__name__
    assert checks.count < 9


def test_another_dtype_of_autocast_is_followed(checks: Checks) -> None:
    tensors = familiar(dtype=torch.bfloat16)
    for dtype in (torch.bfloat16, torch.float16, torch.bfloat16):
        with torch.autocast("cpu", dtype):
            for _ in range(3):
                assert gated_mlp(*tensors).dtype == dtype


def test_transforms_are_followed(checks: Checks) -> None:
    x, *weights = familiar()

    def loss(x: Tensor) -> Tensor:
        return gated_mlp(x, *weights).sum()

    (expected,) = gradients(gated_mlp(x, *weights), [x])
    for _ in range(3):
        torch.testing.assert_close(torch.func.grad(loss)(x), expected)
        torch.testing.assert_close(torch.func.vmap(lambda row: gated_mlp(row, *weights))(x), gated_mlp(x, *weights))
    assert checks.during(lambda: torch.func.grad(loss)(x)) == 1


def test_a_tensor_that_outlived_its_transform(checks: Checks) -> None:
    x, *weights = familiar()
    leaked: list[Tensor] = []

    def leak(inner: Tensor) -> Tensor:
        leaked.append(inner)
        return inner.sum()

    torch.func.grad(leak)(x.detach())
    for _ in range(3):
        torch.testing.assert_close(gated_mlp(leaked[0], *weights, plan=PLAN), gated_mlp(x, *weights))


def test_what_is_wrong_stays_an_error(checks: Checks) -> None:
    x, gate, up, down, *_ = familiar()
    for _ in range(3):
        with pytest.raises(InputError, match="up_weight"):
            gated_mlp(x, gate, up[:4], down)
        with pytest.raises(InputError, match="one dtype"):
            gated_mlp(x, gate.float(), up, down)
        with pytest.raises(InputError, match="save 'all'"):
            gated_mlp(x, gate, up, down, save="all")  # type: ignore[arg-type]


def test_weights_that_were_replaced_in_place_are_seen(checks: Checks) -> None:
    tensors = familiar()
    for one in tensors[:4]:
        one.data = one.data.float()
    assert gated_mlp(*tensors).dtype == torch.float32
    tensors[1].data = tensors[1].data[:4]
    with pytest.raises(InputError, match="up_weight"):
        gated_mlp(*tensors)


def test_without_torchs_guards_every_call_is_checked(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen, "_comparison", lambda _: None)
    tensors = familiar()
    assert checks.during(lambda: gated_mlp(*tensors)) == 1


def test_memory_is_bounded_and_no_tensor_is_kept(checks: Checks, monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    monkeypatch.setattr(seen, "_MOST", 4)
    tensors = familiar()
    gone = weakref.ref(tensors[1])
    del tensors
    assert gone() is None
    for rows in range(1, 20):
        with contextlib.suppress(InputError):
            familiar(rows=(rows,))
    assert len(seen._seen) <= 4
