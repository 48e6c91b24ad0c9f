"""The simulated caching allocator: every rule with numbers worked out by hand, and what must hold after any program."""

from __future__ import annotations

import pytest
from hypothesis import given

from foretrace.errors import InputError
from foretrace.memory.allocator.simulated import Allocator, Given
from foretrace.memory.allocator.sizes import Settings
from foretrace.memory.snapshot import Snapshot
from memory.making import allocators, run, snapshots

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
EXPANDABLE = Settings(expandable=True)


def layout(allocator: Allocator) -> list[list[tuple[str, int]]]:
    """Each segment's blocks, by address, as a state and a size."""
    return [[(b.state, b.size) for b in s.blocks] for s in allocator.snapshot().segments]


def address(given: Given) -> int:
    assert given.address is not None
    return given.address


# Sizes.


@pytest.mark.parametrize(
    ("size", "rounded", "segment"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB - 1, 10 * MIB, 10 * MIB),  # rounded first, and then it is no longer below 10 MiB
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (200 * MIB, 200 * MIB, 200 * MIB),
    ],
)
def test_sizes_without_settings(size: int, rounded: int, segment: int) -> None:
    assert Settings().rounded(size) == rounded
    assert Settings().segment_bytes(rounded) == segment


def test_rounding_up_to_divisions_of_a_power_of_two() -> None:
    four = Settings(roundup=(4,) * 16)
    # Between 1024 KiB and 2048 KiB four divisions end at 1280, 1536, 1792 and 2048.
    assert four.rounded(1200 * KIB) == 1280 * KIB
    assert four.rounded(1537 * KIB) == 1792 * KIB
    assert four.rounded(2 * MIB) == 2 * MIB
    # Up to four times the smallest block it is too small to divide.
    assert four.rounded(2000) == 2048
    assert four.rounded(2049) == 2560
    # Each power of two from 1 MiB on has its own; smaller sizes use the first.
    by_size = Settings(roundup=(1, 2, 4, *([0] * 13)))
    assert by_size.rounded(700 * KIB) == 700 * KIB
    assert by_size.rounded(2 * MIB + 1) == 3 * MIB
    assert by_size.rounded(4 * MIB + 1) == 5 * MIB
    assert by_size.rounded(8 * MIB + 1) == 8 * MIB + 512


def test_settings_as_recorded_and_from_the_configuration_string() -> None:
    recorded = {
        "PYTORCH_CUDA_ALLOC_CONF": "max_non_split_rounding_mb:32, large_segment_size_mb:64",
        "max_split_size": 64 * MIB,
        "garbage_collection_threshold": 0.8,
        "expandable_segments": True,
        "roundup_power2_divisions": {"1": 2, "2": 4, "32768": 8},
    }
    assert Settings.read(recorded) == Settings(
        64 * MIB, 32 * MIB, 64 * MIB, (2, 4, *([0] * 13), 8), 0.8, expandable=True
    )
    conf = "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:4],garbage_collection_threshold:0.5"
    only = Settings.read({"PYTORCH_ALLOC_CONF": conf + ",expandable_segments:False"})
    assert only == Settings(64 * MIB, roundup=(*([1] * 9), 4, *([4] * 6)), collect_above=0.5, expandable=False)
    assert Settings.read({"max_split_size": -1, "expandable_segments": "perhaps"}) == Settings()
    assert Settings.read({}) == Settings()


# Cached blocks.


def test_small_requests_share_a_segment_and_split_to_the_last_512_bytes() -> None:
    allocator = Allocator()
    first = allocator.malloc(MIB)
    assert (first.source, first.asked, first.size) == ("segment", 2 * MIB, MIB)
    second = allocator.malloc(MIB - 512)
    assert (second.source, second.address, second.asked) == ("block", address(first) + MIB, None)
    assert layout(allocator) == [[("active", MIB), ("active", MIB - 512), ("free", 512)]]
    allocator.malloc(1)
    assert layout(allocator)[0][-1] == ("active", 512)


def test_the_large_pool_does_not_split_off_a_mebibyte_or_less() -> None:
    allocator = Allocator()
    given = allocator.malloc(11 * MIB)
    assert (given.asked, given.size) == (12 * MIB, 12 * MIB)
    assert layout(allocator) == [[("active", 12 * MIB)]]
    given = Allocator().malloc(11 * MIB - 512)
    assert (given.asked, given.size) == (12 * MIB, 11 * MIB - 512)


