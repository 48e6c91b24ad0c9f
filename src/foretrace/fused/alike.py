"""Whether a converted module computes what the one before it does: they are run side by side on a few rows.

Names and attributes cannot tell a scale, a clamp or a dropout inside a forward. Small inputs would not show a clamp and
zeros would show nothing: inputs of several sizes are tried, and where the layers' own weights make every row alike (a
projection that begins at zero), random weights stand in for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.func import functional_call

from foretrace.errors import InputError
from foretrace.fused import activations
from foretrace.fused.modules import MLP, GatedMLP, LinearAct, halves

__all__ = ["refuse_unlike", "unfit"]

Made = GatedMLP | MLP | LinearAct

# Sizes of the inputs: usual ones, and such that reach the clamps that models use (7 to 100 before the activation).
_SCALES: Final = (1.0, 30.0, 1000.0)
# Two ways to round the same numbers: bf16 differs by about 1e-3, TF32 and fp16 by less.
_ALLOWED: Final[Mapping[torch.dtype, float]] = {torch.bfloat16: 2e-2, torch.float16: 2e-2}
_ALLOWED_ELSE: Final = 3e-3
_ROWS: Final = 4


def refuse_unlike(module: nn.Module, made: Made) -> None:
    """Raise :class:`InputError` unless both agree, to more than rounding. Nothing is compared on the meta device."""
    weight: Any = next(module.parameters(), None)
    if weight is None or weight.device.type == "meta":
        return
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((1, _ROWS, _features(made)), generator=generator).to(weight.device, weight.dtype)
    allowed = _ALLOWED.get(weight.dtype, _ALLOWED_ELSE)
    told = False
    for values in (None, _random_values(module, generator)):
        for scale in _SCALES:
            expected, found = _both(module, made, x * scale, values)
            if not isinstance(expected, Tensor) or expected.shape != found.shape:
                raise unfit(module, f"does not return one tensor of shape {list(found.shape)}")
            expected, found = expected.double(), found.double()
            if not bool(expected.isfinite().all()):
                continue  # fp16 at its end
            if not (expected - found).norm() <= allowed * expected.norm():
                raise unfit(
                    module, "computes something else than its layers and activation say (a scale, a clamp, dropout?)"
                )
            told = told or _tells(expected)
        if told:
            return


def _tells(rows: Tensor) -> bool:
    """Whether different inputs gave different outputs, so that agreement means something."""
    spread = (rows - rows.mean(-2, keepdim=True)).norm()
    return bool(spread > 1e-2 * rows.norm())


def _random_values(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Weights of unit gain and small biases in place of the module's own."""
    values = {}
    for name, parameter in module.named_parameters():
        gain = parameter.shape[-1] ** -0.5 if parameter.dim() > 1 else 0.1
        random = torch.randn(parameter.shape, generator=generator) * gain
        values[name] = random.to(parameter.device, parameter.dtype)
    return values


def _both(module: nn.Module, made: Made, x: Tensor, values: dict[str, Tensor] | None) -> tuple[Any, Tensor]:
    """What each makes of x, with these values in place of their parameters if there are any."""
    modes = {each: each.training for each in module.modules()}
    composed = _Composed(made)
    with torch.no_grad(), torch.random.fork_rng([x.device] if x.is_cuda else []):
        try:
            for each in modes:
                # Dropout of the module's own shows only while it trains; that of its layers goes on in both.
                each.training = each is module
            if values is None:
                return module(x), composed(x)
            of = {id(parameter): values[name] for name, parameter in module.named_parameters()}
            shared = {name: of[id(parameter)] for name, parameter in composed.named_parameters() if id(parameter) in of}
            return functional_call(module, values, (x,)), cast(Tensor, functional_call(composed, shared, (x,)))
        except Exception as error:
            raise unfit(module, f"fails on an input {list(x.shape)} ({type(error).__name__}: {error})") from error
        finally:
            for each, mode in modes.items():
                each.training = mode


class _Composed(nn.Module):
    """What ``made`` computes, through its layers: no kernel is compiled for a check."""

    def __init__(self, made: Made) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        """As the fused module's."""
        made = self.made
        if isinstance(made, LinearAct):
            return activations.apply(made.activation, nn.functional.linear(x, made.weight, made.bias))
        layers: Any = made
        if isinstance(made, MLP):
            hidden = activations.apply(made.activation, layers.fc1(x))
            return cast(Tensor, layers.fc2(hidden))
        if made.packing == "separate":
            gate, up = layers.gate_proj(x), layers.up_proj(x)
        else:
            gate, up = halves(layers.gate_up_proj(x), made.packing)
        return cast(Tensor, layers.down_proj(activations.apply(made.activation, gate) * up))


def _features(made: Made) -> int:
    first: Any = made
    if not isinstance(made, LinearAct):
        first = next(iter(made.children()))
    width = getattr(first, "in_features", None)
    return int(first.weight.shape[-1] if width is None else width)


def unfit(module: nn.Module, why: str) -> InputError:
    """The error of a module that no fused one can stand for; ``why`` goes on after "it"."""
    return InputError(f"{type(module).__name__} cannot be converted: it {why}")
