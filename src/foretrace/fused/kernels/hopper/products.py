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
from foretrace.fused.kernels.launch import (
    VERSION,
    Descriptor,
    Launcher,
    Repetition,
    column_descriptor,
    descriptor,
    launcher,
    processors,
    remember,
    repeated,
    tma_legal,
)

__all__ = ["VERSIONS", "gate_up", "gate_up_backward", "linear_act", "linear_act_backward", "prepare_backward"]

# Gluon is experimental and renames between minor versions; these were run.
VERSIONS = frozenset({(3, 6)})
# One row of a box is 128 bytes, which is also the swizzle.
_LAYOUT = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
_ROWS = (64, 64)
_SLICE = (64, 64)
# Two warpgroups of 240 registers a thread and the loaders' 24 fill the register file (64 K).
_REGISTERS = 168
# Launches whose every argument was seen before. The allocator hands out the same addresses in each step of a training,
# and then neither checks nor descriptors are needed. Keys hold all that these depend on: addresses (which also say
# which halves of one tensor they are), shapes, strides, types, device and options.
_forwards: dict[Any, Repetition] = {}
_backwards: dict[Any, Repetition] = {}


def _checked(*operands: torch.Tensor) -> None:
    if VERSION not in VERSIONS:
        raise InputError(f"the hopper kernels were not tried with Triton {triton.__version__}; use the tma kernels.")
    for operand in operands:
        if operand.dtype not in (torch.bfloat16, torch.float16) or not tma_legal(operand):
            raise InputError(
                f"the hopper kernels cannot read {operand.dtype} of shape {tuple(operand.shape)} with strides "
                f"{operand.stride()}: 16-bit types, contiguous rows, addresses and row strides of 16 bytes only."
            )


def _slices(tensor: torch.Tensor, part: int = 0, parts: int = 1) -> Descriptor:
    """Of a result, or of one of several parts of equal width."""
    width = tensor.shape[1] // parts
    if width * tensor.element_size() % 16:
        raise InputError(f"the hopper kernels cannot write {width} columns: rows must end on a 16-byte boundary.")
    return column_descriptor(tensor, part * width, (part + 1) * width, _SLICE, _LAYOUT)


