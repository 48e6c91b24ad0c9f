"""The modules where nn.Linear is used: autocast, checkpointing, sharded and distributed parameters, saved graphs."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from foretrace.errors import InputError
from foretrace.fused import MLP, GatedMLP, LinearAct, gated_mlp

MADE: dict[str, Callable[[], nn.Module]] = {
    "LinearAct": lambda: LinearAct(8, 12, activation="silu"),
    "GatedMLP": lambda: GatedMLP(8, 12, activation="gelu"),
    "GatedMLP keeping x": lambda: GatedMLP(8, 12, activation="silu", save="input", bias=True),
    "MLP": lambda: MLP(8, 12, activation="gelu_tanh", save="recompute"),
}


@pytest.fixture(params=MADE)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MADE[request.param]()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()


def plain(module: nn.Module, x: Tensor) -> Tensor:
    """The same through the layers, written with PyTorch's own functions."""
    if isinstance(module, LinearAct):
        return functional.silu(functional.linear(x, module.weight, module.bias))
    if isinstance(module, MLP):
        return module.fc2(functional.gelu(module.fc1(x), approximate="tanh"))
    assert isinstance(module, GatedMLP)
    act = functional.silu if module.activation == "silu" else functional.gelu
    return module.down_proj(act(module.gate_proj(x)) * module.up_proj(x))


def trained(function: Callable[[Tensor], Tensor], parameters: nn.Module, x: Tensor) -> list[Tensor]:
    """The output and every gradient."""
    y = function(x)
    return [y, *torch.autograd.grad(y.float().square().sum(), [x, *parameters.parameters()])]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts_as_nn_linear_does(module: nn.Module, x: Tensor, dtype: torch.dtype) -> None:
    with torch.autocast("cpu", dtype):
        found, expected = trained(module, module, x), trained(lambda x: plain(module, x), module, x)
    assert [one.dtype for one in found] == [one.dtype for one in expected]
    torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)


def test_autocast_may_end_before_backward(module: nn.Module, x: Tensor) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    y.float().sum().backward()
    assert all(one.grad is not None and one.grad.dtype == torch.float32 for one in (x, *module.parameters()))


def test_mixed_dtypes_without_autocast_are_an_error(module: nn.Module, x: Tensor) -> None:
    with pytest.raises(InputError, match="bfloat16 and float32"):
        module(x.bfloat16())


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("autocast", [False, True])
def test_checkpointing_changes_no_number(module: nn.Module, x: Tensor, reentrant: bool, autocast: bool) -> None:
    def again(x: Tensor) -> Tensor:
        y: Tensor = checkpoint(module, x, use_reentrant=reentrant)
        return y

    def run(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        one = x.detach().requires_grad_()
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            y = function(one)
        y.float().square().sum().backward()
        return [y, one.grad, *(parameter.grad.clone() for parameter in module.parameters())]  # type: ignore[list-item, union-attr]

    torch.testing.assert_close(run(again), run(module))


def test_no_second_derivative_is_silently_wrong(module: nn.Module, x: Tensor) -> None:
    """Where PyTorch's own operators run the second derivative is right; where ours do it is an error."""

    def penalty(function: Callable[[Tensor], Tensor]) -> list[Tensor]:
        (gradient,) = torch.autograd.grad(function(x).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(gradient.square().sum(), [x, *module.parameters()], allow_unused=True))

    try:
        found = penalty(module)
    except InputError as error:
        assert "second derivative" in str(error)  # noqa: PT017
        assert module.save != "auto"
    else:
        torch.testing.assert_close(found, penalty(lambda x: plain(module, x)))


def test_inference_mode_and_no_grad(module: nn.Module, x: Tensor) -> None:
    expected = module(x).detach()
    with torch.inference_mode():
        torch.testing.assert_close(module(x), expected)
    with torch.no_grad():
        y = module(x)
    assert not y.requires_grad
    torch.testing.assert_close(y, expected)


def test_an_optimizer_trains_it(module: nn.Module, x: Tensor) -> None:
    """The output may be changed in place, as residual connections do."""
    other = copy.deepcopy(module)
    for each, function in ((module, module), (other, lambda x: plain(other, x))):
        optimizer = torch.optim.SGD(each.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            y = function(x.detach())
            y += 1
            y.square().mean().backward()
            optimizer.step()
    for one, two in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


# ---- distributed ----


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[torch.distributed.DeviceMesh]:
    """One process that believes to be all of a group."""
    if not torch.distributed.is_available():
        pytest.skip("this torch has no distributed package")
    store: Path = tmp_path_factory.mktemp("store") / "store"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
        yield torch.distributed.init_device_mesh("cpu", (1,))
        torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_fully_sharded_parameters_are_gathered_before_they_are_read(
    module: nn.Module, x: Tensor, mesh: torch.distributed.DeviceMesh
) -> None:
    from torch.distributed.fsdp import fully_shard

    expected = trained(module, module, x)
    sharded = copy.deepcopy(module)
    fully_shard(sharded, mesh=mesh)
    y = sharded(x)
    y.square().sum().backward()
    gradients = [parameter.grad.full_tensor() for parameter in sharded.parameters()]  # type: ignore[union-attr]
    torch.testing.assert_close([y, x.grad, *gradients], expected)


@pytest.mark.filterwarnings("ignore")
def test_layers_that_are_sharded_on_their_own_are_called(x: Tensor, mesh: torch.distributed.DeviceMesh) -> None:
    from torch.distributed.fsdp import fully_shard

    module = GatedMLP(8, 12)
    expected = module(x).detach()
    for layer in list(module.children()):
        fully_shard(layer, mesh=mesh)
    torch.testing.assert_close(module(x), expected)


@pytest.mark.filterwarnings("ignore")
def test_tensor_parallel_layers_are_called(x: Tensor, mesh: torch.distributed.DeviceMesh) -> None:
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    module = GatedMLP(8, 12, activation="silu")
    expected = module(x).detach()
    plan = {"gate_proj": ColwiseParallel(), "up_proj": ColwiseParallel(), "down_proj": RowwiseParallel()}
    torch.testing.assert_close(parallelize_module(module, mesh, plan)(x), expected)


@pytest.mark.filterwarnings("ignore")
def test_a_shard_in_the_functional_form_is_an_error(x: Tensor, mesh: torch.distributed.DeviceMesh) -> None:
    from torch.distributed.tensor import Shard, distribute_tensor

    weight = distribute_tensor(torch.zeros(12, 8), mesh, [Shard(0)])
    with pytest.raises(InputError, match=r"DTensor.*FSDP2"):
        gated_mlp(x, weight, weight, torch.zeros(8, 12))
