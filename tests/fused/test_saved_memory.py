"""What forward keeps, and what backward gives back or writes over: as early as it may, and never under any eyes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from mlp_cases import SAVES, gated_tensors, gradients, mlp_tensors, plain_plan, randn
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from foretrace.fused import override, plain, steps
from foretrace.fused.autograd import kept as kept_module
from foretrace.fused.functional import gated_act, gated_mlp, linear_act, mlp
from foretrace.fused.plan import Save

Seen = list[dict[str, Any]]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Iterator[Seen]:
    """What each backward step of a gated MLP was given; ``watch`` holds storages, and says which were gone by then."""
    calls: Seen = []
    real = plain.gate_up_backward

    def spy(grad: Tensor, down: Tensor, preact: Tensor, activation: str, **words: Any) -> Any:
        into = words["into"]
        calls.append(
            {
                "overwrites": into is not None and into.data_ptr() == preact.data_ptr(),
                "want_hidden": words["want_hidden"],
                "rows": grad.shape[0],
                "hidden_is_gone": all(ref.expired() for ref in watched),
            }
        )
        return real(grad, down, preact, activation, **words)

    steps.find.cache_clear()
    monkeypatch.setattr(plain, "gate_up_backward", spy)
    yield calls
    watched.clear()
    steps.find.cache_clear()


watched: list[StorageWeakRef] = []


def run(save: Save = "preact", rows: int = 3) -> tuple[Tensor, list[Tensor | None]]:
    tensors = gated_tensors(rows=(rows,))
    return gated_mlp(*tensors, plan=plain_plan(save)), tensors  # type: ignore[arg-type]


def kept(y: Tensor) -> list[tuple[int, ...]]:
    """Shapes of what is kept besides arguments of the call."""
    return [tuple(one.shape) for one in y.grad_fn.saved_tensors[6:8] if one is not None]  # type: ignore[union-attr]


def test_what_each_way_to_save_keeps() -> None:
    assert kept(run("preact")[0]) == [(3, 10), (3, 5)]
    assert kept(run("recompute")[0]) == [(3, 10)]
    assert kept(run("input")[0]) == []


def test_every_way_to_ask_is_followed() -> None:
    tensors: list[Any] = gated_tensors()
    assert "GatedMLPFunction" not in type(gated_mlp(*tensors).grad_fn).__name__  # nobody asked, and eager does it all
    assert kept(gated_mlp(*tensors, save="recompute")) == [(3, 10)]
    assert kept(gated_mlp(*tensors, save="input", plan=plain_plan())) == []
    with override(save="recompute"):
        assert kept(gated_mlp(*tensors)) == [(3, 10)]


def test_a_frozen_down_weight_needs_no_hidden_and_a_frozen_inside_only_hidden() -> None:
    tensors = gated_tensors()
    tensors[3].requires_grad_(False)  # type: ignore[union-attr]
    for save in ("preact", "recompute"):
        assert kept(gated_mlp(*tensors, plan=plain_plan(save))) == [(3, 10)]  # type: ignore[arg-type]
    for tensor in tensors:
        if tensor is not None:
            tensor.requires_grad_(tensor is tensors[3])
    for save in ("preact", "recompute"):
        assert kept(gated_mlp(*tensors, plan=plain_plan(save))) == [(3, 5)]  # type: ignore[arg-type]


def test_preactivations_become_their_gradients(seen: Seen) -> None:
    y, tensors = run()
    gradients(y, tensors)
    assert [call["overwrites"] for call in seen] == [True]


@pytest.mark.parametrize(("rows", "gone"), [(7, True), (6, False)])
def test_hidden_is_gone_before_gradients_are_made_unless_rows_are_few(seen: Seen, rows: int, gone: bool) -> None:
    y, tensors = run(rows=rows)
    watched.append(StorageWeakRef(y.grad_fn.saved_tensors[7].untyped_storage()))  # type: ignore[union-attr]
    gradients(y, tensors)
    assert seen[0]["hidden_is_gone"] == gone
    assert watched[0].expired()


class _Products(TorchDispatchMode):
    """Shapes of what matrix products make, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm_):
            self.made.append(tuple(result.shape))
        return result


@pytest.mark.parametrize("rows", [2, 8])
@pytest.mark.parametrize("bias", [False, True])  # without one the call is handled by `autograd.straight`
def test_products_that_read_weights_come_before_gradients_of_weights(rows: int, bias: bool) -> None:
    k, n, out = 4, 5, 6
    tensors = gated_tensors(rows=(rows,), bias=bias, k=k, n=n, out=out)
    y = gated_mlp(*tensors, plan=plain_plan("preact"))  # type: ignore[arg-type]
    with _Products() as products:
        gradients(y, tensors)
    through, x, down, inner = (rows, n), (rows, k), (out, n), (2 * n, k)
    few = [through, x, x, down, inner]
    assert products.made == (few if rows <= out else [down, through, x, x, inner])


