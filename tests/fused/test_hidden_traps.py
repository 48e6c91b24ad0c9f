"""Ways in which a layer could have been wrong without a word, or have ended the process; each was once found so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from foretrace.errors import InputError
from foretrace.fused import functional, override
from foretrace.fused.dispatch import cache
from foretrace.fused.kernels import counters
from foretrace.fused.modules import MLP, GatedMLP, LinearAct
from foretrace.fused.plan import Implementation, Plan, Problem

PLAIN = Implementation("plain")
OURS = Plan(PLAIN, PLAIN, PLAIN, "preact", "override", "a test")


def leaves(dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((4, 8), (16, 8), (16, 8), (8, 16))
    return tuple(torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in shapes)


def ours(*tensors: Tensor, **words: Any) -> Tensor:
    return functional.gated_mlp(*tensors, activation="silu", plan=OURS, **words)


@pytest.mark.parametrize("save", ["preact", "recompute"])
def test_memory_that_a_hook_gives_back_is_not_overwritten(save: str) -> None:
    """A store that keeps equal tensors once hands out one array several times, and no count of references knows."""
    store: dict[bytes, Any] = {}

    def pack(tensor: Tensor) -> bytes:
        values = tensor.detach().numpy()
        return store.setdefault(values.tobytes(), (values.tobytes(), values.copy()))[0]

    def twice() -> tuple[Tensor, ...]:
        tensors = leaves()
        (ours(*tensors, save=save) + ours(*tensors, save=save)).sum().backward()
        return tuple(one.grad for one in tensors if one.grad is not None)

    expected = twice()
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda key: torch.from_numpy(store[key][1])):
        found = twice()
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    assert all(key == np.ascontiguousarray(values).tobytes() for key, values in store.values())


@pytest.mark.parametrize("save", ["preact", "recompute", "input"])
def test_backward_inside_autocast_of_a_forward_outside(save: str) -> None:
    tensors, others = leaves(torch.float32), leaves(torch.float32)
    y, same = ours(*tensors, save=save), ours(*others, save=save)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y.sum().backward()
    same.sum().backward()
    for one, other in zip(tensors, others, strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_a_batch_of_gradients_is_refused_in_a_sentence() -> None:
    tensors = leaves()
    y = ours(*tensors)
    with pytest.raises(InputError, match="one gradient at a time"):
        torch.autograd.grad(y, tensors, torch.ones(3, *y.shape, dtype=y.dtype), is_grads_batched=True)


def test_grad_mode_inside_inference_mode_saves_nothing() -> None:
    tensors = leaves()
    with torch.inference_mode(), torch.enable_grad():
        y = ours(*tensors)
    assert not y.requires_grad


def test_a_gradient_may_be_changed_in_place() -> None:
    tensors = leaves()
    _, for_gate, for_up, _ = torch.autograd.grad(ours(*tensors).sum(), tensors)
    before = for_up.clone()
    for_gate.mul_(2.0)
    assert torch.equal(for_up, before)


def test_a_nested_tensor_after_usual_ones() -> None:
    """PyTorch's comparison of tensors throws where nothing can catch it; this process must live on."""
    x, weight = torch.randn(3, 3), torch.randn(3, 3)
    for _ in range(3):
        functional.linear_act(x, weight)
    with pytest.warns(UserWarning, match="nested tensors"):
        nested = torch.nested.nested_tensor([torch.randn(3), torch.randn(2)])
    with pytest.raises((InputError, RuntimeError)):
        functional.linear_act(x, nested)


def test_a_forward_put_on_the_class_of_linear_is_not_bypassed(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = GatedMLP(4, 8, activation="silu"), torch.randn(2, 4)
    calls: list[nn.Linear] = []
    usual = nn.Linear.forward

    def forward(self: nn.Linear, value: Tensor) -> Tensor:
        calls.append(self)
        return usual(self, value)

    monkeypatch.setattr(nn.Linear, "forward", forward)
    layer(x)
    assert len(calls) == 3


def test_slabs_of_counters_live_as_long_as_graphs_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """A captured graph counts in a slice of a slab for ever; nobody says when the graph is gone."""
    capturing = False
    monkeypatch.setattr(counters, "_slabs", {})
    monkeypatch.setattr(counters, "_taken", {})
    monkeypatch.setattr(counters, "_mine", {})
    monkeypatch.setattr(counters, "_full", [])
    monkeypatch.setattr(counters, "_new_slab", lambda _, count: torch.zeros(count, dtype=torch.int32))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: SimpleNamespace(cuda_stream=7))
    like = SimpleNamespace(get_device=lambda: 0, new_zeros=lambda count, dtype: torch.zeros(count, dtype=dtype))
    counters.zeroed_counters(like, 64)  # type: ignore[arg-type]
    first = counters._slabs[0]
    capturing = True
    counters.zeroed_counters(like, counters.SLAB - 64)  # type: ignore[arg-type]
    capturing = False
    counters.zeroed_counters(like, 512)  # type: ignore[arg-type]
    assert counters._slabs[0] is not first
    assert any(kept is first for kept in counters._full)


@pytest.fixture
def nobody_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> None:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(cache, "directory", home)
    monkeypatch.setattr(cache, "_homeless", {})


@pytest.mark.usefixtures("nobody_at_home")
def test_without_a_home_results_hold_for_the_process() -> None:
    problem = Problem("gated_mlp", 64, 128, 64, 64, "bfloat16", "silu", "sm_90", True)
    assert cache.load(problem, "a GPU") is None
    tuned = cache.Tuned("expand=plain project=plain backward=plain save=preact", (), ())
    assert cache.store(problem, "a GPU", tuned) == tuned
    assert cache.load(problem, "a GPU") == tuned


def test_an_option_that_does_not_exist_is_named() -> None:
    plan = Plan(Implementation("plain", (("block_n", 3),)), PLAIN, PLAIN, "preact", "override", "a test")
    with pytest.raises(InputError, match="'plain' has no option 'block_n'"):
        functional.gated_mlp(*leaves(), plan=plan)


# torch warns of reference cycles, which is what create_graph makes.
@pytest.mark.filterwarnings("ignore:Using backward:UserWarning")
@pytest.mark.parametrize("save", ["preact", "input"])
@pytest.mark.parametrize("layer", [GatedMLP, MLP, LinearAct])
def test_a_checkpoint_whose_tensors_are_read_once_allows_differentiable_gradients(layer: Any, save: str) -> None:
    made = layer(8, 16, activation="silu", save=save)
    x = torch.randn(2, 8, requires_grad=True)
    with override(expand="plain", backward="plain"):
        checkpoint(made, x, use_reentrant=False).sum().backward(create_graph=True)
        found, x.grad = x.grad, None
        made(x).sum().backward()
    assert found is not None
    assert x.grad is not None
    assert torch.equal(found, x.grad)


def test_a_layer_without_values_compiles() -> None:
    made = LinearAct(8, 16, activation="silu", device="meta")
    y = torch.compile(made, backend="aot_eager", fullgraph=True)(torch.empty(2, 8, device="meta"))
    assert y.shape == (2, 16)
    assert y.is_meta
