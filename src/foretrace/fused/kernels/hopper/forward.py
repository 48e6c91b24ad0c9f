"""The first product of an MLP with its activation, on Hopper: gate, up and hidden in one kernel, or Linear + activation.

Gated, the two weights' tiles land side by side in shared memory and feed one 256-column product: no weight is repacked,
and gate and up of an element meet in the same thread.
"""

# Device code is Gluon's, not Python's: no types but its own, and compile-time constants in upper case.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,type-arg,misc,attr-defined"
# ruff: noqa: N803

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from foretrace.fused.kernels.activation import activate
from foretrace.fused.kernels.hopper.pipeline import (
    BLOCK_K,
    BLOCK_M,
    BLOCK_N,
    CHUNK,
    HALF_N,
    ROWS,
    SLICE,
    beside,
    k_steps_before,
    left_and_right,
    multiply,
    tile_position,
)

__all__ = ["foretrace_hopper_forward"]


@gluon.jit
def _load(
    x_desc,
    first_desc,
    second_desc,
    a_ring,
    b_ring,
    full,
    empty,
    row_tiles,
    column_tiles,
    k_steps,
    PROGRAMS: gl.constexpr,
    GROUP: gl.constexpr,
    STAGES: gl.constexpr,
    GATED: gl.constexpr,
):
    """The producer warp: fills the ring of stages, ahead of the consumers by as many as are free."""
    step = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, PROGRAMS):
        row, column = tile_position(tile, row_tiles, column_tiles, GROUP)
        first_row = column * (HALF_N if GATED else BLOCK_N)
        second_row = first_row if GATED else first_row + HALF_N
        for k in range(k_steps):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            arrived = full.index(stage)
            mbarrier.expect(arrived, (BLOCK_M * BLOCK_K + BLOCK_N * BLOCK_K) * 2)
            tma.async_copy_global_to_shared(x_desc, [row * BLOCK_M, k * BLOCK_K], arrived, a_ring.index(stage))
            tma.async_copy_global_to_shared(first_desc, [first_row, k * BLOCK_K], arrived, b_ring.index(2 * stage))
            tma.async_copy_global_to_shared(
                second_desc, [second_row, k * BLOCK_K], arrived, b_ring.index(2 * stage + 1)
            )
            step += 1


@gluon.jit
def _put(desc, buffers, turn, row, column, block):
    """Store a slice through the buffer whose turn it is, when the store before last has been read out of it."""
    buffer = buffers.index(turn)
    tma.store_wait(1)
    buffer.store(block)
    fence_async_shared()
    tma.async_copy_shared_to_global(desc, [row, column], buffer)
    return turn ^ 1


@gluon.jit
def _half(slice, RIGHT: gl.constexpr):
    """The left or right 32 columns of a slice, in fp32."""
    left, right = left_and_right(slice, CHUNK)
    return (right if RIGHT else left).to(gl.float32)


@gluon.jit
def _finished(preact, up, RIGHT: gl.constexpr, GATED: gl.constexpr, ACTIVATION: gl.constexpr, PRECISION: gl.constexpr):
    """Hidden units of 32 columns, rounded."""
    value = activate(_half(preact, RIGHT), ACTIVATION, PRECISION)
    if GATED:
        value = value * _half(up, RIGHT)
    return value.to(preact.dtype)


@gluon.jit
def _biased(block, bias, column, columns, WHOLE: gl.constexpr):
    """Add bias[column : column + 64] to every row; beyond ``columns`` nothing is read."""
    offsets = column + gl.arange(0, SLICE, layout=gl.SliceLayout(0, block.type.layout))
    if WHOLE:
        loaded = gl.load(bias + offsets)
    else:
        loaded = gl.load(bias + offsets, mask=offsets < columns, other=0.0)
    return block + loaded.to(gl.float32)[None, :]


