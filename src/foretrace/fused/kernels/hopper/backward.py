"""The product that meets the activation on the way back, on Hopper: grad @ down becomes d-gate and d-up.

The gradient of the hidden units never reaches memory. A loader warp of its own brings the pre-activations of a slice
just ahead of its turn; their buffers then carry the results out.
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

from foretrace.fused.kernels.activation import activate_with_slope, times_slope
from foretrace.fused.kernels.hopper.pipeline import (
    BLOCK_K,
    BLOCK_M,
    CHUNK,
    ROWS,
    SLICE,
    k_steps_before,
    left_and_right,
    load_box,
    multiply,
    slices_of,
    store_box,
    tile_position,
)
from foretrace.fused.kernels.naming import naming

__all__ = ["foretrace_hopper_backward"]


@gluon.jit
def _load_operands(
    grad_desc, down_desc, a_ring, b_ring, full, empty, row_tiles, column_tiles, k_steps,
    PROGRAMS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """The producer warp: a row block of the gradient, and 64 rows of the down projection as they lie."""
    step = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, PROGRAMS):
        row, column = tile_position(tile, row_tiles, column_tiles, GROUP)
        for k in range(k_steps):
            stage = step % STAGES
            mbarrier.wait(empty.index(stage), ((step // STAGES) & 1) ^ 1)
            arrived = full.index(stage)
            mbarrier.expect(arrived, (BLOCK_M * BLOCK_K + BLOCK_N * BLOCK_K) * 2)
            for half in gl.static_range(2):
                load_box(grad_desc, [row * BLOCK_M + half * ROWS, k * BLOCK_K], arrived, a_ring.index(2 * stage + half))
            load_box(down_desc, [k * BLOCK_K, column * BLOCK_N], arrived, b_ring.index(stage))
            step += 1


@gluon.jit
def _load_preactivations(
    gate_desc, up_desc, slots, loaded, free, row_tiles, column_tiles,
    PROGRAMS: gl.constexpr, GROUP: gl.constexpr, SLOTS: gl.constexpr, GATED: gl.constexpr,
    BLOCK_N: gl.constexpr,
):  # fmt: skip
    """The loader warp: the slices of both warpgroups in the order in which they are finished."""
    parts: gl.constexpr = 2 if GATED else 1
    turn = 0
    for tile in range(gl.program_id(0), row_tiles * column_tiles, PROGRAMS):
        row, column = tile_position(tile, row_tiles, column_tiles, GROUP)
        for j in range(BLOCK_N // SLICE):
            slot = turn % SLOTS
            for warpgroup in gl.static_range(2):
                own = warpgroup * SLOTS + slot
                mbarrier.wait(free.index(own), ((turn // SLOTS) & 1) ^ 1)
                arrived = loaded.index(own)
                mbarrier.expect(arrived, parts * ROWS * SLICE * 2)
                at_row = row * BLOCK_M + warpgroup * ROWS
                at_column = column * BLOCK_N + j * SLICE
                load_box(gate_desc, [at_row, at_column], arrived, slots.index(parts * own))
                if GATED:
                    load_box(up_desc, [at_row, at_column], arrived, slots.index(parts * own + 1))
            turn += 1


@gluon.jit
def _finish_chunk(
    grad_slice, gate_slot, up_slot, hidden_slot, RIGHT: gl.constexpr, GATED: gl.constexpr, HIDDEN: gl.constexpr,
    ACTIVATION: gl.constexpr, PRECISION: gl.constexpr,
):  # fmt: skip
    """Turn the left or right 32 columns of a slice of d-hidden into d-gate and d-up (and hidden), in shared memory.

    The results replace the pre-activations in their slots, each thread reading what it then overwrites.
    """
    dtype: gl.constexpr = grad_slice.dtype
    left_grad, right_grad = left_and_right(grad_slice, CHUNK)
    grad = (right_grad if RIGHT else left_grad).to(gl.float32)
    layout: gl.constexpr = grad.type.layout
    gate_buf = gate_slot.slice(RIGHT * CHUNK, CHUNK, dim=1)
    hidden_buf = hidden_slot.slice(RIGHT * CHUNK, CHUNK, dim=1)
    gate = gate_buf.load(layout).to(gl.float32)
    value, slope = activate_with_slope(gate, ACTIVATION, PRECISION)
    if GATED:
        up_buf = up_slot.slice(RIGHT * CHUNK, CHUNK, dim=1)
        # Registers are short: what can be rounded is rounded before up is read.
        before_up = grad * slope
        grad_up = (grad * value).to(dtype)
        up = up_buf.load(layout).to(gl.float32)
        if ACTIVATION == "relu" or ACTIVATION == "relu2":
            gate_buf.store(times_slope(grad * up, slope, ACTIVATION).to(dtype))
        else:
            gate_buf.store((before_up * up).to(dtype))
        up_buf.store(grad_up)
        if HIDDEN:
            hidden_buf.store((value * up).to(dtype))
    else:
        gate_buf.store(times_slope(grad, slope, ACTIVATION).to(dtype))
        if HIDDEN:
            hidden_buf.store(value.to(dtype))


@gluon.jit
def _hand_back(WARPGROUP: gl.constexpr, free, turn, SLOTS: gl.constexpr):
    """When the results of the slice before have been read out of their slot, let the loader have it."""
    tma.store_wait(0)
    mbarrier.arrive(free.index(WARPGROUP * SLOTS + (turn + SLOTS - 1) % SLOTS), count=1, pred=turn > 0)


@gluon.jit
def _consume(
    WARPGROUP: gl.constexpr, gate_desc, up_desc, hidden_desc, a_ring, b_ring, slots, hidden_bufs, full, empty, loaded,
    free, row_tiles, column_tiles, k_steps, PROGRAMS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr,
    SLOTS: gl.constexpr, GATED: gl.constexpr, HIDDEN: gl.constexpr, ACTIVATION: gl.constexpr, PRECISION: gl.constexpr,
    BLOCK_N: gl.constexpr,
):  # fmt: skip
    """One consumer warpgroup: 64 rows of every tile. For the loop that is not unrolled see the forward kernel."""
    dtype: gl.constexpr = a_ring.dtype
    parts: gl.constexpr = 2 if GATED else 1
    slices: gl.constexpr = BLOCK_N // SLICE
    mma: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, BLOCK_N, 16])
    hidden_slot = hidden_bufs.index(WARPGROUP)
    tiles = row_tiles * column_tiles
    step = 0
    turn = 0
    finished = 0  # tiles, of which the last one waits
    last_row = 0
    last_column = 0
    acc = gl.zeros((ROWS, BLOCK_N), gl.float32, mma)
    left, right = left_and_right(acc, BLOCK_N // 2)
    slice_0, slice_1, slice_2, slice_3 = slices_of(left, right, dtype, False, BLOCK_N)
    # One round more than there are tiles: it finishes the last.
    for tile in range(gl.program_id(0), tiles + PROGRAMS, PROGRAMS):
        row, column = tile_position(min(tile, tiles - 1), row_tiles, column_tiles, GROUP)
        steps = k_steps if tile < tiles else 0
        running = warpgroup_mma_init(acc)
        done = 0
        for j in range(slices):
            count = k_steps_before(2 * j, 2 * slices, WARPGROUP, steps) - done
            running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, False)
            step += count
            done += count
            own = WARPGROUP * SLOTS + turn % SLOTS
            gate_slot = slots.index(parts * own)
            up_slot = slots.index(parts * own + parts - 1)
            if finished > 0:
                _hand_back(WARPGROUP, free, turn, SLOTS)
                mbarrier.wait(loaded.index(own), (turn // SLOTS) & 1)
                _finish_chunk(slice_0, gate_slot, up_slot, hidden_slot, False, GATED, HIDDEN, ACTIVATION, PRECISION)
            count = k_steps_before(2 * j + 1, 2 * slices, WARPGROUP, steps) - done
            running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, False)
            step += count
            done += count
            if finished > 0:
                _finish_chunk(slice_0, gate_slot, up_slot, hidden_slot, True, GATED, HIDDEN, ACTIVATION, PRECISION)
                fence_async_shared()
                at = last_column + j * SLICE
                store_box(gate_desc, [last_row, at], gate_slot)
                if GATED:
                    store_box(up_desc, [last_row, at], up_slot)
                if HIDDEN:
                    store_box(hidden_desc, [last_row, at], hidden_slot)
                turn += 1
            slice_0 = slice_1
            slice_1 = slice_2
            slice_2 = slice_3
        count = steps - done
        running = multiply(running, a_ring, b_ring, full, empty, step, done, count, WARPGROUP, STAGES, False)
        step += count
        acc = warpgroup_mma_wait(0, deps=(running,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=steps > 0)
        last_row = row * BLOCK_M + WARPGROUP * ROWS
        last_column = column * BLOCK_N
        left, right = left_and_right(acc, BLOCK_N // 2)
        slice_0, slice_1, slice_2, slice_3 = slices_of(left, right, dtype, False, BLOCK_N)
        finished += 1
    tma.store_wait(0)


@gluon.jit(repr=naming("hopper", "gate_up_backward", "linear_act_backward", tile=(BLOCK_M.value, None, BLOCK_K.value)))
def foretrace_hopper_backward(
    grad_desc, down_desc, gate_desc, up_desc, grad_gate_desc, grad_up_desc, hidden_desc, rows, columns, inner,
    PROGRAMS: gl.constexpr, GROUP: gl.constexpr, STAGES: gl.constexpr, SLOTS: gl.constexpr, GATED: gl.constexpr,
    HIDDEN: gl.constexpr, ACTIVATION: gl.constexpr, PRECISION: gl.constexpr, BLOCK_N: gl.constexpr,
):  # fmt: skip
    """d-preact[rows, columns] from grad[rows, inner] @ down[inner, columns] and the kept pre-activations.

    ``grad_gate_desc`` may describe the memory of ``gate_desc``: a slice is read before it is written, by one program.
    """
    dtype: gl.constexpr = grad_desc.dtype
    parts: gl.constexpr = 2 if GATED else 1
    a_ring = gl.allocate_shared_memory(dtype, [STAGES * 2, ROWS, BLOCK_K], grad_desc.layout)
    b_ring = gl.allocate_shared_memory(dtype, [STAGES, BLOCK_K, BLOCK_N], down_desc.layout)
    slots = gl.allocate_shared_memory(dtype, [2 * SLOTS * parts, ROWS, SLICE], gate_desc.layout)
    # Never touched without HIDDEN, and then aliased to the slots' first to take no memory.
    hidden_bufs = gl.allocate_shared_memory(dtype, [2, ROWS, SLICE], gate_desc.layout) if HIDDEN else slots
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    loaded = gl.allocate_shared_memory(gl.int64, [2 * SLOTS, 1], mbarrier.MBarrierLayout())
    free = gl.allocate_shared_memory(gl.int64, [2 * SLOTS, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=2)
    for i in gl.static_range(2 * SLOTS):
        mbarrier.init(loaded.index(i), count=1)
        mbarrier.init(free.index(i), count=1)
    fence_async_shared()
    row_tiles = gl.cdiv(rows, BLOCK_M)
    column_tiles = gl.cdiv(columns, BLOCK_N)
    k_steps = gl.cdiv(inner, BLOCK_K)
    gl.warp_specialize(
        [
            (
                _consume,
                (
                    0, grad_gate_desc, grad_up_desc, hidden_desc, a_ring, b_ring, slots, hidden_bufs, full, empty,
                    loaded, free, row_tiles, column_tiles, k_steps, PROGRAMS, GROUP, STAGES, SLOTS, GATED, HIDDEN,
                    ACTIVATION, PRECISION, BLOCK_N,
                ),
            ),
            (
                _consume,
                (
                    1, grad_gate_desc, grad_up_desc, hidden_desc, a_ring, b_ring, slots, hidden_bufs, full, empty,
                    loaded, free, row_tiles, column_tiles, k_steps, PROGRAMS, GROUP, STAGES, SLOTS, GATED, HIDDEN,
                    ACTIVATION, PRECISION, BLOCK_N,
                ),
            ),
            (
                _load_operands,
                (
                    grad_desc, down_desc, a_ring, b_ring, full, empty, row_tiles, column_tiles, k_steps,
                    PROGRAMS, GROUP, STAGES, BLOCK_N,
                ),
            ),
            (
                _load_preactivations,
                (
                    gate_desc, up_desc, slots, loaded, free, row_tiles, column_tiles,
                    PROGRAMS, GROUP, SLOTS, GATED, BLOCK_N,
                ),
            ),
        ],
        [4, 1, 1],
        [240, 24, 24],
    )  # fmt: skip
