"""Would it succeed now: answers worked out by hand, and what must hold of any snapshot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.memory.allocator import simulate
from foretrace.memory.allocator.simulated import Allocator
from foretrace.memory.allocator.sizes import Settings
from foretrace.memory.snapshot import DEFAULT_POOL, Block, Segment, Snapshot, State
from memory.making import POOLS, STREAMS, allocators, cut_snapshots, sizes

MIB, GIB = 1 << 20, 1 << 30
START = 0x7F00_0000_0000
PLAIN: dict[str, object] = {"expandable_segments": False, "max_split_size": -1}


def segment(
    at: int, *cut: tuple[State, float], stream: int = 0, pool: tuple[int, int] = DEFAULT_POOL, expandable: bool = False
) -> Segment:
    """A large segment ``at`` so many MiB, cut into blocks given in MiB."""
    blocks: list[Block] = []
    end = START + at * MIB
    for state, mib in cut:
        blocks.append(Block(end, int(mib * MIB), state))
        end = blocks[-1].end
    return Segment(0, blocks[0].address, end - blocks[0].address, stream, False, tuple(blocks), pool, expandable)


def snapshot(*segments: Segment, **settings: object) -> Snapshot:
    return Snapshot("by hand", segments, settings={**PLAIN, **settings})


FRAGMENTED = snapshot(
    segment(0, ("active", 20), ("free", 60), ("active", 20)),
    segment(200, ("free", 124), ("active", 6)),
    segment(400, ("free", 40)),
    segment(600, ("free", 30), stream=7),
    segment(800, ("free", 50), pool=(0, 1)),
)


def test_the_best_fit_is_taken() -> None:
    answer = simulate(FRAGMENTED, 50 * MIB, device=0)
    assert (answer.succeeds, answer.from_, answer.address) == (True, "block", START + 20 * MIB)
    assert (answer.stream, answer.rounded_bytes, answer.segment_bytes) == (0, 50 * MIB, None)
    assert (
        answer.because == "asked 50 MiB; the best fit on stream 0 is a free block of 60 MiB, of which 10 MiB stay free."
    )
    tight = simulate(FRAGMENTED, 39 * MIB, device=0)
    assert tight.because.endswith("is a free block of 40 MiB; the other 1 MiB are not split off and go with it.")
    assert simulate(FRAGMENTED, 40 * MIB, device=0).because.endswith("is a free block of 40 MiB, exactly as large.")


def test_the_device_is_asked_where_nothing_fits() -> None:
    answer = simulate(FRAGMENTED, 200 * MIB, device=0, device_free_bytes=GIB)
    assert (answer.succeeds, answer.from_, answer.segment_bytes, answer.released_bytes) == (
        True, "segment", 200 * MIB, None,
    )  # fmt: skip
    assert answer.because == (
        "asked 200 MiB; the largest free block in the large pool of stream 0 is 124 MiB, so the device is asked for a "
        "segment of 200 MiB, of which it has 1024 MiB free."
    )


def test_whole_segments_are_given_back_first() -> None:
    # 40 MiB and, of the other stream, 30; the private pool's 50 are kept.
    answer = simulate(FRAGMENTED, 200 * MIB, device=0, device_free_bytes=130 * MIB)
    assert (answer.succeeds, answer.from_, answer.released_bytes) == (True, "release", 70 * MIB)
    assert answer.because == (
        "asked 200 MiB; the largest free block in the large pool of stream 0 is 124 MiB, and the device has 130 MiB "
        "free; once 70 MiB in 2 whole segments are given back, a segment of 200 MiB can be had."
    )


def test_holes_do_not_help() -> None:
    answer = simulate(FRAGMENTED, 200 * MIB, device=0, device_free_bytes=129 * MIB)
    assert (answer.succeeds, answer.from_) == (False, "nowhere")
    assert answer.because == (
        "asked 200 MiB; cached free 304 MiB = 70 MiB in 2 whole segments (can be given back) + 184 MiB in 2 holes, the "
        "largest 124 MiB + 50 MiB in private pools: even after 70 MiB in 2 whole segments are given back, the "
        "device has 199 MiB free of the 200 MiB that are needed."
    )


def test_a_device_that_is_not_known_decides() -> None:
    answer = simulate(FRAGMENTED, 200 * MIB, device=0)
    assert (answer.succeeds, answer.from_, answer.released_bytes) == (None, "unknown", None)
    assert answer.because.endswith(
        "so the device must give a segment of 200 MiB: it must have 200 MiB free, or 130 MiB once the 70 MiB that can "
        "be given back are."
    )
    # 62 MiB fit a hole on stream 0; on stream 7 they need a segment, for which what can be given back is enough.
    answer = simulate(FRAGMENTED, 62 * MIB, device=0, stream=7)
    assert (answer.succeeds, answer.from_) == (True, "unknown")
    assert answer.because.endswith(
        "is not known, but 70 MiB of cached memory can be given back first, which is enough: "
        "the device joins what it gets back."
    )


def test_the_limit_fails_whatever_the_device_has() -> None:
    # 350 MiB are reserved, 280 once the whole segments are given back.
    answer = simulate(FRAGMENTED, 200 * MIB, device=0, limit_bytes=479 * MIB)
    assert (answer.succeeds, answer.from_) == (False, "nowhere")
    assert answer.because.endswith(
        "280 MiB stay reserved, and 200 MiB more would exceed the 479 MiB that the process may reserve."
    )
    answer = simulate(FRAGMENTED, 200 * MIB, device=0, limit_bytes=480 * MIB)
    # The limit forbids it at first, so that segments are given back, whatever the device has free.
    assert (answer.succeeds, answer.from_) == (None, "unknown")
    assert answer.because.endswith("once 70 MiB in 2 whole segments are given back, the device must have 130 MiB free.")
    answer = simulate(FRAGMENTED, 200 * MIB, device=0, limit_bytes=480 * MIB, device_free_bytes=GIB)
    assert (answer.succeeds, answer.from_, answer.released_bytes) == (True, "release", 70 * MIB)
    assert "with 350 MiB reserved it would exceed the process's limit of 480 MiB; once" in answer.because


def test_nothing_is_given_back_for_a_private_pool() -> None:
    answer = simulate(FRAGMENTED, 60 * MIB, device=0, pool=(0, 1))
    assert (answer.succeeds, answer.from_, answer.pool) == (None, "unknown", [0, 1])
    assert answer.because.endswith("it must have 60 MiB free, for nothing is given back for a private pool.")
    assert simulate(FRAGMENTED, 60 * MIB, device=0, pool=(0, 1), device_free_bytes=59 * MIB).from_ == "nowhere"

    # What the ordinary pool has idle is no help, and the answer does not say that it were.
    answer = simulate(FRAGMENTED, 60 * MIB, device=0, pool=(0, 1), device_free_bytes=10 * MIB)
    assert answer.succeeds is False
    assert "70 MiB in 2 whole segments (not given back for a private pool)" in answer.because
    assert "can be given back" not in answer.because


def test_rounding_that_mebibytes_hide_is_said_in_bytes() -> None:
    assert simulate(FRAGMENTED, MIB + 1, device=0).because.startswith("asked 1048577 bytes, rounded to 1049088 bytes; ")
    assert simulate(FRAGMENTED, 513, device=0).because.startswith("asked 513 B, rounded to 1 KiB; ")


def test_only_what_waited_is_said_to_have_waited() -> None:
    idle = segment(100, ("free", 30))
    waiting = segment(0, ("pending", 10), ("active", 10))
    # An oversize block is given back at once; only the release of everything waits.
    oversize = snapshot(idle, waiting, max_split_size=20 * MIB)
    answer = simulate(oversize, 9 * MIB, device=0, stream=0, device_free_bytes=0)
    assert (answer.from_, answer.released_bytes) == ("release", 30 * MIB)
    assert "once 30 MiB in 1 whole segment are given back" in answer.because
    answer = simulate(snapshot(idle, waiting), 40 * MIB, device=0, device_free_bytes=10 * MIB)
    assert "once 30 MiB in 1 whole segment (waiting for other streams first) are given back" in answer.because


def test_pending_blocks_are_free_only_after_a_wait() -> None:
    waiting = snapshot(segment(0, ("pending", 100)))
    assert simulate(waiting, 80 * MIB, device=0, device_free_bytes=0).from_ == "release"
    assert simulate(waiting, 80 * MIB, device=0, device_free_bytes=80 * MIB).from_ == "segment"
    # Once it has waited, free neighbours join.
    joined = snapshot(segment(0, ("free", 30), ("pending", 30), ("active", 20)))
    assert simulate(joined, 50 * MIB, device=0, device_free_bytes=49 * MIB).from_ == "nowhere"


def test_oversize_blocks_are_passed_over_and_it_is_said() -> None:
    oversize = snapshot(segment(0, ("free", 100)), max_split_size=64 * MIB)
    answer = simulate(oversize, 30 * MIB, device=0, device_free_bytes=GIB)
    assert answer.from_ == "segment"
    assert "the blocks on stream 0 that are large enough are oversize ones (max_split_size)" in answer.because


def test_an_expandable_segment_grows() -> None:
    growing = snapshot(
        segment(0, ("active", 25), ("free", 15), expandable=True),
        segment(80, ("active", 20), ("free", 20), expandable=True),
        expandable_segments=True,
    )
    # 15 free MiB and the 40 unmapped behind them come first: 25 MiB more are two pages of 20.
    answer = simulate(growing, 40 * MIB, device=0, device_free_bytes=GIB)
    assert (answer.succeeds, answer.from_, answer.segment_bytes) == (True, "mapping", 40 * MIB)
    assert answer.because == (
        "asked 40 MiB; the largest free block in the large pool of stream 0 is 20 MiB, so 40 MiB of pages are mapped, "
        "of which it has 1024 MiB free."
    )
    # 60 MiB do not fit there: the tail's 20 free MiB grow by 40.
    # Unmapping them would be of no use, as they would have to be mapped again.
    assert simulate(growing, 60 * MIB, device=0, device_free_bytes=39 * MIB).succeeds is False
    assert simulate(growing, 60 * MIB, device=0, device_free_bytes=40 * MIB).segment_bytes == 40 * MIB


def test_without_settings_the_segments_tell_whether_they_expand() -> None:
    bare = Snapshot("old", (segment(0, ("free", 20), expandable=True),))
    assert simulate(bare, 20 * MIB, device=0).from_ == "block"
    assert simulate(bare, 30 * MIB, device=0, device_free_bytes=GIB).from_ == "mapping"
    assert simulate(Snapshot("empty", ()), 30 * MIB, device=0, device_free_bytes=GIB).from_ == "segment"


def test_the_stream_is_the_busiest_one_unless_given() -> None:
    two = snapshot(segment(0, ("free", 30)), segment(100, ("free", 40), stream=7))
    assert simulate(two, 20 * MIB, device=0).stream == 7
    assert simulate(two, 20 * MIB, device=0, stream=0).address == START
    assert simulate(snapshot(), 1, device=3).stream == 0


@pytest.mark.parametrize(
    ("size", "says"),
    [
        (0, "0 bytes needs no memory and always succeeds: ask for at least 1 byte"),
        (-1, "cannot have -1 bytes: give a size above 0"),
        (1 << 63, "more than any address space holds"),
    ],
)
def test_impossible_sizes_are_refused(size: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        simulate(FRAGMENTED, size, device=0)


def test_negative_memory_is_refused() -> None:
    with pytest.raises(InputError, match="free memory of the device cannot be -1 bytes"):
        simulate(FRAGMENTED, 1, device=0, device_free_bytes=-1)
    with pytest.raises(InputError, match="limit of the process cannot be -1 bytes"):
        simulate(FRAGMENTED, 1, device=0, limit_bytes=-1)


# What must hold of any snapshot.

streams, pools = st.sampled_from(STREAMS), st.sampled_from(POOLS)
free_bytes = st.sampled_from([0, 2 * MIB, 20 * MIB, 100 * MIB, GIB])


@given(cut_snapshots(), free_bytes, sizes, streams, pools)
def test_the_answer_is_what_the_blocks_say(
    any_cut: Snapshot, device_free: int, size: int, stream: int, pool: tuple[int, int]
) -> None:
    """Independent of the simulated allocator: the smallest block that fits, else a sum of what could be had."""
    plain = Snapshot("plain", any_cut.segments, settings=PLAIN)
    answer = simulate(plain, size, device=0, stream=stream, pool=pool, device_free_bytes=device_free)
    rounded = max(512, -(-size // 512) * 512)
    small = rounded <= MIB
    needs = 2 * MIB if small else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
    mine = [s for s in any_cut.segments if s.device == 0]
    fits = [
        (b.size, b.address)
        for s in mine
        if (s.stream, s.pool, s.small, s.expandable) == (stream, pool, small, False)
        for b in s.blocks
        if b.state == "free" and b.size >= rounded
    ]
    assert answer.rounded_bytes == rounded
    if fits:
        assert (answer.succeeds, answer.from_, answer.address) == (True, "block", min(fits)[1])
        return
    if device_free >= needs:
        assert (answer.succeeds, answer.from_, answer.segment_bytes) == (True, "segment", needs)
        return
    idle = [s for s in mine if s.pool == DEFAULT_POOL and all(b.state != "active" for b in s.blocks)]
    whole = sum(s.size for s in idle if not s.expandable)
    if pool == DEFAULT_POOL and not any(s.expandable for s in mine):
        assert answer.released_bytes == (whole or None)
        assert answer.succeeds is (device_free + whole >= needs)
        assert answer.from_ == ("release" if answer.succeeds else "nowhere")
    elif pool != DEFAULT_POOL:
        assert (answer.succeeds, answer.released_bytes) == (False, None)


@given(allocators(), sizes, streams, pools)
def test_the_answer_is_what_the_allocator_does_next(
    allocator: Allocator, size: int, stream: int, pool: tuple[int, int]
) -> None:
    answer = simulate(
        allocator.snapshot(),
        size,
        device=0,
        stream=stream,
        pool=pool,
        device_free_bytes=allocator.device_free_bytes,
        limit_bytes=allocator.limit_bytes,
    )
    taken = allocator.malloc(size, stream, pool)
    assert answer.from_ == taken.source
    assert answer.succeeds is (taken.source != "nowhere")
    assert answer.rounded_bytes == taken.rounded
    assert answer.segment_bytes == taken.asked
    assert (answer.released_bytes or 0) == taken.released
    assert answer.address == (taken.address if taken.source == "block" else None)


@given(allocators(), sizes, streams, pools)
def test_what_fits_the_largest_free_block_is_served_from_a_block(
    allocator: Allocator, size: int, stream: int, pool: tuple[int, int]
) -> None:
    if allocator.settings.max_split is not None:
        allocator = Allocator(Settings())
        allocator.free(allocator.malloc(size, stream, pool).address or 0)
    small = allocator.settings.rounded(size) <= MIB
    own = [piece.size for at, piece in allocator.blocks("free") if at.key == (pool, small, stream)]
    answer = simulate(allocator.snapshot(), size, device=0, stream=stream, pool=pool, device_free_bytes=0)
    assert (answer.from_ == "block") is (max(own, default=0) >= answer.rounded_bytes)


@given(allocators(most_bytes=None), sizes, streams, pools)
def test_an_unknown_device_is_between_an_empty_and_a_full_one(
    allocator: Allocator, size: int, stream: int, pool: tuple[int, int]
) -> None:
    def succeeds(free: int | None) -> bool | None:
        answer = simulate(
            allocator.snapshot(),
            size,
            device=0,
            stream=stream,
            pool=pool,
            device_free_bytes=free,
            limit_bytes=allocator.limit_bytes,
        )
        assert answer.because.startswith("asked ")
        assert answer.because.endswith(".")
        assert "None" not in answer.because
        return answer.succeeds

    poor, rich = succeeds(0), succeeds(1 << 60)
    assert succeeds(None) is (poor if poor == rich else None)
    assert (poor, rich) != (True, False)
