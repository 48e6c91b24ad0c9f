"""Kernels for a handful of rows (decoding), where reading the weights once, at full bandwidth, is all that counts.

One row: a matrix-vector product on the CUDA cores; each program owns a few output features and streams their whole
weight rows. Up to 16 rows: the same stream through tensor cores, rows padded to 16. Where there are too few output
features to keep every multiprocessor loading, K is split over SPLIT programs; each writes its float32 part, and the
last to arrive adds the parts up in their order, so the result never depends on who was last.

With PDL a kernel is launched before its predecessor ended, and waits here before it reads or writes anything.
"""

# mypy: disallow-untyped-decorators=False
# ruff: noqa: N803

from __future__ import annotations

import triton
import triton.language as tl

from foretrace.fused.kernels.activation import activate
from foretrace.fused.kernels.naming import naming

try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

    HAS_PDL = True
except ImportError:
    HAS_PDL = False

__all__ = [
    "HAS_PDL",
    "ROWS",
    "foretrace_small_gate_up_dot",
    "foretrace_small_gate_up_vector",
    "foretrace_small_linear_act_dot",
    "foretrace_small_linear_act_vector",
]

# Rows of the tensor core's smallest tile.
ROWS = 16


@triton.jit
def _after_predecessor(PDL: tl.constexpr) -> None:
    if PDL:
        gdc_wait()
        gdc_launch_dependents()


@triton.jit
def _finish(value: tl.tensor, ACTIVATION: tl.constexpr, PRECISION: tl.constexpr) -> tl.tensor:
    if ACTIVATION == "none":
        return value
    else:
        return activate(value, ACTIVATION, PRECISION)


@triton.jit
def _streamed(pointers: tl.tensor) -> tl.tensor:
    """Weights: read once, so they must not push anything else out of L2."""
    return tl.load(pointers, eviction_policy="evict_first")


