"""Faults that users of other fused layers reported, in modules and compiled graphs; see `test_reported_faults.py`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import fused_ways
from foretrace.errors import InputError
from foretrace.fused import MLP, GatedMLP, LinearAct, gated_act, gated_mlp
from fused_ways import Way

PLAIN = Way("plain", "cpu", torch.float32)


@pytest.mark.parametrize("make", [LinearAct, GatedMLP, MLP])
def test_07_one_graph_without_breaks_serves_every_batch_size(make: Any) -> None:
    """linkedin/Liger-Kernel#96, #174."""
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter, layer = CompileCounterWithBackend("aot_eager"), make(8, 12)
    compiled = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    for rows in (2, 7, 64, 1000):
        x = PLAIN.normal(3, rows, 8)
        grads = [torch.autograd.grad(f(x).square().sum(), [x, *layer.parameters()]) for f in (compiled, layer)]
        torch.testing.assert_close(*grads)
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_08_nothing_asks_for_a_device_while_a_graph_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROCm/aiter#2688: a query of the architecture inside the operator broke the graph."""
    from foretrace.fused import planning

    def refuse(*_: Any) -> Any:
        raise AssertionError("a device was asked for while tracing")

    with monkeypatch.context() as patch:
        for place, name in (
            (planning, "architecture_of"),
            (planning, "plan_asked"),
            (torch.cuda, "get_device_properties"),
        ):
            patch.setattr(place, name, refuse)
        program = torch.export.export(
            GatedMLP(8, 12), (torch.ones(6, 8),), dynamic_shapes=({0: torch.export.Dim("rows")},), strict=True
        )
    assert program.module()(torch.ones(9, 8)).shape == (9, 8)


def test_08_a_device_is_asked_for_its_architecture_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from foretrace.fused import planning

    asked: list[int] = []

    class Hopper:
        major, minor = 9, 0

    monkeypatch.setattr(planning, "_architectures", {})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: asked.append(index) or Hopper)
    for _ in range(3):
        assert planning.architecture_of(torch.device("cuda", 0)) == "sm_90"
    assert asked == [0]


def test_14_activations_of_one_number_compile() -> None:
    compiled = torch.compile(gated_act, backend="aot_eager", fullgraph=True)
    gate, up = torch.tensor(1.5), torch.tensor(2.0)
    torch.testing.assert_close(gated_act(gate, up), functional.gelu(gate, approximate="tanh") * up)
    torch.testing.assert_close(compiled(gate, up), gated_act(gate, up))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_17_autocast_is_that_of_nn_linear(dtype: torch.dtype) -> None:
    """unslothai/unsloth#7020, huggingface/trl#6988: float32 x and bfloat16 weights crashed, or ran in float32."""
    layer, x = GatedMLP(8, 12, activation="silu", dtype=dtype), PLAIN.normal(3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
        expected = layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected)
    found.float().sum().backward()
    assert x.grad is not None
    assert x.grad.dtype == torch.float32
    assert all(one.grad is not None and one.grad.dtype == dtype for one in layer.parameters())


def test_17_without_autocast_mixed_dtypes_are_an_error() -> None:
    with pytest.raises(InputError, match="bfloat16 and float32"):
        GatedMLP(8, 12, dtype=torch.bfloat16)(torch.ones(3, 8))


