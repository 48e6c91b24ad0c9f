"""The steps that run through Hopper's copy engine (TMA): forward and backward, under the names of the steps."""

from __future__ import annotations

from foretrace.fused.kernels.tma_backward import backward_supported, gate_up_backward, linear_act_backward
from foretrace.fused.kernels.tma_forward import gate_up, gate_up_supported, linear_act, linear_act_supported

__all__ = [
    "backward_supported",
    "gate_up",
    "gate_up_backward",
    "gate_up_supported",
    "linear_act",
    "linear_act_backward",
    "linear_act_supported",
]