@triton.jit(repr=naming("small", "gate_up", method="vector"))
def foretrace_small_gate_up_vector(
    x: tl.tensor,
    gate: tl.tensor,
    up: tl.tensor,
    gate_bias: tl.tensor,
    up_bias: tl.tensor,
    hidden: tl.tensor,
    preact: tl.tensor,
    n: int,
    k: int,
    gate_stride: int,
    up_stride: int,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    GATE_BIAS: tl.constexpr,
    UP_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    PDL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """hidden [N] = act(gate·x + bias) * (up·x + bias) for one row x [K]."""
    _after_predecessor(PDL)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = column < n
    row = tl.minimum(column, n - 1).to(tl.int64)[:, None]
    feature = tl.arange(0, BLOCK_K)
    gate_rows = gate + row * gate_stride + feature[None, :]
    up_rows = up + row * up_stride + feature[None, :]
    gate_sums = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    up_sums = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    whole = k // BLOCK_K * BLOCK_K
    for start in range(0, whole, BLOCK_K):
        gate_part = _streamed(gate_rows + start)
        up_part = _streamed(up_rows + start)
        x_part = tl.load(x + start + feature).to(tl.float32)[None, :]
        gate_sums += x_part * gate_part.to(tl.float32)
        up_sums += x_part * up_part.to(tl.float32)
    if whole < k:
        rest = whole + feature < k
        gate_part = tl.load(gate_rows + whole, mask=rest[None, :], other=0.0)
        up_part = tl.load(up_rows + whole, mask=rest[None, :], other=0.0)
        x_part = tl.load(x + whole + feature, mask=rest, other=0.0).to(tl.float32)[None, :]
        gate_sums += x_part * gate_part.to(tl.float32)
        up_sums += x_part * up_part.to(tl.float32)
    gate_value = tl.sum(gate_sums, 1)
    up_value = tl.sum(up_sums, 1)
    if GATE_BIAS:
        gate_value += tl.load(gate_bias + column, mask=inside, other=0.0).to(tl.float32)
    if UP_BIAS:
        up_value += tl.load(up_bias + column, mask=inside, other=0.0).to(tl.float32)
    if KEEP:
        tl.store(preact + column, gate_value.to(preact.dtype.element_ty), mask=inside)
        tl.store(preact + n + column, up_value.to(preact.dtype.element_ty), mask=inside)
    value = activate(gate_value, ACTIVATION, PRECISION) * up_value
    tl.store(hidden + column, value.to(hidden.dtype.element_ty), mask=inside)


@triton.jit(repr=naming("small", "linear_act", method="vector"))
def foretrace_small_linear_act_vector(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    preact: tl.tensor,
    n: int,
    k: int,
    weight_stride: int,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    PDL: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """out [N] = act(weight·x + bias) for one row x [K]."""
    _after_predecessor(PDL)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = column < n
    feature = tl.arange(0, BLOCK_K)
    rows = weight + tl.minimum(column, n - 1).to(tl.int64)[:, None] * weight_stride + feature[None, :]
    sums = tl.zeros((BLOCK_N, BLOCK_K), tl.float32)
    whole = k // BLOCK_K * BLOCK_K
    for start in range(0, whole, BLOCK_K):
        part = _streamed(rows + start)
        sums += tl.load(x + start + feature).to(tl.float32)[None, :] * part.to(tl.float32)
    if whole < k:
        rest = whole + feature < k
        part = tl.load(rows + whole, mask=rest[None, :], other=0.0)
        sums += tl.load(x + whole + feature, mask=rest, other=0.0).to(tl.float32)[None, :] * part.to(tl.float32)
    value = tl.sum(sums, 1)
    if BIAS:
        value += tl.load(bias + column, mask=inside, other=0.0).to(tl.float32)
    if KEEP:
        tl.store(preact + column, value.to(preact.dtype.element_ty), mask=inside)
    tl.store(out + column, _finish(value, ACTIVATION, PRECISION).to(out.dtype.element_ty), mask=inside)


@triton.jit(repr=naming("small", "gate_up", method="dot"))
def foretrace_small_gate_up_dot(
    x: tl.tensor,
    gate: tl.tensor,
    up: tl.tensor,
    gate_bias: tl.tensor,
    up_bias: tl.tensor,
    hidden: tl.tensor,
    preact: tl.tensor,
    m: int,
    n: int,
    k: int,
    x_stride: int,
    gate_stride: int,
    up_stride: int,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    GATE_BIAS: tl.constexpr,
    UP_BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    PDL: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """hidden [M, N] = act(x·gateᵀ + bias) * (x·upᵀ + bias) for up to BLOCK_M rows."""
    _after_predecessor(PDL)
    column = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    sample = tl.arange(0, BLOCK_M)
    feature = tl.arange(0, BLOCK_K)
    weight_row = tl.minimum(column, n - 1).to(tl.int64)[None, :]
    x_part = x + tl.minimum(sample, m - 1).to(tl.int64)[:, None] * x_stride + feature[None, :]
    gate_part = gate + weight_row * gate_stride + feature[:, None]
    up_part = up + weight_row * up_stride + feature[:, None]
    gate_value = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    up_value = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    whole = k // BLOCK_K * BLOCK_K
    for _ in range(0, whole, BLOCK_K):
        gate_block = _streamed(gate_part)
        up_block = _streamed(up_part)
        x_block = tl.load(x_part)
        gate_value = tl.dot(x_block, gate_block, gate_value)
        up_value = tl.dot(x_block, up_block, up_value)
        x_part += BLOCK_K
        gate_part += BLOCK_K
        up_part += BLOCK_K
    if whole < k:
        rest = whole + feature < k
        x_block = tl.load(x_part, mask=rest[None, :], other=0.0)
        gate_value = tl.dot(x_block, tl.load(gate_part, mask=rest[:, None], other=0.0), gate_value)
        up_value = tl.dot(x_block, tl.load(up_part, mask=rest[:, None], other=0.0), up_value)
    if GATE_BIAS:
        gate_value += tl.load(gate_bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
    if UP_BIAS:
        up_value += tl.load(up_bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
    inside = (sample < m)[:, None] & (column < n)[None, :]
    if KEEP:
        kept = preact + sample.to(tl.int64)[:, None] * (2 * n) + column[None, :]
        tl.store(kept, gate_value.to(preact.dtype.element_ty), mask=inside)
        tl.store(kept + n, up_value.to(preact.dtype.element_ty), mask=inside)
    value = activate(gate_value, ACTIVATION, PRECISION) * up_value
    target = hidden + sample.to(tl.int64)[:, None] * n + column[None, :]
    tl.store(target, value.to(hidden.dtype.element_ty), mask=inside)


@triton.jit(repr=naming("small", "linear_act", method="dot"))
def foretrace_small_linear_act_dot(
    x: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    out: tl.tensor,
    preact: tl.tensor,
    partial: tl.tensor,
    arrivals: tl.tensor,
    m: int,
    n: int,
    k: int,
    x_stride: int,
    weight_stride: int,
    span: int,
    ACTIVATION: tl.constexpr,
    PRECISION: tl.constexpr,
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,
    PDL: tl.constexpr,
    SPLIT: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    STAGES: tl.constexpr,  # noqa: ARG001 - part of the name
) -> None:
    """out [M, N] = act(x·weightᵀ + bias) for up to BLOCK_M rows; program (tile, part) sums ``span`` features of K.

    ``partial``: float32 [SPLIT, BLOCK_M, N]; ``arrivals``: one zero counter a tile, zero again at the end.
    """
    _after_predecessor(PDL)
    tile = tl.program_id(0) // SPLIT
    part = tl.program_id(0) % SPLIT
    first = part * span
    # Nothing is left for the last parts of a short K.
    end = tl.maximum(first, tl.minimum(k, first + span))
    column = tile * BLOCK_N + tl.arange(0, BLOCK_N)
    sample = tl.arange(0, BLOCK_M)
    feature = tl.arange(0, BLOCK_K)
    x_part = x + tl.minimum(sample, m - 1).to(tl.int64)[:, None] * x_stride + (first + feature)[None, :]
    weight_part = weight + tl.minimum(column, n - 1).to(tl.int64)[None, :] * weight_stride + (first + feature)[:, None]
    value = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    whole = (end - first) // BLOCK_K * BLOCK_K
    for _ in range(0, whole, BLOCK_K):
        value = tl.dot(tl.load(x_part), _streamed(weight_part), value)
        x_part += BLOCK_K
        weight_part += BLOCK_K
    if first + whole < end:
        rest = first + whole + feature < end
        x_block = tl.load(x_part, mask=rest[None, :], other=0.0)
        value = tl.dot(x_block, tl.load(weight_part, mask=rest[:, None], other=0.0), value)
    inside = (sample < m)[:, None] & (column < n)[None, :]
    position = sample.to(tl.int64)[:, None] * n + column[None, :]
    last = True
    if SPLIT > 1:
        # Past L1, which other multiprocessors do not see.
        tl.store(partial + part * (BLOCK_M * n) + position, value, mask=inside, cache_modifier=".cg")
        tl.debug_barrier()
        last = tl.atomic_add(arrivals + tile, 1, sem="acq_rel") == SPLIT - 1
    if last:
        if SPLIT > 1:
            value = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
            for other in range(SPLIT):
                value += tl.load(
                    partial + other * (BLOCK_M * n) + position, mask=inside, other=0.0, cache_modifier=".cg"
                )
            tl.atomic_xchg(arrivals + tile, 0, sem="relaxed")
        if BIAS:
            value += tl.load(bias + column, mask=column < n, other=0.0).to(tl.float32)[None, :]
        if KEEP:
            tl.store(preact + position, value.to(preact.dtype.element_ty), mask=inside)
        tl.store(out + position, _finish(value, ACTIVATION, PRECISION).to(out.dtype.element_ty), mask=inside)