class LowRank(nn.Module):
    """A layer and its adapter, with the layer's weight within reach, as adapter libraries make it."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.more = base, nn.Linear(base.in_features, base.out_features, bias=False)
        self.weight, self.bias = base.weight, base.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.more(x)


def in_place_of(layer: nn.Module, name: str) -> None:
    setattr(layer, name, LowRank(layer.get_submodule(name)))  # type: ignore[arg-type]


def parametrized(layer: nn.Module, name: str) -> None:
    nn.utils.parametrizations.weight_norm(layer.get_submodule(name)).parametrizations.weight.original0.data.mul_(2)  # type: ignore[union-attr]


def hooked(layer: nn.Module, name: str) -> None:
    layer.get_submodule(name).register_forward_hook(lambda module, inputs, y: 3 * y)


def with_a_buffer_for_a_bias(layer: nn.Module, name: str) -> None:
    child = layer.get_submodule(name)
    del child.bias
    child.register_buffer("bias", torch.ones(child.weight.shape[0]))  # type: ignore[index, arg-type]


@pytest.mark.parametrize("change", [in_place_of, parametrized, hooked, with_a_buffer_for_a_bias])
@pytest.mark.parametrize("name", ["gate_proj", "up_proj", "down_proj"])
def test_18_what_is_put_on_a_layer_is_never_bypassed(change: Callable[[nn.Module, str], None], name: str) -> None:
    """huggingface/trl#4612, #5977: adapters trained for nothing."""
    torch.manual_seed(0)
    layer, x = GatedMLP(8, 12, activation="silu", bias=True), PLAIN.normal(3, 8)
    before = layer(x)
    change(layer, name)
    after = layer(x)
    expected = layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    torch.testing.assert_close(after, expected)
    assert not torch.allclose(before, after)


def test_19_a_geglu_of_diffusers_keeps_the_gate_second() -> None:
    x, weight, down = PLAIN.normal(3, 8), PLAIN.normal(24, 8, seed=1), PLAIN.normal(8, 12, seed=2)
    hidden, gate = functional.linear(x, weight).chunk(2, dim=-1)  # as diffusers.models.activations.GEGLU writes it
    expected = functional.linear(hidden * functional.gelu(gate), down)
    torch.testing.assert_close(gated_mlp(x, weight, None, down, activation="gelu", packing="up_gate"), expected)
    assert not torch.allclose(gated_mlp(x, weight, None, down, activation="gelu", packing="gate_up"), expected)


@pytest.mark.parametrize(
    ("said", "activation"), [(nn.GELU(), "gelu"), (nn.GELU(approximate="tanh"), "gelu_tanh"), (nn.SiLU(), "silu")]
)
def test_20_a_converted_module_keeps_its_activation(said: nn.Module, activation: str) -> None:
    module = nn.Sequential(nn.Linear(8, 12), said, nn.Linear(12, 8))
    assert MLP.from_module(module).activation == activation


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("save", fused_ways.SAVES)
def test_22_checkpointing_saves_the_same_tensors_again(save: Any, autocast: bool, reentrant: bool) -> None:
    """jzhang38/TinyLlama#152, pytorch/pytorch#141896."""
    layer, results = GatedMLP(8, 12, activation="silu", save=save), []
    for function in (layer, lambda x: checkpoint(layer, x, use_reentrant=reentrant)):
        x = PLAIN.normal(3, 8)
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = function(x)
        y.float().square().sum().backward()
        results.append([y, x.grad, *(one.grad.clone() for one in layer.parameters())])  # type: ignore[union-attr]
    torch.testing.assert_close(*results)


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Any]:
    """One process that believes to be all of a group."""
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
        yield torch.distributed.init_device_mesh("cpu", (1,))
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_23_gathered_parameters_are_read_and_shards_refused(mesh: Any) -> None:
    """linkedin/Liger-Kernel#893, #1448, NVIDIA/Megatron-LM#5714."""
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    layer, x = GatedMLP(8, 12), PLAIN.normal(3, 8)
    expected = [layer(x), *torch.autograd.grad(layer(x).sum(), layer.parameters())]
    fully_shard(layer, mesh=mesh)
    y = layer(x)
    y.sum().backward()
    torch.testing.assert_close([y, *(one.grad.full_tensor() for one in layer.parameters())], expected)  # type: ignore[union-attr]
    shard = distribute_tensor(torch.ones(12, 8), mesh, [Shard(0)])
    with pytest.raises(InputError, match="DTensor"):
        gated_mlp(torch.ones(3, 8), shard, shard, torch.ones(8, 12))
