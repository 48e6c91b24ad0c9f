"""MLPs of other libraries become fused modules on the same parameters, or are refused with the reason."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from foretrace import fused
from foretrace.errors import InputError
from foretrace.fused import MLP, GatedMLP, LinearAct
from foretrace.fused.convert import from_module, replace


class LlamaMLP(nn.Module):
    """As in transformers: three layers and the activation that the configuration names."""

    def __init__(self, act_fn: Callable[[Tensor], Tensor] | None, bias: bool = False, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.gate_proj = nn.Linear(8, 12, bias=bias)
        self.up_proj = nn.Linear(8, 12, bias=bias)
        self.down_proj = nn.Linear(12, 8, bias=bias)
        self.act_fn = act_fn

    def forward(self, x: Tensor) -> Tensor:
        act = self.act_fn or functional.silu
        return self.down_proj(act(self.gate_proj(x) * self.scale) * self.up_proj(x))


class Phi3MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(8, 24, bias=False)
        self.down_proj = nn.Linear(12, 8, bias=False)
        self.activation_fn = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(up * self.activation_fn(gate))


class VisionMLP(nn.Module):
    """As in timm: with dropout between and after the layers."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc1 = nn.Linear(8, 12)
        self.act = nn.GELU()
        self.drop1 = nn.Dropout(dropout)
        self.norm = nn.Identity()
        self.fc2 = nn.Linear(12, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.norm(self.drop1(self.act(self.fc1(x)))))


class Named(nn.Module):
    """Two layers and an activation under given names."""

    def __init__(self, first: str, second: str, act: nn.Module) -> None:
        super().__init__()
        self.names = (first, second)
        setattr(self, first, nn.Linear(8, 12))
        setattr(self, second, nn.Linear(12, 8))
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        first, second = (self.get_submodule(name) for name in self.names)
        return second(self.act(first(x)))


