"""Snapshot files of every layout, and files that are none."""

from __future__ import annotations

import copy
import gzip
import io
import json
import os
import pickle
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from foretrace.cli.demo import SAMPLES
from foretrace.errors import TraceReadError
from foretrace.memory.reading import read_snapshot
from foretrace.memory.reading.building import build_snapshot
from foretrace.memory.reading.collecting import EntryCollector
from foretrace.memory.reading.entries import Entries
from foretrace.memory.reading.pickles import PickleError, TakenAwayError, load_plain
from foretrace.memory.snapshot import ACTIONS, NO_STACK, Annotation, Block, Frame, Snapshot

DATA = Path(__file__).parents[2] / "data" / "memory"
SAMPLE = SAMPLES / "h200_fragmented.snapshot.pickle.gz"
SUMMARY = SAMPLES / "h200_fragmented.memory_summary.txt"
MIB = 1 << 20
BASE = 0x7F00_0000_0000
# Entries of other devices are written like those of the first, so two devices are enough to read ahead.
FRAMES = [
    {"name": "forward", "filename": "model.py", "line": 7},
    {"name": "step", "filename": "train.py", "line": 300},
    {"name": "main", "filename": "train.py", "line": 70_000},
]


def gzipped(data: bytes) -> bytes:
    """Packed without the time of day, which would make the names of tests differ from process to process."""
    return gzip.compress(data, mtime=0)


def block(
    state: str = "active_allocated", size: int = MIB, requested: int | None = None, **other: Any
) -> dict[str, Any]:
    wanted = (0 if state == "inactive" else size) if requested is None else requested
    return {"size": size, "requested_size": wanted, "state": state, "frames": [], **other}


def segment(*blocks: dict[str, Any], at: int = BASE, **other: Any) -> dict[str, Any]:
    """A segment as 2.11 writes it, around its blocks; ``other`` replaces fields, and None takes them out."""
    placed, end = [], at
    for one in blocks:
        placed.append({"address": end, **one})
        end += one["size"]
    live = [one for one in placed if one["state"] != "inactive"]
    made = {
        "device": 0,
        "address": at,
        "total_size": end - at,
        "allocated_size": sum(one["size"] for one in live if one["state"] == "active_allocated"),
        "active_size": sum(one["size"] for one in live),
        "requested_size": sum(one["requested_size"] for one in live),
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": placed,
    }
    made.update(other)
    return {key: value for key, value in made.items() if value is not None}


def entry(action: str = "alloc", **other: Any) -> dict[str, Any]:
    made = {
        "action": action,
        "addr": BASE,
        "size": MIB,
        "stream": 0,
        "time_us": 1_700_000_000_000_000,
        "compile_context": "N/A",
        "user_metadata": "",
        "frames": [],
    }
    made.update(other)
    return {key: value for key, value in made.items() if value is not None}


def document(*segments: dict[str, Any], traces: Any = (), **other: Any) -> dict[str, Any]:
    return {"segments": list(segments), "device_traces": list(traces), **other}


class Batches(pickle._Pickler):
    """Python's pickler, adding to lists in steps so short that a small file has many."""

    def _batch_appends(self, items: Any, *others: Any) -> None:
        waiting = list(items)
        for start in range(0, len(waiting), 3):
            super()._batch_appends(waiting[start : start + 3], *others)  # type: ignore[misc]


def in_batches(data: Any, protocol: int = 4) -> bytes:
    file = io.BytesIO()
    Batches(file, protocol).dump(data)
    return file.getvalue()


def write(folder: Path, data: Any, protocol: int = 4) -> Path:
    path = folder / "snapshot.pickle"
    path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data, protocol))
    return path


def collected(stream: bytes) -> Snapshot:
    """As `read_snapshot` reads it when nothing in the file stands in the way."""
    entries = Entries()
    raw = load_plain(stream, collector=EntryCollector(entries))
    return build_snapshot(raw, "s", entries)


