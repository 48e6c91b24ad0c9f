"""Memory as columns for drawing: the same blocks, states and origins, and no size that a page could not hold."""

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from making import snapshots

from foretrace.memory.evidence import evidence
from foretrace.memory.examining import examine, examine_file
from foretrace.memory.mapping import FREE, HOLE, LARGEST, NOBODY, PENDING, STATES, memory_map
from foretrace.model.memory import Memory, MemoryFinding
from memories import MIB, small_memory

H200 = Path("tests/data/memory/h200")


@given(snapshots())
def test_columns_hold_what_the_document_holds(snapshot):
    memory = examine(snapshot)
    drawn = memory_map(memory)
    if not memory.segments:
        assert drawn is None
        return
    assert len(drawn) == len(memory.blocks)
    for segment in memory.segments:
        for row in range(segment.first_block, segment.first_block + segment.blocks):
            block = memory.blocks[row]
            assert segment.address + int(drawn.offset[row]) == block.address
            assert drawn.size[row] == block.size
            assert (block.requested is None) == bool(np.isnan(drawn.requested[row]))
            if block.state == "free":
                assert drawn.state[row] == (HOLE if segment.active_bytes else FREE)
                assert drawn.origin[row] == NOBODY
            else:
                assert STATES[drawn.state[row]] == block.state
                origin = drawn.origins[drawn.origin[row]]
                assert (origin.where, list(origin.stack)) == (block.where, block.stack)


@given(snapshots())
def test_blocks_say_the_origin_that_pins_count_them_under(snapshot):
    memory = examine(snapshot)
    counted: dict[str, list[int]] = {}
    for segment in memory.segments:
        for block in memory.blocks[segment.first_block : segment.first_block + segment.blocks]:
            if segment.holes_bytes and block.state != "free":
                counted.setdefault(block.where, []).append(block.size)
    assert {pin.where: (pin.blocks, pin.bytes) for pin in memory.pinned_by} == {
        where: (len(sizes), sum(sizes)) for where, sizes in counted.items()
    }


def test_origins_are_told_apart_by_line_and_stack_however_the_document_came():
    memory = small_memory(["a.py:1", "b.py:2", "a.py:1"])
    again = msgspec.json.decode(msgspec.json.encode(memory), type=Memory)
    for one in (memory, again):
        drawn = memory_map(one)
        assert [origin.where for origin in drawn.origins] == ["a.py:1", "b.py:2", "freed.py:1"]
        assert [int(number) for number in drawn.origin] == [0, NOBODY, 1, NOBODY, 0, NOBODY, 2]
        assert drawn.state[-1] == PENDING


@pytest.mark.parametrize(("size", "there"), [(LARGEST, True), (LARGEST + 1, False)])
def test_a_size_that_no_device_has_is_not_drawn(size, there):
    memory = small_memory(["a.py:1"])
    memory.segments[0].size = size
    assert (memory_map(memory) is not None) is there


def test_blocks_of_the_made_memory_lie_where_they_should():
    drawn = memory_map(small_memory(["a.py:1", "b.py:2"]))
    assert drawn.offset.tolist() == [0, 2 * MIB, 4 * MIB, 6 * MIB, 8 * MIB]


@pytest.mark.parametrize("name", sorted(path.name for path in H200.glob("*.pickle.gz")))
def test_the_blocks_of_a_finding_add_up_to_what_it_says(name):
    memory = examine_file(str(H200 / name))
    for finding, rows in zip(memory.findings, evidence(memory, memory_map(memory)), strict=True):
        sizes = sum(memory.blocks[row].size for row in rows)
        if finding.rule in ("hard_fragmentation", "cached_segments", "idle_in_other_pools", "pending_frees"):
            assert sizes == finding.bytes
        elif finding.rule == "sparse_segments":
            assert (len(rows), sizes) == (memory.fragmentation.sparse_blocks, memory.fragmentation.sparse_bytes)
            named = {block.address for block in memory.blocks}
            assert len(set(finding.addresses)) == min(len(rows), 100)
            assert set(finding.addresses) <= named


@given(snapshots())
def test_no_finding_of_any_snapshot_shows_blocks_that_are_not_its_own(snapshot):
    memory = examine(snapshot)
    drawn = memory_map(memory)
    if drawn is None:
        return
    sizes = {
        "hard_fragmentation": memory.fragmentation.hard_bytes,
        "cached_segments": memory.fragmentation.soft_bytes,
        "idle_in_other_pools": memory.fragmentation.stream_bytes,
        "pending_frees": memory.fragmentation.pending_bytes,
    }
    memory.findings = [
        MemoryFinding(rule=rule, severity="info", title="", explanation="", suggestion=None, bytes=bytes, source=None)
        for rule, bytes in sizes.items()
    ]
    for finding, rows in zip(memory.findings, evidence(memory, drawn), strict=True):
        assert sum(memory.blocks[row].size for row in rows) == finding.bytes
    for finding in memory.findings:
        finding.bytes += 1
    assert [len(rows) for rows in evidence(memory, drawn)] == [0, 0, 0, 0]