class Conv1D(nn.Module):
    """As in transformers' GPT-2: a weight [in, out]."""

    def __init__(self, out: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features, out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


@pytest.fixture
def x() -> Tensor:
    return torch.randn(3, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("act_fn", "activation"),
    [(nn.SiLU(), "silu"), (nn.GELU(), "gelu"), (nn.GELU(approximate="tanh"), "gelu_tanh"), (functional.relu, "relu")],
)
def test_a_llama_mlp_shares_its_parameters(act_fn: Any, activation: str, bias: bool, x: Tensor) -> None:
    original = LlamaMLP(act_fn, bias)
    made = GatedMLP.from_module(original, save="recompute", precision="fast")
    assert (made.activation, made.save, made.precision) == (activation, "recompute", "fast")
    assert {name: id(p) for name, p in made.named_parameters()} == {n: id(p) for n, p in original.named_parameters()}
    torch.testing.assert_close(made(x), original(x))


def test_tanh_and_exact_gelu_are_never_exchanged(x: Tensor) -> None:
    wide = 4 * x.double()
    exact = from_module(LlamaMLP(nn.GELU()).double())
    tanh = from_module(LlamaMLP(nn.GELU(approximate="tanh")).double())
    tanh.load_state_dict(exact.state_dict())
    assert (exact(wide) - tanh(wide)).abs().max() > 1e-6


def test_gate_up_and_down_with_the_activation_as_a_text(x: Tensor) -> None:
    class Small(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate, self.up, self.down = nn.Linear(8, 12), nn.Linear(8, 12), nn.Linear(12, 8)
            self.activation = "SiLU"

        def forward(self, x: Tensor) -> Tensor:
            return self.down(functional.silu(self.gate(x)) * self.up(x))

    original = Small()
    made = fused.from_module(original)
    assert made.activation == "silu"
    torch.testing.assert_close(made(x), original(x))
    assert fused.replace(nn.ModuleDict({"mlp": original})) == []  # the keys of its state_dict would be others


def test_wrapped_modules_name_their_wrapper() -> None:
    compiled = torch.compile(LlamaMLP(nn.SiLU()), backend="eager")
    with pytest.raises(InputError, match=r"LlamaMLP is wrapped in OptimizedModule by torch.compile: .*_orig_mod"):
        from_module(compiled)
    with pytest.raises(InputError, match=r"LlamaMLP is wrapped in DataParallel: .*\.module"):
        from_module(nn.DataParallel(LlamaMLP(nn.SiLU())))
    assert replace(nn.ModuleDict({"mlp": compiled})) == []


def test_a_linear_alone_lacks_its_activation() -> None:
    with pytest.raises(InputError, match=r"has no activation: give both, as nn.Sequential"):
        LinearAct.from_module(nn.Linear(8, 8))


def test_an_activation_that_is_not_named_must_be_given(x: Tensor) -> None:
    original = LlamaMLP(None)
    with pytest.raises(InputError, match="give activation="):
        from_module(original)
    torch.testing.assert_close(from_module(original, activation="silu")(x), original(x))


def test_a_configuration_says_it_where_the_module_does_not(x: Tensor) -> None:
    original = LlamaMLP(None)
    original.config = SimpleNamespace(hidden_act="silu")  # type: ignore[assignment]
    assert from_module(original).activation == "silu"
    original.config = SimpleNamespace(hidden_act="gelu", hidden_activation="gelu_pytorch_tanh")  # type: ignore[assignment]
    with pytest.raises(InputError, match="several"):
        from_module(original)


def test_an_activation_that_contradicts_the_module_is_refused() -> None:
    with pytest.raises(InputError, match=r"computes gelu, not .*'gelu_tanh'"):
        from_module(LlamaMLP(nn.GELU()), activation="gelu_tanh")


def test_an_unknown_function_can_be_named_and_is_then_checked(x: Tensor) -> None:
    original = LlamaMLP(lambda z: z * torch.sigmoid(z))
    with pytest.raises(InputError, match="gelu_tanh, silu"):
        from_module(original)
    torch.testing.assert_close(from_module(original, activation="silu")(x), original(x))
    with pytest.raises(InputError, match="computes something else"):
        from_module(original, activation="relu")


def test_what_a_forward_hides_is_found_by_comparing() -> None:
    scaled = LlamaMLP(nn.SiLU(), scale=1.5)
    with pytest.raises(InputError, match="computes something else"):
        from_module(scaled)
    assert isinstance(from_module(scaled, check=False), GatedMLP)


def test_the_comparison_leaves_the_random_numbers_alone() -> None:
    original = LlamaMLP(nn.SiLU())
    before = torch.get_rng_state()
    from_module(original)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_stacked_weight_needs_its_order(x: Tensor) -> None:
    original = Phi3MLP()
    with pytest.raises(InputError, match="packing='gate_up'"):
        from_module(original)
    with pytest.raises(InputError, match="computes something else"):
        from_module(original, packing="up_gate")
    made = GatedMLP.from_module(original, packing="gate_up")
    assert made.gate_up_proj.weight is original.gate_up_proj.weight
    torch.testing.assert_close(made(x), original(x))


@pytest.mark.parametrize("names", [("fc1", "fc2"), ("fc_in", "fc_out"), ("up_proj", "down_proj"), ("lin1", "lin2")])
def test_two_layers_go_by_many_names(names: tuple[str, str], x: Tensor) -> None:
    original = Named(*names, nn.GELU(approximate="tanh"))
    made = MLP.from_module(original)
    assert made.fc2.weight is original.get_submodule(names[1]).weight
    torch.testing.assert_close(made(x), original(x))


def test_sequences_of_linear_and_activation(x: Tensor) -> None:
    two = nn.Sequential(nn.Linear(8, 12), nn.GELU(), nn.Dropout(0.0), nn.Linear(12, 8))
    torch.testing.assert_close(MLP.from_module(two)(x), two(x))
    one = nn.Sequential(nn.Linear(8, 12, bias=False), nn.ReLU())
    made = LinearAct.from_module(one)
    assert made.weight is one[0].weight
    assert (made.in_features, made.out_features, made.bias) == (8, 12, None)
    torch.testing.assert_close(made(x), one(x))
    for other in (nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), nn.Sequential(nn.ReLU(), nn.Linear(8, 8))):
        with pytest.raises(InputError, match="neither"):
            from_module(other)


def test_dropout_is_accepted_only_where_it_does_nothing(x: Tensor) -> None:
    original = VisionMLP()
    torch.testing.assert_close(from_module(original)(x), original(x))
    with pytest.raises(InputError, match="'drop1'"):
        from_module(VisionMLP(0.1))


def test_dropout_inside_a_forward_is_found_in_evaluation_too() -> None:
    class Dropping(LlamaMLP):
        def forward(self, x: Tensor) -> Tensor:
            return functional.dropout(super().forward(x), 0.5, self.training)

    original = Dropping(nn.SiLU()).eval()
    before = torch.get_rng_state()
    with pytest.raises(InputError, match="dropout"):
        from_module(original)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module.training for module in original.modules())