def plainly(stream: bytes) -> Snapshot:
    return build_snapshot(pickle.loads(stream), "s")


def told(snapshot: Snapshot) -> dict[str, Any]:
    """Everything a snapshot says, with its stacks and texts spelled out."""
    frames = snapshot.stacks.frames

    def cut(b: Block) -> tuple[Any, ...]:
        return (b.address, b.size, b.state, b.requested, frames(b.stack))

    return {
        "segments": [
            (
                s.device,
                s.address,
                s.size,
                s.stream,
                s.small,
                s.pool,
                s.expandable,
                frames(s.stack),
                list(map(cut, s.blocks)),
            )
            for s in snapshot.segments
        ],
        "histories": [
            [
                (
                    ACTIONS[action],
                    address,
                    size,
                    stream,
                    time,
                    frames(stack),
                    history.texts[text] if text >= 0 else None,
                )
                for action, address, size, stream, time, stack, text in zip(
                    *(
                        getattr(history, name).tolist()
                        for name in ("action", "address", "size", "stream", "time_us", "stack", "metadata")
                    ),
                    strict=True,
                )
            ]
            for history in snapshot.histories
        ],
        "devices": [history.device for history in snapshot.histories],
        "said": (snapshot.repairs, snapshot.doubts, snapshot.settings, snapshot.annotations),
    }


def outcome(read: Callable[[bytes], Snapshot], stream: bytes) -> dict[str, Any] | str:
    """What a reader makes of it: all that the snapshot says, or its refusal."""
    try:
        return told(read(stream))
    except TraceReadError as error:
        return str(error)


# The sample


def test_the_real_sample_has_exactly_its_numbers() -> None:
    snapshot = read_snapshot(SAMPLE)
    blocks = [block for segment in snapshot.segments for block in segment.blocks]
    assert sum(segment.size for segment in snapshot.segments) == 7_960_788_992
    assert len(snapshot.segments) == 343
    assert sum(block.state == "active" for block in blocks) == 609
    assert sum(block.state == "free" for block in blocks) == 249
    assert len(blocks) == 858
    assert snapshot.devices == (0,)
    (history,) = snapshot.histories
    assert len(history) == 1145
    counts = {action: int(np.sum(history.action == number)) for number, action in enumerate(ACTIONS)}
    assert {action: count for action, count in counts.items() if count} == {
        "alloc": 401, "free_requested": 266, "free_completed": 266, "segment_alloc": 212,
    }  # fmt: skip
    assert history.address[0] == 139727790407680
    assert history.size[0] == 1_000_000
    assert history.time_us[0] == 1795973920422448
    assert (history.metadata == -1).all()
    stack = snapshot.stacks.frames(int(history.stack[0]))
    assert stack[0] == Frame("torch::unwind::unwind()", "??", 0)
    assert Frame("<module>", "capture_traces.py", 74) in stack
    assert (snapshot.repairs, snapshot.doubts, snapshot.annotations) == ((), (), ())
    assert snapshot.settings["max_split_size"] == -1
    assert snapshot.settings["roundup_power2_divisions"]["1024"] == 0  # type: ignore[index]


def test_the_real_sample_agrees_with_the_summary_printed_beside_it() -> None:
    table = SUMMARY.read_text()
    current = {
        line.split("|")[1].strip(): line.split("|")[2].split()[0] for line in table.splitlines() if "MiB" in line
    }
    snapshot = read_snapshot(SAMPLE)
    live = [block for segment in snapshot.segments for block in segment.blocks if block.state == "active"]
    assert sum(segment.size for segment in snapshot.segments) // MIB == int(current["GPU reserved memory"])
    assert sum(block.size for block in live) // MIB == int(current["Allocated memory"])
    assert sum(block.requested or 0 for block in live) // MIB == int(current["Requested memory"])


