"""From tensors to the plan of their call, in one look-up."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import torch
from torch import Tensor

from foretrace.fused.dispatch.plans import plan_asked
from foretrace.fused.plan import Operation, Plan
from foretrace.fused.steps import Bound, bind

__all__ = ["Call", "architecture_of", "call_for"]

_DTYPES: Final = {
    torch.bfloat16: "bfloat16",
    torch.float16: "float16",
    torch.float32: "float32",
    torch.float64: "float64",
}
# by index, which is -1 for a CPU
_architectures: dict[int, str] = {-1: "cpu"}


class Call(NamedTuple):
    """What the passes of a layer need besides tensors: words, implementations, and what to keep.

    ``save``: ``None`` in inference. ``plain``: PyTorch's own operators do it all and nobody asked for anything else,
    so that its autograd serves as well. ``key``: of the problem whose plan was looked up, ``None`` if one was passed.
    ``straight``: `foretrace.fused.autograd.straight` may serve the call.
    """

    activation: str
    precision: str
    packing: str
    bound: Bound
    save: str | None
    plain: bool
    key: tuple[Any, ...] | None = None
    straight: bool = False


def call_for(
    operation: Operation,
    x: Tensor,
    weights: tuple[Tensor | None, ...],
    sizes: tuple[int, int, int, int],
    *,
    activation: str,
    training: bool,
    bias: bool = False,
    packing: str = "separate",
    precision: str = "exact",
    save: str = "auto",
    plan: Plan | None = None,
) -> Call:
    """Return the call on ``x`` [..., K]; words as in `foretrace.fused.plan.Problem`.

    ``sizes``: m, n, k and out. ``weights``: the matrices that kernels would read by TMA. ``plan``: use this one,
    whatever dispatch would say. ``save="auto"`` leaves to the plan what a training call keeps.
    """
    asked = plan is not None or save != "auto"
    key: tuple[Any, ...] | None = None
    if plan is None:
        device = x.get_device()
        key = (
            operation,
            *sizes,
            _DTYPES.get(x.dtype) or str(x.dtype),
            activation,
            _architectures.get(device) or architecture_of(x.device),
            training,
            bias,
            packing,
            device < 0 or _aligned(x, weights),
            precision,
        )
        plan = plan_asked(key)
    bound = bind(operation, plan)
    asked = asked or plan.source == "override"
    kept = (bound.save if save == "auto" else save) if training else None
    return Call(activation, precision, packing, bound, kept, bound.plain and not (asked and training), key)


def _aligned(x: Tensor, weights: tuple[Tensor | None, ...]) -> bool:
    """Whether pointers and row strides are multiples of 16 bytes; for x also if it has to be copied first."""
    size = x.element_size()
    bits = x.data_ptr() | x.shape[-1] * size
    # The rows of a view are as far apart as its last leading dimension that has more than one entry says.
    for extent, stride in zip(x.shape[:-1], x.stride()[:-1], strict=True):
        if extent != 1:
            bits |= stride * size
    for weight in weights:
        if weight is not None:
            row, column = weight.stride()[-2:]
            if column != 1:
                return False
            bits |= weight.data_ptr() | row * size
    return bits & 15 == 0


def architecture_of(device: torch.device) -> str:
    """Return ``"sm_90"`` for an NVIDIA GPU of compute capability 9.0, ``"gfx942"`` and the like for AMD, ``"cpu"``."""
    if device.type != "cuda":
        return device.type
    index = torch.cuda.current_device() if device.index is None else device.index
    found = _architectures.get(index)
    if found is None:
        properties = torch.cuda.get_device_properties(index)
        amd = torch.version.hip is not None
        found = properties.gcnArchName.partition(":")[0] if amd else f"sm_{properties.major}{properties.minor}"
        _architectures[index] = found
    return found
