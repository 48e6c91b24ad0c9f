"""GEMM with activation, through plain pointers: any size, stride and alignment, NVIDIA Ampere and later.

Gate and up are two accumulators of one program, so neither leaves the registers unless it is to be kept. Rows beyond
the last one are computed from copies of it and not stored; input features beyond the last one are zeros.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from foretrace.fused.kernels.activation import activate, kernel_precision
from foretrace.fused.kernels.launch import Repetition, identity, launcher, remember, repeated, uncopied
from foretrace.fused.kernels.naming import naming
from foretrace.fused.kernels.tiles import (
    choose_tile,
    column_parts,
    dot_precision,
    grouped_position,
    with_dense_rows,
)

__all__ = ["gate_up", "linear_act"]

# What was launched before with the very same operands.
_launches: dict[Any, Repetition] = {}


@triton.jit
def _write_part(
    gate: tl.tensor,
    up: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    gate_bias_ptr: tl.tensor,
    up_bias_ptr: tl.tensor,
    hidden_ptr: tl.tensor,
    preact_ptr: tl.tensor,
    m: int,
    n: int,
    GATED: tl.constexpr,
    GATE_BIAS: tl.constexpr,
    UP_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
) -> None:
    """From the products [rows, columns] of one part of a tile: biases, pre-activations, hidden activations."""
    inside = (row < m)[:, None] & (column < n)[None, :]
    row = row.to(tl.int64)[:, None]
    if KEEP:
        preact = preact_ptr + row * (2 * n if GATED else n) + column[None, :]
    if GATE_BIAS:
        gate += tl.load(gate_bias_ptr + column, mask=column < n).to(tl.float32)[None, :]
    if KEEP:
        tl.store(preact, gate.to(preact_ptr.dtype.element_ty), mask=inside)
    hidden = activate(gate, ACTIVATION, PRECISION)
    if GATED:
        if UP_BIAS:
            up += tl.load(up_bias_ptr + column, mask=column < n).to(tl.float32)[None, :]
        if KEEP:
            tl.store(preact + n, up.to(preact_ptr.dtype.element_ty), mask=inside)
        hidden *= up
    tl.store(hidden_ptr + row * n + column[None, :], hidden.to(hidden_ptr.dtype.element_ty), mask=inside)


@triton.jit(repr=naming("portable", "gate_up", "linear_act"))
def foretrace_portable_forward(
    x_ptr: tl.tensor,
    gate_ptr: tl.tensor,
    up_ptr: tl.tensor,
    gate_bias_ptr: tl.tensor,
    up_bias_ptr: tl.tensor,
    hidden_ptr: tl.tensor,
    preact_ptr: tl.tensor,
    m: int,
    n: int,
    k: int,
    x_stride: int,
    gate_stride: int,
    up_stride: int,
    GATED: tl.constexpr,
    GATE_BIAS: tl.constexpr,
    UP_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    DOT: tl.constexpr,
    WHOLE_K: tl.constexpr,
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
    # Inside the tensors for every row and column, so that loads need no mask but along K.
    weight_row = tl.minimum(column, n - 1).to(tl.int64)[None, :]
    x = x_ptr + tl.minimum(row, m - 1).to(tl.int64)[:, None] * x_stride + feature[None, :]
    gate_weight = gate_ptr + weight_row * gate_stride + feature[:, None]
    gate = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    if GATED:
        up_weight = up_ptr + weight_row * up_stride + feature[:, None]
        up = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        if WHOLE_K:
            x_block = tl.load(x)
            weight_block = tl.load(gate_weight)
        else:
            x_block = tl.load(x, mask=feature[None, :] < k - start, other=0.0)
            weight_block = tl.load(gate_weight, mask=feature[:, None] < k - start, other=0.0)
        gate = tl.dot(x_block, weight_block, gate, input_precision=DOT)
        if GATED:
            if WHOLE_K:
                weight_block = tl.load(up_weight)
            else:
                weight_block = tl.load(up_weight, mask=feature[:, None] < k - start, other=0.0)
            up = tl.dot(x_block, weight_block, up, input_precision=DOT)
            up_weight += BLOCK_K
        x += BLOCK_K
        gate_weight += BLOCK_K

    gate_parts = column_parts(gate, SUBTILES)
    up_parts = column_parts(up, SUBTILES) if GATED else gate_parts
    width: tl.constexpr = BLOCK_N // SUBTILES
    for part in tl.static_range(SUBTILES):
        _write_part(
            gate_parts[part],
            up_parts[part],
            row,
            tile_n * BLOCK_N + part * width + tl.arange(0, width),
            gate_bias_ptr,
            up_bias_ptr,
            hidden_ptr,
            preact_ptr,
            m,
            n,
            GATED,
            GATE_BIAS,
            UP_BIAS,
            KEEP,
            ACTIVATION,
            PRECISION,
        )


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
    **options: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return act(x gate^T + gate_bias) * (x up^T + up_bias), [M, N], and the pre-activations [M, 2N] if kept.

    x: [M, K]; gate, up: [N, K], any row strides; biases: [N]; all of one dtype, float16, bfloat16 or float32. options:
    fields of `tiles.Tile` that replace the default choice. Raises `InputError` for an option that does not exist.
    """
    return _expand(x, gate, up, gate_bias, up_bias, activation, keep, precision, options)


def linear_act(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
    **options: int,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return act(x weight^T + bias), [M, N], and the pre-activation [M, N] if kept; see `gate_up`."""
    return _expand(x, weight, None, bias, None, activation, keep, precision, options)


def _expand(
    x: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor | None,
    gate_bias: torch.Tensor | None,
    up_bias: torch.Tensor | None,
    activation: str,
    keep: bool,
    precision: str,
    options: dict[str, int],
) -> tuple[torch.Tensor, torch.Tensor | None]:
    (m, k), n = x.shape, gate.shape[0]
    hidden = x.new_empty((m, n))
    preact = x.new_empty((m, n if up is None else 2 * n)) if keep else None
    if not m * n:
        return hidden, preact
    given = (x, gate, up, gate_bias, up_bias)
    dot = dot_precision() if x.dtype == torch.float32 else "tf32"
    made = (hidden.data_ptr(), None if preact is None else preact.data_ptr())
    key = (identity(*given), made, activation, precision, dot, tuple(options.items()))
    if repeated(_launches, key):
        return hidden, preact
    x, gate, up = with_dense_rows(x), with_dense_rows(gate), None if up is None else with_dense_rows(up)
    gate_bias = gate_bias if gate_bias is None else gate_bias.contiguous()
    up_bias = up_bias if up_bias is None else up_bias.contiguous()
    tile = choose_tile(x, (gate,) if up is None else (gate, up))
    if options:
        tile = tile.changed(options)
    start = launcher(
        foretrace_portable_forward,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
        GATED=up is not None,
        GATE_BIAS=gate_bias is not None,
        UP_BIAS=up_bias is not None,
        KEEP=keep,
        ACTIVATION=activation,
        PRECISION=kernel_precision(precision, x.dtype),
        DOT=dot,
        WHOLE_K=k % tile.block_k == 0,
        BLOCK_M=tile.block_m,
        BLOCK_N=tile.block_n,
        BLOCK_K=tile.block_k,
        GROUP=tile.group,
        SUBTILES=tile.subtiles,
        STAGES=tile.num_stages,
    )
    launch = (
        (triton.cdiv(m, tile.block_m) * triton.cdiv(n, tile.block_n),),
        x, gate, up, gate_bias, up_bias, hidden, preact,
        m, n, k, x.stride(0), gate.stride(0), 0 if up is None else up.stride(0),
    )  # fmt: skip
    start(*launch)
    if uncopied(given, (x, gate, up, gate_bias, up_bias)):
        remember(_launches, key, start.repetition(*launch))
    return hidden, preact