@pytest.mark.parametrize("protocol", range(6))
def test_the_sample_at_every_protocol(protocol: int, tmp_path: Path) -> None:
    stream = gzip.decompress(SAMPLE.read_bytes())
    again = write(tmp_path, pickle.dumps(pickle.loads(stream), protocol))
    assert told(read_snapshot(again)) == told(read_snapshot(SAMPLE))


def test_keys_may_stand_in_any_order(tmp_path: Path) -> None:
    def shuffled(item: Any) -> Any:
        if isinstance(item, dict):
            keys = list(item)
            chance.shuffle(keys)
            return {key: shuffled(item[key]) for key in keys}
        return [shuffled(one) for one in item] if isinstance(item, list) else item

    chance = random.Random(5)
    raw = pickle.loads(gzip.decompress(SAMPLE.read_bytes()))
    assert told(read_snapshot(write(tmp_path, shuffled(raw)))) == told(read_snapshot(SAMPLE))
    turned = dict(reversed(raw.items()))
    assert told(read_snapshot(write(tmp_path, turned))) == told(read_snapshot(SAMPLE))


# Reading ahead against interpreting


@pytest.mark.parametrize("kind", ["shared frames", "shared lists", "frames apart", "no frames"])
def test_a_long_history_is_read_ahead_without_a_difference(kind: str) -> None:
    raw = pickle.loads(gzip.decompress(SAMPLE.read_bytes()))
    entries = []
    for turn in range(4):
        for number, one in enumerate(raw["device_traces"][0]):
            changed = {**one, "time_us": one["time_us"] + turn, "addr": one["addr"] + turn * 512}
            frames = one["frames"][number % 3 : 30]
            if kind == "shared frames":
                changed["frames"] = list(frames)
            elif kind == "frames apart":
                changed["frames"] = copy.deepcopy(frames)
            elif kind == "no frames":
                changed["frames"] = []
            entries.append(changed)
    raw["device_traces"] = [entries, [], copy.deepcopy(entries[:5])]
    stream = pickle.dumps(raw)
    got = told(collected(stream))
    expected = told(plainly(stream))
    assert got == expected
    assert got["devices"] == [0, 2]
    assert len(got["histories"][0]) == 4 * 1145


numbers = st.one_of(
    st.integers(0, 255),
    st.integers(256, 65535),
    st.integers(0, 2**31),
    st.integers(2**31, 2**48),
    st.integers(0, 2**63 - 1),
)
signed = numbers | numbers.map(lambda number: -number)
raw_frames = st.fixed_dictionaries(
    {
        "name": st.sampled_from("fgh"),
        "filename": st.sampled_from(["a.py", "b.py"]),
        "line": st.sampled_from([0, 1, 300, 70_000]),
    }
)
raw_entries = st.fixed_dictionaries(
    {
        "action": st.sampled_from([*ACTIONS[:-1], "something_new"]),
        "addr": numbers | st.integers(2**63, 2**64 - 1),
        "size": signed,
        "stream": signed,
        "time_us": numbers,
        "frames": st.lists(raw_frames, max_size=4),
    },
    optional={
        "user_metadata": st.sampled_from(["", "epoch 1"]),
        "compile_context": st.sampled_from(["N/A", "0/1"]),
        "pool_id": st.tuples(st.sampled_from([0, 1]), st.sampled_from([0, 2**40])),
        "forward_frames": st.lists(st.sampled_from(["x", "y"]), max_size=3),
        "device_free": numbers,
        "more": st.none() | st.booleans() | st.integers(),
    },
)


@given(
    stem=raw_entries,
    changes=st.lists(st.tuples(raw_entries, st.booleans()), max_size=25),
    protocol=st.sampled_from(range(6)),
    share=st.booleans(),
)
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
def test_any_history_is_read_ahead_without_a_difference(
    stem: dict[str, Any], changes: list[tuple[dict[str, Any], bool]], protocol: int, share: bool
) -> None:
    # Entries of one layout follow one another, as in a real file, with others in between.
    rows = [
        {key: changed.get(key, value) for key, value in stem.items()} if alike else changed
        for changed, alike in changes
    ]
    if share:
        rows = [{**row, "frames": rows[0]["frames"]} for row in rows]
    held = segment(block(frames=rows[0]["frames"] if rows else []))
    stream = in_batches(document(held, traces=[rows, copy.deepcopy(rows)]), protocol)
    assert outcome(collected, stream) == outcome(plainly, stream)