@gluon.jit
def _consume(
    WARPGROUP: gl.constexpr, hidden_desc, first_kept_desc, second_kept_desc, first_bias, second_bias, a_bufs, b_bufs,
    buffers, full, empty, columns, row_tiles, column_tiles, k_steps, PROGRAMS: gl.constexpr, GROUP: gl.constexpr,
    STAGES: gl.constexpr, GATED: gl.constexpr, BIAS: gl.constexpr, KEEP: gl.constexpr, WHOLE: gl.constexpr,
    ACTIVATION: gl.constexpr, PRECISION: gl.constexpr,
):  # fmt: skip
    """One consumer warpgroup: 64 rows of every tile.

    A finished tile waits as four slices of 64 columns. The loop over them is not unrolled, and they move up instead:
    unrolled, the code of both warpgroups outgrows the instruction cache, which cost up to a third of the time.
    """
    dtype: gl.constexpr = a_bufs.dtype
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    swizzled: gl.constexpr = b_bufs.type.layout
    slices: gl.constexpr = 2 if GATED else 4
    width: gl.constexpr = HALF_N if GATED else BLOCK_N
    a_ring = a_bufs._reinterpret(dtype, [STAGES * 2, ROWS, BLOCK_K], swizzled)
    b_ring = b_bufs._reinterpret(dtype, [STAGES, BLOCK_N, BLOCK_K], swizzled)
    tiles = row_tiles * column_tiles
    step = 0
    turn = 2 * WARPGROUP  # of the two buffers this warpgroup owns; its lowest bit alternates
    finished = 0
    last_row = 0
    last_column = 0
    acc = gl.zeros((ROWS, BLOCK_N), gl.float32, mma)
    left, right = left_and_right(acc, HALF_N)
    slice_0, slice_1 = left_and_right(left.to(dtype), SLICE)
    slice_2, slice_3 = left_and_right(right.to(dtype), SLICE)
    # One round more than there are tiles: it finishes the last.
    for tile in range(gl.program_id(0), tiles + PROGRAMS, PROGRAMS):
        row, column = tile_position(tile, row_tiles, column_tiles, GROUP)
        steps = k_steps if tile < tiles else 0
        running = warpgroup_mma_init(acc)
        done = 0
        for j in range(slices):
            count = k_steps_before(2 * j, 2 * slices, WARPGROUP, steps) - done
            running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, True)
            step += count
            done += count
            waiting = _finished(slice_0, slice_2, False, GATED, ACTIVATION, PRECISION)
            at = last_column + j * SLICE
            if KEEP:
                if finished > 0:
                    turn = _put(first_kept_desc, buffers, turn, last_row, at, slice_0)
            count = k_steps_before(2 * j + 1, 2 * slices, WARPGROUP, steps) - done
            running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, True)
            step += count
            done += count
            complete = beside(waiting, _finished(slice_0, slice_2, True, GATED, ACTIVATION, PRECISION), CHUNK)
            if finished > 0:
                if KEEP and GATED:
                    turn = _put(second_kept_desc, buffers, turn, last_row, at, slice_2)
                turn = _put(hidden_desc, buffers, turn, last_row, at, complete)
            slice_0 = slice_1
            if GATED:
                slice_2 = slice_3
            else:
                slice_1 = slice_2
                slice_2 = slice_3
        count = steps - done
        running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, True)
        step += count
        acc = warpgroup_mma_wait(0, deps=(running,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=steps > 0)
        last_row = row * BLOCK_M + WARPGROUP * ROWS
        last_column = column * width
        left, right = left_and_right(acc, HALF_N)
        part_0, part_1 = left_and_right(left, SLICE)
        part_2, part_3 = left_and_right(right, SLICE)
        if BIAS:
            third: gl.constexpr = 0 if GATED else HALF_N
            part_0 = _biased(part_0, first_bias, last_column, columns, WHOLE)
            part_1 = _biased(part_1, first_bias, last_column + SLICE, columns, WHOLE)
            part_2 = _biased(part_2, second_bias, last_column + third, columns, WHOLE)
            part_3 = _biased(part_3, second_bias, last_column + third + SLICE, columns, WHOLE)
        slice_0 = part_0.to(dtype)
        slice_1 = part_1.to(dtype)
        slice_2 = part_2.to(dtype)
        slice_3 = part_3.to(dtype)
        finished += 1
    tma.store_wait(0)


@gluon.jit
def foretrace_hopper_forward(
    x_desc, first_desc, second_desc, hidden_desc, first_kept_desc, second_kept_desc, first_bias, second_bias, rows,
    columns, inner, PROGRAMS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
    BIAS: gl.constexpr, KEEP: gl.constexpr, WHOLE: gl.constexpr, ACTIVATION: gl.constexpr, PRECISION: gl.constexpr,
):  # fmt: skip
    """hidden[rows, columns] = activation(x @ first.T + bias) [* (x @ second.T + bias)], keeping the pre-activations.

    Without a gate ``second_desc`` is ``first_desc`` and a tile is 256 columns of the one weight. ``WHOLE``: tiles
    divide the columns.
    """
    dtype: gl.constexpr = x_desc.dtype
    a_bufs = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_M, BLOCK_K], x_desc.layout)
    b_bufs = gl.allocate_shared_memory(dtype, [STAGES * 2, HALF_N, BLOCK_K], first_desc.layout)
    buffers = gl.allocate_shared_memory(dtype, [2 * 2, ROWS, SLICE], hidden_desc.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    row_tiles = gl.cdiv(rows, BLOCK_M)
    column_tiles = gl.cdiv(columns, HALF_N if GATED else BLOCK_N)
    k_steps = gl.cdiv(inner, BLOCK_K)
    gl.warp_specialize(
        [
            (
                _consume,
                (
                    0, hidden_desc, first_kept_desc, second_kept_desc, first_bias, second_bias, a_bufs, b_bufs,
                    buffers, full, empty, columns, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, GATED, BIAS, KEEP, WHOLE, ACTIVATION, PRECISION,
                ),
            ),
            (
                _consume,
                (
                    1, hidden_desc, first_kept_desc, second_kept_desc, first_bias, second_bias, a_bufs, b_bufs,
                    buffers, full, empty, columns, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, GATED, BIAS, KEEP, WHOLE, ACTIVATION, PRECISION,
                ),
            ),
            (
                _load,
                (
                    x_desc, first_desc, second_desc, a_bufs, b_bufs, full, empty, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, GATED,
                ),
            ),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip
