"""Who keeps the holes open, and what the rules make of it."""

from __future__ import annotations

from foretrace.memory.accounts import fragmentation, free, totals
from foretrace.memory.findings import Facts, find
from foretrace.memory.history import Flush
from foretrace.memory.pins import pins
from foretrace.memory.snapshot import DEFAULT_POOL, Block, Frame, Segment, Stacks
from foretrace.model.memory import HistoryInfo, OutOfMemory

MIB = 1 << 20


def made(*rows, at=0, stream=0, pool=DEFAULT_POOL):
    """A segment of blocks given as (state, MiB, stack number)."""
    blocks, address = [], at
    for state, mib, stack in rows:
        blocks.append(Block(address, mib * MIB, state, None if state == "free" else mib * MIB, stack))
        address += mib * MIB
    return Segment(0, at, address - at, stream, False, tuple(blocks), pool)


def lines(*names: str) -> Stacks:
    stacks = Stacks()
    for name in names:
        stacks.number([Frame("make", f"/home/a/{name}.py", 7)])
    return stacks


def test_first_comes_what_alone_keeps_most_from_closing():
    stacks = lines("cache", "ids")
    segments = [
        made(("active", 10, 0), ("free", 90, -1)),  # cache alone
        made(("active", 10, 0), ("free", 40, -1), ("active", 1, 1), ("free", 40, -1), at=1 << 30),  # both
        made(("active", 5, 1), ("free", 15, -1), at=2 << 30),  # ids alone
        made(("active", 50, 1), at=3 << 30),  # no hole: pins nothing
    ]
    cache, ids = pins(segments, stacks)
    assert cache.where.endswith("cache.py:7 in make")
    assert (cache.blocks, cache.bytes, cache.segments) == (2, 20 * MIB, 2)
    assert (cache.holes_bytes, cache.only_here_bytes) == (170 * MIB, 90 * MIB)
    assert (ids.blocks, ids.bytes, ids.holes_bytes, ids.only_here_bytes) == (2, 6 * MIB, 95 * MIB, 15 * MIB)


def test_blocks_without_a_stack_are_named_as_such():
    (only,) = pins([made(("active", 1, -1), ("free", 19, -1))], Stacks())
    assert "no stack" in only.where
    assert only.stack == []


def facts(segments, *, expandable=False, split=None, history=None, flushes=(), owner=(0, DEFAULT_POOL), stacks=None):
    return Facts(
        segments=segments,
        owner=owner,
        totals=totals(segments),
        free=free(segments, lambda small: 2 * MIB if small else 20 * MIB),
        fragmentation=fragmentation(segments, owner),
        pins=pins(segments, stacks or Stacks()),
        history=history,
        flushes=flushes,
        expandable=expandable,
        split_limit_bytes=split,
        divisions=False,
    )


def rules(given) -> list[str]:
    return [finding.rule for finding in find(given)]


def test_holes_that_are_much_are_found_with_who_pins_them():
    segments = [made(("active", 400, 0), ("free", 100, -1), ("active", 100, 0), ("free", 50, -1))]
    (found,) = find(facts(segments, stacks=lines("cache")))
    assert found.rule == "hard_fragmentation"
    assert found.bytes == 150 * MIB
    assert (
        found.title == "150 MiB (23.1 % of what is reserved) lie in holes between live blocks; the largest is 100 MiB"
    )
    assert "cache.py:7 in make (2 blocks, 500 MiB)" in found.explanation
    assert "expandable_segments:True" in (found.suggestion or "")
    (already,) = find(facts(segments, expandable=True, stacks=lines("cache")))
    assert "is on already" in (already.suggestion or "")
    assert "PYTORCH_CUDA_ALLOC_CONF" not in (already.suggestion or "")


def test_little_is_not_spoken_of():
    # Under 64 MiB, or under a tenth.
    assert rules(facts([made(("active", 50, -1), ("free", 50, -1))])) == []
    assert rules(facts([made(("active", 900, -1), ("free", 90, -1))])) == []


def test_each_kind_has_its_rule():
    grid = [
        ([made(("active", 10, -1)), made(("free", 100, -1), at=1 << 30)], "cached_segments"),
        ([made(("active", 10, -1)), made(("free", 100, -1), at=1 << 30, stream=9)], "idle_in_other_pools"),
        ([made(("active", 10, -1)), made(("free", 100, -1), at=1 << 30, pool=(0, 3))], "idle_in_other_pools"),
        ([made(("pending", 100, -1))], "pending_frees"),
    ]
    for segments, rule in grid:
        assert rules(facts(segments)) == [rule]


def test_small_blocks_in_a_large_segment_are_a_finding_of_their_own():
    found = rules(facts([made(("active", 16, -1), ("free", 984, -1))]))
    assert found == ["hard_fragmentation", "sparse_segments"]


def test_settings_that_work_against_each_other_are_named():
    assert rules(facts([made(("active", 10, -1))], expandable=True, split=64 * MIB)) == ["split_limit_with_expandable"]


def test_what_failed_while_the_history_was_recorded_is_told_with_what_the_device_had():
    failed = OutOfMemory(bytes=200 * MIB, device_free_bytes=14 * MIB, time_us=None, stack=[])
    history = HistoryInfo(
        entries=9, span_us=None, truncated=None, live_blocks=1, live_blocks_with_stack=0, out_of_memory=[failed],
        segment_allocs=0, segment_frees=0,
    )  # fmt: skip
    (found,) = find(facts([made(("active", 10, -1))], history=history))
    assert found.rule == "out_of_memory_seen"
    assert found.title == "1 allocation failed while the history was recorded; the last asked for 200 MiB"
    assert "14 MiB free" in found.explanation
    assert "--request 200MiB" in (found.suggestion or "")


def test_a_cache_the_program_emptied_itself_is_not_the_allocators_doing():
    def flush(certain):
        return Flush(0, None, 3, 60 * MIB, 20 * MIB, False, certain, [])

    segments = [made(("active", 10, -1))]
    assert rules(facts(segments, flushes=[flush(False)])) == []
    (sure,) = find(facts(segments, flushes=[flush(True), flush(True)]))
    assert sure.title == "the allocator gave its cache back 2 times to serve a request (120 MiB)"
    (unsure,) = find(facts(segments, flushes=[flush(None)]))
    assert "cannot be told" in unsure.title
