"""Calling the Hopper kernels: which problems they take, their descriptors and launches."""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.experimental.gluon import language as gl

from foretrace.errors import InputError
from foretrace.fused.kernels.activation import kernel_precision
from foretrace.fused.kernels.hopper.backward import foretrace_hopper_backward
from foretrace.fused.kernels.hopper.forward import foretrace_hopper_forward
from foretrace.fused.kernels.launch import Descriptor, descriptor, launcher, processors, tma_legal, tma_storable

__all__ = ["VERSIONS", "gate_up", "gate_up_backward", "linear_act", "linear_act_backward"]

# Gluon is experimental and renames between minor versions; these were run.
VERSIONS = frozenset({(3, 6)})
# One row of a box is 128 bytes, which is also the swizzle.
_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
_ROWS = (64, 64)
_WEIGHT = (128, 64)
_DOWN = (64, 256)
_SLICE = (64, 64)
# Two warpgroups of 240 registers a thread and the loaders' 24 fill the register file (64 K).
_REGISTERS = 168


def _checked(*operands: torch.Tensor) -> None:
    if tuple(int(part) for part in triton.__version__.split(".")[:2]) not in VERSIONS:
        raise InputError(f"the hopper kernels were not tried with Triton {triton.__version__}; use the tma kernels.")
    for operand in operands:
        if operand.dtype not in (torch.bfloat16, torch.float16) or not tma_legal(operand):
            raise InputError(
                f"the hopper kernels cannot read {operand.dtype} of shape {tuple(operand.shape)} with strides "
                f"{operand.stride()}: 16-bit types, contiguous rows, addresses and row strides of 16 bytes only."
            )


def _slices(tensor: torch.Tensor) -> Descriptor:
    if not tma_storable(tensor):
        raise InputError(
            f"the hopper kernels cannot write {tensor.shape[1]} columns: rows must end on a 16-byte boundary."
        )
    return descriptor(tensor, _SLICE, _LAYOUT)


def _forward(
    x: torch.Tensor,
    weights: tuple[torch.Tensor, ...],
    biases: tuple[torch.Tensor, ...],
    activation: str,
    keep: bool,
    precision: str,
    group: int,
    stages: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    rows, inner = x.shape
    columns = weights[0].shape[0]
    gated = len(weights) == 2
    _checked(x, *weights)
    hidden = x.new_empty((rows, columns))
    hidden_desc = _slices(hidden)
    preact = x.new_empty((rows, columns * len(weights))) if keep else None
    if preact is None:
        kept = (hidden_desc, hidden_desc)
    elif gated:
        kept = (_slices(preact[:, :columns]), _slices(preact[:, columns:]))
    else:
        kept = (_slices(preact), hidden_desc)
    programs = processors(x.get_device())
    run = launcher(
        foretrace_hopper_forward, num_warps=4, maxnreg=_REGISTERS, PROGRAMS=programs, GROUP=group, STAGES=stages,
        GATED=gated, BIAS=bool(biases), KEEP=keep, ACTIVATION=activation,
        PRECISION=kernel_precision(precision, x.dtype),
    )  # fmt: skip
    run(
        (programs,), descriptor(x, _ROWS, _LAYOUT), descriptor(weights[0], _WEIGHT, _LAYOUT),
        descriptor(weights[-1], _WEIGHT, _LAYOUT), hidden_desc, *kept,
        biases[0] if biases else None, biases[-1] if biases else None, rows, columns, inner,
    )  # fmt: skip
    return hidden, preact


def gate_up(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
    group: int = 8,
    stages: int = 4,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Hidden [M, N] = act(x gate^T + gate_bias) * (x up^T + up_bias), and [gate | up] of [M, 2N] if ``keep``.

    x [M, K], gate and up [N, K], bfloat16 or float16. Raises `InputError` for what TMA cannot address.
    """
    biases: tuple[torch.Tensor, ...] = ()
    if gate_bias is not None or up_bias is not None:
        missing = x.new_zeros(gate.shape[0]) if gate_bias is None or up_bias is None else x
        biases = (missing if gate_bias is None else gate_bias, missing if up_bias is None else up_bias)
    return _forward(x, (gate, up), biases, activation, keep, precision, group, stages)


def linear_act(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
    group: int = 8,
    stages: int = 4,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Hidden [M, N] = act(x weight^T + bias), and the pre-activations [M, N] if ``keep``; otherwise as `gate_up`."""
    biases = () if bias is None else (bias,)
    return _forward(x, (weight,), biases, activation, keep, precision, group, stages)


def _backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None,
    gated: bool,
    group: int,
    stages: int,
    slots: int,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    rows, inner = grad_out.shape
    columns = down.shape[1]
    _checked(grad_out, down)
    grad = preact.new_empty(preact.shape) if into is None else into
    # The hidden units' buffers take the place of a stage.
    stages = min(stages, 3) if want_hidden else stages
    hidden = grad_out.new_empty((rows, columns)) if want_hidden else None
    kept: tuple[Any, ...]
    if gated:
        kept = tuple(_slices(half) for both in (preact, grad) for half in (both[:, :columns], both[:, columns:]))
    else:
        kept = (_slices(preact), _slices(preact), _slices(grad), _slices(grad))
    programs = processors(grad_out.get_device())
    run = launcher(
        foretrace_hopper_backward, num_warps=4, maxnreg=_REGISTERS, PROGRAMS=programs, GROUP=group, STAGES=stages,
        SLOTS=slots, GATED=gated, HIDDEN=want_hidden, ACTIVATION=activation,
        PRECISION=kernel_precision("exact", grad_out.dtype),
    )  # fmt: skip
    run(
        (programs,), descriptor(grad_out, _ROWS, _LAYOUT), descriptor(down, _DOWN, _LAYOUT), *kept,
        kept[0] if hidden is None else _slices(hidden), rows, columns, inner,
    )  # fmt: skip
    # In the kernel these sums would cross warps; one more pass costs less than that there.
    bias = torch.sum(grad, 0, dtype=torch.float32) if want_bias else None
    return grad, hidden, bias


def gate_up_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None = None,
    group: int = 8,
    stages: int = 3,
    slots: int = 2,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """[d-gate | d-up] of [M, 2N] from grad_out [M, out], down [out, N] and preact [M, 2N].

    Also hidden [M, N] and the column sums of the result (float32, [2N]) where wanted. ``into`` takes the result and may
    be ``preact``.
    """
    return _backward(grad_out, down, preact, activation, want_hidden, want_bias, into, True, group, stages, slots)


def linear_act_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None = None,
    group: int = 8,
    stages: int = 3,
    slots: int = 2,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """d-preact [M, N] of a product with an activation and no gate; otherwise as `gate_up_backward`."""
    return _backward(grad_out, down, preact, activation, want_hidden, want_bias, into, False, group, stages, slots)
