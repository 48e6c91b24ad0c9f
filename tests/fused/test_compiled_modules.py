"""The modules under torch.compile and torch.export: one graph without breaks for every batch size, as for nn.Linear."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from foretrace.fused import MLP, GatedMLP, LinearAct

MADE: dict[str, Callable[[], nn.Module]] = {
    "LinearAct": lambda: LinearAct(8, 12, activation="silu"),
    "GatedMLP": lambda: GatedMLP(8, 12, activation="gelu"),
    "GatedMLP stacked": lambda: GatedMLP(8, 12, activation="relu", packing="up_gate", bias=True),
    "MLP": lambda: MLP(8, 12, activation="gelu_tanh", save="recompute"),
}


class Graphs:
    """A backend that runs graphs with ATen's operators and keeps them."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        self.graphs.append(graph)
        return torch._dynamo.lookup_backend("aot_eager")(graph, inputs)


@pytest.fixture(autouse=True)
def nothing_compiled() -> None:
    torch._dynamo.reset()


@pytest.fixture
def graphs() -> Graphs:
    return Graphs()


@pytest.fixture(params=MADE)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MADE[request.param]()


def batch(*leading: int, seed: int = 1) -> Tensor:
    return torch.randn(*leading, 8, generator=torch.Generator().manual_seed(seed)).requires_grad_()


def trained(module: Callable[[Tensor], Tensor], parameters: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and every gradient."""
    y = module(x)
    return [y, *torch.autograd.grad(y.square().sum(), [x, *parameters.parameters()])]


def test_one_graph_serves_every_batch_size_forward_and_backward(module: nn.Module, graphs: Graphs) -> None:
    compiled = torch.compile(module, backend=graphs, fullgraph=True, dynamic=True)
    for rows in (3, 17, 64, 129):
        x = batch(2, rows)
        torch.testing.assert_close(trained(compiled, module, x), trained(module, module, x))
    assert len(graphs.graphs) == 1


def test_inference_and_training_are_a_graph_each(module: nn.Module, graphs: Graphs) -> None:
    compiled = torch.compile(module, backend=graphs, fullgraph=True, dynamic=True)
    for rows in (3, 17):
        x = batch(rows).detach()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), module(x))
    assert len(graphs.graphs) <= 2


def test_autocast_inside_a_graph_is_that_of_nn_linear(module: nn.Module, graphs: Graphs) -> None:
    compiled = torch.compile(module, backend=graphs, fullgraph=True)
    x = batch(4)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = trained(compiled, module, x), trained(module, module, x)
    assert [one.dtype for one in found] == [one.dtype for one in expected]
    assert found[0].dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=2e-2, atol=2e-2)


def test_a_hook_on_a_layer_is_in_the_graph(graphs: Graphs) -> None:
    layer = GatedMLP(8, 12)
    layer.up_proj.register_forward_hook(lambda module, inputs, output: output * 0)
    assert not torch.compile(layer, backend=graphs, fullgraph=True)(batch(4)).any()


class Added(nn.Module):
    """A layer and one more: a stand-in for an adapter."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.more = base, nn.Linear(base.in_features, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.more(x)


def test_an_adapter_is_in_the_graph(graphs: Graphs) -> None:
    layer = GatedMLP(8, 12, activation="silu")
    layer.up_proj = Added(layer.up_proj)  # type: ignore[assignment]
    compiled = torch.compile(layer, backend=graphs, fullgraph=True, dynamic=True)
    x = batch(5)
    expected = layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    torch.testing.assert_close(compiled(x), expected)


def test_checkpointing_inside_a_graph(module: nn.Module, graphs: Graphs) -> None:
    def forward(x: Tensor) -> Tensor:
        y: Tensor = checkpoint(module, x, use_reentrant=False)
        return y

    x = batch(4)
    compiled = torch.compile(forward, backend=graphs, fullgraph=True)
    torch.testing.assert_close(trained(compiled, module, x), trained(module, module, x))


def test_torch_func_inside_a_graph(graphs: Graphs) -> None:
    layer = GatedMLP(8, 12, activation="silu")
    parameters = {name: one.detach() for name, one in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()

    x = batch(4).detach()
    compiled = torch.compile(torch.func.grad(loss), backend=graphs, fullgraph=True)
    torch.testing.assert_close(compiled(parameters, x), torch.func.grad(loss)(parameters, x))


# torch warns of itself while it copies the program.
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
def test_an_exported_module_takes_any_batch(module: nn.Module) -> None:
    program = torch.export.export(module, (batch(2, 6),), dynamic_shapes=({1: torch.export.Dim("rows")},))
    layer, lowered = program.module(), program.run_decompositions().module()
    for size in (6, 77):
        x = batch(2, size)
        torch.testing.assert_close(layer(x), module(x))
        torch.testing.assert_close(lowered(x), module(x))


def test_export_may_be_strict() -> None:
    layer = GatedMLP(8, 12)
    rows = torch.export.Dim("rows")
    program = torch.export.export(layer, (batch(6),), dynamic_shapes=({0: rows},), strict=True)
    x = batch(9)
    torch.testing.assert_close(program.module()(x), layer(x))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="the default backend needs a C++ compiler")
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_default_backend_agrees() -> None:
    layer = GatedMLP(8, 12, activation="gelu")
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    for rows in (3, 17):
        x = batch(rows)
        torch.testing.assert_close(trained(compiled, layer, x), trained(layer, layer, x), rtol=1e-4, atol=1e-5)
