"""Numbers and texts that no allocator writes: a snapshot of them is refused in one sentence, or read and told whole."""

from __future__ import annotations

import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foretrace.errors import InputError, TraceReadError
from foretrace.memory.examining import examine
from foretrace.memory.reading import read_snapshot
from foretrace.memory.reading.building import build_snapshot
from foretrace.memory.reading.collecting import EntryCollector
from foretrace.memory.reading.entries import Entries
from foretrace.memory.reading.files import snapshot_from
from foretrace.memory.reading.pickle_operations import PickleError
from foretrace.memory.reading.pickles import TakenAwayError, load_plain
from foretrace.memory.snapshot import Snapshot
from foretrace.model.memory import Memory
from foretrace.report.json import to_json
from foretrace.report.memory import render_memory
from foretrace.report.view import View

MIB = 1 << 20
BASE = 0x7F00_0000_0000
NOW = 1_700_000_000_000_000


def block(at: int = BASE, size: Any = 20 * MIB, state: str = "active_allocated", **other: Any) -> dict[str, Any]:
    frames = [{"name": "f", "filename": "a.py", "line": 1}]
    return {"address": at, "size": size, "requested_size": 0, "state": state, "frames": frames, **other}


def segment(*blocks: dict[str, Any], at: int = BASE, **other: Any) -> dict[str, Any]:
    return {"device": 0, "address": at, "total_size": 20 * MIB, "stream": 0, "segment_type": "large",
            "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
            "blocks": list(blocks), **other}  # fmt: skip


def entry(action: str, **other: Any) -> dict[str, Any]:
    place = "device_free" if action == "oom" else "addr"
    return {"action": action, place: BASE, "size": MIB, "stream": 0, "time_us": NOW, "frames": [], **other}


def document(*segments: dict[str, Any], trace: Any = (), **other: Any) -> dict[str, Any]:
    return {"segments": list(segments), "device_traces": [list(trace)], **other}


def read(*entries: dict[str, Any], **other: Any) -> Snapshot:
    return build_snapshot(document(segment(block()), trace=entries, **other), "s")


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (segment(), "holds no blocks, and the allocator has none without"),
        (segment(total_size=0), "has a total_size of 0 bytes"),
        (segment(block(size=0)), "holds no blocks"),
        (segment(block(size=0), total_size=0), "has a total_size of 0 bytes"),
        (segment(block(), total_size=True), r"the total_size of .* is no number that fits \(bool\)"),
        (segment(block(), address=True), r"the address of segment 0 is no number that fits \(bool\)"),
        (segment(block(size=True)), r"the size of block 0 of .* is no number that fits \(bool\)"),
        (segment(block(requested_size=False)), "the requested_size of block 0"),
        (segment(block(2**64 - MIB), at=2**64 - MIB), "which reaches past the last address"),
        (segment(block(), device=-1), "is of device -1, which no machine has"),
        (segment(block(), segment_pool_id=(0, 10**30)), "is a tuple, not two numbers of 64 bits"),
        (segment(block(state=["x"])), "the state of block 0 of segment 0 .* is a list, and active_allocated"),
    ],
)
def test_a_segment_that_cannot_be_is_refused(broken: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TraceReadError, match=sentence):
        build_snapshot([broken], "s")


def test_blocks_of_no_size_are_left_out() -> None:
    snapshot = build_snapshot([segment(block(size=0), block(), block(at=BASE + 20 * MIB, size=0))], "s")
    assert [one.size for one in snapshot.segments[0].blocks] == [20 * MIB]
    assert snapshot.repairs[-1].startswith("2 blocks of no size were left out (first: block 0 of segment 0")


@pytest.mark.parametrize("action", ["alloc", "free_completed", "segment_alloc", "segment_free", "segment_map", "oom"])
def test_negative_sizes_are_refused(action: str) -> None:
    with pytest.raises(
        TraceReadError, match=rf"entry 1 of the history of device 0 \({action}\) has a size of -5 bytes"
    ):
        read(entry("snapshot", size=0), entry(action, size=-5))


def test_only_what_failed_may_have_asked_for_more_than_a_device_has() -> None:
    with pytest.raises(TraceReadError, match=r"\(segment_free\) has a size of 2305843009213693952 bytes"):
        read(entry("segment_free", size=1 << 61))
    history = examine(read(entry("oom", size=1 << 61))).history
    assert history is not None
    assert history.out_of_memory[0].bytes == 1 << 61


@pytest.mark.parametrize(("free", "known"), [(0, 0), (7, 7), (-1, None), (-(2**63), None), (2**60, None), (None, None)])
def test_what_a_device_had_free_is_known_or_not(free: int | None, known: int | None) -> None:
    failed = entry("oom", device_free=free)
    history = examine(read(failed)).history
    assert history is not None
    assert history.out_of_memory[0].device_free_bytes == known