def test_a_list_in_several_steps_is_whole_and_its_own() -> None:
    """Read ahead, it is known by its first step; what another step adds belongs to this list alone."""
    frames = [[dict(FRAMES[0]) for _ in range(count)] for count in (3, 4, 3, 5, 7, 3)]
    rows = [entry(frames=one) for one in frames]
    held = segment(*(block(frames=copy.deepcopy(one)) for one in frames))
    stream = in_batches(document(held, traces=[rows, copy.deepcopy(rows)]))
    read = collected(stream)
    assert told(read) == told(plainly(stream))
    assert [len(read.stacks.frames(one.stack)) for one in read.segments[0].blocks] == [3, 4, 3, 5, 7, 3]


def test_entries_are_read_ahead_at_all() -> None:
    """The tests above would hold for a collector that never reads ahead."""
    rows = [entry(time_us=2**50 + i, frames=copy.deepcopy(FRAMES)) for i in range(30)]
    entries = Entries()
    collector = EntryCollector(entries)
    ahead: list[int] = []
    before = collector.dict_at

    def dict_at(start: int) -> Any:
        found = before(start)
        ahead.append(len(found[1]) if found else 0)
        return found

    collector.dict_at = dict_at  # type: ignore[method-assign]
    load_plain(in_batches(document(traces=[rows])), collector=collector)
    assert len(entries) == 30
    assert sum(ahead) == 28  # the first brings the texts, the second shows how to refer to them
    assert max(ahead) == 3


def test_an_entry_that_stands_twice_is_read_twice(tmp_path: Path) -> None:
    rows = [entry(time_us=i) for i in range(5)]
    doubled = document(traces=[rows + rows[:2], rows])
    with pytest.raises(TakenAwayError):
        collected(pickle.dumps(doubled))
    read = read_snapshot(write(tmp_path, doubled))
    assert [history.time_us.tolist() for history in read.histories] == [[0, 1, 2, 3, 4, 0, 1], [0, 1, 2, 3, 4]]


def test_an_action_elsewhere_is_no_event(tmp_path: Path) -> None:
    odd = document(traces=[[entry()]], allocator_settings={"list": [{"action": "alloc"}]})
    read = read_snapshot(write(tmp_path, odd))
    assert [len(history) for history in read.histories] == [1]


# What fields say


def test_texts_of_the_program_and_the_compiler() -> None:
    rows = [
        entry(),
        entry(user_metadata="epoch 1"),
        entry(compile_context="0/1"),
        entry(user_metadata="epoch 1", compile_context="0/1"),
        entry(user_metadata=None, compile_context=None),
    ]
    (history,) = build_snapshot(document(traces=[rows]), "s").histories
    said = [history.texts[text] if text >= 0 else None for text in history.metadata]
    assert said == [None, "epoch 1", "0/1", "epoch 1; 0/1", None]


def test_out_of_memory_has_what_was_free_in_place_of_an_address() -> None:
    row = entry("oom", addr=None, device_free=123, size=10**10)
    (history,) = build_snapshot(document(traces=[[row]]), "s").histories
    assert ACTIONS[history.action[0]] == "oom"
    assert (history.address[0], history.size[0]) == (123, 10**10)


def test_an_action_of_a_later_version_is_kept_and_said() -> None:
    read = build_snapshot(document(traces=[[entry("segment_shrink")]]), "s")
    assert ACTIONS[read.histories[0].action[0]] == "other"
    assert read.doubts == ("1 unknown action in the history, read as other (first: 'segment_shrink')",)


