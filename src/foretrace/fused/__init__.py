"""Fused MLP layers: products whose activation is applied before the result leaves the chip.

The public names are loaded on first use; ``import foretrace.fused`` itself needs no torch and no Triton::

    from foretrace import fused

    y = fused.gated_mlp(x, gate_weight, up_weight, down_weight, activation="gelu_tanh")
    layer = fused.GatedMLP.from_module(model.layers[0].mlp)
    print(fused.explain(layer, x))    # which kernels serve this call, and why

Every call works everywhere: where no kernel of ours is known to be right and faster, PyTorch's own operators run.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.fused.activations import ACTIVATIONS
    from foretrace.fused.convert import from_module, replace
    from foretrace.fused.dispatch.autotune import autotune
    from foretrace.fused.dispatch.explain import explain
    from foretrace.fused.dispatch.overrides import override
    from foretrace.fused.functional import gated_act, gated_mlp, linear_act, mlp
    from foretrace.fused.modules import MLP, GatedMLP, LinearAct

__all__ = [
    "ACTIVATIONS",
    "MLP",
    "GatedMLP",
    "LinearAct",
    "autotune",
    "explain",
    "from_module",
    "gated_act",
    "gated_mlp",
    "linear_act",
    "mlp",
    "override",
    "replace",
]

_HOME = {
    "ACTIVATIONS": "activations",
    "GatedMLP": "modules",
    "LinearAct": "modules",
    "MLP": "modules",
    "autotune": "dispatch.autotune",
    "explain": "dispatch.explain",
    "from_module": "convert",
    "gated_act": "functional",
    "gated_mlp": "functional",
    "linear_act": "functional",
    "mlp": "functional",
    "override": "dispatch.overrides",
    "replace": "convert",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
