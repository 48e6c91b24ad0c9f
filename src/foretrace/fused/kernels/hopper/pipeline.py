"""What the warp-specialised Hopper kernels share: sizes, the order of tiles, and the main loop's k-steps.

A persistent program per multiprocessor walks over output tiles of 128 x BLOCK_N, which is 256,
or 128 where that leaves fewer multiprocessors idle. One warp issues the TMA loads into a ring
of shared-memory stages; two consumer warpgroups own 64 rows each and accumulate with ``wgmma``. A tile's epilogue is
*deferred*: the accumulators are rounded to the result's type, and while the next tile's products run the finished tile
is activated and stored, in chunks that are spread over the main loop.
"""

# Device code is Gluon's, not Python's: no types but its own, and compile-time constants in upper case.
# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,type-arg,misc,attr-defined"
# ruff: noqa: N803

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

__all__ = [
    "BLOCK_K",
    "BLOCK_M",
    "CHUNK",
    "ROWS",
    "SLICE",
    "beside",
    "k_steps_before",
    "left_and_right",
    "load_box",
    "multiply",
    "slices_of",
    "store_box",
    "synchronize",
    "tile_position",
]

# Copies of a box; Gluon renamed them after Triton 3.6.
load_box = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_box = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global
# And a barrier of the warps that run a function.
synchronize = getattr(gl, "thread_barrier", None) or gl.barrier

BLOCK_M = gl.constexpr(128)  # rows of a tile, two warpgroups' worth
ROWS = gl.constexpr(64)  # rows of a warpgroup
SLICE = gl.constexpr(64)  # columns of the epilogue that are stored at once
CHUNK = gl.constexpr(32)  # and that are computed at once
BLOCK_K = gl.constexpr(64)  # 128 bytes of a 16-bit type: the widest swizzle


@gluon.jit
def tile_position(tile, row_tiles, column_tiles, GROUP: gl.constexpr):
    """Row and column of a tile: GROUP rows of tiles are walked column by column, so that L2 serves their operands."""
    width = GROUP * column_tiles
    first = (tile // width) * GROUP
    rows = min(row_tiles - first, GROUP)
    inside = tile % width
    return first + inside % rows, inside // rows


@gluon.jit
def left_and_right(block, WIDTH: gl.constexpr):
    """The two halves of the columns of a [64, 2 * WIDTH] block; free, since no element changes its thread."""
    return block.reshape((ROWS, 2, WIDTH)).permute((0, 2, 1)).split()


@gluon.jit
def slices_of(left, right, dtype: gl.constexpr, GATED: gl.constexpr, BLOCK_N: gl.constexpr):
    """The rounded halves of a tile's columns as four slices of 64, in the order in which they move up.

    Of a narrow tile there are two. The others repeat them: they are moved, and never looked at.
    """
    left = left.to(dtype)
    right = right.to(dtype)
    if BLOCK_N == 256:
        slice_0, slice_1 = left_and_right(left, SLICE)
        slice_2, slice_3 = left_and_right(right, SLICE)
        return slice_0, slice_1, slice_2, slice_3
    else:
        gl.static_assert(BLOCK_N == 128, "tiles are 256 or 128 columns wide")
        return left, (left if GATED else right), right, right


@gluon.jit
def beside(left, right, WIDTH: gl.constexpr):
    """Two [64, WIDTH] blocks as one of [64, 2 * WIDTH], what `left_and_right` takes apart."""
    return gl.join(left, right).permute((0, 2, 1)).reshape((ROWS, 2 * WIDTH))


@gluon.jit
def multiply(
    running, a_ring, b_ring, full, empty, step, done, count,
    WARPGROUP: gl.constexpr, STAGES: gl.constexpr, K_MAJOR: gl.constexpr,
):  # fmt: skip
    """``count`` k-steps, each started while the one before it runs; returns the accumulator with the last in flight.

    ``a_ring``: [2 * STAGES, 64, 64], a row block a warpgroup; ``b_ring``: [STAGES, 64, BLOCK_N], or [STAGES, BLOCK_N,
    64] if K_MAJOR. ``step`` counts k-steps over all tiles, ``done`` those of this tile: its first overwrites the
    accumulator. Every stage but the last is given back, so that a warpgroup busy with an epilogue holds one only.
    """
    for i in range(count):
        stage = (step + i) % STAGES
        mbarrier.wait(full.index(stage), ((step + i) // STAGES) & 1)
        b = b_ring.index(stage)
        if K_MAJOR:
            b = b.permute((1, 0))
        running = warpgroup_mma(a_ring.index(2 * stage + WARPGROUP), b, running, use_acc=done + i > 0, is_async=True)
        running = warpgroup_mma_wait(1, deps=(running,))
        mbarrier.arrive(empty.index((step + i + STAGES - 1) % STAGES), count=1, pred=done + i > 0)
        running = warpgroup_mma_init(running)
    return running


@gluon.jit
def k_steps_before(chunk, CHUNKS: gl.constexpr, WARPGROUP: gl.constexpr, k_steps):
    """How many of a tile's k-steps are started before a chunk of the finished tile's epilogue.

    Chunks are spread evenly, and the second warpgroup's come half-way between the first's: while one warpgroup computes
    an epilogue the other keeps multiplying. The first k-step comes first, so that a product always runs underneath.
    """
    return min(k_steps, 1 + ((2 * chunk + WARPGROUP) * max(k_steps - 1, 0)) // (2 * CHUNKS))