def test_the_best_fit_is_the_smallest_and_of_those_the_lowest() -> None:
    allocator = Allocator()
    large, low, high = (address(allocator.malloc(size * MIB)) for size in (40, 30, 30))
    other = address(allocator.malloc(30 * MIB, stream=7))
    for block in (high, large, low, other):
        allocator.free(block)
    assert [address(allocator.malloc(29 * MIB)) for _ in range(3)] == [low, high, large]
    assert allocator.malloc(29 * MIB).source == "segment"


def test_streams_and_pools_do_not_share() -> None:
    allocator = Allocator()
    allocator.free(address(allocator.malloc(30 * MIB)))
    assert allocator.malloc(30 * MIB, stream=7).source == "segment"
    assert allocator.malloc(30 * MIB, pool=(0, 1)).source == "segment"
    # 1 MiB is small, and never comes from a large block.
    assert allocator.malloc(MIB).source == "segment"
    assert allocator.malloc(30 * MIB).source == "block"


def test_neighbours_merge_when_freed_and_pending_ones_only_when_done() -> None:
    allocator = Allocator()
    first, second, third = (address(allocator.malloc(6 * MIB)) for _ in range(3))
    allocator.free(second, used_elsewhere=True)
    allocator.free(first)
    assert layout(allocator)[0][:2] == [("free", 6 * MIB), ("pending", 6 * MIB)]
    assert allocator.malloc(8 * MIB).source == "segment"
    allocator.complete(second)
    assert layout(allocator)[0][:2] == [("free", 12 * MIB), ("active", 6 * MIB)]
    allocator.free(third)
    assert layout(allocator)[0] == [("free", 20 * MIB)]


# Oversize blocks.


def test_oversize_blocks_serve_only_oversize_requests_of_about_their_size() -> None:
    allocator = Allocator(Settings(max_split=64 * MIB))
    allocator.free(address(allocator.malloc(100 * MIB)))
    assert allocator.malloc(30 * MIB).source == "segment"  # not oversize itself
    assert allocator.malloc(80 * MIB).source == "segment"  # 20 MiB smaller
    given = allocator.malloc(80 * MIB + 512)
    assert (given.source, given.size) == ("block", 100 * MIB)  # and nothing is split off