def test_files_of_2023_have_no_times(tmp_path: Path) -> None:
    rows = [entry(time_us=None, user_metadata=None, compile_context=None) for _ in range(1200)]
    read = read_snapshot(write(tmp_path, document(traces=[rows])))
    assert read.histories[0].time_us.tolist() == [0] * 1200
    assert read.repairs == ("1200 of 1200 entries of the history record no time_us",)


@pytest.mark.parametrize("spelling", ["active_pending_free", "active_awaiting_free"])
def test_both_spellings_of_pending_are_one_state(spelling: str) -> None:
    (one,) = build_snapshot(document(segment(block(), block(spelling), block("inactive"))), "s").segments
    assert [b.state for b in one.blocks] == ["active", "pending", "free"]
    assert [b.requested for b in one.blocks] == [MIB, MIB, None]


def test_blocks_of_torch_2_0_have_a_history_and_no_address() -> None:
    old = {
        "device": 0,
        "address": BASE,
        "total_size": 2 * MIB,
        "stream": 0,
        "segment_type": "small",
        "blocks": [
            {
                "size": MIB,
                "state": "active_allocated",
                "history": [{"addr": BASE, "real_size": 1000, "frames": FRAMES}],
            },
            {"size": MIB, "state": "inactive"},
        ],
    }
    read = build_snapshot([old], "s")
    (one,) = read.segments
    assert [(b.address, b.requested) for b in one.blocks] == [(BASE, 1000), (BASE + MIB, None)]
    assert [frame.name for frame in read.stacks.frames(one.blocks[0].stack)] == ["forward", "step", "main"]
    assert one.blocks[1].stack == NO_STACK
    assert (one.small, one.pool, one.expandable) == (True, (0, 0), False)
    assert read.repairs == (
        f"2 blocks record no address, worked out from the sizes before them (first: block 0 of segment 0 at "
        f"0x{BASE:x})",
        f"1 block says what was requested in its history, as before torch 2.1 (first: block 0 of segment 0 at "
        f"0x{BASE:x})",
    )
    assert read.doubts == ()


def test_what_was_not_recorded_is_not_known() -> None:
    bare = segment(block(), device=None, stream=None, allocated_size=None, segment_pool_id=None)
    del bare["blocks"][0]["requested_size"], bare["blocks"][0]["frames"], bare["frames"]
    read = build_snapshot([bare], "s")
    (one,) = read.segments
    assert (one.device, one.stream, one.pool, one.stack) == (0, 0, (0, 0), NO_STACK)
    assert one.blocks[0].requested is None
    assert [sentence.split(" (")[0] for sentence in read.repairs] == [
        "1 segment records no device, read as 0",
        "1 segment records no stream, read as 0",
    ]
    assert read.doubts == ()


def test_pools_streams_and_expandable_segments() -> None:
    odd = segment(block(), device=3, stream=2**40, segment_pool_id=[0, 5], is_expandable=True, segment_type="small")
    (one,) = build_snapshot([odd], "s").segments
    assert (one.device, one.stream, one.pool, one.expandable, one.small) == (3, 2**40, (0, 5), True, True)


def test_segments_come_by_device_and_address() -> None:
    rows = [segment(block(), device=1), segment(block(), at=BASE + MIB), segment(block())]
    read = build_snapshot(rows, "s").segments
    assert [(one.device, one.address) for one in read] == [(0, BASE), (0, BASE + MIB), (1, BASE)]


