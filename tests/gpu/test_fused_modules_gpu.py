"""The fused modules on a GPU, where nn.Linear is used: compiled, captured, checkpointed, sharded; against float64."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from foretrace.fused import MLP, GatedMLP, LinearAct, operators  # noqa: E402
from foretrace.fused import modules as fused_modules  # noqa: E402

HIDDEN, INNER = 256, 512
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "relu2": lambda z: functional.relu(z).square(),
}
MADE: dict[str, Callable[..., nn.Module]] = {
    "LinearAct": lambda **given: LinearAct(HIDDEN, INNER, activation="gelu", **given),
    "GatedMLP": lambda **given: GatedMLP(HIDDEN, INNER, activation="gelu_tanh", **given),
    "GatedMLP with biases": lambda **given: GatedMLP(HIDDEN, INNER, activation="silu", bias=True, **given),
    "GatedMLP stacked": lambda **given: GatedMLP(HIDDEN, INNER, activation="silu", packing="gate_up", **given),
    "MLP": lambda **given: MLP(HIDDEN, INNER, activation="relu2", **given),
}
MIXED = {"LinearAct": torch.bfloat16, "MLP": torch.float16}


@pytest.fixture(params=MADE)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MADE[request.param](device="cuda", dtype=MIXED.get(request.param, torch.bfloat16))


def batch(*leading: int, like: nn.Module, seed: int = 1) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(seed)
    dtype = next(like.parameters()).dtype
    return torch.randn(*leading, HIDDEN, generator=generator, device="cuda").to(dtype).requires_grad_()


def plain(module: Any, x: Tensor) -> Tensor:
    """The same in PyTorch's own operators."""
    act = ACTIVATIONS[module.activation]
    if isinstance(module, LinearAct):
        return act(functional.linear(x, module.weight, module.bias))
    if isinstance(module, MLP):
        return module.fc2(act(module.fc1(x)))
    if module.packing == "separate":
        gate, up = module.gate_proj(x), module.up_proj(x)
    else:
        gate, up = fused_modules.halves(module.gate_up_proj(x), module.packing)
    return module.down_proj(act(gate) * up)