def test_what_would_be_lost_is_refused() -> None:
    hooked = LlamaMLP(nn.SiLU())
    hooked.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="hooks"):
        from_module(hooked)
    scaled = LlamaMLP(nn.SiLU())
    scaled.gain = nn.Parameter(torch.ones(1))
    with pytest.raises(InputError, match="'gain'"):
        from_module(scaled)
    more = LlamaMLP(nn.SiLU())
    more.norm = nn.LayerNorm(8)
    with pytest.raises(InputError, match="'norm'"):
        from_module(more)


def test_unknown_modules_say_what_they_hold() -> None:
    with pytest.raises(InputError, match=r"Flatten cannot be converted: it holds no layers"):
        from_module(nn.Flatten())
    gpt2 = Named("c_fc", "c_proj", nn.GELU(approximate="tanh"))
    gpt2.c_fc, gpt2.c_proj = Conv1D(12, 8), Conv1D(8, 12)
    with pytest.raises(InputError, match="transposed"):
        from_module(gpt2)
    with pytest.raises(InputError, match="is a GatedMLP, not a MLP"):
        MLP.from_module(LlamaMLP(nn.SiLU()))


def test_hooks_on_the_layers_travel_with_them(x: Tensor) -> None:
    original, called = LlamaMLP(nn.SiLU()), []
    original.up_proj.register_forward_hook(lambda *_: called.append("up"))
    made = from_module(original, check=False)
    made(x)
    assert called == ["up"]


def test_mode_and_meta_weights_are_kept() -> None:
    with torch.device("meta"):
        original = LlamaMLP(nn.SiLU())
    made = from_module(original.eval())
    assert not made.training
    assert made.gate_proj.weight.device.type == "meta"


def test_replace_changes_what_it_can_and_keeps_the_state_dict(x: Tensor) -> None:
    shared = LlamaMLP(nn.SiLU())
    model = nn.ModuleDict(
        {
            "first": nn.ModuleDict({"mlp": shared}),
            "again": nn.ModuleDict({"mlp": shared}),
            "vision": VisionMLP(),
            "hidden scale": LlamaMLP(nn.SiLU(), scale=2.0),
            "head": nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)),
        }
    )
    names, expected = list(model.state_dict()), shared(x)
    assert replace(model) == ["first.mlp", "again.mlp", "vision"]
    assert sorted(model.state_dict()) == sorted(names)
    first, again = model.get_submodule("first.mlp"), model.get_submodule("again.mlp")
    assert isinstance(first, GatedMLP)
    assert first is again
    assert type(model["head"]) is nn.Sequential
    torch.testing.assert_close(first(x), expected)
    assert replace(model) == []
