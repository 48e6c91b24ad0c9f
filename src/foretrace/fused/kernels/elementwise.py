"""Activations of tensors in memory: one pass over the data, at the speed of a copy.

Used beside cuBLAS where a fused GEMM does not pay, and for an activation on its own. A tensor whose rows follow each
other without a gap is treated as one long row; otherwise (the halves of a stacked pre-activation) the grid covers rows
and columns. Every thread moves 16 bytes at a time where sizes and strides allow it, however wide a row is.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from foretrace.fused.kernels.activation import activate, activate_with_slope, kernel_precision, times_slope
from foretrace.fused.kernels.elementwise_sums import act_backward_sums, strides_in_units
from foretrace.fused.kernels.launch import Repetition, identity, launcher, remember, repeated, uncopied
from foretrace.fused.kernels.naming import naming
from foretrace.fused.kernels.tiles import with_dense_rows
from foretrace.fused.rows import row as step_row

__all__ = ["act", "act_backward", "gated_act", "gated_act_backward"]

# What was launched before with the very same operands.
_forwards: dict[Any, Repetition] = {}
_backwards: dict[Any, Repetition] = {}

# Elements a program: 16 and 8 a thread for 4 warps, so that all loads of a program are in flight at once.
FORWARD_ELEMENTS = 4096
BACKWARD_ELEMENTS = 2048
WIDEST_BLOCK = 1024


@triton.jit
def _block(
    columns: int,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor, tl.tensor]:
    """This program's rows [BLOCK_ROWS, 1] int64, first column int64, columns from there [1, BLOCK_COLUMNS], their end.

    ``columns`` counts units: the compiler sees that every size is a multiple of UNIT and merges loads that far.
    """
    width = tl.full((), UNIT, tl.int64) * columns
    blocks = tl.cdiv(width, BLOCK_COLUMNS)
    program = tl.program_id(0)
    row = (program // blocks) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)[:, None]
    first = (program % blocks) * BLOCK_COLUMNS
    return row, first, tl.arange(0, BLOCK_COLUMNS)[None, :], width - first


@triton.jit(repr=naming("elementwise", "gated_act", "act"))
def foretrace_elementwise_forward(
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    out_ptr: tl.tensor,
    rows: int,
    columns: int,
    gate_stride: int,
    up_stride: int,
    out_stride: int,
    GATED: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
) -> None:
    row, first, column, end = _block(columns, UNIT, BLOCK_ROWS, BLOCK_COLUMNS)
    inside = (row < rows) & (column < end)
    gate = tl.load(gate_ptr + first + row * UNIT * gate_stride + column, mask=inside)
    hidden = activate(gate.to(tl.float32), ACTIVATION, PRECISION)
    if GATED:
        up = tl.load(up_ptr + first + row * UNIT * up_stride + column, mask=inside)
        hidden *= up.to(tl.float32)
    out = out_ptr + first + row * UNIT * out_stride + column
    tl.store(out, hidden.to(out_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=naming("elementwise", "gated_act_backward", "act_backward"))
def foretrace_elementwise_backward(
    grad_ptr: tl.tensor,
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    grad_gate_ptr: tl.tensor,
    grad_up_ptr: tl.tensor,
    hidden_ptr: tl.tensor,
    rows: int,
    columns: int,
    grad_stride: int,
    gate_stride: int,
    up_stride: int,
    grad_gate_stride: int,
    grad_up_stride: int,
    hidden_stride: int,
    GATED: tl.constexpr,
    HIDDEN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
) -> None:
    # A gradient may overwrite what it belongs to: each element is read and written by the same thread, reads first,
    # because all accesses of a block have one layout.
    row, first, column, end = _block(columns, UNIT, BLOCK_ROWS, BLOCK_COLUMNS)
    inside = (row < rows) & (column < end)
    grad = tl.load(grad_ptr + first + row * UNIT * grad_stride + column, mask=inside).to(tl.float32)
    gate = tl.load(gate_ptr + first + row * UNIT * gate_stride + column, mask=inside).to(tl.float32)
    value, slope = activate_with_slope(gate, ACTIVATION, PRECISION)
    if GATED:
        up = tl.load(up_ptr + first + row * UNIT * up_stride + column, mask=inside).to(tl.float32)
        grad_up = grad_up_ptr + first + row * UNIT * grad_up_stride + column
        tl.store(grad_up, (grad * value).to(grad_up_ptr.dtype.element_ty), mask=inside)
        grad *= up
        value *= up
    grad_gate = grad_gate_ptr + first + row * UNIT * grad_gate_stride + column
    tl.store(grad_gate, times_slope(grad, slope, ACTIVATION).to(grad_gate_ptr.dtype.element_ty), mask=inside)
    if HIDDEN:
        hidden = hidden_ptr + first + row * UNIT * hidden_stride + column
        tl.store(hidden, value.to(hidden_ptr.dtype.element_ty), mask=inside)


@step_row("gated_act")
def gated_act(
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str,
    out: torch.Tensor | None = None,
    precision: str = "exact",
) -> torch.Tensor:
    """Return act(gate) * up, rounded once from float32.

    gate, up: [M, N] of one dtype, any row strides. out: where to write, [M, N], consecutive columns; made if not given.
    """
    out = torch.empty_like(gate, memory_format=torch.contiguous_format) if out is None else out
    _forward(gate, up, out, activation, precision)
    return out


@step_row("act")
def act(
    preact: torch.Tensor,
    activation: str,
    out: torch.Tensor | None = None,
    precision: str = "exact",
) -> torch.Tensor:
    """Return act(preact) for preact [M, N], computed in float32; see `gated_act`."""
    out = torch.empty_like(preact, memory_format=torch.contiguous_format) if out is None else out
    _forward(preact, None, out, activation, precision)
    return out


@step_row("gated_act_backward")
def gated_act_backward(
    grad_hidden: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    activation: str,
    *,
    grad_gate: torch.Tensor | None = None,
    grad_up: torch.Tensor | None = None,
    want_hidden: bool = False,
    precision: str = "exact",
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Return the gradients of gate and up, and act(gate) * up if wanted.

    All [M, N] of one dtype, any row strides. grad_gate, grad_up: where to write, consecutive columns; they may be gate
    and up themselves, or halves of one [M, 2N] tensor, which is what they are made as if neither is given.
    """
    if grad_gate is None and grad_up is None:
        rows, columns = gate.shape
        both = gate.new_empty((rows, 2 * columns))
        grad_gate, grad_up = both[:, :columns], both[:, columns:]
    grad_gate = gate.new_empty(gate.shape) if grad_gate is None else grad_gate
    grad_up = up.new_empty(up.shape) if grad_up is None else grad_up
    hidden = gate.new_empty(gate.shape) if want_hidden else None
    _backward(grad_hidden, gate, up, grad_gate, grad_up, hidden, activation, precision)
    return grad_gate, grad_up, hidden


