"""What foretrace's fused modules and Liger's launch in the place of an MLP's own kernels.

Sources: `foretrace.fused` (its steps and what each keeps), and Liger-Kernel 0.8 (``ops/geglu.py``, ``ops/swiglu.py``:
three products of cuBLAS each way, one Triton kernel between them).
"""

from __future__ import annotations

__all__ = ["FEW_ROWS", "LIGER_KERNELS", "bias_strips", "epilogue_of", "weights_come_last"]

# Up to as many rows of a 16-bit type, a layer that runs any kernel of foretrace's makes its weights' gradients by one.
FEW_ROWS = 32

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


def weights_come_last(rows: int, out: int) -> bool:
    """Whether the gradient of the second weight ``[out, N]`` is made after that of x, where hidden was kept."""
    return rows <= out


def bias_strips(rows: int, columns: int) -> int:
    """Rows of partial sums that the elementwise kernel of a layer without a gate leaves for a bias's gradient.

    A program of it walks down a strip of rows, at least 64, in a block of at most 256 columns and 2048 elements; 1024
    programs are aimed at.
    """
    block_columns = min(256, 1 << max(columns - 1, 0).bit_length())
    block_rows = 2048 // block_columns
    blocks = -(-columns // block_columns)
    least = max(-(-rows // max(1, 1024 // max(blocks, 1))), 64)
    strip_rows = -(-least // block_rows) * block_rows
    return -(-rows // strip_rows)
