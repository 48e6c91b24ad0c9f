"""The gradient through an activation and its sums over the rows, a bias's gradient, in one pass over the data.

Summed on its own the gradient would be read once more. A program walks down a strip of rows in a block of columns with
the sums in its registers and writes them to a row of partial sums, which one reduction adds up. How rows are cut into
strips follows from the shape alone, so that a result is always the same bits.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import gcd
from typing import Any

import torch
import triton
import triton.language as tl

from foretrace.fused.kernels.activation import activate_with_slope, kernel_precision, times_slope
from foretrace.fused.kernels.launch import Repetition, identity, launcher, remember, repeated
from foretrace.fused.kernels.naming import naming

__all__ = ["act_backward_sums", "strides_in_units", "strips_of"]

# What was launched before with the very same operands.
_launches: dict[Any, Repetition] = {}

# Columns of a block, and its elements: two times 16 bytes a thread of each tensor. A block is never smaller than its
# threads are many: two threads with the same element would both add it up, one perhaps after it was overwritten.
BLOCK_COLUMNS = 256
BLOCK_ELEMENTS = 2048
# Some 8 programs on each processor; a strip of fewer rows is mostly its beginning and its end.
PROGRAMS = 1024
LEAST_ROWS = 64


@triton.jit(repr=naming("elementwise", "act_backward_sums"))
def foretrace_elementwise_backward_sums(
    grad_ptr: tl.tensor,
    preact_ptr: tl.tensor,
    out_ptr: tl.tensor,
    hidden_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    rows: int,
    columns: int,
    strip_rows: int,
    grad_stride: int,
    preact_stride: int,
    out_stride: int,
    hidden_stride: int,
    HIDDEN: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    UNIT: tl.constexpr,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
) -> None:
    # ``columns`` and strides count units: the compiler sees that they are multiples of UNIT and merges accesses.
    width = tl.full((), UNIT, tl.int64) * columns
    blocks = tl.cdiv(width, BLOCK_COLUMNS)
    program = tl.program_id(0)
    strip = program // blocks  # int64, as everything made of it
    first = (program % blocks) * BLOCK_COLUMNS
    column = tl.arange(0, BLOCK_COLUMNS)[None, :]
    end = width - first
    total = tl.zeros((BLOCK_ROWS, BLOCK_COLUMNS), tl.float32)
    for step in range(0, strip_rows, BLOCK_ROWS):
        row = strip * strip_rows + step + tl.arange(0, BLOCK_ROWS)[:, None]
        inside = (row < rows) & (column < end)
        # Outside both are 0, and so is their gradient: it is added up as it is. A gradient may overwrite its
        # pre-activation: it is stored when that was read, and no other thread reads the same one.
        grad = tl.load(grad_ptr + first + row * UNIT * grad_stride + column, mask=inside, other=0.0)
        preact = tl.load(preact_ptr + first + row * UNIT * preact_stride + column, mask=inside, other=0.0)
        value, slope = activate_with_slope(preact.to(tl.float32), ACTIVATION, PRECISION)
        result = times_slope(grad.to(tl.float32), slope, ACTIVATION)
        out = out_ptr + first + row * UNIT * out_stride + column
        tl.store(out, result.to(out_ptr.dtype.element_ty), mask=inside)
        total += result
        if HIDDEN:
            hidden = hidden_ptr + first + row * UNIT * hidden_stride + column
            tl.store(hidden, value.to(hidden_ptr.dtype.element_ty), mask=inside)
    below = tl.arange(0, BLOCK_COLUMNS)
    tl.store(partial_ptr + strip * width + first + below, tl.sum(total, axis=0), mask=below < end)


def act_backward_sums(
    grad: torch.Tensor,
    preact: torch.Tensor,
    out: torch.Tensor,
    hidden: torch.Tensor | None,
    activation: str,
    precision: str,
) -> torch.Tensor:
    """Write the gradient of preact, and act(preact) into hidden if that is given; return the gradient's sums [N].

    All [M, N] of one dtype, any row strides, consecutive columns; ``out`` may be preact. The sums are float32,
    and those of the gradient before it is rounded to that dtype.
    """
    rows, columns = preact.shape
    if not rows * columns:
        return torch.zeros(columns, dtype=torch.float32, device=preact.device)
    strips, strip_rows = strips_of(rows, columns)
    # The only strip's sums are the result.
    partial = preact.new_empty((strips, columns) if strips > 1 else (columns,), dtype=torch.float32)
    key = (
        identity(grad, preact), None if out is preact else identity(out),
        None if hidden is None else hidden.data_ptr(), partial.data_ptr(), activation, precision,
    )  # fmt: skip
    if not repeated(_launches, key):
        strides, unit = strides_in_units(rows, columns, (grad, preact, out, hidden))
        block_columns = min(BLOCK_COLUMNS, triton.next_power_of_2(columns))
        start = launcher(
            foretrace_elementwise_backward_sums,
            num_warps=4,
            HIDDEN=hidden is not None,
            ACTIVATION=activation,
            PRECISION=kernel_precision(precision, preact.dtype),
            UNIT=unit,
            BLOCK_ROWS=BLOCK_ELEMENTS // block_columns,
            BLOCK_COLUMNS=block_columns,
        )
        launch: tuple[Any, ...] = (
            (strips * triton.cdiv(columns, block_columns),),
            grad, preact, out, hidden, partial, rows, columns // unit, strip_rows, *strides,
        )  # fmt: skip
        start(*launch)
        remember(_launches, key, start.repetition(*launch))
    # Added up in float32 and cast by the caller: with another dtype ATen would round what it adds up as well.
    return partial if strips == 1 else partial.sum(0)


@lru_cache(maxsize=1024)
def strips_of(rows: int, columns: int) -> tuple[int, int]:
    """Into how many strips the rows are cut, and the rows of each, whole blocks; the last strip may have fewer."""
    block_columns = min(BLOCK_COLUMNS, triton.next_power_of_2(columns))
    block_rows = BLOCK_ELEMENTS // block_columns
    least = triton.cdiv(rows, max(1, PROGRAMS // triton.cdiv(columns, block_columns)))
    strip_rows = triton.cdiv(max(least, LEAST_ROWS), block_rows) * block_rows
    return triton.cdiv(rows, strip_rows), strip_rows


def strides_in_units(rows: int, columns: int, tensors: Sequence[torch.Tensor | None]) -> tuple[list[int], int]:
    """The row stride of each tensor in units (0: no tensor), and the unit in elements.

    The unit is the largest of 1, 2, 4, 8, 16 that divides the columns and every row stride.
    """
    # The stride between the rows of a single row is anything; 0 constrains nothing.
    strides = [0 if tensor is None or rows == 1 else tensor.stride(0) for tensor in tensors]
    unit = gcd(16, columns, *strides)
    return [stride // unit for stride in strides], unit