def test_annotations_are_ranges_of_time() -> None:
    events = [
        {"stage": "START", "name": "outer", "device": 0, "time_us": 1},
        {"stage": "START", "name": "step", "device": 0, "time_us": 2},
        {"stage": "START", "name": "step", "device": 0, "time_us": 3},
        {"stage": "END", "name": "step", "device": 0, "time_us": 4},
        {"stage": "END", "name": "step", "device": 0, "time_us": 5},
        {"stage": "END", "name": "step", "device": 1, "time_us": 6},
        {"stage": "END", "name": "lost"},
        {"stage": "MIDDLE", "name": "odd", "time_us": 7},
    ]
    read = build_snapshot(document(external_annotations=events), "s")
    assert read.annotations == (
        Annotation("outer", 0, 1, None),
        Annotation("step", 0, 2, 5),
        Annotation("step", 0, 3, 4),
    )
    assert [sentence.split(" (")[0] for sentence in read.doubts] == [
        "1 annotation ends without a start and is left out",
        "1 annotation has no time and is left out",
        "1 annotation neither starts nor ends and is left out",
    ]


# What does not add up


def test_sums_that_differ_are_doubted_and_kept() -> None:
    wrong = segment(block(requested=MIB + 1), total_size=3 * MIB, allocated_size=5, active_size=6, requested_size=7)
    read = build_snapshot([wrong], "s")
    assert read.segments[0].size == 3 * MIB
    assert [sentence.split(" (")[0] for sentence in read.doubts] == [
        "1 block is smaller than what was requested",
        "the blocks of 1 segment do not add up to its size",
        "the allocated_size of 1 segment is not that of its blocks",
        "the active_size of 1 segment is not that of its blocks",
        "the requested_size of 1 segment is not that of its blocks",
    ]


def test_a_gap_is_doubted() -> None:
    gap = segment(block(), block(address=BASE + MIB + 512), total_size=2 * MIB + 512)
    doubts = build_snapshot([gap], "s").doubts
    assert doubts[0] == f"1 gap between blocks of a segment (first: 512 bytes in segment 0 at 0x{BASE:x})"


def test_blocks_in_disorder_are_sorted_and_it_is_said() -> None:
    mixed = segment(block(), block("inactive"))
    mixed["blocks"].reverse()
    read = build_snapshot([mixed], "s")
    assert [b.state for b in read.segments[0].blocks] == ["active", "free"]
    assert "not in the order" in read.repairs[0]


HOPELESS = [
    (segment(block(), block(address=BASE + 512)), "begins 1048064 bytes before what lies in front of it ends"),
    (segment(block(address=BASE - 512)), "begins 512 bytes before"),
    (segment(block(), total_size=512), "reach 1048064 bytes past its end"),
    (segment(block(), address=None), "segment 0 has no address"),
    (segment(block(), total_size=None), f"segment 0 at 0x{BASE:x} has no total_size"),
    (segment(block(), blocks=None), "has no blocks"),
    (segment(block(), segment_type=None), "has no segment_type"),
    (segment(block(), segment_type="medium"), "the segment_type of .* is 'medium'"),
    (segment(block(), total_size=-5), "a total_size of -5 bytes"),
    (segment(block(), total_size=10**400), "a total_size of more than 2\\*\\*1328 bytes"),
    (segment(block(), total_size="many"), r"the total_size of .* is no number that fits \(str\)"),
    (segment(block(), address=2**70), "the address of segment 0 is no number that fits"),
    (segment(block(), stream="x"), "the stream of"),
    (segment(block(), segment_pool_id=7), "the segment_pool_id of .* is 7, not two numbers"),
    (segment(block(size=-1)), "a total_size of -1 bytes"),
    (segment(block("sleeping")), "the state of block 0 of segment 0 .* is 'sleeping'"),
    (segment(block(), blocks=[{"address": BASE, "state": "inactive"}]), "block 0 of segment 0 .* has no size"),
    (segment(block(), blocks=[{"address": BASE, "size": MIB}]), "block 0 of segment 0 .* has no state"),
    (segment(block(), blocks=[5]), "block 0 of .* is no record"),
    ("text", "segment 0 is no record"),
]


