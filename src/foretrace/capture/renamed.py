"""A gated MLP under the names that layers of other libraries expect, whatever its own module calls them (torch)."""

from __future__ import annotations

from torch import Tensor, nn

from foretrace.errors import InputError
from foretrace.prediction.program.gated import gated_parts

__all__ = ["RenamedMLP", "renamed"]

_ACTIVATIONS: dict[str, nn.Module] = {
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "relu": nn.ReLU(),
    "sigmoid": nn.Sigmoid(),
}


class RenamedMLP(nn.Module):
    """``down_proj(act_fn(gate_proj(x)) * up_proj(x))``; the projections are shared with the module it was made of."""

    def __init__(self, gate: nn.Linear, up: nn.Linear, down: nn.Linear, activation: str) -> None:
        super().__init__()
        self.activation = activation
        self.gate_proj, self.up_proj, self.down_proj = gate, up, down
        self.act_fn = _ACTIVATIONS[activation]

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [..., in], result [..., out]."""
        projected: Tensor = self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return projected


def renamed(module: nn.Module) -> RenamedMLP | None:
    """The same gated MLP under the usual names; ``None`` for another module.

    Raises `InputError` for one with the projections of a gated MLP whose activation cannot be told.
    """
    parts = gated_parts(module)
    if isinstance(parts, str):
        raise InputError(parts)
    if parts is None or parts.activation not in _ACTIVATIONS:
        return None
    made = RenamedMLP(parts.gate, parts.up, parts.down, parts.activation)
    return made.train(module.training)