@step_row("act_backward")
def act_backward(
    grad_hidden: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    into: torch.Tensor | None = None,
    want_hidden: bool = False,
    want_bias: bool = False,
    precision: str = "exact",
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradient of preact [M, N], act(preact) if wanted, and the gradient's sums over rows [N] if wanted.

    into: where to write, may be preact itself. The sums are float32, and those of the gradient before it is rounded.
    """
    into = torch.empty_like(preact, memory_format=torch.contiguous_format) if into is None else into
    hidden = preact.new_empty(preact.shape) if want_hidden else None
    if want_bias:
        grad_hidden, preact = with_dense_rows(grad_hidden), with_dense_rows(preact)
        return into, hidden, act_backward_sums(grad_hidden, preact, into, hidden, activation, precision)
    _backward(grad_hidden, preact, None, into, None, hidden, activation, precision)
    return into, hidden, None


def _forward(gate: torch.Tensor, up: torch.Tensor | None, out: torch.Tensor, activation: str, precision: str) -> None:
    key = (identity(gate, up, out), activation, precision)
    if repeated(_forwards, key):
        return
    given = (gate, up)
    gate, up = with_dense_rows(gate), None if up is None else with_dense_rows(up)
    rows, columns, strides, unit = _geometry(gate, up, out)
    if not rows * columns:
        return
    block_rows, block_columns = _block_shape(rows, columns, FORWARD_ELEMENTS)
    start = launcher(
        foretrace_elementwise_forward,
        num_warps=4,
        GATED=up is not None,
        ACTIVATION=activation,
        PRECISION=kernel_precision(precision, out.dtype),
        UNIT=unit,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
    )
    programs = triton.cdiv(rows, block_rows) * triton.cdiv(columns, block_columns)
    launch: tuple[Any, ...] = ((programs,), gate, up, out, rows, columns // unit, *strides)
    start(*launch)
    if uncopied(given, (gate, up)):
        remember(_forwards, key, start.repetition(*launch))


def _backward(
    grad: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor | None,
    grad_gate: torch.Tensor,
    grad_up: torch.Tensor | None,
    hidden: torch.Tensor | None,
    activation: str,
    precision: str,
) -> None:
    in_place = grad_gate is gate and grad_up is up
    key = (
        identity(grad, gate, up), None if in_place else identity(grad_gate, grad_up),
        None if hidden is None else hidden.data_ptr(), activation, precision,
    )  # fmt: skip
    if repeated(_backwards, key):
        return
    given = (grad, gate, up)
    grad, gate, up = with_dense_rows(grad), with_dense_rows(gate), None if up is None else with_dense_rows(up)
    rows, columns, strides, unit = _geometry(grad, gate, up, grad_gate, grad_up, hidden)
    if not rows * columns:
        return
    block_rows, block_columns = _block_shape(rows, columns, BACKWARD_ELEMENTS)
    start = launcher(
        foretrace_elementwise_backward,
        num_warps=4,
        GATED=up is not None,
        HIDDEN=hidden is not None,
        ACTIVATION=activation,
        PRECISION=kernel_precision(precision, gate.dtype),
        UNIT=unit,
        BLOCK_ROWS=block_rows,
        BLOCK_COLUMNS=block_columns,
    )
    programs = triton.cdiv(rows, block_rows) * triton.cdiv(columns, block_columns)
    launch: tuple[Any, ...] = ((programs,), grad, gate, up, grad_gate, grad_up, hidden, rows, columns // unit, *strides)
    start(*launch)
    if uncopied(given, (grad, gate, up)):
        remember(_backwards, key, start.repetition(*launch))


def _geometry(*tensors: torch.Tensor | None) -> tuple[int, int, list[int], int]:
    """Rows and columns, one long row if there is no gap in any tensor, and `strides_in_units`."""
    there = [tensor for tensor in tensors if tensor is not None]
    rows, columns = there[0].shape
    if rows > 1 and all(tensor.stride(0) == columns for tensor in there):
        rows, columns = 1, rows * columns
    return rows, columns, *strides_in_units(rows, columns, tensors)


def _block_shape(rows: int, columns: int, elements: int) -> tuple[int, int]:
    """Rows and columns a program handles: powers of two, at most WIDEST_BLOCK columns unless there is but one row."""
    widest = elements if rows == 1 else WIDEST_BLOCK
    block_columns = min(widest, triton.next_power_of_2(columns))
    return min(elements // block_columns, triton.next_power_of_2(rows)), block_columns
