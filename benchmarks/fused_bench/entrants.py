"""Who takes part: a name, how to build the call for given operands, and when there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from fused_bench.case import Case
from fused_bench.operands import Operands

__all__ = ["Built", "Entrant", "Role", "UnavailableError", "own_leaves"]

# floor: what bounds it (bare matrix products); its output is no MLP's and is not checked.
Role = Literal["baseline", "opponent", "floor", "ours"]


class UnavailableError(Exception):
    """This entrant does not exist here: a package is missing, or it cannot do this case. The text says which."""


@dataclass(frozen=True)
class Built:
    """``forward(x)`` gives the output; ``leaves`` are the weights it uses, by the name of their gradient.

    ``gradients`` turns the leaves' own gradients into those of the case's weights, where the layouts differ (a
    stacked gate/up weight). ``floor_step``: for bare products, the whole step instead of forward and backward.
    """

    forward: Callable[[Tensor], Tensor]
    leaves: Mapping[str, Tensor]
    gradients: Callable[[], dict[str, Tensor]] | None = None
    floor_step: Callable[[], Tensor] | None = None

    def weight_gradients(self) -> dict[str, Tensor]:
        """Gradient by weight name; a weight without one is left out."""
        if self.gradients is not None:
            return self.gradients()
        return {name: leaf.grad for name, leaf in self.leaves.items() if leaf.grad is not None}


@dataclass(frozen=True)
class Entrant:
    """``build`` raises :class:`UnavailableError` where there is nothing to measure."""

    name: str
    role: Role
    build: Callable[[Case, Operands], Built]
    compiles: bool = False


def own_leaves(case: Case, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same storage under tensors of one's own, so that no entrant sees another's gradients."""
    return {name: weight.detach().requires_grad_(case.mode == "train") for name, weight in weights.items()}
