"""What dispatch decides: a problem goes in, a plan comes out. Plain data, without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Implementation", "Operation", "Packing", "Plan", "Precision", "Problem", "Save"]

Operation = Literal["gated_mlp", "mlp", "linear_act", "gated_act"]
# How gate and up weights lie in memory: two tensors, or one stacked weight and its order.
Packing = Literal["separate", "gate_up", "up_gate", "interleaved"]
# exact: as accurate as eager everywhere; fast: the hardware's tanh, wrong by tens of percent in the far negative tail.
Precision = Literal["exact", "fast"]
# What forward keeps for backward: everything, the pre-activations (hidden is computed again), or the input alone.
Save = Literal["preact", "recompute", "input"]


@dataclass(frozen=True, slots=True)
class Problem:
    """One call, as far as the choice of kernels depends on it.

    ``m`` rows, ``k`` input features, ``n`` intermediate features (output features of ``linear_act``), ``out``
    features of the second product (0: there is none). ``architecture``: ``"sm_90"``, ``"sm_80"``, ``"gfx942"``,
    ``"cpu"``. ``aligned``: every pointer and row stride is a multiple of 16 bytes, as TMA demands.
    """

    operation: Operation
    m: int
    n: int
    k: int
    out: int
    dtype: str
    activation: str
    architecture: str
    training: bool
    bias: bool = False
    packing: Packing = "separate"
    aligned: bool = True
    precision: Precision = "exact"


@dataclass(frozen=True, slots=True)
class Implementation:
    """How one product with its activation is computed: a name of `foretrace.fused.steps`, and what tunes it."""

    name: str
    options: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The choice for one problem.

    ``expand``: input to hidden. ``project``: hidden to output. ``backward``: gradient of the output to gradients of
    the pre-activations. ``source``: where the choice comes from. ``costs``: candidate and its µs, the preferred first;
    ``None``: not measured.
    """

    expand: Implementation
    project: Implementation
    backward: Implementation
    save: Save
    source: Literal["table", "model", "autotune", "override", "only choice"]
    reason: str
    costs: tuple[tuple[str, float | None], ...] = ()