def test_oversize_blocks_are_given_back_first_and_only_as_many_as_needed() -> None:
    allocator = Allocator(Settings(max_split=64 * MIB), device_free_bytes=400 * MIB)
    held = [address(allocator.malloc(size * MIB)) for size in (70, 90, 110, 30, 30)]
    for block in held:
        allocator.free(block)
    # 70 MiB are left, and no block holds 140: the largest go until they make up as much, 110 and 90.
    given = allocator.malloc(140 * MIB)
    assert (given.source, given.asked, given.released, given.released_segments) == (
        "release", 140 * MIB, 200 * MIB, 2,
    )  # fmt: skip
    assert sorted(s.size // MIB for s in allocator.snapshot().segments) == [30, 30, 70, 140]


def test_one_oversize_block_that_is_large_enough_goes_alone() -> None:
    allocator = Allocator(Settings(max_split=64 * MIB), device_free_bytes=300 * MIB)
    for block in [address(allocator.malloc(size * MIB)) for size in (100, 130)]:
        allocator.free(block)
    # 80 MiB fit neither block (20 MiB of rounding at most) nor the 70 MiB left; the smaller block is enough.
    given = allocator.malloc(80 * MIB)
    assert (given.source, given.released) == ("release", 100 * MIB)


# Giving back.


def test_everything_wholly_free_is_given_back_before_a_request_fails() -> None:
    allocator = Allocator(device_free_bytes=100 * MIB)
    kept = address(allocator.malloc(5 * MIB))  # pins a segment of 20 MiB
    for block in [address(allocator.malloc(30 * MIB)), address(allocator.malloc(30 * MIB, stream=7))]:
        allocator.free(block)
    given = allocator.malloc(70 * MIB)
    assert (given.source, given.asked, given.released, given.released_segments) == (
        "release", 70 * MIB, 60 * MIB, 2,
    )  # fmt: skip
    assert allocator.device_free_bytes == 10 * MIB
    assert layout(allocator) == [[("active", 5 * MIB), ("free", 15 * MIB)], [("active", 70 * MIB)]]
    assert allocator.malloc(12 * MIB).address == kept + 5 * MIB
    assert allocator.malloc(12 * MIB).source == "nowhere"
    assert allocator.events[-1].action == "oom"


def test_pending_blocks_are_waited_for_then() -> None:
    allocator = Allocator(device_free_bytes=30 * MIB)
    block = address(allocator.malloc(30 * MIB))
    allocator.free(block, used_elsewhere=True)
    given = allocator.malloc(20 * MIB)
    assert (given.source, given.released) == ("release", 30 * MIB)


def test_private_pools_are_kept_while_somebody_uses_them() -> None:
    def filled(**more: frozenset[tuple[int, int]]) -> Allocator:
        allocator = Allocator(device_free_bytes=50 * MIB, **more)
        allocator.free(address(allocator.malloc(30 * MIB, pool=(0, 1))))
        return allocator

    assert filled().malloc(30 * MIB).source == "nowhere"
    given = filled(unused_pools=frozenset({(0, 1)})).malloc(30 * MIB)
    assert (given.source, given.released) == ("release", 30 * MIB)
    # While such a pool is filled, nothing may be waited for, and so nothing is given back.
    allocator = Allocator(device_free_bytes=50 * MIB)
    allocator.free(address(allocator.malloc(30 * MIB)))
    assert allocator.malloc(30 * MIB, pool=(0, 1)).source == "nowhere"
    assert allocator.malloc(20 * MIB, pool=(0, 1)).source == "segment"


def test_the_limit_counts_what_is_reserved_and_fails_like_the_device() -> None:
    allocator = Allocator(limit_bytes=64 * MIB)
    allocator.free(address(allocator.malloc(40 * MIB)))
    assert allocator.malloc(24 * MIB).source == "block"
    given = allocator.malloc(26 * MIB)
    assert (given.source, given.released) == ("nowhere", 0)  # 40 reserved, and a block pins them
    assert allocator.malloc(24 * MIB).source == "segment"
    assert allocator.reserved == 64 * MIB


def test_idle_segments_go_once_much_of_the_limit_is_reserved() -> None:
    def filled(threshold: float) -> Allocator:
        allocator = Allocator(Settings(collect_above=threshold), limit_bytes=100 * MIB)
        allocator.free(address(allocator.malloc(40 * MIB)))
        return allocator

    assert filled(0.5).malloc(50 * MIB).source == "segment"  # 40 of 100 MiB: not above the half
    given = filled(0.3).malloc(50 * MIB)
    assert (given.source, given.released) == ("release", 40 * MIB)


# Expandable segments.


def test_an_expandable_segment_grows_by_whole_pages_and_splits_to_512_bytes() -> None:
    allocator = Allocator(EXPANDABLE)
    first = allocator.malloc(25 * MIB)
    assert (first.source, first.asked) == ("mapping", 40 * MIB)
    second = allocator.malloc(30 * MIB)
    # 15 MiB are there already, and the block begins in them.
    assert (second.source, second.asked, second.address) == ("mapping", 20 * MIB, address(first) + 25 * MIB)
    assert layout(allocator) == [[("active", 25 * MIB), ("active", 30 * MIB), ("free", 5 * MIB)]]
    assert allocator.malloc(5 * MIB - 512).size == 5 * MIB - 512
    small = allocator.malloc(100)
    assert (small.source, small.asked) == ("mapping", 2 * MIB)
    assert [s.small for s in allocator.snapshot().segments] == [False, True]


def test_the_best_fit_counts_what_a_block_can_grow_to() -> None:
    allocator = Allocator(EXPANDABLE)
    first, _ = (address(allocator.malloc(size * MIB)) for size in (20, 5))
    allocator.free(first)
    # The tail's 15 MiB fit more closely, but it could grow: the hole of 20 MiB is taken.
    assert allocator.malloc(10 * MIB).address == first


def test_whole_pages_of_a_hole_are_unmapped_and_mapped_again_first() -> None:
    allocator = Allocator(EXPANDABLE, device_free_bytes=120 * MIB)
    first, second, third = (address(allocator.malloc(size * MIB)) for size in (10, 70, 35))
    allocator.free(second)
    assert allocator.reserved == 120 * MIB
    # The hole reaches from 10 to 80 MiB: its pages from 20 to 80 go; 10 MiB stay in front of them.
    assert allocator.empty_cache() == 60 * MIB
    assert layout(allocator) == [[("active", 10 * MIB), ("free", 10 * MIB)], [("active", 35 * MIB), ("free", 5 * MIB)]]
    given = allocator.malloc(30 * MIB)
    assert (given.source, given.asked, given.address) == ("mapping", 20 * MIB, second)
    allocator.free(first)
    allocator.free(third)
    allocator.free(second)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.ranges) == (0, [])


