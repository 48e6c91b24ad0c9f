"""Modules whose forward does something that names and attributes do not say: a conversion must not lose it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from foretrace.errors import InputError
from foretrace.fused import convert
from foretrace.fused.modules import GatedMLP, LinearAct


class Gated(nn.Module):
    """A Llama-like MLP with whatever ``inner`` makes of gate and up, and ``outer`` of the result."""

    def __init__(
        self,
        inner: Callable[[Tensor, Tensor], Tensor] = lambda gate, up: nn.functional.silu(gate) * up,
        outer: Callable[[Tensor], Tensor] = lambda y: y,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.gate_proj, self.up_proj = (nn.Linear(16, 32, bias=False, dtype=dtype) for _ in range(2))
        self.down_proj = nn.Linear(32, 16, bias=False, dtype=dtype)
        self.act_fn = nn.SiLU()
        self.inner, self.outer = inner, outer

    def forward(self, x: Tensor) -> Tensor:
        return self.outer(self.down_proj(self.inner(self.gate_proj(x), self.up_proj(x))))


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return nn.functional.silu(gate) * up


ODD: dict[str, dict[str, Any]] = {
    "another activation": {"inner": lambda gate, up: gate.relu() * up},
    "a scale": {"outer": lambda y: 3 * y},
    "a clamp of the gate": {"inner": lambda gate, up: swiglu(gate.clamp(max=7.0), up)},
    "a clamp of up": {"inner": lambda gate, up: swiglu(gate, up.clamp(-7.0, 7.0))},
    "a clamp far out": {"inner": lambda gate, up: swiglu(gate, up.clamp(-100.0, 100.0))},
    "up plus one": {"inner": lambda gate, up: swiglu(gate, up + 1.0)},
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("down", ["usual", "zero"])
@pytest.mark.parametrize("what", ODD)
def test_what_a_forward_does_besides_is_found(what: str, down: str, dtype: torch.dtype) -> None:
    module = Gated(dtype=dtype, **ODD[what])
    if down == "zero":
        nn.init.zeros_(module.down_proj.weight)
    with pytest.raises(InputError, match="computes something else"):
        convert.from_module(module)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_down_projection_that_begins_at_zero_is_converted(dtype: torch.dtype) -> None:
    module = Gated(dtype=dtype)
    nn.init.zeros_(module.down_proj.weight)
    made = convert.from_module(module)
    assert isinstance(made, GatedMLP)
    assert made.down_proj is module.down_proj
    assert not module.down_proj.weight.any()


def test_the_wrong_order_of_a_stacked_weight_is_found_before_down_is_trained() -> None:
    class Stacked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj, self.down_proj = nn.Linear(16, 64, bias=False), nn.Linear(32, 16, bias=False)
            self.act_fn = nn.SiLU()
            nn.init.zeros_(self.down_proj.weight)

        def forward(self, x: Tensor) -> Tensor:
            return self.down_proj(swiglu(*self.gate_up_proj(x).chunk(2, -1)))

    module = Stacked()
    assert isinstance(convert.from_module(module, packing="gate_up"), GatedMLP)
    for wrong in ("up_gate", "interleaved"):
        with pytest.raises(InputError, match="computes something else"):
            convert.from_module(module, packing=wrong)


def test_hooks_on_the_activation_are_not_lost() -> None:
    module = Gated()
    module.act_fn.register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="hooks on its activation"):
        convert.from_module(module)


def test_layers_stay_in_the_mode_their_owner_chose() -> None:
    module = Gated().train()
    module.gate_proj.eval()
    made = convert.from_module(module)
    assert made.training
    assert not module.gate_proj.training
    assert module.up_proj.training


def test_layers_without_a_weight_of_their_own_are_refused() -> None:
    class Packed(nn.Linear):
        """As a dynamically quantised layer: its weight is a method."""

        def __init__(self) -> None:
            super().__init__(16, 32)
            kept = self._parameters.pop("weight")
            self.__dict__["weight"] = lambda: kept

    module = Gated()
    module.gate_proj = Packed()
    with pytest.raises(InputError, match="no linear layer"):
        convert.from_module(module)
    assert convert.replace(nn.Sequential(module)) == []


def test_a_linear_with_its_activation() -> None:
    pair = nn.Sequential(nn.Linear(8, 4), nn.GELU())
    made = convert.from_module(pair)
    assert isinstance(made, LinearAct)
    x = torch.randn(3, 8)
    torch.testing.assert_close(made(x), pair(x))
