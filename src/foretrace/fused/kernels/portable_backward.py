"""Gradient of the hidden activations with the activation's derivative in its epilogue, through plain pointers.

One program computes a tile of dH = grad_out down, reads gate and up there and writes their gradients; dH itself never
leaves the registers. The epilogue goes over the tile in column parts, or its many operands would not fit the registers.
Bias gradients are sums over rows: each program writes the sums of its tile, and one reduction in fixed order adds
them, so that the result is the same in every run.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from foretrace.fused.kernels.activation import activate_with_slope, kernel_precision, times_slope
from foretrace.fused.kernels.launch import Repetition, identity, launcher, remember, repeated, uncopied
from foretrace.fused.kernels.naming import naming
from foretrace.fused.kernels.tiles import (
    choose_tile,
    column_parts,
    dot_precision,
    grouped_position,
    with_dense_rows,
)

__all__ = ["gate_up_backward", "linear_act_backward"]

# What was launched before with the very same operands; and the rows of partial sums, which the tile decides, so that
# the address that completes a launch's operands is known without choosing a tile again.
_launches: dict[Any, Repetition] = {}
_partial_rows: dict[Any, int] = {}


@triton.jit
def _write_part(
    grad: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    tile_m: tl.tensor,
    preact_ptr: tl.tensor,
    grad_preact_ptr: tl.tensor,
    hidden_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    m: int,
    n: int,
    preact_stride: int,
    grad_stride: int,
    GATED: tl.constexpr,
    HIDDEN: tl.constexpr,
    BIAS: tl.constexpr,
    IN_PLACE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """From dH [rows, columns] of one part of a tile: gradients of the pre-activations, hidden, sums over rows."""
    inside = (row < m)[:, None] & (column < n)[None, :]
    preact = preact_ptr + row.to(tl.int64)[:, None] * preact_stride + column[None, :]
    gate = tl.load(preact, mask=inside, other=0.0).to(tl.float32)
    if GATED:
        up = tl.load(preact + n, mask=inside, other=0.0).to(tl.float32)
    if IN_PLACE:
        # What one thread overwrites another may still have to read.
        tl.debug_barrier()
    value, slope = activate_with_slope(gate, ACTIVATION, PRECISION)
    grad_preact = grad_preact_ptr + row.to(tl.int64)[:, None] * grad_stride + column[None, :]
    if BIAS:
        # Rows beyond the last one hold copies of it.
        grad = tl.where(inside, grad, 0.0)
        partial = partial_ptr + tile_m.to(tl.int64) * (2 * n if GATED else n) + column
    if GATED:
        grad_up = grad * value
        tl.store(grad_preact + n, grad_up.to(grad_preact_ptr.dtype.element_ty), mask=inside)
        if BIAS:
            tl.store(partial + n, tl.sum(grad_up, axis=0), mask=column < n)
        grad *= up
        value *= up
    grad_gate = times_slope(grad, slope, ACTIVATION)
    tl.store(grad_preact, grad_gate.to(grad_preact_ptr.dtype.element_ty), mask=inside)
    if BIAS:
        tl.store(partial, tl.sum(grad_gate, axis=0), mask=column < n)
    if HIDDEN:
        hidden = hidden_ptr + row.to(tl.int64)[:, None] * n + column[None, :]
        tl.store(hidden, value.to(hidden_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=naming("portable", "gate_up_backward", "linear_act_backward"))
def foretrace_portable_backward(
    grad_out_ptr: tl.tensor,
    down_ptr: tl.tensor,
    preact_ptr: tl.tensor,
    grad_preact_ptr: tl.tensor,
    hidden_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    m: int,
    n: int,
    k: int,
    grad_out_stride: int,
    down_stride: int,
    preact_stride: int,
    grad_stride: int,
    GATED: tl.constexpr,
    HIDDEN: tl.constexpr,
    BIAS: tl.constexpr,
    IN_PLACE: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    DOT: tl.constexpr,
    WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SUBTILES: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    tile_m, tile_n = grouped_position(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    feature = tl.arange(0, BLOCK_K)
    # Inside the tensor for every row, so that loads of grad_out need no mask but along K.
    grad_out = grad_out_ptr + tl.minimum(row, m - 1).to(tl.int64)[:, None] * grad_out_stride + feature[None, :]
    down = down_ptr + feature.to(tl.int64)[:, None] * down_stride + column[None, :]
    step = tl.full((), BLOCK_K, tl.int64) * down_stride
    grad = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        if WHOLE:
            grad_block = tl.load(grad_out)
            down_block = tl.load(down)
        else:
            grad_block = tl.load(grad_out, mask=feature[None, :] < k - start, other=0.0)
            down_block = tl.load(down, mask=(feature[:, None] < k - start) & (column[None, :] < n), other=0.0)
        grad = tl.dot(grad_block, down_block, grad, input_precision=DOT)
        grad_out += BLOCK_K
        down += step

    parts = column_parts(grad, SUBTILES)
    width: tl.constexpr = BLOCK_N // SUBTILES
    for part in tl.static_range(SUBTILES):
        _write_part(
            parts[part],
            row,
            tile_n * BLOCK_N + part * width + tl.arange(0, width),
            tile_m,
            preact_ptr,
            grad_preact_ptr,
            hidden_ptr,
            partial_ptr,
            m,
            n,
            preact_stride,
            grad_stride,
            GATED,
            HIDDEN,
            BIAS,
            IN_PLACE,
            ACTIVATION,
            PRECISION,
        )


def gate_up_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None = None,
    **options: int,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradient of preact [M, 2N], the hidden activations [M, N] if wanted, and the bias gradient if wanted.

    grad_out: [M, out]; down: [out, N]; preact: [M, 2N], gate in columns 0 to N, up in the rest; all of one dtype, any
    row strides. into: where to write the gradient, consecutive columns, may be preact itself. The bias gradient is
    float32 [2N]: sums over rows, before the gradient is rounded. options: fields of `tiles.Tile` that replace the
    default choice. Raises `InputError` for an option that does not exist.
    """
    return _contract(grad_out, down, preact, True, activation, want_hidden, want_bias, into, options)


