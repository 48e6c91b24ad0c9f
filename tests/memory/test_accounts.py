"""Where reserved memory is: two accounts of it, each whole."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from foretrace.memory.accounts import busiest_stream, fragmentation, free, holes, idle_elsewhere, sparse, totals
from foretrace.memory.snapshot import DEFAULT_POOL, Block, Segment
from memory.making import cut_segments

MIB = 1 << 20


def PAGES(small):  # noqa: N802
    return 2 * MIB if small else 20 * MIB


def segment(*blocks: tuple[str, float], at: int = 0, stream: int = 0, pool=DEFAULT_POOL, expandable=False, small=False):
    """A segment of blocks given as (state, MiB)."""
    made, address = [], at
    for state, mib in blocks:
        size = round(mib * MIB)
        made.append(Block(address, size, state, None if state == "free" else size))
        address += size
    return Segment(0, at, address - at, stream, small, tuple(made), pool, expandable)


def test_a_hole_lies_in_a_segment_somebody_uses_and_a_whole_segment_is_none():
    used = segment(("active", 10), ("free", 6), ("active", 2), ("free", 2))
    empty = segment(("free", 20), at=1 << 30)
    assert [hole.size for hole in holes(used)] == [6 * MIB, 2 * MIB]
    assert holes(empty) == []
    found = free([used, empty], PAGES)
    assert (found.holes_bytes, found.largest_hole_bytes, found.holes) == (8 * MIB, 6 * MIB, 2)
    assert (found.whole_segments_bytes, found.whole_segments) == (20 * MIB, 1)
    assert found.releasable_bytes == 20 * MIB


def test_the_five_sizes_nest():
    rounded = Segment(
        0, 0, 4 * MIB, 0, False, (Block(0, 2 * MIB, "active", 2 * MIB - 100), Block(2 * MIB, 2 * MIB, "free"))
    )
    freed = segment(("pending", 3), ("free", 1), at=1 << 30)
    sizes = totals([rounded, freed])
    assert sizes.requested_bytes == 2 * MIB - 100
    assert sizes.allocated_bytes == 2 * MIB
    assert sizes.active_bytes == 5 * MIB
    assert sizes.reserved_bytes == 8 * MIB
    assert fragmentation([rounded, freed], (0, DEFAULT_POOL)).rounding_bytes == 100


def test_what_was_asked_for_is_unknown_where_one_block_does_not_say():
    silent = Segment(0, 0, 2 * MIB, 0, True, (Block(0, 2 * MIB, "active", None),))
    assert totals([silent]).requested_bytes is None
    assert fragmentation([silent], (0, DEFAULT_POOL)).rounding_bytes is None


def test_free_memory_of_another_stream_or_pool_is_its_own_kind():
    own = segment(("active", 1), ("free", 3))
    cached = segment(("free", 20), at=1 << 30)
    other_stream = segment(("free", 10), at=2 << 30, stream=7)
    graph = segment(("active", 5), ("free", 4), at=3 << 30, pool=(0, 1))
    kinds = fragmentation([own, cached, other_stream, graph], (0, DEFAULT_POOL))
    assert (kinds.hard_bytes, kinds.soft_bytes, kinds.stream_bytes) == (3 * MIB, 20 * MIB, 14 * MIB)
    assert idle_elsewhere([own, cached, other_stream, graph], (0, DEFAULT_POOL)) == {
        (7, DEFAULT_POOL): 10 * MIB,
        (0, (0, 1)): 4 * MIB,
    }
    from_the_graph = fragmentation([own, cached, other_stream, graph], (0, (0, 1)))
    assert (from_the_graph.hard_bytes, from_the_graph.soft_bytes) == (4 * MIB, 0)


def test_pages_of_an_expandable_segment_can_be_returned_where_nothing_lives_in_them():
    # 10 MiB used, then 70 free: pages of 20 MiB from 20 on are free, the rest of the first is not.
    grown = segment(("active", 10), ("free", 70), ("active", 20), expandable=True)
    assert free([grown], PAGES).releasable_bytes == 60 * MIB
    assert free([segment(("active", 10), ("free", 70), ("active", 20))], PAGES).releasable_bytes == 0
    # A hole that covers no page whole.
    assert free([segment(("active", 10), ("free", 25), ("active", 5), expandable=True)], PAGES).releasable_bytes == 0


def test_small_blocks_that_pin_a_large_segment_are_found():
    pinned = segment(("active", 16), ("free", 984))
    busy = segment(("active", 16), ("free", 4), at=1 << 40)
    (found,) = sparse([pinned, busy])
    assert found.segment is pinned
    assert found.free_bytes == 984 * MIB


def test_the_stream_that_holds_most_is_looked_at():
    assert busiest_stream([segment(("free", 10)), segment(("free", 30), at=1 << 30, stream=5)]) == 5
    assert busiest_stream([segment(("free", 99), stream=5, pool=(0, 1))]) == 0
    assert busiest_stream([]) == 0


@given(st.lists(cut_segments(), max_size=6), st.sampled_from([0, 5, 9]))
def test_both_accounts_are_whole_whatever_the_segments(segments, stream):
    sizes, unused = totals(segments), free(segments, PAGES)
    kinds = fragmentation(segments, (stream, DEFAULT_POOL))
    reserved = sum(one.size for one in segments)
    assert sizes.reserved_bytes == reserved
    assert reserved == sizes.active_bytes + unused.whole_segments_bytes + unused.holes_bytes
    assert reserved == sizes.active_bytes + kinds.hard_bytes + kinds.soft_bytes + kinds.stream_bytes
    assert sizes.active_bytes == sizes.allocated_bytes + kinds.pending_bytes
    if sizes.requested_bytes is not None:
        assert sizes.requested_bytes <= sizes.allocated_bytes
    assert unused.whole_segments_bytes <= unused.releasable_bytes <= unused.whole_segments_bytes + unused.holes_bytes