def _forward(
    x: torch.Tensor,
    weights: tuple[torch.Tensor, ...],
    biases: tuple[torch.Tensor, ...],
    activation: str,
    keep: bool,
    precision: str,
    group: int,
    stages: int,
    block_n: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    rows, inner = x.shape
    columns = weights[0].shape[0]
    gated = len(weights) == 2
    hidden = x.new_empty((rows, columns))
    preact = x.new_empty((rows, columns * len(weights))) if keep else None
    first, last = weights[0], weights[-1]
    key = (
        x.data_ptr(), first.data_ptr(), last.data_ptr(), hidden.data_ptr(),
        None if preact is None else preact.data_ptr(),
        x.shape, x.stride(), x.dtype, first.shape, first.stride(), first.dtype, last.shape, last.stride(), last.dtype,
        (biases[0].data_ptr(), biases[-1].data_ptr(), biases[0].dtype, biases[-1].dtype) if biases else None,
        x.get_device(), gated, activation, precision, group, stages, block_n,
    )  # fmt: skip
    if repeated(_forwards, key):
        return hidden, preact
    _checked(x, *weights)
    hidden_desc = _slices(hidden)
    if preact is None:
        kept = (hidden_desc, hidden_desc)
    elif gated:
        kept = (_slices(preact, 0, 2), _slices(preact, 1, 2))
    else:
        kept = (_slices(preact), hidden_desc)
    programs = processors(x.get_device())
    run = launcher(
        foretrace_hopper_forward, num_warps=4, maxnreg=_REGISTERS, PROGRAMS=programs, GROUP=group, STAGES=stages,
        GATED=gated, BIAS=bool(biases), KEEP=keep, ACTIVATION=activation,
        PRECISION=kernel_precision(precision, x.dtype), BLOCK_N=block_n,
    )  # fmt: skip
    launch = (
        (programs,), descriptor(x, _ROWS, _LAYOUT), descriptor(first, (block_n // 2, 64), _LAYOUT),
        descriptor(last, (block_n // 2, 64), _LAYOUT), hidden_desc, *kept,
        biases[0] if biases else None, biases[-1] if biases else None, rows, columns, inner,
    )  # fmt: skip
    run(*launch)
    remember(_forwards, key, run.repetition(*launch))
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
    block_n: int = 256,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Hidden [M, N] = act(x gate^T + gate_bias) * (x up^T + up_bias), and [gate | up] of [M, 2N] if ``keep``.

    x [M, K], gate and up [N, K], bfloat16 or float16. Raises `InputError` for what TMA cannot address.
    """
    biases: tuple[torch.Tensor, ...] = ()
    if gate_bias is not None or up_bias is not None:
        missing = x.new_zeros(gate.shape[0]) if gate_bias is None or up_bias is None else x
        biases = (missing if gate_bias is None else gate_bias, missing if up_bias is None else up_bias)
    return _forward(x, (gate, up), biases, activation, keep, precision, group, stages, block_n)


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
    block_n: int = 256,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Hidden [M, N] = act(x weight^T + bias), and the pre-activations [M, N] if ``keep``; otherwise as `gate_up`."""
    biases = () if bias is None else (bias,)
    return _forward(x, (weight,), biases, activation, keep, precision, group, stages, block_n)


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
    block_n: int,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    grad = preact.new_empty(preact.shape) if into is None else into
    hidden = grad_out.new_empty((grad_out.shape[0], down.shape[1])) if want_hidden else None
    key = (
        grad_out.data_ptr(), down.data_ptr(), preact.data_ptr(),
        None if into is preact else (grad.data_ptr(), grad.shape, grad.stride(), grad.dtype),
        None if hidden is None else hidden.data_ptr(), grad_out.shape, grad_out.stride(), grad_out.dtype, down.shape,
        down.stride(), down.dtype, preact.shape, preact.stride(), preact.dtype,
        grad_out.get_device(), gated, activation, group, stages, slots, block_n,
    )  # fmt: skip
    if not repeated(_backwards, key):
        _start_backward(grad_out, down, preact, grad, hidden, activation, gated, group, stages, slots, block_n, key)
    # In the kernel these sums would cross warps; one more pass costs less than that there.
    bias = torch.sum(grad, 0, dtype=torch.float32) if want_bias else None
    return grad, hidden, bias


def _backward_launcher(
    like: torch.Tensor,
    gated: bool,
    with_hidden: bool,
    activation: str,
    group: int,
    stages: int,
    slots: int,
    block_n: int,
) -> Launcher:
    """``like``: any operand, for its type and device."""
    return launcher(
        foretrace_hopper_backward, num_warps=4, maxnreg=_REGISTERS, PROGRAMS=processors(like.get_device()),
        GROUP=group, STAGES=stages, SLOTS=slots, GATED=gated, HIDDEN=with_hidden, ACTIVATION=activation,
        PRECISION=kernel_precision("exact", like.dtype), BLOCK_N=block_n,
    )  # fmt: skip


def prepare_backward(
    gated: bool,
    x: torch.Tensor,
    columns: int,
    activation: str,
    *,
    group: int = 8,
    stages: int = 3,
    slots: int = 2,
    block_n: int = 256,
) -> None:
    """Compile, beside the forward kernel of ``x`` [M, K] to ``columns`` hidden units, what its backward will need.

    The compiler looks at types, boxes and divisibility only, so that x stands for every operand. It is a guess, for a
    layer with as many outputs as inputs; where it is wrong backward compiles for itself.
    """
    if not tma_legal(x):
        return
    rows, inner = x.shape
    operand = descriptor(x, _ROWS, _LAYOUT)
    _backward_launcher(x, gated, False, activation, group, stages, slots, block_n).prepare(
        (1,), operand, descriptor(x, (64, block_n), _LAYOUT), *[operand] * 5, rows, columns, inner
    )


def _start_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    grad: torch.Tensor,
    hidden: torch.Tensor | None,
    activation: str,
    gated: bool,
    group: int,
    stages: int,
    slots: int,
    block_n: int,
    key: Any,
) -> None:
    rows, inner = grad_out.shape
    columns = down.shape[1]
    _checked(grad_out, down)
    # The hidden units' buffers take the place of a stage.
    stages = min(stages, 3) if hidden is not None else stages
    kept: tuple[Any, ...]
    if gated:
        kept = (_slices(preact, 0, 2), _slices(preact, 1, 2), _slices(grad, 0, 2), _slices(grad, 1, 2))
    else:
        kept = (_slices(preact), _slices(preact), _slices(grad), _slices(grad))
    run = _backward_launcher(grad_out, gated, hidden is not None, activation, group, stages, slots, block_n)
    launch = (
        (processors(grad_out.get_device()),), descriptor(grad_out, _ROWS, _LAYOUT),
        descriptor(down, (64, block_n), _LAYOUT), *kept,
        kept[0] if hidden is None else _slices(hidden), rows, columns, inner,
    )  # fmt: skip
    run(*launch)
    remember(_backwards, key, run.repetition(*launch))


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
    block_n: int = 256,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """[d-gate | d-up] of [M, 2N] from grad_out [M, out], down [out, N] and preact [M, 2N].

    Also hidden [M, N] and the column sums of the result (float32, [2N]) where wanted. ``into`` takes the result and may
    be ``preact``.
    """
    return _backward(
        grad_out, down, preact, activation, want_hidden, want_bias, into, True, group, stages, slots, block_n
    )


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
    block_n: int = 256,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """d-preact [M, N] of a product with an activation and no gate; otherwise as `gate_up_backward`."""
    return _backward(
        grad_out, down, preact, activation, want_hidden, want_bias, into, False, group, stages, slots, block_n
    )
