"""What foretrace's fused modules and Liger's launch in the place of an MLP's own kernels.

Sources: `foretrace.fused` (its steps and what each keeps), and Liger-Kernel 0.8 (``ops/geglu.py``, ``ops/swiglu.py``:
three products of cuBLAS each way, one Triton kernel between them).
"""

from __future__ import annotations

__all__ = ["LIGER_KERNELS", "epilogue_of"]

# Activation → Liger's forward and backward kernel.
LIGER_KERNELS: dict[str, tuple[str, str]] = {
    "gelu_tanh": ("_geglu_tanh_forward_kernel", "_geglu_tanh_backward_kernel"),
    "silu": ("_swiglu_forward_kernel", "_swiglu_backward_kernel"),
}


def epilogue_of(step: str, activation: str, *, bias: bool = False) -> tuple[str, ...]:
    """What a step's product does before its result leaves the registers, in order."""
    done = ("bias",) if bias else ()
    if step == "gate_up":
        return (*done, activation, "mul")
    if step == "linear_act":
        return (*done, activation)
    return (f"{activation}_backward", "mul") if step == "gate_up_backward" else (f"{activation}_backward",)