def trained(function: Callable[[Tensor], Tensor], parameters: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and every gradient; the gradient that comes in is the same for every way to compute."""
    y = function(x)
    incoming = torch.randn(y.shape, generator=torch.Generator("cuda").manual_seed(7), device="cuda").to(y.dtype)
    return [y, *torch.autograd.grad(y, [x, *parameters.parameters()], incoming)]


def reference(module: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and every gradient in float64."""
    wide = copy.deepcopy(module).double()
    return trained(lambda x: plain(wide, x), wide, x.detach().double().requires_grad_())


def assert_as_good_as_eager(found: list[Tensor], module: nn.Module, x: Tensor) -> None:
    """Errors against float64, relative to the largest value: no more than half as much again as eager's."""
    eager = trained(lambda x: plain(module, x), module, x)
    for one, other, right in zip(found, eager, reference(module, x), strict=True):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        scale = right.norm() + 1e-30
        mistake, allowed = (one.double() - right).norm() / scale, (other.double() - right).norm() / scale
        assert mistake <= 1.5 * allowed + 1e-3


@pytest.mark.parametrize("rows", [1, 16, 300, 4096])
def test_values_and_gradients(module: nn.Module, rows: int) -> None:
    x = batch(rows, like=module)
    assert_as_good_as_eager(trained(module, module, x), module, x)
    with torch.no_grad():
        torch.testing.assert_close(module(x), module(x), rtol=0, atol=0)


@pytest.mark.parametrize("save", ["preact", "recompute", "input"])
def test_what_is_kept_does_not_change_the_result(save: str) -> None:
    layer = GatedMLP(HIDDEN, INNER, activation="silu", save=save, bias=True, device="cuda", dtype=torch.bfloat16)
    x = batch(4, 600, like=layer)
    assert_as_good_as_eager(trained(layer, layer, x), layer, x)


@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("save", ["preact", "recompute", "input"])
def test_results_have_the_shapes_and_strides_that_tracing_assumes(rows: int, save: str) -> None:
    """A compiled graph reads memory by the strides of the shapes-only version; a kernel that differs is misread."""
    layer = GatedMLP(HIDDEN, INNER, bias=True, device="cuda", dtype=torch.bfloat16).requires_grad_(False)
    weights = [layer.gate_proj.weight, layer.up_proj.weight, layer.down_proj.weight]
    biases = [layer.gate_proj.bias, layer.up_proj.bias, layer.down_proj.bias]
    x, rules = batch(rows, like=layer).detach(), ("gelu_tanh", "separate", save, "exact")
    tensors = (x, *weights, *biases)
    found = getattr(torch.ops, operators.NAMESPACE)
    checks = ("test_schema", "test_faketensor")
    torch.library.opcheck(found.gated_mlp.default, (*tensors, *rules), test_utils=checks)
    torch.library.opcheck(found.gated_mlp_training.default, (*tensors, *rules), test_utils=checks)
    y, preact, hidden = found.gated_mlp_training(*tensors, *rules)
    for wanted in ([True] * 7, [True, False, True, False, True, False, False]):
        given = (torch.randn_like(y), *tensors[:-1], preact, hidden, *rules, wanted)
        torch.library.opcheck(found.gated_mlp_backward.default, given, test_utils=checks)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_one_compiled_graph_serves_every_batch_size(module: nn.Module) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(module, backend=counter, fullgraph=True, dynamic=True)
    for rows in (17, 300, 2048):
        x = batch(2, rows, like=module)
        assert_as_good_as_eager(trained(compiled, module, x), module, x)
    assert counter.frame_count == 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
def test_compile_modes(mode: str) -> None:
    torch._dynamo.reset()
    layer = GatedMLP(HIDDEN, INNER, activation="silu", device="cuda", dtype=torch.bfloat16)
    compiled = torch.compile(layer, mode=mode, fullgraph=True)
    x = batch(256, like=layer)
    with torch.no_grad():
        for _ in range(4):  # the third call replays what the second captured
            torch.compiler.cudagraph_mark_step_begin()
            y = compiled(x).clone()
    torch.testing.assert_close(y, plain(layer, x), rtol=2e-2, atol=2e-2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::FutureWarning")
def test_autocast_eager_and_compiled() -> None:
    torch._dynamo.reset()
    layer = GatedMLP(HIDDEN, INNER, activation="silu", bias=True, device="cuda")
    x = batch(300, like=layer)
    with torch.autocast("cuda", torch.bfloat16):
        expected = trained(lambda x: plain(layer, x), layer, x)
        for function in (layer, torch.compile(layer, fullgraph=True)):
            found = trained(function, layer, x)
            assert [one.dtype for one in found] == [one.dtype for one in expected]
            for one, other in zip(found, expected, strict=True):
                assert (one.float() - other.float()).norm() <= 2e-2 * other.float().norm()


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning", "ignore::DeprecationWarning")
def test_an_exported_module_takes_any_batch(module: nn.Module) -> None:
    example = batch(8, like=module)
    program = torch.export.export(module, (example,), dynamic_shapes=({0: torch.export.Dim("rows")},))
    for rows in (1, 500):
        x = batch(rows, like=module)
        torch.testing.assert_close(program.module()(x), module(x), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("rows", [1, 16, 512])
def test_inference_is_captured_in_a_cuda_graph(module: nn.Module, rows: int) -> None:
    static = batch(rows, like=module).detach()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad():
        _warm_up(lambda: module(static))
        with torch.cuda.graph(graph):
            result = module(static)
        for seed in (3, 4):
            static.copy_(batch(rows, like=module, seed=seed))
            graph.replay()
            torch.testing.assert_close(result, module(static), rtol=0, atol=0)


@pytest.mark.filterwarnings("ignore:.*AccumulateGrad:UserWarning")
def test_training_is_captured_in_a_cuda_graph(module: nn.Module) -> None:
    """The whole step, with gradients into fixed memory, and parameters that change between the replays."""
    static = batch(512, like=module)

    def step() -> None:
        module(static).float().square().mean().backward()

    def gradients() -> list[Tensor]:
        return [one.grad.clone() for one in (static, *module.parameters()) if one.grad is not None]

    def clear() -> None:
        for one in (static, *module.parameters()):
            one.grad = None

    _warm_up(lambda: (step(), clear()))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    kept = [one.grad for one in (static, *module.parameters())]
    for seed in (3, 4):
        with torch.no_grad():
            static.copy_(batch(512, like=module, seed=seed))
            for parameter in module.parameters():
                parameter.mul_(0.9)
        for one, gradient in zip((static, *module.parameters()), kept, strict=True):
            one.grad = gradient
            gradient.zero_()
        graph.replay()
        replayed = gradients()
        clear()
        step()
        torch.testing.assert_close(replayed, gradients(), rtol=1e-2, atol=1e-4)


def _warm_up(call: Callable[[], Any]) -> None:
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_checkpointing(module: nn.Module, reentrant: bool, autocast: bool) -> None:
    if autocast:
        module = module.float()
    x = batch(300, like=module)

    def run(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        leaf = x.detach().requires_grad_()
        module.zero_grad()
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            y = function(leaf)
        y.float().square().sum().backward()
        return [y, leaf.grad, *(parameter.grad.clone() for parameter in module.parameters())]

    again = run(lambda x: checkpoint(module, x, use_reentrant=reentrant))
    for one, other in zip(again, run(module), strict=True):
        assert (one.float() - other.float()).norm() <= 1e-2 * other.float().norm()


@pytest.mark.filterwarnings("ignore:.*AccumulateGrad:UserWarning")
def test_a_second_stream_and_a_second_thread_of_backward() -> None:
    """Backward runs in a thread of autograd's own, on the stream of its forward."""
    layer = GatedMLP(HIDDEN, INNER, activation="silu", device="cuda", dtype=torch.bfloat16)
    x = batch(2048, like=layer)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        found = trained(layer, layer, x)
    torch.cuda.current_stream().wait_stream(stream)
    assert_as_good_as_eager(found, layer, x)


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One process that believes to be all of a group."""
    if not torch.distributed.is_nccl_available():
        pytest.skip("this torch has no NCCL")
    store: Path = tmp_path_factory.mktemp("store") / "store"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.cuda.set_device(0)
        torch.distributed.init_process_group("nccl", init_method=f"file://{store}", rank=0, world_size=1)
        yield torch.distributed.init_device_mesh("cuda", (1,))
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mixed", [False, True])
def test_fully_sharded(mesh: Any, mixed: bool) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    torch.manual_seed(0)
    layer = GatedMLP(HIDDEN, INNER, activation="silu", device="cuda", dtype=None if mixed else torch.bfloat16)
    x = batch(512, like=layer)
    expected = reference(layer, x)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16) if mixed else MixedPrecisionPolicy()
    fully_shard(layer, mesh=mesh, mp_policy=policy)
    y = layer(x)
    incoming = torch.randn(y.shape, generator=torch.Generator("cuda").manual_seed(7), device="cuda").to(y.dtype)
    y.backward(incoming)
    found = [y, x.grad, *(parameter.grad.full_tensor() for parameter in layer.parameters())]
    for one, right in zip(found, expected, strict=True):
        assert (one.double() - right).norm() <= 2e-2 * right.norm()
