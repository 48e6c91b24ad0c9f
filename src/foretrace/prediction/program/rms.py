"""The fused RMS norm of CUDA builds as an operator of the meta device, with its gradient.

Elsewhere PyTorch computes an RMS norm step by step, so that the fused operator never shows below autograd. This one
has the signature and the results of ``aten::_fused_rms_norm`` and is written down under its name.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["LIBRARY", "fused_rms_norm"]

# Not "foretrace": that is where the fused operators live, and a namespace has one owner.
LIBRARY = "foretrace_prediction"
_library: Any = torch.library.Library(LIBRARY, "DEF")  # type: ignore[no-untyped-call]
_library.define(
    "_fused_rms_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)"
)
_library.define(
    "_fused_rms_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor rstd, Tensor? weight) "
    "-> (Tensor, Tensor?)"
)


def _forward(x: Any, shape: Any, *_: Any) -> tuple[Any, Any]:
    rows = (*x.shape[: x.dim() - len(shape)], *(1 for _ in shape))
    return torch.empty_like(x), x.new_empty(rows, dtype=torch.float32 if x.dtype.itemsize < 4 else x.dtype)


def _backward(_gradient: Any, x: Any, _shape: Any, _rstd: Any, weight: Any) -> tuple[Any, Any]:
    return torch.empty_like(x), torch.empty_like(weight) if weight is not None else None


_library.impl("_fused_rms_norm", _forward, "Meta")
_library.impl("_fused_rms_norm_backward", _backward, "Meta")


class FusedRmsNorm(torch.autograd.Function):
    """The operator with its gradient; its node appears in traces as ``FusedRmsNormBackward``."""

    @staticmethod
    def forward(context: Any, x: Any, shape: list[int], weight: Any, eps: Any) -> Any:
        result, rstd = torch.ops.foretrace_prediction._fused_rms_norm(x, shape, weight, eps)
        context.shape = shape
        context.save_for_backward(x, rstd, weight)
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        x, rstd, weight = context.saved_tensors
        given = torch.ops.foretrace_prediction._fused_rms_norm_backward(gradients[0], x, context.shape, rstd, weight)
        return given[0], None, given[1], None


def fused_rms_norm(x: torch.Tensor, shape: list[int], weight: torch.Tensor | None, eps: float | None) -> torch.Tensor:
    """``torch.rms_norm`` as a CUDA build computes it, on tensors without data."""
    result: torch.Tensor = FusedRmsNorm.apply(x, shape, weight, eps)  # type: ignore[no-untyped-call]
    return result
