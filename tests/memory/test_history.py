"""The history held against a truth: an allocator so small that what it holds is a dict."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.errors import InputError
from foretrace.knowledge.memory_texts import MOST_ORIGINS
from foretrace.knowledge.snapshots import UNKNOWN_FREE
from foretrace.memory.history import flushes, history_info, peak
from foretrace.memory.snapshot import ACTIONS, NO_STACK, Annotation, Block, Frame, History, Segment, Snapshot, Stacks
from memory.making import cut_snapshots

BASE = 0x7000_0000_0000
ROOM = 4096  # every block has as much, whatever was asked for

Entry = tuple[str, int, int, int, int]  # action, address, size, time, stack


def history(entries: list[Entry], device: int = 0) -> History:
    columns = list(zip(*entries, strict=True)) if entries else [(), (), (), (), ()]
    length = len(entries)
    return History(
        device=device,
        action=np.array([ACTIONS.index(action) for action in columns[0]], dtype=np.uint8),
        address=np.array(columns[1], dtype=np.uint64),
        size=np.array(columns[2], dtype=np.int64),
        stream=np.zeros(length, dtype=np.int64),
        time_us=np.array(columns[3], dtype=np.int64),
        stack=np.array(columns[4], dtype=np.int32),
        metadata=np.full(length, -1, dtype=np.int32),
    )


def stacks(*lines: int) -> Stacks:
    """A stack for each line of train.py, numbered from 0."""
    made = Stacks()
    for line in lines:
        made.number([Frame("at::_ops::empty::call()", "??", 0), Frame("step", "/home/ann/train.py", line)])
    return made


def snapshot(entries: list[Entry], live: dict[int, tuple[int, int]], many: int = 9, **parts: object) -> Snapshot:
    """``live``: address → what was asked for, and the stack of the block."""
    blocks = [
        Block(BASE + ROOM * place, ROOM, "active", *live[BASE + ROOM * place])
        if BASE + ROOM * place in live
        else Block(BASE + ROOM * place, ROOM, "free")
        for place in range(many)
    ]
    segment = Segment(device=0, address=BASE, size=ROOM * many, stream=0, small=True, blocks=tuple(blocks))
    given = {"histories": (history(entries),), "stacks": stacks(1, 2, 3), **parts}
    return Snapshot(path="s", segments=(segment,), **given)  # type: ignore[arg-type]


A, B, C = BASE, BASE + ROOM, BASE + 2 * ROOM


def test_the_peak_is_the_first_moment_at_which_most_was_held():
    found = peak(
        snapshot(
            [
                ("segment_alloc", BASE, 9 * ROOM, 100, 0),
                ("alloc", A, 1000, 101, 0),
                ("alloc", B, 500, 102, 1),
                ("free_requested", A, 1000, 103, NO_STACK),
                ("free_completed", A, 1000, 104, NO_STACK),
                ("alloc", A, 1000, 105, 2),  # as much once more
                ("free_completed", B, 500, 120, NO_STACK),
            ],
            {A: (1000, NO_STACK)},
        ),
        0,
    )
    assert found is not None
    assert (found.requested_bytes, found.time_us, found.ago_us, found.complete) == (1500, 102, 18, True)
    assert [(alive.where, alive.bytes, alive.blocks) for alive in found.alive] == [
        ("train.py:1 in step", 1000, 1),
        ("train.py:2 in step", 500, 1),
    ]
    assert found.unexplained_bytes == 0
    assert found.during is None


def test_a_block_is_held_until_its_free_is_complete():
    entries: list[Entry] = [
        ("alloc", A, 700, 1, 0),
        ("free_requested", A, 700, 2, NO_STACK),
        ("alloc", B, 50, 3, 1),
        ("free_completed", A, 700, 4, NO_STACK),
    ]
    found = peak(snapshot(entries, {B: (50, NO_STACK)}), 0)
    assert found is not None
    assert (found.requested_bytes, found.time_us) == (750, 3)


def test_what_was_there_before_the_history_is_counted_and_named_where_its_block_has_a_stack():
    entries: list[Entry] = [("alloc", A, 10, 1, 0), ("free_completed", B, 30, 2, 1)]
    # B was freed within the history; C and the next live on, one of them with its stack.
    found = peak(snapshot(entries, {A: (10, NO_STACK), C: (200, 2), C + ROOM: (4000, NO_STACK)}), 0)
    assert found is not None
    assert found.requested_bytes == 10 + 30 + 200 + 4000
    assert found.unexplained_bytes == 30 + 4000
    assert [(alive.where, alive.bytes) for alive in found.alive] == [
        ("train.py:3 in step", 200),
        ("train.py:1 in step", 10),
    ]
    assert not found.complete


def test_the_most_may_have_been_held_before_the_first_entry():
    found = peak(snapshot([("free_completed", A, 900, 7, 0), ("alloc", A, 100, 9, 0)], {A: (100, NO_STACK)}), 0)
    assert found is not None
    assert (found.requested_bytes, found.time_us, found.ago_us) == (900, 7, 2)
    assert found.unexplained_bytes == 900
    assert found.alive == []


def test_a_live_block_whose_request_was_not_recorded_counts_with_its_size():
    bare = snapshot([("snapshot", 0, 0, 5, NO_STACK)], {})
    block = Block(BASE, ROOM, "pending")
    segment = Segment(device=0, address=BASE, size=ROOM, stream=0, small=True, blocks=(block,))
    found = peak(Snapshot(path="s", segments=(segment,), histories=bare.histories), 0)
    assert found is not None
    assert (found.requested_bytes, found.unexplained_bytes) == (ROOM, ROOM)


def test_an_allocation_has_the_innermost_annotation_that_was_open():
    notes = (
        Annotation("step 1", 0, 100, 200),
        Annotation("forward", None, 120, 150),
        Annotation("of another device", 1, 125, 140),
        Annotation("step 2", 0, 300, None),
    )
    entries: list[Entry] = [
        ("alloc", A, 1, 110, 0),
        ("alloc", B, 2, 130, 0),
        ("alloc", C, 3, 150, 0),  # its last µs is the annotation's own
        ("alloc", C + ROOM, 4, 160, 0),
        ("alloc", C + 2 * ROOM, 5, 250, 0),
        ("alloc", C + 3 * ROOM, 6, 400, 0),
    ]
    live = {address: (size, NO_STACK) for _, address, size, _, _ in entries}
    found = peak(snapshot(entries, live, annotations=notes), 0)
    assert found is not None
    assert {(alive.annotation, alive.bytes) for alive in found.alive} == {
        ("step 1", 1 + 4),
        ("forward", 2 + 3),
        (None, 5),
        ("step 2", 6),
    }
    assert found.during == "step 2"


def test_one_line_reached_by_two_stacks_is_one_origin_with_the_larger_stack():
    made = Stacks()
    inner = Frame("forward", "mlp.py", 12)
    for caller in (30, 40):
        made.number([inner, Frame("<module>", "train.py", caller)])
    entries: list[Entry] = [("alloc", A, 10, 1, 0), ("alloc", B, 90, 2, 1)]
    found = peak(snapshot(entries, {A: (10, 0), B: (90, 1)}, stacks=made), 0)
    assert found is not None
    assert [(alive.where, alive.bytes, alive.blocks, alive.stack) for alive in found.alive] == [
        ("mlp.py:12 in forward", 100, 2, ["mlp.py:12 in forward", "train.py:40 in <module>"])
    ]


def test_beyond_the_limit_origins_are_one_item_and_no_byte_is_lost():
    many = MOST_ORIGINS + 5
    entries: list[Entry] = [("alloc", BASE + ROOM * i, 1 + i, 1, i) for i in range(many)]
    live = {address: (size, NO_STACK) for _, address, size, _, _ in entries}
    found = peak(snapshot(entries, live, many, stacks=stacks(*range(1, many + 1))), 0)
    assert found is not None
    assert len(found.alive) == MOST_ORIGINS
    assert (found.alive[-1].where, found.alive[-1].blocks) == ("6 other places", 6)
    assert found.alive[-1].bytes == 1 + 2 + 3 + 4 + 5 + 6
    assert sum(alive.bytes for alive in found.alive) == found.requested_bytes


def test_without_a_history_nothing_is_said_of_the_past():
    assert peak(snapshot([], {A: (10, NO_STACK)}), 0) is None
    assert history_info(snapshot([], {A: (10, NO_STACK)}), 0) is None
    assert flushes(snapshot([], {A: (10, NO_STACK)}), 0) == []


def test_stacks_without_a_history_are_still_counted():
    info = history_info(snapshot([], {A: (10, 1), B: (10, NO_STACK)}), 0)
    assert info is not None
    assert (info.entries, info.live_blocks, info.live_blocks_with_stack, info.truncated) == (0, 2, 1, None)


def test_what_was_recorded():
    entries: list[Entry] = [
        ("segment_map", BASE, 2 << 20, 10, 0),
        ("alloc", A, 10, 11, 1),
        ("segment_alloc", BASE, 2 << 20, 12, 0),
        ("oom", 4096, 1 << 30, 13, 2),
        ("segment_unmap", BASE, 2 << 20, 14, 0),
        ("segment_free", BASE, 2 << 20, 40, 0),
    ]
    info = history_info(snapshot(entries, {A: (10, NO_STACK), B: (10, 0), C: (10, NO_STACK)}), 0)
    assert info is not None
    assert (info.entries, info.span_us, info.segment_allocs, info.segment_frees) == (6, 30, 2, 2)
    assert (info.live_blocks, info.live_blocks_with_stack) == (3, 2)
    (failed,) = info.out_of_memory
    assert (failed.bytes, failed.device_free_bytes, failed.time_us) == (1 << 30, 4096, 13)
    assert failed.stack == ["train.py:3 in step"]


def test_times_that_were_not_recorded_are_not_zero():
    found = snapshot([("alloc", A, 10, 0, 0), ("oom", UNKNOWN_FREE, 5, 0, 0)], {A: (10, NO_STACK)})
    info, top = history_info(found, 0), peak(found, 0)
    assert info is not None
    assert top is not None
    assert info.span_us is None
    assert info.out_of_memory[0].time_us is None
    assert info.out_of_memory[0].device_free_bytes is None
    assert (top.time_us, top.ago_us, top.during) == (None, None, None)


def test_a_device_with_nothing_free_is_known_to_have_none():
    info = history_info(snapshot([("oom", 0, 5, 1, 0)], {}), 0)
    assert info is not None
    assert info.out_of_memory[0].device_free_bytes == 0


def test_a_clock_that_was_set_back_makes_no_negative_time():
    entries: list[Entry] = [("alloc", A, 10, 900, 0), ("alloc", B, 10, 500, 0), ("free_completed", A, 10, 700, 0)]
    found = snapshot(entries, {B: (10, NO_STACK)})
    info, top = history_info(found, 0), peak(found, 0)
    assert info is not None
    assert top is not None
    assert (info.span_us, top.time_us, top.ago_us) == (400, 500, 400)


def test_sums_of_what_was_given_back_do_not_wrap():
    huge = 1 << 62
    entries: list[Entry] = [*[("segment_free", BASE + place, huge, 1, 0) for place in range(4)], ("oom", 0, 1, 2, 0)]
    (flush,) = flushes(snapshot(entries, {}), 0)
    assert flush.bytes == 4 * huge


@pytest.mark.parametrize("time", [2**70, -(2**70), 2**63 - 1, -1])
def test_annotations_that_no_clock_made_hinder_nothing(time: int):
    notes = (Annotation("odd", 0, time, None), Annotation("open", 0, 1, 2**70), Annotation("step", 0, 2, time))
    found = peak(snapshot([("alloc", A, 10, 2, 0)], {A: (10, NO_STACK)}, annotations=notes), 0)
    assert found is not None
    assert found.during in ("step", "open")


BEGINNING: Entry = ("segment_alloc", BASE, 9 * ROOM, 1, 0)


@pytest.mark.parametrize(
    ("entries", "live", "truncated"),
    [
        ([BEGINNING, ("alloc", A, 10, 2, 0)], {A: (10, NO_STACK)}, False),
        ([("alloc", A, 10, 2, 0)], {A: (10, NO_STACK)}, None),  # the segment was there before
        ([BEGINNING, ("free_completed", A, 10, 2, 0)], {}, None),  # begun late or overwritten: alike
        ([("alloc", A, 10, 2, 0)], {A: (10, 0), B: (10, NO_STACK)}, None),
        ([("alloc", A, 10, 2, 0)], {A: (10, 0), B: (10, 1)}, True),  # B was recorded, and its entry is gone
        ([("snapshot", 0, 0, 2, 0)] * 1000, {}, True),
        ([("snapshot", 0, 0, 2, 0)] * 4096, {}, True),
        ([("snapshot", 0, 0, 2, 0)] * 999, {}, None),
        ([("snapshot", 0, 0, 2, 0)] * 512, {}, None),
    ],
)
def test_whether_the_beginning_was_overwritten(entries: list[Entry], live: dict, truncated: bool | None):
    info = history_info(snapshot(entries, live), 0)
    assert info is not None
    assert info.truncated is truncated


def test_a_segment_with_a_stack_and_without_an_entry_was_overwritten():
    bare = snapshot([("snapshot", 0, 0, 2, 0)], {})
    segment = Segment(0, BASE, ROOM, 0, True, (Block(BASE, ROOM, "free"),), stack=0)
    info = history_info(Snapshot(path="s", segments=(segment,), histories=bare.histories), 0)
    assert info is not None
    assert info.truncated is True


def test_a_cache_that_is_emptied_for_one_request():
    entries: list[Entry] = [
        ("segment_alloc", BASE, 100, 1, 0),
        ("segment_free", BASE, 100, 2, 1),
        ("segment_unmap", BASE, 50, 3, 1),
        ("segment_alloc", BASE, 400, 4, 1),
        ("segment_free", BASE, 400, 5, 0),  # torch.cuda.empty_cache(), then an allocation from elsewhere
        ("segment_alloc", BASE, 20, 6, 2),
        ("segment_free", BASE, 20, 7, NO_STACK),
        ("oom", 77, 8000, 8, 2),
        ("segment_free", BASE, 20, 9, 1),  # nothing asked for more
        ("alloc", A, 20, 10, 1),
        ("segment_free", BASE, 20, 11, 1),
    ]
    found = flushes(snapshot(entries, {}), 0)
    assert [(f.entry, f.time_us, f.segments, f.bytes, f.wanted_bytes, f.failed, f.certain) for f in found] == [
        (1, 2, 2, 150, 400, False, True),
        (4, 5, 1, 400, 20, False, False),
        (6, 7, 1, 20, 8000, True, None),
    ]
    assert found[0].stack == ["train.py:2 in step"]


@pytest.mark.parametrize("size", [-1, 1 << 62])
def test_sizes_beyond_reason_are_refused(size: int):
    with pytest.raises(InputError, match=r"^s has a history of sizes that are negative or add up"):
        peak(snapshot([("alloc", A, size, 1, 0), ("alloc", B, size, 2, 0)], {}), 0)


def test_a_history_recorded_without_frees_has_no_peak():
    entries: list[Entry] = [("alloc", A, 10, 1, 0), ("alloc", A, 10, 2, 0)]
    assert peak(snapshot(entries, {A: (10, NO_STACK)}), 0) is None


def test_a_history_recorded_without_completions_ends_with_the_requests():
    entries: list[Entry] = [
        ("alloc", A, 10, 1, 0),
        ("free_requested", A, 10, 2, 0),
        ("alloc", A, 11, 3, 0),
    ]
    found = peak(snapshot(entries, {A: (11, NO_STACK)}), 0)
    assert found is not None
    assert found.requested_bytes == 11


class Truth:
    """A program that allocates and frees at random; what it holds is known at every moment."""

    def __init__(self, choices: list[tuple[int, int, int]], places: int) -> None:
        self.entries: list[Entry] = []
        self.held: list[dict[int, tuple[int, int]]] = [{}]  # before the first entry, then after each
        for time, (place, size, stack) in enumerate(choices, start=1):
            address, now = BASE + ROOM * (place % places), dict(self.held[-1])
            if address in now:
                self.entries.append(("free_completed", address, now.pop(address)[0], time, NO_STACK))
            else:
                now[address] = (size, stack)
                self.entries.append(("alloc", address, size, time, stack))
            self.held.append(now)

    def total(self, place: int) -> int:
        return sum(size for size, _ in self.held[place].values())


choices = st.lists(st.tuples(st.integers(0, 8), st.integers(1, ROOM), st.integers(0, 2)), min_size=1, max_size=60)


@given(choices, st.data())
def test_the_peak_of_any_window_is_what_the_program_held(made: list[tuple[int, int, int]], data: st.DataObject):
    truth = Truth(made, 9)
    start = data.draw(st.integers(0, len(truth.entries) - 1), "the entries that were overwritten")
    recorded = data.draw(st.booleans(), "whether the final state has the stacks")
    final = {a: (size, stack if recorded else NO_STACK) for a, (size, stack) in truth.held[-1].items()}
    found = peak(snapshot(truth.entries[start:], final), 0)
    assert found is not None

    place = max(range(start, len(truth.held)), key=truth.total)  # the first of the largest
    assert found.requested_bytes == truth.total(place)
    assert found.time_us == truth.entries[max(place - 1, start)][3]
    assert sum(alive.bytes for alive in found.alive) + found.unexplained_bytes == found.requested_bytes

    # Named is what was allocated within the window, and what lives on with its stack.
    named: dict[str, int] = {}
    for address, (size, stack) in truth.held[place].items():
        allocated = any(e[0] == "alloc" and e[1] == address for e in truth.entries[start:place])
        stays = recorded and not any(e[1] == address for e in truth.entries[start:])
        if allocated or stays:
            line = f"train.py:{stack + 1} in step"
            named[line] = named.get(line, 0) + size
    assert {alive.where: alive.bytes for alive in found.alive} == named


@given(cut_snapshots())
def test_any_history_however_senseless_adds_up(made: Snapshot):
    for device in made.devices:
        found, info, emptied = peak(made, device), history_info(made, device), flushes(made, device)
        if found is not None:
            assert sum(alive.bytes for alive in found.alive) + found.unexplained_bytes == found.requested_bytes
            assert found.unexplained_bytes >= 0
            assert all(alive.blocks > 0 for alive in found.alive)
        if info is not None:
            assert 0 <= info.live_blocks_with_stack <= info.live_blocks
            assert sum(flush.segments for flush in emptied) <= info.segment_frees


@given(st.lists(st.tuples(st.integers(0, 30), st.none() | st.integers(0, 30)), max_size=6), st.integers(0, 40))
def test_the_innermost_annotation_is_the_open_one_that_began_last(ranges: list[tuple[int, int | None]], time: int):
    notes = tuple(
        Annotation(f"{start}", 0, 1 + start, None if long is None else 1 + start + long) for start, long in ranges
    )
    found = peak(snapshot([("alloc", A, 10, 1 + time, 0)], {A: (10, 0)}, annotations=notes), 0)
    assert found is not None
    open_then = [a for a in notes if a.start_us <= 1 + time and (a.end_us is None or 1 + time <= a.end_us)]
    expected = max(open_then, key=lambda a: a.start_us).name if open_then else None
    assert (found.during, found.alive[0].annotation) == (expected, expected)