@pytest.mark.parametrize(("broken", "sentence"), HOPELESS)
def test_a_segment_beyond_hope_is_one_sentence(broken: Any, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(TraceReadError, match=sentence) as refused:
        read_snapshot(write(tmp_path, document(broken)))
    assert str(refused.value).startswith(str(tmp_path))
    assert "\n" not in str(refused.value)


def test_segments_that_overlap() -> None:
    with pytest.raises(TraceReadError, match="of device 0 overlap"):
        build_snapshot([segment(block()), segment(block(), at=BASE + 512)], "s")
    build_snapshot([segment(block()), segment(block(), at=BASE + 512, device=1)], "s")


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"addr": 5}, "entry 0 of the history of device 0 has no action"),
        ("text", "entry 0 of the history of device 0 has no action"),
        (entry(size="big"), r"in entry 0 of its history, size is no whole number \(str\)"),
        (entry(size=2**63), "in entry 0 of its history, size fits no 64 bits"),
        (entry(addr=2**64), "in entry 0 of its history, addr fits no 64 bits"),
    ],
)
def test_a_history_beyond_hope_is_one_sentence(row: Any, sentence: str, tmp_path: Path) -> None:
    for path in (write(tmp_path, document(traces=[[row]])), write_json(tmp_path, document(traces=[[row]]))):
        with pytest.raises(TraceReadError, match=sentence):
            read_snapshot(path)


def write_json(folder: Path, data: Any) -> Path:
    path = folder / "snapshot.json"
    path.write_text(json.dumps(data))
    return path


# Files


def test_json_gzip_lists_and_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = pickle.loads(gzip.decompress(SAMPLE.read_bytes()))
    expected = told(read_snapshot(SAMPLE))
    assert told(read_snapshot(write_json(tmp_path, raw))) == expected
    for data in (raw["segments"], tuple(raw["segments"])[:0] or raw["segments"]):
        listed = told(read_snapshot(write(tmp_path, data)))
        assert listed["segments"] == expected["segments"]
        assert listed["histories"] == []
    packed = tmp_path / "two members.bin"
    stream = pickle.dumps(raw)
    packed.write_bytes(gzipped(stream[:1000]) + gzipped(stream[1000:]))
    assert told(read_snapshot(packed)) == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stream)))
    assert told(read_snapshot("-")) == expected