def linear_act_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None = None,
    **options: int,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Return the gradient of preact [M, N], act(preact) if wanted, float32 bias gradient [N] if wanted.

    As `gate_up_backward`, for one pre-activation.
    """
    return _contract(grad_out, down, preact, False, activation, want_hidden, want_bias, into, options)


def _contract(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    gated: bool,
    activation: str,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None,
    options: dict[str, int],
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    dtype = preact.dtype
    given = (grad_out, down, preact)
    elsewhere = None if into is preact or into is None else identity(into)
    into = preact.new_empty(preact.shape) if into is None else into
    hidden = preact.new_empty((preact.shape[0], down.shape[1])) if want_hidden else None
    dot = dot_precision() if dtype == torch.float32 else "tf32"
    key = (
        identity(*given), elsewhere or into.data_ptr(), None if hidden is None else hidden.data_ptr(),
        gated, activation, dot, tuple(options.items()),
    )  # fmt: skip
    partial = None
    if not want_bias:
        if repeated(_launches, key):
            return into, hidden, None
    elif key in _partial_rows:
        partial = preact.new_empty((_partial_rows[key], preact.shape[1]), dtype=torch.float32)
        if repeated(_launches, (key, partial.data_ptr())):
            return into, hidden, partial.sum(0)
    (m, k), n = grad_out.shape, down.shape[1]
    grad_out, down, preact = with_dense_rows(grad_out), with_dense_rows(down), with_dense_rows(preact)
    in_place = into.data_ptr() == preact.data_ptr()
    tile = choose_tile(grad_out, (down,), backward=True)
    if options:
        tile = tile.changed(options)
    tiles_m = triton.cdiv(m, tile.block_m)
    if want_bias and partial is None:
        partial = preact.new_empty((tiles_m, preact.shape[1]), dtype=torch.float32)
    if m * n:
        start = launcher(
            foretrace_portable_backward,
            num_warps=tile.num_warps,
            num_stages=tile.num_stages,
            GATED=gated,
            HIDDEN=want_hidden,
            BIAS=want_bias,
            IN_PLACE=in_place,
            ACTIVATION=activation,
            PRECISION=kernel_precision("exact", dtype),
            DOT=dot,
            WHOLE=k % tile.block_k == 0 and n % tile.block_n == 0,
            BLOCK_M=tile.block_m,
            BLOCK_N=tile.block_n,
            BLOCK_K=tile.block_k,
            GROUP=tile.group,
            SUBTILES=tile.subtiles,
            STAGES=tile.num_stages,
        )
        launch = (
            (tiles_m * triton.cdiv(n, tile.block_n),),
            grad_out, down, preact, into, hidden, partial,
            m, n, k, grad_out.stride(0), down.stride(0), preact.stride(0), into.stride(0),
        )  # fmt: skip
        start(*launch)
        if uncopied(given, (grad_out, down, preact)):
            repetition = start.repetition(*launch)
            if partial is None:
                remember(_launches, key, repetition)
            else:
                remember(_partial_rows, key, tiles_m)
                remember(_launches, (key, partial.data_ptr()), repetition)
    return into, hidden, None if partial is None else partial.sum(0)