def test_recompute_asks_for_hidden_in_pieces(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretrace.fused.autograd.inner._LEAST_ROWS", 1)
    monkeypatch.setattr("foretrace.fused.autograd.inner._TILE_ROWS", 1)
    y, tensors = run("recompute")
    gradients(y, tensors)
    assert [(call["rows"], call["want_hidden"], call["overwrites"]) for call in seen] == [
        (2, True, True),
        (1, True, True),
    ]


def test_a_retained_graph_keeps_its_preactivations(seen: Seen) -> None:
    y, tensors = run()
    before = [one if one is None else one.clone() for one in y.grad_fn.saved_tensors]  # type: ignore[union-attr]
    gradients(y, tensors, retain_graph=True)
    assert not seen[0]["overwrites"]
    for now, then in zip(y.grad_fn.saved_tensors, before, strict=True):  # type: ignore[union-attr]
        assert (now is None and then is None) or now.equal(then)
    gradients(y, tensors)
    assert seen[1]["overwrites"]


@pytest.mark.parametrize(
    "hold",
    [
        lambda preact: preact,
        lambda preact: preact[:1],
        lambda preact: preact.detach(),
        lambda preact: preact.untyped_storage(),
    ],
    ids=["itself", "a view", "detached", "its storage"],
)
def test_what_someone_holds_is_not_written(hold: Callable[[Tensor], Any], seen: Seen) -> None:
    y, tensors = run()
    preact = y.grad_fn.saved_tensors[6]  # type: ignore[union-attr]
    right = preact.clone()
    held = hold(preact)
    if not isinstance(held, Tensor):
        held = torch.empty(0, dtype=preact.dtype).set_(held, 0, right.shape)
    at = held.data_ptr()
    del preact
    gradients(y, tensors)
    assert not seen[0]["overwrites"]
    assert held.data_ptr() == at
    assert held.equal(right[: held.shape[0]])


def test_what_a_hook_saw_is_not_written(seen: Seen) -> None:
    packed: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        packed.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y, tensors = run()
    before = [one.clone() for one in packed]
    gradients(y, tensors)
    assert not seen[0]["overwrites"]
    assert all(one.equal(then) for one, then in zip(packed, before, strict=True))


def test_where_pytorch_does_not_count_nothing_is_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor: Any = SimpleNamespace(data_ptr=lambda: 16, untyped_storage=lambda: SimpleNamespace(_cdata=32))
    monkeypatch.setattr(kept_module, "_held_once", lambda: None)
    assert not kept_module.is_held_once(tensor, (16, 32))


def test_a_hook_that_makes_copies_lets_them_be_written(seen: Seen) -> None:
    with torch.autograd.graph.save_on_cpu():
        y, tensors = run()
    gradients(y, tensors)
    assert len(seen) == 1  # right either way; the gradients are those below


@pytest.mark.parametrize("save", SAVES)
def test_arguments_are_unchanged_after_backward(save: Save) -> None:
    plan = plain_plan(save)
    x, weight, _, bias, _ = mlp_tensors()
    cases: list[tuple[Callable[..., Tensor], list[Any]]] = [
        (lambda *t: gated_mlp(*t, plan=plan), gated_tensors()),
        (lambda *t: mlp(*t, plan=plan), mlp_tensors()),
        (lambda *t: linear_act(*t, plan=plan), [x, weight, bias]),
        (lambda *t: gated_act(*t, plan=plan), [randn(3, 4), randn(3, 4, seed=1)]),
    ]
    for layer, tensors in cases:
        before = [one if one is None else one.detach().clone() for one in tensors]
        y = layer(*tensors)
        output = y.detach().clone()
        grad = randn(*y.shape, grad=False)
        given = grad.clone()
        gradients(y, tensors, grad)
        assert grad.equal(given)
        assert y.equal(output)
        assert all(one is None or one.equal(then) for one, then in zip(tensors, before, strict=True))


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("save", SAVES)
def test_activation_checkpointing(save: Save, reentrant: bool) -> None:
    tensors = gated_tensors()

    def layer(x: Tensor) -> Tensor:
        return gated_mlp(x, *tensors[1:], plan=plain_plan(save))  # type: ignore[arg-type]

    x = tensors[0]
    assert x is not None
    checkpoint(layer, x, use_reentrant=reentrant).sum().backward()
    found = [one if one is None else one.grad for one in tensors]
    for one, right in zip(found, gradients(layer(x), tensors), strict=True):
        torch.testing.assert_close(one, right, rtol=0, atol=0)


def test_checkpointing_under_autocast() -> None:
    tensors = [one if one is None else one.float().detach().requires_grad_() for one in gated_tensors()]

    def layer(x: Tensor) -> Tensor:
        return gated_mlp(x, *tensors[1:], plan=plain_plan())  # type: ignore[arg-type]

    x = tensors[0]
    assert x is not None
    with torch.autocast("cpu", torch.bfloat16):
        y = checkpoint(layer, x, use_reentrant=False)
        expected = gradients(layer(x), tensors)
    assert y.dtype == torch.bfloat16
    for one, right in zip(gradients(y, tensors), expected, strict=True):
        torch.testing.assert_close(one, right, rtol=0, atol=0)


class Live(TorchDispatchMode):
    """Counts the bytes of every storage that an operator made, and the most that lived at once."""

    def __init__(self, before: list[Tensor], arguments: list[Tensor]) -> None:
        super().__init__()
        self.arguments = {one.untyped_storage()._cdata for one in arguments}
        self.storages: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peak = 0
        self.note(before)

    def note(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage._cdata not in self.arguments:
                self.storages.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
        self.storages = {key: entry for key, entry in self.storages.items() if not entry[0].expired()}
        self.peak = max(self.peak, sum(size for _, size in self.storages.values()))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.note([one for one in tree_leaves(result) if isinstance(one, Tensor)])
        return result


class Sums(TorchDispatchMode):
    """Collects the dtypes of the products that are as large as a weight [N, K]."""

    def __init__(self, shape: tuple[int, int]) -> None:
        super().__init__()
        self.shape = shape
        self.dtypes: list[torch.dtype] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.addmm_):
            self.dtypes += [result.dtype] if tuple(result.shape) == self.shape else []
        return result


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
def test_one_piece_is_one_product_and_only_several_are_summed(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = randn(64, 8, dtype=dtype), randn(24, 8, dtype=dtype)

    def sums() -> list[torch.dtype]:
        y = linear_act(x, weight, plan=plain_plan("input"))
        with Sums((24, 8)) as seen:
            gradients(y, [x, weight])
        return seen.dtypes

    assert sums() == [dtype]
    monkeypatch.setattr("foretrace.fused.autograd.inner._LEAST_ROWS", 16)
    monkeypatch.setattr("foretrace.fused.autograd.inner._TILE_ROWS", 16)
    assert sums() == [torch.float32 if dtype == torch.bfloat16 else dtype] * 4


def test_sums_go_back_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretrace.fused.autograd.inner._LEAST_ROWS", 16)
    monkeypatch.setattr("foretrace.fused.autograd.inner._TILE_ROWS", 16)
    k, n = 128, 256
    tensors: list[Any] = gated_tensors(rows=(64,), k=k, n=n, out=k, bias=False, dtype=torch.bfloat16)
    y = gated_mlp(*tensors, plan=plain_plan("input"))
    grad = torch.ones_like(y)
    with Live([y, grad], [one for one in tensors if one is not None]) as live:
        found = gradients(y, tensors, grad)
    # In units of a weight: the sums of gate, up and down are two each, and the gradient of down is made before that of
    # gate and up, of sums that are one tensor. Besides, output, its gradient and that of x.
    unit = 2 * n * k
    assert live.peak <= 7 * unit + 3 * 2 * 64 * k, live.peak / unit
    assert {one.untyped_storage().nbytes() for one in found[1:4] if one is not None} == {unit}


def backward_peak(save: Save) -> float:
    """Most memory in backward besides x and weights, in units of hidden [M, N]; K is N/4."""
    m, k, n = 512, 8, 32
    tensors: list[Any] = gated_tensors(rows=(m,), k=k, n=n, out=k, bias=False, dtype=torch.float32)
    y = gated_mlp(*tensors, plan=plain_plan(save))
    grad = torch.ones_like(y)
    kept_too = [one for one in y.grad_fn.saved_tensors[6:8] if one is not None]  # type: ignore[union-attr]
    live = Live([y, grad, *kept_too], [one for one in tensors if one is not None])
    del kept_too
    with live:
        gradients(y, tensors, grad)
    return live.peak / (m * n * 4)


def test_peaks_of_backward(monkeypatch: pytest.MonkeyPatch) -> None:
    def fused(grad: Tensor, down: Tensor, preact: Tensor, activation: str, **words: Any) -> Any:
        """Allocates what a fused kernel does: no gradient of hidden ever exists."""
        into = words["into"]
        hidden = preact.new_zeros(len(grad), down.shape[1]) if words["want_hidden"] else None
        return torch.zeros_like(preact) if into is None else into, hidden, None

    def expand(x: Tensor, gate: Tensor, *_: Any, keep: bool, precision: str) -> tuple[Tensor, Tensor | None]:
        n = gate.shape[0]
        return x.new_zeros(len(x), n), x.new_zeros(len(x), 2 * n) if keep else None

    monkeypatch.setattr("foretrace.fused.autograd.inner._LEAST_ROWS", 16)
    monkeypatch.setattr("foretrace.fused.autograd.inner._TILE_ROWS", 16)
    steps.find.cache_clear()
    monkeypatch.setattr(plain, "gate_up_backward", fused)
    monkeypatch.setattr(plain, "gate_up", expand)
    try:
        peaks = [backward_peak(save) for save in SAVES]
    finally:
        steps.find.cache_clear()
    # Output and its gradient are a quarter each. Pre-activations (2) with hidden (1); with half of hidden; a quarter
    # of the three with the gradient of x.
    outputs, gradient_of_x, weights = 0.5, 0.25, 0.05
    bounds = [3 + outputs, 2.5 + outputs, 0.75 + outputs + gradient_of_x]
    assert all(peak <= bound + weights for peak, bound in zip(peaks, bounds, strict=True)), peaks