@pytest.mark.parametrize("time", [-1, 2**63 - 1, 2**70, -(2**70), 7_258_118_400_000_001])
def test_times_that_no_clock_shows_are_not_known(time: int) -> None:
    snapshot = read(entry("alloc", time_us=time), entry("alloc", addr=BASE + 512))
    assert snapshot.histories[0].time_us.tolist() == [0, NOW]
    assert "1 entry of the history has a time before 1970 or after 2200" in snapshot.doubts[-1]


@pytest.mark.parametrize("time", [-1, 2**63 - 1, 2**70, -(2**70), True, 1.5, "now"])
def test_annotations_at_such_times_are_left_out(time: Any) -> None:
    events = [{"name": "step", "stage": "START", "time_us": time}, {"name": "b", "stage": "START", "time_us": NOW}]
    snapshot = read(entry("alloc"), external_annotations=events)
    assert [note.name for note in snapshot.annotations] == ["b"]
    assert "1 annotation has a time that no clock shows and is left out" in snapshot.doubts[-1]


def test_a_line_that_no_file_has_is_not_known() -> None:
    frames = [{"name": "f", "filename": "a.py", "line": line} for line in (10**5000, -1, 2**31, True, 7)]
    snapshot = build_snapshot([segment(block(frames=frames))], "s")
    assert [frame.line for frame in snapshot.stacks.stacks[0]] == [0, 0, 0, 0, 7]


def test_a_frames_list_that_is_a_key_is_refused_by_both_ways_of_reading(tmp_path: Path) -> None:
    """Entries share their lists of frames while they are read; that must not make a key of one."""
    frames = [{"name": "f", "filename": "a.py", "line": 1}]
    stream = pickle.dumps(document(segment(block()), trace=[entry("alloc", frames=frames)], more=frames), 4)
    assert stream[-4:-3] == b"h"  # the last value is a reference to the entry's frames: now a key
    stream = stream[:-4] + b"}" + stream[-4:-2] + b"K\x01su."
    with pytest.raises(PickleError, match="unhashable type: 'list'"):
        load_plain(stream)
    with pytest.raises(TakenAwayError):
        load_plain(stream, collector=EntryCollector(Entries()))
    path = tmp_path / "s.pickle"
    path.write_bytes(stream)
    with pytest.raises(TraceReadError, match="unhashable type: 'list'"):
        read_snapshot(path)


def test_frames_that_grow_after_their_entry_are_read_the_slow_way(tmp_path: Path) -> None:
    frames = [{"name": "f", "filename": "a.py", "line": 1}]
    stream = pickle.dumps(document(segment(block()), trace=[entry("alloc", frames=frames)], more=frames), 4)
    path = tmp_path / "s.pickle"
    path.write_bytes(stream[:-2] + b"Nau.")
    assert len(read_snapshot(path).stacks.stacks[-1]) == 2


# Anything at all

whole = (
    st.sampled_from(
        [
            0,
            1,
            -1,
            511,
            MIB,
            20 * MIB,
            2**31,
            2**32,
            2**50,
            2**50 + 1,
            2**62,
            2**63 - 1,
            2**63,
            2**64 - 1,
            2**64,
            2**70,
            -(2**31),
            -(2**63),
            -(2**63) - 1,
            NOW,
            BASE,
        ]
    )
    | st.integers()
    # Made late: as they are they cannot even be shown.
    | st.sampled_from([10, -10]).map(lambda base: base**5001)
)
odd = whole | st.sampled_from([None, True, False, 1.5, float("nan"), float("inf"), "x", b"x", [], {}, ()])
text = (
    st.sampled_from(["", "a.py", "训练", "\ud800", "\x1b]0;hi\x07", "\u202e", "x" * 9000, "{n}", "%s", "\n"])
    | st.text()
)
conf = st.builds(
    lambda name, value: f"{name}:{value}",
    st.sampled_from(["max_split_size_mb", "large_segment_size_mb", "max_non_split_rounding_mb",
                     "roundup_power2_divisions", "garbage_collection_threshold", "expandable_segments"]),
    st.sampled_from(["9" * 5000, "0", "-1", "nan", "inf", "1e999", "", "[1:" + "9" * 5000 + "]", "[>:4]", "True", "²"]),
)  # fmt: skip
FIELDS: dict[str, tuple[str, ...]] = {
    "segment": ("device", "address", "total_size", "stream", "allocated_size", "active_size", "requested_size"),
    "block": ("address", "size", "requested_size"),
    "frame": ("line",),
    "entry": ("addr", "device_free", "size", "stream", "time_us"),
    "note": ("time_us", "device"),
    "setting": ("max_split_size", "garbage_collection_threshold", "expandable_segments", "roundup_power2_divisions"),
}


