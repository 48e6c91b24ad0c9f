"""Gradients of the pre-activations for Hopper, fed by the copy engine (TMA).

The gradient of hidden, grad_out·down, never reaches memory: the epilogue of that product reads the pre-activations
of its tile and writes their gradients. Where the forward kept only the pre-activations it also writes hidden again,
which the gradient of the down projection needs.

The epilogue works on SUBTILES column blocks of a tile one after the other: with a whole tile in registers, two tensors
read and three written, the kernel spills. A row of tiles sums its bias gradients into its own row of a [tiles, 2N]
buffer, which is added up afterwards: no atomics, so the sum is the same every time.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803, N806

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from foretrace.errors import InputError
from foretrace.fused.kernels.activation import activate_with_slope, kernel_precision, times_slope
from foretrace.fused.kernels.launch import (
    Repetition,
    column_descriptor,
    descriptor,
    identity,
    launcher,
    remember,
    repeated,
    tma_legal,
)
from foretrace.fused.kernels.naming import naming
from foretrace.fused.kernels.tiles import grouped_position
from foretrace.fused.kernels.tma_forward import store_legal, tiled_grid

__all__ = ["backward_supported", "gate_up_backward", "linear_act_backward"]

# What was launched before with the very same operands.
_launches: dict[Any, Repetition] = {}


@triton.jit
def _add_up(
    partial: tl.tensor,
    value: tl.tensor,
    tile_m: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    width: tl.tensor,
    COLUMNS: tl.constexpr,
) -> None:
    """Write the column sums of ``value`` to row ``tile_m`` of ``partial`` [tiles, width], columns first to end."""
    columns = first + tl.arange(0, COLUMNS)
    tl.store(partial + tile_m.to(tl.int64) * width + columns, tl.sum(value, 0), mask=columns < end)


@triton.jit
def _gate_up_part(
    grad_hidden: tl.tensor,
    gate: tl.tensor_descriptor,
    up: tl.tensor_descriptor,
    grad_gate: tl.tensor_descriptor,
    grad_up: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    partial: tl.tensor,
    features: tl.tensor,
    tile_m: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    HIDDEN: tl.constexpr,
    BIAS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    gate_value = gate.load([row, column]).to(tl.float32)
    up_value = up.load([row, column]).to(tl.float32)
    value, slope = activate_with_slope(gate_value, ACTIVATION, PRECISION)
    gate_gradient = times_slope(grad_hidden * up_value, slope, ACTIVATION)
    up_gradient = grad_hidden * value
    grad_gate.store([row, column], gate_gradient.to(grad_gate.dtype))
    grad_up.store([row, column], up_gradient.to(grad_up.dtype))
    if HIDDEN:
        hidden.store([row, column], (value * up_value).to(hidden.dtype))
    if BIAS:
        _add_up(partial, gate_gradient, tile_m, column, features, 2 * features, COLUMNS)
        _add_up(partial + features, up_gradient, tile_m, column, features, 2 * features, COLUMNS)


@triton.jit
def _linear_act_part(
    grad_hidden: tl.tensor,
    preact: tl.tensor_descriptor,
    grad_preact: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    partial: tl.tensor,
    features: tl.tensor,
    tile_m: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    HIDDEN: tl.constexpr,
    BIAS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    value, slope = activate_with_slope(preact.load([row, column]).to(tl.float32), ACTIVATION, PRECISION)
    gradient = times_slope(grad_hidden, slope, ACTIVATION)
    grad_preact.store([row, column], gradient.to(grad_preact.dtype))
    if HIDDEN:
        hidden.store([row, column], value.to(hidden.dtype))
    if BIAS:
        _add_up(partial, gradient, tile_m, column, features, features, COLUMNS)


@triton.jit
def _halves(value: tl.tensor, ROWS: tl.constexpr, COLUMNS: tl.constexpr) -> tl.tensor:
    """Left and right half of [ROWS, COLUMNS]: in the accumulator's layout each thread owns columns of both."""
    return value.reshape(ROWS, 2, COLUMNS // 2).permute(0, 2, 1).split()


@triton.jit
def _tile(
    tile: tl.tensor,
    grad_out: tl.tensor_descriptor,
    down: tl.tensor_descriptor,
    gate: tl.tensor_descriptor,
    up: tl.tensor_descriptor,
    grad_gate: tl.tensor_descriptor,
    grad_up: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    partial: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    inner: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    GATED: tl.constexpr,
    HIDDEN: tl.constexpr,
    BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SUBTILES: tl.constexpr,
) -> None:
    tile_m, tile_n = grouped_position(tile, tl.cdiv(rows, BLOCK_M), tl.cdiv(features, BLOCK_N), GROUP)
    row = tile_m * BLOCK_M
    column = tile_n * BLOCK_N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, inner, BLOCK_K):
        accumulator = tl.dot(grad_out.load([row, k]), down.load([k, column]), accumulator)
    COLUMNS: tl.constexpr = BLOCK_N // SUBTILES
    if SUBTILES == 1:
        parts = (accumulator,)
    else:
        left, right = _halves(accumulator, BLOCK_M, BLOCK_N)
        if SUBTILES == 2:
            parts = (left, right)  # type: ignore[assignment]
        else:
            tl.static_assert(SUBTILES == 4, "SUBTILES is 1, 2 or 4")
            first, second = _halves(left, BLOCK_M, BLOCK_N // 2)
            third, fourth = _halves(right, BLOCK_M, BLOCK_N // 2)
            parts = (first, second, third, fourth)  # type: ignore[assignment]
    for part in tl.static_range(SUBTILES):
        if GATED:
            _gate_up_part(
                parts[part], gate, up, grad_gate, grad_up, hidden, partial, features,
                tile_m, row, column + part * COLUMNS, ACTIVATION, PRECISION, HIDDEN, BIAS, COLUMNS,
            )  # fmt: skip
        else:
            _linear_act_part(
                parts[part], gate, grad_gate, hidden, partial, features,
                tile_m, row, column + part * COLUMNS, ACTIVATION, PRECISION, HIDDEN, BIAS, COLUMNS,
            )  # fmt: skip


@triton.jit(repr=naming("tma", "gate_up_backward", "linear_act_backward"))
def foretrace_tma_backward(
    grad_out: tl.tensor_descriptor,
    down: tl.tensor_descriptor,
    gate: tl.tensor_descriptor,
    up: tl.tensor_descriptor,
    grad_gate: tl.tensor_descriptor,
    grad_up: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    partial: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    inner: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    GATED: tl.constexpr,
    HIDDEN: tl.constexpr,
    BIAS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    SUBTILES: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """Gradients of the pre-activations; without GATED ``gate`` is the only one and ``up`` None. PROGRAMS: 0 or grid."""
    if PROGRAMS == 0:
        _tile(
            tl.program_id(0), grad_out, down, gate, up, grad_gate, grad_up, hidden, partial, rows, features, inner,
            ACTIVATION, PRECISION, GATED, HIDDEN, BIAS, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, SUBTILES,
        )  # fmt: skip
    else:
        tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(features, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
            _tile(
                tile, grad_out, down, gate, up, grad_gate, grad_up, hidden, partial, rows, features, inner,
                ACTIVATION, PRECISION, GATED, HIDDEN, BIAS, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, SUBTILES,
            )  # fmt: skip


def backward_supported(grad_out: torch.Tensor, down: torch.Tensor, preact: torch.Tensor) -> bool:
    """Whether the two functions below can compute this: bf16 or fp16, N and out multiples of 8.

    ``grad_out`` may lie as it likes: it is copied where TMA cannot read it (a gradient expanded from a scalar).
    """
    same = grad_out.dtype == down.dtype == preact.dtype and grad_out.device == down.device == preact.device
    if not same or not store_legal(down.shape[1], preact.dtype):
        return False
    return tma_legal(down) and (preact.shape[0] == 0 or tma_legal(preact)) and grad_out.shape[1] * 2 % 16 == 0


def gate_up_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None = None,
    precision: str = "exact",
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    group: int = 8,
    subtiles: int = 4,
    persistent: int = 0,
    num_warps: int = 8,
    num_stages: int = 3,
    maxnreg: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """Gradients through act(gate) · up and the down projection, from ``grad_out`` [M, out] and ``down`` [out, N].

    ``preact`` [M, 2N]: gate first, then up. Returns (d-preact [M, 2N], hidden [M, N] if ``want_hidden``, their bias
    gradients float32 [2N] if ``want_bias``). ``into``: where d-preact goes; ``preact`` itself is allowed, each tile
    is read before it is written. Options as in `tma_forward.gate_up`; ``subtiles`` (1, 2, 4): column blocks of
    the epilogue. Smaller tiles (block_m 64 with num_warps 4 and maxnreg 168) put three blocks on a
    multiprocessor. Raises `InputError` where `backward_supported` is False.
    """
    return _backward(
        grad_out, down, preact, activation, True, want_hidden, want_bias, into, precision,
        block_m, block_n, block_k, group, subtiles, persistent, num_warps, num_stages, maxnreg,
    )  # fmt: skip


def linear_act_backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    *,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None = None,
    precision: str = "exact",
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    group: int = 8,
    subtiles: int = 2,
    persistent: int = 0,
    num_warps: int = 8,
    num_stages: int = 3,
    maxnreg: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    """As `gate_up_backward` without a gate: ``preact`` and d-preact [M, N], bias gradient [N]."""
    return _backward(
        grad_out, down, preact, activation, False, want_hidden, want_bias, into, precision,
        block_m, block_n, block_k, group, subtiles, persistent, num_warps, num_stages, maxnreg,
    )  # fmt: skip


def _backward(
    grad_out: torch.Tensor,
    down: torch.Tensor,
    preact: torch.Tensor,
    activation: str,
    gated: bool,
    want_hidden: bool,
    want_bias: bool,
    into: torch.Tensor | None,
    precision: str,
    block_m: int,
    block_n: int,
    block_k: int,
    group: int,
    subtiles: int,
    persistent: int,
    num_warps: int,
    num_stages: int,
    maxnreg: int | None,
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:
    grad_preact = torch.empty_like(preact, memory_format=torch.contiguous_format) if into is None else into
    hidden = preact.new_empty((preact.shape[0], down.shape[1])) if want_hidden else None
    partial = None
    if want_bias:
        rows, width = preact.shape
        partial = preact.new_empty((-(-rows // block_m), width), dtype=torch.float32)
    options = (block_m, block_n, block_k, group, subtiles, persistent, num_warps, num_stages, maxnreg)
    key: tuple[Any, ...] | None = (
        identity(grad_out, down, preact),
        None if into is preact else identity(grad_preact),
        None if hidden is None else hidden.data_ptr(),
        None if partial is None else partial.data_ptr(),
        gated,
        activation,
        precision,
        options,
    )
    if repeated(_launches, key):
        return grad_preact, hidden, None if partial is None else partial.sum(0)
    dtype, rows = preact.dtype, preact.shape[0]
    inner, features = down.shape
    if grad_out.dtype != dtype or down.dtype != dtype or inner % 8 or not store_legal(features, dtype):
        raise InputError(
            f"the gradient of {inner} outputs of {grad_out.dtype} by {features} features of {dtype} cannot run through "
            "TMA (bf16 or fp16, multiples of 8); use the portable kernels."
        )
    if rows > 0:
        box = (block_m, block_n // subtiles)
        programs, grid = tiled_grid(rows, features, block_m, block_n, persistent, preact.get_device())
        try:
            grad_out_descriptor = descriptor(grad_out, (block_m, block_k))
        except InputError:
            # Autograd hands over what it likes, such as one value expanded. The copy must live until the launch.
            key = None
            grad_out = grad_out.clone(memory_format=torch.contiguous_format)
            grad_out_descriptor = descriptor(grad_out, (block_m, block_k))
        start = launcher(
            foretrace_tma_backward,
            num_warps=num_warps,
            num_stages=num_stages,
            maxnreg=maxnreg,
            ACTIVATION=activation,
            PRECISION=kernel_precision(precision, dtype),
            GATED=gated,
            HIDDEN=want_hidden,
            BIAS=want_bias,
            BLOCK_M=block_m,
            BLOCK_N=block_n,
            BLOCK_K=block_k,
            GROUP=group,
            SUBTILES=subtiles,
            PROGRAMS=programs,
            STAGES=num_stages,
        )
        launch = (
            grid,
            grad_out_descriptor,
            descriptor(down, (block_k, block_n)),
            column_descriptor(preact, 0, features, box),
            column_descriptor(preact, features, 2 * features, box) if gated else None,
            column_descriptor(grad_preact, 0, features, box),
            column_descriptor(grad_preact, features, 2 * features, box) if gated else None,
            None if hidden is None else descriptor(hidden, box),
            partial,
            rows,
            features,
            inner,
        )
        start(*launch)
        if key is not None:
            remember(_launches, key, start.repetition(*launch))
    return grad_preact, hidden, None if partial is None else partial.sum(0)
