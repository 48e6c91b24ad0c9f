"""The modules: parameters and names of nn.Linear layers, which are called where reading them would be wrong."""

from __future__ import annotations

import copy
import io
import pickle
import timeit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from foretrace.errors import InputError
from foretrace.fused import MLP, GatedMLP, LinearAct
from foretrace.fused import modules as fused_modules

MADE: dict[str, Callable[[], nn.Module]] = {
    "LinearAct": lambda: LinearAct(8, 12, activation="silu"),
    "GatedMLP": lambda: GatedMLP(8, 12, activation="gelu"),
    "GatedMLP with biases": lambda: GatedMLP(8, 12, activation="silu", bias=True, out_features=5),
    "GatedMLP stacked": lambda: GatedMLP(8, 12, activation="relu", packing="interleaved"),
    "MLP": lambda: MLP(8, 12, activation="gelu_tanh"),
}


@pytest.fixture(params=MADE)
def module(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return MADE[request.param]()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))


def test_gated_mlp_computes_what_llama_writes(x: Tensor) -> None:
    layer = GatedMLP(8, 12, activation="silu", bias=True)
    written = layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    torch.testing.assert_close(layer(x), written)


def test_mlp_and_linear_act_compute_their_formulas(x: Tensor) -> None:
    layer = MLP(8, 12, activation="gelu")
    torch.testing.assert_close(layer(x), layer.fc2(functional.gelu(layer.fc1(x))))
    linear = LinearAct(8, 12, activation="relu2")
    torch.testing.assert_close(linear(x), functional.relu(functional.linear(x, linear.weight, linear.bias)).square())


@pytest.mark.parametrize("packing", ["gate_up", "up_gate", "interleaved"])
def test_a_stacked_weight_is_read_in_the_order_it_says(packing: str, x: Tensor) -> None:
    layer = GatedMLP(8, 12, activation="silu", packing=packing, bias=True)
    gate, up = fused_modules.halves(layer.gate_up_proj(x), packing)
    expected = layer.down_proj(functional.silu(gate) * up)
    torch.testing.assert_close(layer(x), expected)
    layer.gate_up_proj.register_forward_hook(lambda *_: None)  # called as a layer now
    torch.testing.assert_close(layer(x), expected)


def test_state_dicts_are_those_of_the_layers_they_replace() -> None:
    assert list(GatedMLP(8, 12).state_dict()) == ["gate_proj.weight", "up_proj.weight", "down_proj.weight"]
    assert list(GatedMLP(8, 12, packing="gate_up").state_dict()) == ["gate_up_proj.weight", "down_proj.weight"]
    assert list(MLP(8, 12).state_dict()) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    linear = nn.Linear(8, 12)
    layer = LinearAct(8, 12)
    layer.load_state_dict(linear.state_dict())
    assert torch.equal(layer.weight, linear.weight)


def test_linear_act_starts_from_the_values_of_nn_linear() -> None:
    torch.manual_seed(3)
    linear = nn.Linear(8, 12)
    torch.manual_seed(3)
    layer = LinearAct(8, 12)
    assert torch.equal(layer.weight, linear.weight)
    assert layer.bias is not None
    assert torch.equal(layer.bias, linear.bias)
    assert LinearAct(8, 12, bias=False).bias is None


def test_sizes_dtype_and_device_are_as_asked() -> None:
    layer = GatedMLP(8, 12, out_features=5, device="meta", dtype=torch.bfloat16)
    assert layer.down_proj.weight.shape == (5, 12)
    y = layer(torch.empty(3, 8, device="meta", dtype=torch.bfloat16))
    assert (y.shape, y.dtype, y.device.type) == ((3, 5), torch.bfloat16, "meta")


@pytest.mark.parametrize("given", [{"activation": "mish"}, {"save": "all"}, {"precision": "low"}, {"packing": "up"}])
def test_unknown_words_are_refused_with_what_is_known(given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(given.values()))):
        GatedMLP(8, 12, **given)


def test_repr_says_the_activation_and_what_differs_from_the_defaults() -> None:
    assert "activation='gelu_tanh')" in repr(LinearAct(8, 12, activation="gelu_pytorch_tanh"))
    assert "save='input', precision='fast'" in repr(GatedMLP(8, 12, save="input", precision="fast"))


# ---- layers that must be called ----