# What is odd in a segment or a block has the whole file refused, so that it is the exception.
RARE = {"segment": 120, "block": 120, "frame": 3, "entry": 20, "note": 3, "setting": 3}


def changed(kind: str, part: dict[str, Any], draw: st.DrawFn, texts: tuple[str, ...] = ()) -> None:
    """Put something odd into a field or two, most often into none."""
    for field in FIELDS[kind]:
        if draw(st.integers(0, RARE[kind])) == 1:
            part[field] = draw(odd if draw(st.booleans()) else whole)
    for field in texts:
        if draw(st.integers(0, 4)) == 0:
            part[field] = draw(text | odd)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    segments, at = [], BASE
    for _ in range(draw(st.integers(1, 3))):
        sizes = draw(st.sampled_from([(20 * MIB,), (2 * MIB, 18 * MIB), (5 * MIB, 5 * MIB, 10 * MIB)]))
        blocks, end = [], at
        for size in sizes:
            state = draw(st.sampled_from(["active_allocated", "inactive", "active_pending_free"]))
            one = block(end, size, state)
            changed("frame", one["frames"][0], draw, ("name", "filename"))
            changed("block", one, draw, ("state",) if draw(st.integers(0, 99)) == 1 else ())
            blocks.append(one)
            end += size
        made = segment(*blocks, at=at, is_expandable=draw(st.booleans()))
        if draw(st.integers(0, 40)) == 1:
            made["segment_pool_id"] = (draw(whole), draw(whole))
        changed("segment", made, draw)
        segments.append(made)
        at += 20 * MIB * draw(st.sampled_from([1, 2]))
    trace = []
    for _ in range(draw(st.integers(0, 6))):
        one = entry(draw(st.sampled_from(["alloc", "free_completed", "free_requested", "oom", "segment_alloc",
                                          "segment_free", "segment_map", "segment_unmap", "odd"])))  # fmt: skip
        one["addr"] = BASE + draw(st.sampled_from([0, 2 * MIB, 20 * MIB]))
        changed("entry", one, draw, ("user_metadata",))
        trace.append(one)
    note = {"name": draw(text), "stage": draw(st.sampled_from(["START", "END"])), "device": 0, "time_us": NOW}
    changed("note", note, draw, ("stage",))
    limits: dict[Any, Any] = {"PYTORCH_CUDA_ALLOC_CONF": draw(conf | text)}
    changed("setting", limits, draw)
    if draw(st.booleans()):
        limits[draw(text | whole)] = draw(
            odd | st.lists(odd, max_size=2) | st.dictionaries(text | whole, odd, max_size=2)
        )
    return document(*segments, trace=trace, external_annotations=[note], allocator_settings=limits)


@given(documents(), st.none() | st.sampled_from([1, 513, MIB + 1, 9 * MIB, 200 * MIB, 2**63 - 1]),
       st.none() | st.sampled_from([0, 10 * MIB, 2**40]), st.booleans())  # fmt: skip
@settings(max_examples=250, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_value_is_told_or_refused(
    raw: dict[str, Any], request_bytes: int | None, device_free: int | None, everything: bool
) -> None:
    with suppress(InputError):
        snapshot = build_snapshot(raw, "odd.pickle")
        memory = examine(snapshot, request_bytes=request_bytes, device_free_bytes=device_free, limit_bytes=device_free)
        _holds(snapshot, memory, everything)


def _holds(snapshot: Snapshot, memory: Memory, everything: bool) -> None:
    assert all(one.blocks for one in snapshot.segments)
    assert memory.history is None or memory.history.span_us is None or memory.history.span_us >= 0
    assert memory.peak is None or memory.peak.ago_us is None or memory.peak.ago_us >= 0
    assert all(finding.bytes is None or finding.bytes >= 0 for finding in memory.findings)
    assert render_memory(memory, View(everything=everything)).endswith("\n")
    assert to_json(memory).endswith(b"}\n")


@given(documents(), st.sampled_from(range(6)))
@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_pickle_of_any_value_is_read_like_the_data_itself(raw: dict[str, Any], protocol: int) -> None:
    try:
        stream = pickle.dumps(raw, protocol)
    except ValueError:  # digits without end, before protocol 2
        return
    told = []
    for make in (lambda: build_snapshot(raw, "odd"), lambda: snapshot_from(stream, "odd")):
        try:
            made = make()
            told.append(f"{made.repairs}{made.doubts}{made.histories[0].time_us.tolist() if made.histories else ''}")
        except TraceReadError:
            # Of several faults, the one that is met first is told.
            told.append("refused")
    # Before protocols 3 and 4 bytes are a call, which is refused whatever else there is.
    assert told[0] == told[1] or (protocol < 3 and told[1] == "refused")