def test_progress_ends_at_the_whole(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    path = write(tmp_path, document(traces=[[entry(time_us=i) for i in range(60_000)]]))
    read_snapshot(path, progress=lambda done, total: seen.append((done, total)))
    size = path.stat().st_size
    assert seen[-1] == (size, size)
    assert len(seen) > size >> 20


FOREIGN = [
    (b"", "is empty"),
    (b"\0" * 100, "white space or zero bytes"),
    (b"PK\x03\x04rest", r"is a ZIP archive, as torch\.save writes"),
    (pickle.dumps(0x1950A86A20F9469CFC6C, 2) + b"rest", r"is a checkpoint of an old torch\.save"),
    (b"<!DOCTYPE html><html><body>not found</body></html>", "is a web page"),
    (b"<!DOCTYPE html><script>import x from 'MemoryViz.js'</script>", "is a page of memory_viz"),
    (b'{"traceEvents": []}', "is a profiler trace, not a memory snapshot; read it with `foretrace explain`"),
    (b'{"cells": [], "nbformat": 4}', "is a Jupyter notebook"),
    (b'{"a": 1}', r"has no segments \(but 'a'\)"),
    (b"[[1, 2, 3, 4], [2, 3, 4, 5]]", r"is a raw memory timeline"),
    (b"[1]", "it holds a list of other things"),
    (b'{"segments": [', "is broken JSON"),
    (b"[" * 100_000, "is broken JSON"),
    (b"\x7fELF....", "is an executable"),
    (b"plain words", "is neither a pickle nor JSON"),
    (
        b"step 1\n" * 9000 + b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "is a text with an out-of-memory message, not a snapshot; read it with `foretrace oom FILE`",
    ),
    (
        (SAMPLES / "h200_fragmented.memory_summary.txt").read_bytes(),
        r"is the printed table of torch\.cuda\.memory_summary",
    ),
    (pickle.dumps({"weights": 1}), r"has no segments \(but 'weights'\)"),
    (pickle.dumps(3), "what it holds is of type int"),
    (pickle.dumps(document(traces=[[entry()]]))[:-9], "is cut off after"),
    (b"\x80\x04cos\nsystem\n.", r"asks for os\.system"),
    (gzipped(b"plain words"), "is neither a pickle nor JSON"),
    (gzipped(b"\0" * 10**6), "is neither|white space"),
    (gzipped(gzipped(b"{}")), "gzip more than once"),
    (gzipped(pickle.dumps(document()))[:-12], "is a gzip file that is cut off"),
    (gzipped(b"{}")[:10] + b"\xff" * 300, "is a damaged gzip file"),
    (pickle.dumps(document(device_traces=7)), "its device_traces are no list"),
    (pickle.dumps({"segments": 7}), "its segments are no list"),
]


@pytest.mark.parametrize(("content", "sentence"), FOREIGN)
def test_a_file_that_is_none_is_told_apart(content: bytes, sentence: str, tmp_path: Path) -> None:
    path = write(tmp_path, content)
    with pytest.raises(TraceReadError, match=sentence) as refused:
        read_snapshot(path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_paths_that_lead_to_no_file(tmp_path: Path) -> None:
    for path, sentence in (
        (tmp_path, "is a directory"),
        (tmp_path / "none", "no such file"),
        ("a\0b", "no valid file"),
    ):
        with pytest.raises(TraceReadError, match=sentence):
            read_snapshot(path)


class Attack:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("touch hacked",)


def test_a_hostile_snapshot_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path, document(traces=[[entry(), entry(user_metadata=Attack())]]))
    with pytest.raises(TraceReadError, match=r"asks for posix\.system|asks for nt\.system"):
        read_snapshot(path)
    assert not (tmp_path / "hacked").exists()


SMALL = in_batches(
    document(
        segment(block(frames=FRAMES), block("inactive")),
        traces=[[entry(time_us=2**50 + i, frames=copy.deepcopy(FRAMES)) for i in range(12)]],
        external_annotations=[{"stage": "START", "name": "s", "device": 0, "time_us": 1}],
        allocator_settings={"expandable_segments": False},
    )
)


def attempt(stream: bytes) -> None:
    with suppress(PickleError, TakenAwayError, TraceReadError):
        collected(stream)
    with suppress(PickleError, TraceReadError):
        build_snapshot(load_plain(stream), "s")


def test_a_snapshot_cut_anywhere_is_an_error() -> None:
    for length in range(len(SMALL)):
        with pytest.raises((PickleError, TakenAwayError)):
            load_plain(SMALL[:length], collector=EntryCollector(Entries()))


@given(st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=5))
@example([(len(SMALL) - 20, 0x5D)])
@settings(max_examples=400)
def test_damage_raises_nothing_but_our_errors(changes: list[tuple[int, int]]) -> None:
    stream = bytearray(SMALL)
    for where, value in changes:
        stream[where] = value
    attempt(bytes(stream))


FIELDS = (
    *("segments", "device_traces", "external_annotations", "allocator_settings", "address", "total_size", "blocks"),
    *("size", "state", "frames", "history", "real_size", "action", "addr", "time_us", "name", "segment_type"),
    *("segment_pool_id", "device", "stage"),
)
leaves = (
    st.none()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["large", "END"])
    | st.builds(pow, st.just(10), st.just(5000))
)
records = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6),
    max_leaves=30,
)


@given(records)
@settings(max_examples=300)
def test_any_plain_data_raises_nothing_but_our_error(raw: Any) -> None:
    for data in (raw, {"segments": [raw]}, {"segments": [], "device_traces": [raw], "external_annotations": raw}):
        with suppress(TraceReadError):
            build_snapshot(data, "s")
