"""Products with an activation for Hopper, fed by the copy engine (TMA): the forward.

Gate and up weights are read as one [2, N, K] tensor (`pair_descriptor`): a box [2, BLOCK_N, BLOCK_K] is, without any
movement, a [2·BLOCK_N, BLOCK_K] operand, so one wide matrix instruction computes both products and the pair comes out
in the same thread, where activation and product need no exchange.

The persistent form (one program per multiprocessor, tile loop and K loop flattened into one) starts loading the next
tile while the epilogue of the last one runs; the plain form leaves that to a second block on the same multiprocessor.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from foretrace.errors import InputError
from foretrace.fused.kernels.activation import activate, kernel_precision
from foretrace.fused.kernels.launch import (
    Descriptor,
    Repetition,
    column_descriptor,
    descriptor,
    identity,
    launcher,
    pair_descriptor,
    pair_is_swapped,
    pair_legal,
    processors,
    remember,
    repeated,
    tma_legal,
)
from foretrace.fused.kernels.naming import naming
from foretrace.fused.kernels.tiles import grouped_position

__all__ = [
    "gate_up",
    "gate_up_supported",
    "linear_act",
    "linear_act_supported",
    "store_legal",
    "tiled_grid",
]

# What was launched before with the very same operands.
_gate_ups: dict[Any, Repetition] = {}
_linear_acts: dict[Any, Repetition] = {}

DTYPES = (torch.bfloat16, torch.float16)


@triton.jit
def _bias(bias: tl.tensor, first: tl.tensor, features: tl.tensor, BLOCK_N: tl.constexpr) -> tl.tensor:
    columns = first + tl.arange(0, BLOCK_N)
    return tl.load(bias + columns, mask=columns < features, other=0.0).to(tl.float32)[None, :]


@triton.jit
def _gate_up_tile(
    tile: tl.tensor,
    x: tl.tensor_descriptor,
    weights: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    kept_gate: tl.tensor_descriptor,
    kept_up: tl.tensor_descriptor,
    gate_bias: tl.tensor,
    up_bias: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    inner: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    SWAPPED: tl.constexpr,
    GATE_BIAS: tl.constexpr,
    UP_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    tile_m, tile_n = grouped_position(tile, tl.cdiv(rows, BLOCK_M), tl.cdiv(features, BLOCK_N), GROUP)
    row = tile_m * BLOCK_M
    column = tile_n * BLOCK_N
    accumulator = tl.zeros((BLOCK_M, 2 * BLOCK_N), tl.float32)
    for k in range(0, inner, BLOCK_K):
        a = x.load([row, k])
        b = weights.load([0, column, k]).reshape(2 * BLOCK_N, BLOCK_K)
        accumulator = tl.dot(a, b.T, accumulator)
    first, second = accumulator.reshape(BLOCK_M, 2, BLOCK_N).permute(0, 2, 1).split()
    if SWAPPED:
        gate, up = second, first
    else:
        gate, up = first, second
    if GATE_BIAS:
        gate += _bias(gate_bias, column, features, BLOCK_N)
    if UP_BIAS:
        up += _bias(up_bias, column, features, BLOCK_N)
    if KEEP:
        kept_gate.store([row, column], gate.to(kept_gate.dtype))
        kept_up.store([row, column], up.to(kept_up.dtype))
    hidden.store([row, column], (activate(gate, ACTIVATION, PRECISION) * up).to(hidden.dtype))


@triton.jit(repr=naming("tma", "gate_up"))
def foretrace_tma_gate_up(
    x: tl.tensor_descriptor,
    weights: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    kept_gate: tl.tensor_descriptor,
    kept_up: tl.tensor_descriptor,
    gate_bias: tl.tensor,
    up_bias: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    inner: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    SWAPPED: tl.constexpr,
    GATE_BIAS: tl.constexpr,
    UP_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """hidden = act(x·gateᵀ + bias) · (x·upᵀ + bias); PROGRAMS: size of a persistent grid, 0 for a tile a program."""
    if PROGRAMS == 0:
        _gate_up_tile(
            tl.program_id(0), x, weights, hidden, kept_gate, kept_up, gate_bias, up_bias, rows, features, inner,
            ACTIVATION, PRECISION, SWAPPED, GATE_BIAS, UP_BIAS, KEEP, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
        )  # fmt: skip
    else:
        tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(features, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
            _gate_up_tile(
                tile, x, weights, hidden, kept_gate, kept_up, gate_bias, up_bias, rows, features, inner,
                ACTIVATION, PRECISION, SWAPPED, GATE_BIAS, UP_BIAS, KEEP, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
            )  # fmt: skip


@triton.jit
def _finish_columns(
    value: tl.tensor,
    hidden: tl.tensor_descriptor,
    kept: tl.tensor_descriptor,
    bias: tl.tensor,
    features: tl.tensor,
    row: tl.tensor,
    column: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    if BIAS:
        value += _bias(bias, column, features, COLUMNS)
    if KEEP:
        kept.store([row, column], value.to(kept.dtype))
    hidden.store([row, column], activate(value, ACTIVATION, PRECISION).to(hidden.dtype))


@triton.jit
def _linear_act_tile(
    tile: tl.tensor,
    x: tl.tensor_descriptor,
    weight: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    kept: tl.tensor_descriptor,
    bias: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    inner: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
) -> None:
    tile_m, tile_n = grouped_position(tile, tl.cdiv(rows, BLOCK_M), tl.cdiv(features, BLOCK_N), GROUP)
    row = tile_m * BLOCK_M
    column = tile_n * BLOCK_N
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for k in range(0, inner, BLOCK_K):
        accumulator = tl.dot(x.load([row, k]), weight.load([column, k]).T, accumulator)
    # In halves, which are free to take apart: the activation of a whole wide tile would spill.
    left, right = accumulator.reshape(BLOCK_M, 2, BLOCK_N // 2).permute(0, 2, 1).split()
    _finish_columns(
        left, hidden, kept, bias, features, row, column, ACTIVATION, PRECISION, BIAS, KEEP, BLOCK_N // 2
    )  # fmt: skip
    _finish_columns(
        right, hidden, kept, bias, features, row, column + BLOCK_N // 2, ACTIVATION, PRECISION, BIAS, KEEP, BLOCK_N // 2
    )  # fmt: skip


@triton.jit(repr=naming("tma", "linear_act"))
def foretrace_tma_linear_act(
    x: tl.tensor_descriptor,
    weight: tl.tensor_descriptor,
    hidden: tl.tensor_descriptor,
    kept: tl.tensor_descriptor,
    bias: tl.tensor,
    rows: tl.tensor,
    features: tl.tensor,
    inner: tl.tensor,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """hidden = act(x·weightᵀ + bias), as `foretrace_tma_gate_up`."""
    if PROGRAMS == 0:
        _linear_act_tile(
            tl.program_id(0), x, weight, hidden, kept, bias, rows, features, inner,
            ACTIVATION, PRECISION, BIAS, KEEP, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
        )  # fmt: skip
    else:
        tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(features, BLOCK_N)
        for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
            _linear_act_tile(
                tile, x, weight, hidden, kept, bias, rows, features, inner,
                ACTIVATION, PRECISION, BIAS, KEEP, BLOCK_M, BLOCK_N, BLOCK_K, GROUP,
            )  # fmt: skip


def store_legal(features: int, dtype: torch.dtype) -> bool:
    """Whether rows of ``features`` elements may be written by TMA: bf16 or fp16, ends on a 16-byte boundary."""
    return dtype in DTYPES and features % 8 == 0


def _check_storable(dtype: torch.dtype, weight_dtype: torch.dtype, features: int) -> None:
    if dtype != weight_dtype or not store_legal(features, dtype):
        raise InputError(
            f"{features} features of {dtype} with weights of {weight_dtype} cannot be stored by TMA (bf16 or fp16, "
            "a multiple of 8); use the portable kernels."
        )


def gate_up_supported(x: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> bool:
    """Whether `gate_up` can compute this: bf16 or fp16, N a multiple of 8, everything readable by TMA."""
    same = x.dtype == gate.dtype == up.dtype and x.device == gate.device == up.device
    return same and store_legal(gate.shape[0], x.dtype) and (x.shape[0] == 0 or tma_legal(x)) and pair_legal(gate, up)


def linear_act_supported(x: torch.Tensor, weight: torch.Tensor) -> bool:
    """Whether `linear_act` can compute this: bf16 or fp16, N a multiple of 8, everything readable by TMA."""
    same = x.dtype == weight.dtype and x.device == weight.device
    return same and store_legal(weight.shape[0], x.dtype) and (x.shape[0] == 0 or tma_legal(x)) and tma_legal(weight)


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
    block_m: int = 128,
    block_n: int = 128,
    block_k: int = 64,
    group: int = 8,
    persistent: int = 1,
    num_warps: int = 8,
    num_stages: int = 4,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """act(x·gateᵀ + gate_bias) · (x·upᵀ + up_bias) for ``x`` [M, K], ``gate`` and ``up`` [N, K]; returns [M, N].

    bf16 or fp16, computed in float32 and rounded once. With ``keep`` also the pre-activations [M, 2N], gate first.
    Biases: [N]. A tile is ``block_m`` rows by ``block_n`` columns of both products, with
    ``num_stages`` K-blocks of ``block_k`` in flight. The other form worth trying is block_n 64, num_warps 4, num_stages
    3, persistent 0. Two weights that do not make a pair (`pair_legal`) go to the portable kernel; otherwise raises
    `InputError` where `gate_up_supported` is False.
    """
    dtype = x.dtype
    features = gate.shape[0]
    rows, inner = x.shape
    hidden = x.new_empty((rows, features))
    preact = x.new_empty((rows, 2 * features)) if keep else None
    gate_bias = gate_bias if gate_bias is None else gate_bias.contiguous()
    up_bias = up_bias if up_bias is None else up_bias.contiguous()
    options = (block_m, block_n, block_k, group, persistent, num_warps, num_stages)
    made = (hidden.data_ptr(), None if preact is None else preact.data_ptr())
    key = (identity(x, gate, up, gate_bias, up_bias), made, activation, precision, options)
    if repeated(_gate_ups, key):
        return hidden, preact
    _check_storable(dtype, gate.dtype, features)
    if rows == 0:
        return hidden, preact
    try:
        weights = pair_descriptor(gate, up, (2, block_n, block_k))
    except InputError:
        # One descriptor cannot span them: different strides, one tensor used twice, or too far apart.
        from foretrace.fused.kernels import portable

        return portable.gate_up(x, gate, up, gate_bias, up_bias, activation, keep=keep, precision=precision)
    box = (block_m, block_n)
    kept_gate = kept_up = None
    if preact is not None:
        kept_gate = column_descriptor(preact, 0, features, box)
        kept_up = column_descriptor(preact, features, 2 * features, box)
    programs, grid = tiled_grid(rows, features, block_m, block_n, persistent, x.get_device())
    start = launcher(
        foretrace_tma_gate_up,
        num_warps=num_warps,
        num_stages=num_stages,
        ACTIVATION=activation,
        PRECISION=kernel_precision(precision, dtype),
        SWAPPED=pair_is_swapped(gate, up),
        GATE_BIAS=gate_bias is not None,
        UP_BIAS=up_bias is not None,
        KEEP=keep,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP=group,
        PROGRAMS=programs,
        STAGES=num_stages,
    )
    launch = (
        grid, descriptor(x, (block_m, block_k)), weights, descriptor(hidden, box), kept_gate, kept_up,
        gate_bias, up_bias, rows, features, inner,
    )  # fmt: skip
    start(*launch)
    remember(_gate_ups, key, start.repetition(*launch))
    return hidden, preact


def linear_act(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    activation: str,
    *,
    keep: bool,
    precision: str = "exact",
    block_m: int = 128,
    block_n: int = 256,
    block_k: int = 64,
    group: int = 8,
    persistent: int = 1,
    num_warps: int = 8,
    num_stages: int = 4,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """act(x·weightᵀ + bias) for ``x`` [M, K], ``weight`` [N, K]; returns [M, N], with ``keep`` the pre-activations too.

    As `gate_up`, which says what the options are. Raises `InputError` where `linear_act_supported` is False.
    """
    dtype = x.dtype
    features = weight.shape[0]
    rows, inner = x.shape
    hidden = x.new_empty((rows, features))
    preact = x.new_empty((rows, features)) if keep else None
    bias = bias if bias is None else bias.contiguous()
    options = (block_m, block_n, block_k, group, persistent, num_warps, num_stages)
    made = (hidden.data_ptr(), None if preact is None else preact.data_ptr())
    key = (identity(x, weight, bias), made, activation, precision, options)
    if repeated(_linear_acts, key):
        return hidden, preact
    _check_storable(dtype, weight.dtype, features)
    if rows == 0:
        return hidden, preact
    box = (block_m, block_n // 2)
    kept: Descriptor | None = None if preact is None else descriptor(preact, box)
    programs, grid = tiled_grid(rows, features, block_m, block_n, persistent, x.get_device())
    start = launcher(
        foretrace_tma_linear_act,
        num_warps=num_warps,
        num_stages=num_stages,
        ACTIVATION=activation,
        PRECISION=kernel_precision(precision, dtype),
        BIAS=bias is not None,
        KEEP=keep,
        BLOCK_M=block_m,
        BLOCK_N=block_n,
        BLOCK_K=block_k,
        GROUP=group,
        PROGRAMS=programs,
        STAGES=num_stages,
    )
    launch = (
        grid, descriptor(x, (block_m, block_k)), descriptor(weight, (block_n, block_k)), descriptor(hidden, box), kept,
        bias, rows, features, inner,
    )  # fmt: skip
    start(*launch)
    remember(_linear_acts, key, start.repetition(*launch))
    return hidden, preact


def tiled_grid(
    rows: int, features: int, block_m: int, block_n: int, persistent: int, device: int
) -> tuple[int, tuple[int, ...]]:
    """Programs of a persistent grid (0: not persistent) and the grid."""
    tiles = -(-rows // block_m) * -(-features // block_n)
    if not persistent:
        return 0, (tiles,)
    programs = processors(device)
    return programs, (min(tiles, programs),)