@contextmanager
def reading_is_wrong(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail if the weights of the layers are handed to the functional form."""

    def refuse(*_: Any, **__: Any) -> Tensor:
        raise AssertionError("the layers were bypassed")

    with monkeypatch.context() as patch:
        for name in ("gated_mlp", "mlp", "linear_act"):
            patch.setattr(fused_modules.functional, name, refuse)
        yield


class LowRank(nn.Module):
    """What an adapter library puts in the place of a layer: the layer, and a product of two small weights."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False)
        self.up = nn.Linear(2, base.out_features, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.base.weight

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("name", ["gate_proj", "up_proj", "down_proj"])
def test_an_adapter_is_not_bypassed(name: str, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = GatedMLP(8, 12, activation="silu")
    setattr(layer, name, LowRank(getattr(layer, name)))
    with reading_is_wrong(monkeypatch):
        y = layer(x)
    torch.testing.assert_close(y, layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x)))


def test_an_adapter_may_return_another_dtype(x: Tensor) -> None:
    class Wide(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).float()

    layer = GatedMLP(8, 12, activation="silu", dtype=torch.bfloat16)
    layer.gate_proj, layer.down_proj = Wide(8, 12, dtype=torch.bfloat16), nn.Linear(12, 8)
    x = x.bfloat16()
    expected = layer.down_proj(functional.silu(layer.gate_proj(x)) * layer.up_proj(x))
    torch.testing.assert_close(layer(x), expected)
    assert expected.dtype == torch.float32


def test_an_adapter_on_the_second_layer_leaves_the_first_one_fused(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = MLP(8, 12, activation="gelu")
    layer.fc2 = LowRank(layer.fc2)  # type: ignore[assignment]
    monkeypatch.setattr(fused_modules.functional, "mlp", None)
    torch.testing.assert_close(layer(x), layer.fc2(functional.gelu(layer.fc1(x))))


@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
@pytest.mark.parametrize("name", ["gate_proj", "down_proj"])
def test_hooks_on_a_layer_run(kind: str, name: str, x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, called = GatedMLP(8, 12), []
    getattr(layer.get_submodule(name), f"register_{kind}_hook")(lambda *_: called.append(name))
    with reading_is_wrong(monkeypatch):
        layer(x.requires_grad_()).sum().backward()
    assert called == [name]


def test_hooks_on_every_module_run_for_the_layers_too(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, called = MLP(8, 12), []
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: called.append(module))
    try:
        with reading_is_wrong(monkeypatch):
            layer(x)
    finally:
        handle.remove()
    assert called == [layer.fc1, layer.fc2, layer]


class Doubled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return 2 * weight


def test_a_parametrized_weight_is_the_one_that_counts(x: Tensor) -> None:
    layer = GatedMLP(8, 12, activation="relu")
    once = layer(x)
    parametrize.register_parametrization(layer.up_proj, "weight", Doubled())
    torch.testing.assert_close(layer(x), 2 * once)
    linear = LinearAct(8, 12, bias=False, activation="relu")
    once = linear(x)
    parametrize.register_parametrization(linear, "weight", Doubled())
    torch.testing.assert_close(linear(x), 2 * once)


def test_a_forward_that_was_put_on_a_layer_is_called(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = GatedMLP(8, 12)
    layer.up_proj.forward = lambda x: torch.zeros(*x.shape[:-1], 12)  # type: ignore[method-assign]
    with reading_is_wrong(monkeypatch):
        assert not layer(x).any()


def test_plain_layers_are_read(x: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    with reading_is_wrong(monkeypatch), pytest.raises(AssertionError, match="bypassed"):
        GatedMLP(8, 12)(x)


def test_looking_at_the_layers_costs_microseconds() -> None:
    layer = GatedMLP(8, 12)
    gate, up, down = layer.gate_proj, layer.up_proj, layer.down_proj
    bare = fused_modules._bare
    best = min(timeit.repeat(lambda: bare(gate) and bare(up) and bare(down), number=1000, repeat=9)) / 1000
    assert best < 30e-6  # 2 µs on an idle machine


# ---- as any module ----


def test_copies_compute_the_same_and_share_nothing(module: nn.Module, x: Tensor) -> None:
    before = module(x)
    buffer = io.BytesIO()
    torch.save(module.state_dict(), buffer)
    buffer.seek(0)
    loaded = copy.deepcopy(module)
    for parameter in loaded.parameters():
        nn.init.zeros_(parameter)
    loaded.load_state_dict(torch.load(buffer))
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), loaded):
        assert torch.equal(other(x), before)
        assert not {p.data_ptr() for p in other.parameters()} & {p.data_ptr() for p in module.parameters()}


def test_functional_call_uses_the_parameters_it_is_given(module: nn.Module, x: Tensor) -> None:
    doubled = {name: 2 * parameter.detach() for name, parameter in module.named_parameters()}
    other = copy.deepcopy(module)
    other.load_state_dict(doubled)
    torch.testing.assert_close(torch.func.functional_call(module, doubled, (x,)), other(x))


def test_torch_func_gives_the_gradients_of_backward(module: nn.Module, x: Tensor) -> None:
    parameters = dict(module.named_parameters())

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(module, parameters, (x,)).square().sum()

    found = torch.func.grad(loss)({name: one.detach() for name, one in parameters.items()}, x)
    loss(parameters, x).backward()
    for name, parameter in parameters.items():
        torch.testing.assert_close(found[name], parameter.grad)
    rows = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(
        {name: one.detach() for name, one in parameters.items()}, x
    )
    for name, parameter in parameters.items():
        torch.testing.assert_close(rows[name].sum(0), parameter.grad)


def test_tied_weights_add_their_gradients(x: Tensor) -> None:
    layer = GatedMLP(8, 12, activation="silu")
    layer.up_proj.weight = layer.gate_proj.weight
    layer(x).sum().backward()
    weight = layer.gate_proj.weight.detach().clone().requires_grad_()
    hidden = functional.silu(functional.linear(x, weight)) * functional.linear(x, weight)
    functional.linear(hidden, layer.down_proj.weight.detach()).sum().backward()
    torch.testing.assert_close(layer.gate_proj.weight.grad, weight.grad)


def test_frozen_layers_get_no_gradient(x: Tensor) -> None:
    layer = GatedMLP(8, 12, bias=True)
    layer.gate_proj.requires_grad_(False)
    layer(x).sum().backward()
    assert layer.gate_proj.weight.grad is None
    assert layer.up_proj.weight.grad is not None


def test_moving_and_casting_keep_the_module_whole(module: nn.Module, x: Tensor) -> None:
    assert module.double()(x.double()).dtype == torch.float64
    empty = copy.deepcopy(module).to("meta").to_empty(device="cpu")
    empty.load_state_dict(module.state_dict())
    assert torch.equal(empty.double()(x.double()), module(x.double()))