def test_blocks_of_expandable_segments_are_passed_over_once_switched_off() -> None:
    allocator = Allocator(EXPANDABLE)
    allocator.free(address(allocator.malloc(20 * MIB)))
    allocator.expand(False)
    given = allocator.malloc(20 * MIB)
    assert (given.source, given.asked) == ("segment", 20 * MIB)


def test_pages_count_towards_the_limit_as_a_segment_would() -> None:
    allocator = Allocator(EXPANDABLE, limit_bytes=50 * MIB)
    allocator.malloc(10 * MIB)
    # Only 20 MiB need be mapped beside the 10 that are free, but 40 are held against the limit.
    assert allocator.malloc(30 * MIB).source == "mapping"
    allocator = Allocator(EXPANDABLE, limit_bytes=49 * MIB)
    allocator.malloc(10 * MIB)
    assert allocator.malloc(30 * MIB).source == "nowhere"


def test_the_first_pages_address_is_taken_from_the_history() -> None:
    allocator = Allocator(EXPANDABLE)
    first, second = address(allocator.malloc(40 * MIB)), address(allocator.malloc(20 * MIB))
    allocator.free(first)
    allocator.empty_cache()
    loaded = Allocator.load(allocator.snapshot(), 0)
    assert loaded.malloc(40 * MIB).address == first
    # Without it, only what follows the mapped pages is known.
    bare = Snapshot("bare", allocator.snapshot().segments, settings={"expandable_segments": True})
    assert Allocator.load(bare, 0).malloc(40 * MIB).address == second + 20 * MIB


def test_freeing_what_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="no active block begins at 0x10: give the address"):
        Allocator().free(16)


# What must hold after any program.


@given(snapshots())
def test_blocks_fill_their_segments_and_free_ones_are_never_neighbours(snapshot: Snapshot) -> None:
    for segment in snapshot.segments:
        assert sum(block.size for block in segment.blocks) == segment.size
        end = segment.address
        before = "active"
        for block in segment.blocks:
            assert block.address == end
            assert block.size > 0
            assert block.size % 512 == 0
            assert (before, block.state) != ("free", "free")
            end, before = block.end, block.state
    for one, other in zip(snapshot.segments, snapshot.segments[1:], strict=False):
        assert one.address + one.size <= other.address


@given(allocators())
def test_reserved_memory_is_the_segments_and_the_device_lacks_as_much(allocator: Allocator) -> None:
    segments = allocator.snapshot().segments
    assert allocator.reserved == sum(segment.size for segment in segments)
    if allocator.limit_bytes is not None and not allocator.settings.expandable:
        assert allocator.reserved <= allocator.limit_bytes
    given, taken = 0, 0
    for event in allocator.events:
        taken += event.size if event.action in ("segment_alloc", "segment_map") else 0
        given += event.size if event.action in ("segment_free", "segment_unmap") else 0
    assert taken - given == allocator.reserved


@given(allocators())
def test_once_all_is_freed_and_the_cache_emptied_nothing_is_reserved(allocator: Allocator) -> None:
    allocator.unused_pools = frozenset({(0, 1)})
    for _, piece in list(allocator.blocks("active")):
        allocator.free(piece.address, used_elsewhere=piece.address % 1024 == 0)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.snapshot().segments) == (0, ())


@given(snapshots())
def test_the_history_of_a_program_ends_in_what_it_holds(snapshot: Snapshot) -> None:
    from foretrace.memory.snapshot import ACTIONS

    held: dict[int, int] = {}
    history = snapshot.history(0)
    for action, where, size in zip(history.action, history.address, history.size, strict=True) if history else ():
        if ACTIONS[action] == "alloc":
            held[int(where)] = int(size)
        elif ACTIONS[action] == "free_requested":
            assert held.pop(int(where)) == size
    active = {b.address: b.requested for s in snapshot.segments for b in s.blocks if b.state == "active"}
    assert held == active


@given(allocators())
def test_a_snapshot_loads_as_the_allocator_it_was_taken_of(allocator: Allocator) -> None:
    snapshot = allocator.snapshot()
    again = Allocator.load(snapshot, 0).snapshot()
    assert (again.segments, again.settings) == (snapshot.segments, snapshot.settings)


def test_a_step_with_nothing_to_act_on_is_none() -> None:
    allocator = Allocator()
    run(allocator, [("free", 1, 0, (0, 0), 5), ("complete", 1, 0, (0, 0), 5), ("empty", 1, 0, (0, 0), 5)])
    assert allocator.events == []
