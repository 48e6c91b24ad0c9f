"""The first product of an MLP with its activation, on Hopper: gate, up and hidden at once, or Linear + activation.

Gated, the two weights' tiles land side by side in shared memory and feed one 256-column product: no weight is
repacked, and gate and up of an element meet in the same thread.
"""

# Device code is Gluon's, not Python's: no types but its own, and compile-time constants in upper case.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,type-arg,misc,attr-defined"
# ruff: noqa: N803, SIM113

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
    CHUNK,
    ROWS,
    SLICE,
    beside,
    k_steps_before,
    left_and_right,
    load_box,
    multiply,
    slices_of,
    store_box,
    synchronize,
    tile_position,
)
from foretrace.fused.kernels.naming import naming

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
    BLOCK_N: gl.constexpr,
):
    """The producer warp: fills the ring of stages, ahead of the consumers by as many as are free."""
    step = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, PROGRAMS):
        row, column = tile_position(tile, row_tiles, column_tiles, GROUP)
        first_row = column * (BLOCK_N // 2 if GATED else BLOCK_N)
        second_row = first_row if GATED else first_row + BLOCK_N // 2
        for k in range(k_steps):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            arrived = full.index(stage)
            mbarrier.expect(arrived, (BLOCK_M * BLOCK_K + BLOCK_N * BLOCK_K) * 2)
            for half in gl.static_range(2):
                load_box(x_desc, [row * BLOCK_M + half * ROWS, k * BLOCK_K], arrived, a_ring.index(2 * stage + half))
            b = b_ring.index(stage)
            load_box(first_desc, [first_row, k * BLOCK_K], arrived, b.slice(0, BLOCK_N // 2, dim=0))
            load_box(second_desc, [second_row, k * BLOCK_K], arrived, b.slice(BLOCK_N // 2, BLOCK_N // 2, dim=0))
            step += 1


@gluon.jit
def _put(desc, buffers, turn, row, column, block):
    """Store a slice through the buffer whose turn it is, when the store before last has been read out of it."""
    buffer = buffers.index(turn)
    tma.store_wait(1)
    buffer.store(block)
    fence_async_shared()
    store_box(desc, [row, column], buffer)
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
def _bias(bias, column, columns, COUNT: gl.constexpr):
    """COUNT elements of a bias, spread over one warp; beyond ``columns`` nothing is read."""
    offsets = column + gl.arange(0, COUNT, layout=gl.BlockedLayout([COUNT // 32], [32], [1], [0]))
    return gl.load(bias + offsets, mask=offsets < columns, other=0.0)


@gluon.jit
def _load_bias(
    first_bias, second_bias, bias_bufs, ready, taken, columns, row_tiles, column_tiles,
    PROGRAMS: gl.constexpr, GROUP: gl.constexpr, GATED: gl.constexpr, BIAS: gl.constexpr,
    BLOCK_N: gl.constexpr,
):  # fmt: skip
    """A warp that fetches each tile's bias, two tiles ahead; a consumer would wait for it with nothing to multiply."""
    if BIAS:
        tiles = row_tiles * column_tiles
        turn = 0
        # One round more than there are tiles, as the consumers walk.
        for tile in range(gl.program_id(0), tiles + PROGRAMS, PROGRAMS):
            _, column = tile_position(min(tile, tiles - 1), row_tiles, column_tiles, GROUP)
            at = column * (BLOCK_N // 2 if GATED else BLOCK_N)
            slot = turn & 1
            mbarrier.wait(taken.index(slot), ((turn >> 1) & 1) ^ 1)
            bias_bufs.index(2 * slot).store(_bias(first_bias, at, columns, BLOCK_N // 2))
            other = at if GATED else at + BLOCK_N // 2
            bias_bufs.index(2 * slot + 1).store(_bias(second_bias, other, columns, BLOCK_N // 2))
            synchronize()
            mbarrier.arrive(ready.index(slot), count=1)
            turn += 1


@gluon.jit
def _biased(block, bias_buf):
    """Add a bias to every row."""
    bias = bias_buf.load(gl.SliceLayout(0, block.type.layout))
    return block + bias.to(gl.float32)[None, :]


@gluon.jit
def _consume(
    WARPGROUP: gl.constexpr, hidden_desc, first_kept_desc, second_kept_desc, a_ring, b_ring, buffers, bias_bufs,
    full, empty, ready, taken, row_tiles, column_tiles, k_steps, PROGRAMS: gl.constexpr,
    GROUP: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr, BIAS: gl.constexpr, KEEP: gl.constexpr,
    ACTIVATION: gl.constexpr, PRECISION: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """One consumer warpgroup: 64 rows of every tile.

    A finished tile waits as slices of 64 columns. The loop over them is not unrolled, and they move up instead:
    unrolled, the code of both warpgroups outgrows the instruction cache, which cost up to a third of the time.
    """
    dtype: gl.constexpr = a_ring.dtype
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    width: gl.constexpr = BLOCK_N // 2 if GATED else BLOCK_N
    slices: gl.constexpr = width // SLICE
    tiles = row_tiles * column_tiles
    step = 0
    turn = 2 * WARPGROUP  # of the two buffers this warpgroup owns; its lowest bit alternates
    finished = 0  # tiles, of which the last one waits
    last_row = 0
    last_column = 0
    acc = gl.zeros((ROWS, BLOCK_N), gl.float32, mma)
    left, right = left_and_right(acc, BLOCK_N // 2)
    slice_0, slice_1, slice_2, slice_3 = slices_of(left, right, dtype, GATED, BLOCK_N)
    # One round more than there are tiles: it finishes the last.
    for tile in range(gl.program_id(0), tiles + PROGRAMS, PROGRAMS):
        row, column = tile_position(min(tile, tiles - 1), row_tiles, column_tiles, GROUP)
        steps = k_steps if tile < tiles else 0
        running = warpgroup_mma_init(acc)
        done = 0
        for j in range(slices):
            count = k_steps_before(2 * j, 2 * slices, WARPGROUP, steps) - done
            running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, True)
            step += count
            done += count
            at = last_column + j * SLICE
            # Within the condition, lest the compiler moves the work to where its result is used.
            waiting, _ = left_and_right(slice_0, CHUNK)
            if finished > 0:
                waiting = _finished(slice_0, slice_2, False, GATED, ACTIVATION, PRECISION)
                if KEEP:
                    turn = _put(first_kept_desc, buffers, turn, last_row, at, slice_0)
            count = k_steps_before(2 * j + 1, 2 * slices, WARPGROUP, steps) - done
            running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, True)
            step += count
            done += count
            if finished > 0:
                if KEEP and GATED:
                    turn = _put(second_kept_desc, buffers, turn, last_row, at, slice_2)
                complete = beside(waiting, _finished(slice_0, slice_2, True, GATED, ACTIVATION, PRECISION), CHUNK)
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
        left, right = left_and_right(acc, BLOCK_N // 2)
        if BIAS:
            slot = finished & 1
            mbarrier.wait(ready.index(slot), (finished >> 1) & 1)
            left = _biased(left, bias_bufs.index(2 * slot))
            right = _biased(right, bias_bufs.index(2 * slot + 1))
            synchronize()
            mbarrier.arrive(taken.index(slot), count=1)
        slice_0, slice_1, slice_2, slice_3 = slices_of(left, right, dtype, GATED, BLOCK_N)
        finished += 1
    tma.store_wait(0)


@gluon.jit(repr=naming("hopper", "gate_up", "linear_act", tile=(BLOCK_M.value, None, BLOCK_K.value)))
def foretrace_hopper_forward(
    x_desc, first_desc, second_desc, hidden_desc, first_kept_desc, second_kept_desc, first_bias, second_bias, rows,
    columns, inner, PROGRAMS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, GATED: gl.constexpr,
    BIAS: gl.constexpr, KEEP: gl.constexpr, ACTIVATION: gl.constexpr, PRECISION: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """hidden[rows, columns] = activation(x @ first.T + bias) [* (x @ second.T + bias)], keeping the pre-activations.

    Without a gate ``second_desc`` is ``first_desc`` and a tile is BLOCK_N columns of the one weight, not
    half as many of each.
    """
    dtype: gl.constexpr = x_desc.dtype
    a_ring = gl.allocate_shared_memory(dtype, [STAGES * 2, ROWS, BLOCK_K], x_desc.layout)
    b_ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_N, BLOCK_K], first_desc.layout)
    buffers = gl.allocate_shared_memory(dtype, [2 * 2, ROWS, SLICE], hidden_desc.layout)
    bias_bufs = gl.allocate_shared_memory(dtype, [2 * 2, BLOCK_N // 2], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    ready = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    taken = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(ready.index(i), count=1)
        mbarrier.init(taken.index(i), count=2)
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    fence_async_shared()
    row_tiles = gl.cdiv(rows, BLOCK_M)
    column_tiles = gl.cdiv(columns, BLOCK_N // 2 if GATED else BLOCK_N)
    k_steps = gl.cdiv(inner, BLOCK_K)
    gl.warp_specialize(
        [
            (
                _consume,
                (
                    0, hidden_desc, first_kept_desc, second_kept_desc, a_ring, b_ring, buffers, bias_bufs,
                    full, empty, ready, taken, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, GATED, BIAS, KEEP, ACTIVATION, PRECISION, BLOCK_N,
                ),
            ),
            (
                _consume,
                (
                    1, hidden_desc, first_kept_desc, second_kept_desc, a_ring, b_ring, buffers, bias_bufs,
                    full, empty, ready, taken, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, GATED, BIAS, KEEP, ACTIVATION, PRECISION, BLOCK_N,
                ),
            ),
            (
                _load,
                (
                    x_desc, first_desc, second_desc, a_ring, b_ring, full, empty, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, GATED, BLOCK_N,
                ),
            ),
            (
                _load_bias,
                (
                    first_bias, second_bias, bias_bufs, ready, taken, columns, row_tiles, column_tiles,
                    PROGRAMS, GROUP, GATED, BIAS, BLOCK_N,
                ),
            ),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )  # fmt: skip
