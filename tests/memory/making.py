"""Hypothesis strategies that make allocator snapshots.

`snapshots`: as a program leaves them, made by random operations on the simulated allocator, with a history that leads
there. `cut_snapshots`: any valid cut of segments, whether an allocator would ever make it or not.
"""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from foretrace.memory.allocator.simulated import Allocator
from foretrace.memory.allocator.sizes import Settings
from foretrace.memory.snapshot import (
    ACTIONS,
    DEFAULT_POOL,
    NO_STACK,
    Annotation,
    Block,
    Frame,
    History,
    Segment,
    Snapshot,
    Stacks,
)

__all__ = [
    "allocators",
    "cut_segments",
    "cut_snapshots",
    "frames",
    "histories",
    "run",
    "settings",
    "sizes",
    "snapshots",
]

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
# Every address the allocator hands out, and every size it reckons with, is a multiple of this.
UNIT = 512
START = 0x7F00_0000_0000

frames = st.builds(
    Frame,
    name=st.sampled_from(["forward", "backward", "step", "<module>", "empty_cuda", "训练"]),
    filename=st.sampled_from(["/home/a/train.py", "/home/a/model.py", "torch/nn/modules/linear.py", "??", ""]),
    line=st.integers(0, 2000),
)


@st.composite
def cut_segments(draw: st.DrawFn, address: int = START, stacks: int = 0, device: int = 0) -> Segment:
    """One segment, cut anywhere: block sizes sum to it, and no two free blocks lie side by side.

    ``stacks``: how many stacks there are to choose from.
    """
    stack = st.integers(NO_STACK, stacks - 1)
    small = draw(st.booleans())
    size = 2 * MIB if small else 2 * MIB * draw(st.integers(1, 24))
    places = st.integers(1, size // UNIT - 1)
    cuts = sorted(draw(st.sets(places, max_size=8)))
    bounds = [0, *(UNIT * cut for cut in cuts), size]
    blocks: list[Block] = []
    for start, end in itertools.pairwise(bounds):
        after_free = bool(blocks) and blocks[-1].state == "free"
        state = draw(st.sampled_from(["active", "pending"] if after_free else ["active", "active", "pending", "free"]))
        requested = (
            None if state == "free" else draw(st.none() | st.integers(max(1, end - start - UNIT + 1), end - start))
        )
        blocks.append(Block(address + start, end - start, state, requested, draw(stack)))
    return Segment(
        device=device,
        address=address,
        size=size,
        stream=draw(st.sampled_from([0, 0, 0, 94_000_000_000_000, 7])),
        small=small,
        blocks=tuple(blocks),
        pool=draw(st.sampled_from([DEFAULT_POOL, DEFAULT_POOL, (0, 1), (2, 0)])),
        expandable=draw(st.booleans()),
        stack=draw(stack),
    )


@st.composite
def histories(draw: st.DrawFn, device: int = 0, stacks: int = 0, most: int = 20) -> History:
    """A history of any valid entries, related to nothing; time never runs backwards."""
    length = draw(st.integers(0, most))
    column = lambda values: draw(st.lists(values, min_size=length, max_size=length))  # noqa: E731
    texts = tuple(draw(st.lists(st.sampled_from(["warm-up", "step 1", "épisode"]), unique=True)))
    return History(
        device=device,
        action=np.array(column(st.integers(0, len(ACTIONS) - 1)), dtype=np.uint8),
        address=np.array([START + UNIT * n for n in column(st.integers(0, 1 << 20))], dtype=np.uint64),
        size=np.array(column(st.integers(0, 1 << 33)), dtype=np.int64),
        stream=np.array(column(st.sampled_from([0, 7])), dtype=np.int64),
        time_us=np.array(sorted(column(st.integers(1_700_000_000_000_000, 1_700_000_001_000_000))), dtype=np.int64),
        stack=np.array(column(st.integers(NO_STACK, stacks - 1)), dtype=np.int32),
        metadata=np.array(column(st.integers(-1, len(texts) - 1)), dtype=np.int32),
        texts=texts,
    )


@st.composite
def cut_snapshots(draw: st.DrawFn, most_segments: int = 6) -> Snapshot:
    """Any valid snapshot: segments cut anywhere, one to two devices, any history. No allocator need ever make it."""
    stacks = Stacks()
    for stack in draw(st.lists(st.lists(frames, min_size=1, max_size=4), max_size=4)):
        stacks.number(stack)
    many = len(stacks.stacks)
    devices = draw(st.sampled_from([(0,), (0,), (1,), (0, 1)]))
    segments: list[Segment] = []
    address = START
    for _ in range(draw(st.integers(0, most_segments))):
        address += 2 * MIB * draw(st.sampled_from([0, 0, 1, 50]))
        segment = draw(cut_segments(address, many, draw(st.sampled_from(devices))))
        segments.append(segment)
        address = segment.address + segment.size
    annotation = st.builds(
        lambda name, device, start, us: Annotation(name, device, start, None if us is None else start + us),
        st.sampled_from(["ProfilerStep#1", "Optimizer.step#AdamW.step", "forward"]),
        st.sampled_from([*devices, None]),
        st.integers(1_700_000_000_000_000, 1_700_000_001_000_000),
        st.none() | st.integers(0, 100_000),
    )
    return Snapshot(
        path="made.pickle",
        segments=tuple(segments),
        histories=tuple(draw(histories(device, many)) for device in devices),
        stacks=stacks,
        settings=draw(st.sampled_from([{}, {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}])),
        annotations=tuple(draw(st.lists(annotation, max_size=3))),
    )


STREAMS = (0, 7, 94_000_000_000_000)
POOLS = (DEFAULT_POOL, DEFAULT_POOL, DEFAULT_POOL, (0, 1))

# Sizes of every class: tiny, small, packed into 20 MiB, a segment of its own; exact and odd.
sizes = st.builds(
    lambda exact, odd: max(1, exact + odd),
    st.sampled_from(
        [1, 512, 4 * KIB, 300 * KIB, MIB, MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 25 * MIB, 64 * MIB, 200 * MIB]
    ),
    st.sampled_from([0, 0, 0, -1, 1, 513, 70_000]),
)

settings = st.builds(
    Settings,
    max_split=st.sampled_from([None, None, None, 20 * MIB, 64 * MIB]),
    large_segment=st.sampled_from([20 * MIB, 20 * MIB, 20 * MIB, 32 * MIB]),
    roundup=st.sampled_from([(0,) * 16, (0,) * 16, (4,) * 16, (1, 2, 4, 8) * 4]),
    expandable=st.booleans(),
)

# One thing a program does: what, how much, on which stream and pool, and to which of the blocks it holds.
_steps = st.lists(
    st.tuples(
        st.sampled_from(["malloc"] * 8 + ["free"] * 6 + ["record"] * 2 + ["complete", "empty"]),
        sizes,
        st.sampled_from(STREAMS),
        st.sampled_from(POOLS),
        st.integers(0, 1 << 16),
    ),
    max_size=40,
)


def run(allocator: Allocator, steps: list[tuple[str, int, int, tuple[int, int], int]], stacks: int = 0) -> None:
    """Do what a program does; a step that has nothing to act on is none."""
    for what, size, stream, pool, which in steps:
        state = "pending" if what == "complete" else "active"
        held = [piece.address for _, piece in allocator.blocks(state)]
        match what:
            case "malloc":
                allocator.malloc(size, stream, pool, which % (stacks + 1) - 1)
            case "free" | "record" if held:
                allocator.free(held[which % len(held)], used_elsewhere=what == "record")
            case "complete" if held:
                allocator.complete(held[which % len(held)])
            case "empty":
                allocator.empty_cache()


@st.composite
def allocators(draw: st.DrawFn, stacks: int = 0, most_bytes: int | None = 2 * GIB) -> Allocator:
    """An allocator after a program's random steps, on a device with so much memory (None: without end)."""
    free = None if most_bytes is None else draw(st.sampled_from([most_bytes, most_bytes // 8]))
    limit = draw(st.sampled_from([None, None, GIB]))
    allocator = Allocator(draw(settings), device_free_bytes=free, limit_bytes=limit)
    run(allocator, draw(_steps), stacks)
    return allocator


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """A snapshot as a program leaves it, with its whole history and a stack for most of what it did."""
    stacks = Stacks()
    for stack in draw(st.lists(st.lists(frames, min_size=1, max_size=4), max_size=4)):
        stacks.number(stack)
    return draw(allocators(len(stacks.stacks))).snapshot("made.pickle", stacks)
