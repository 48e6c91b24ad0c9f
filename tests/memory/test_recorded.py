"""Snapshots an H200 made (benchmarks/memory_snapshots.py), held against the counters torch gave beside each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.cli.demo import SAMPLES
from foretrace.memory.examining import examine, examine_file
from foretrace.memory.oom.explain import explain_text
from foretrace.memory.reading import read_snapshot

DATA = Path(__file__).parents[1] / "data" / "memory"
RECORDED = sorted(path.name.removesuffix(".pickle.gz") for path in (DATA / "h200").glob("*.pickle.gz"))
MIB = 1 << 20


def read(name: str):
    return read_snapshot(DATA / "h200" / f"{name}.pickle.gz")


def counters(name: str) -> dict[str, int]:
    return json.loads((DATA / "h200" / f"{name}.memory_stats.json").read_text(encoding="utf-8"))


def test_all_situations_are_there():
    assert RECORDED == [
        "expandable_segments", "graph_pool", "max_split_size", "out_of_memory", "pending_frees",
        "roundup_power2_divisions", "several_streams", "training", "truncated_history",
    ]  # fmt: skip


@pytest.mark.parametrize("name", RECORDED)
def test_sizes_agree_with_the_counters_to_the_byte(name: str):
    found, stats = examine(read(name)), counters(name)
    pending = sum(b.requested or 0 for b in found.blocks if b.state == "pending")
    assert found.totals.requested_bytes + pending == stats["requested_bytes.all.current"]
    assert found.totals.allocated_bytes == stats["allocated_bytes.all.current"]
    assert found.totals.active_bytes == stats["active_bytes.all.current"]
    assert found.totals.reserved_bytes == stats["reserved_bytes.all.current"]
    # The counters leave out holes of expandable segments.
    if not any(segment.expandable for segment in found.segments):
        assert found.free.holes_bytes == stats["inactive_split_bytes.all.current"]
        assert found.free.holes == stats["inactive_split.all.current"]
        assert len(found.segments) == stats["segment.all.current"]
    assert [check for check in found.health if check.check == "adds_up" and check.state != "ok"] == []


@pytest.mark.parametrize("name", [name for name in RECORDED if name != "truncated_history"])
def test_the_replayed_peak_is_the_counters_peak_to_the_byte(name: str):
    assert examine(read(name)).peak.requested_bytes == counters(name)["requested_bytes.all.peak"]


@pytest.mark.parametrize("name", RECORDED)
def test_the_summary_beside_it_says_the_same_as_far_as_it_goes(name: str):
    found, summary = examine(read(name)), examine_file(str(DATA / "h200" / f"{name}.memory_summary.txt"))
    unit = summary.source.resolution_bytes
    for part in ("allocated_bytes", "active_bytes", "reserved_bytes"):
        exact, printed = getattr(found.totals, part), getattr(summary.totals, part)
        assert printed <= exact < printed + unit


@pytest.mark.parametrize("form", ["memory_stats.json", "memory_summary.txt"])
def test_counters_with_pending_frees_do_not_know_what_live_tensors_asked_for(form: str):
    found = examine_file(str(DATA / "h200" / f"pending_frees.{form}"))
    assert found.totals.requested_bytes is None
    assert found.fragmentation.rounding_bytes is None
    assert found.fragmentation.pending_bytes == 36.25 * MIB
    assert "requested_pending" in [check.check for check in found.health]
    exact = examine_file(str(DATA / "h200" / f"training.{form}"))
    asked = examine(read("training")).totals.requested_bytes
    assert exact.totals.requested_bytes <= asked < exact.totals.requested_bytes + exact.source.resolution_bytes


def test_counters_with_more_asked_for_than_active_are_not_trusted(tmp_path: Path):
    stats = counters("training") | {"requested_bytes.all.current": 10**12}
    (tmp_path / "stats.json").write_text(json.dumps(stats), encoding="utf-8")
    found = examine_file(str(tmp_path / "stats.json"))
    assert [check.check for check in found.health if check.state == "bad"] == ["adds_up_requested"]


def test_a_truncated_history_is_said_to_be_one():
    found = examine(read("truncated_history"))
    assert found.history.truncated is True
    assert 0 < found.peak.requested_bytes <= counters("truncated_history")["requested_bytes.all.peak"]
    assert not found.peak.complete


@pytest.mark.parametrize(
    ("name", "hard", "soft", "stream", "pending"),
    [
        ("pending_frees", 3.25, 0, 0, 36.25),
        ("graph_pool", 16, 0, 25_160_704 / MIB, 0),
        ("out_of_memory", 628, 0, 0, 0),
        ("max_split_size", 3, 110, 0, 0),
    ],
)
def test_kinds_of_fragmentation(name: str, hard: float, soft: float, stream: float, pending: float):
    kinds = examine(read(name)).fragmentation
    found = [kinds.hard_bytes, kinds.soft_bytes, kinds.stream_bytes, kinds.pending_bytes]
    assert found == [hard * MIB, soft * MIB, stream * MIB, pending * MIB]


def test_memory_of_two_streams_is_idle_for_the_third():
    found = examine(read("several_streams"))
    idle = next(finding for finding in found.findings if finding.rule == "idle_in_other_pools")
    assert idle.bytes == found.fragmentation.stream_bytes
    assert "119.7 MiB of stream 0x" in idle.explanation


def test_the_request_that_failed_fails_again_under_its_limit_and_the_message_is_explained_alike():
    snapshot = read("out_of_memory")
    (failed,) = examine(snapshot).history.out_of_memory
    limit = counters("out_of_memory")["reserved_bytes.all.current"]
    again = examine(snapshot, request_bytes=failed.bytes, device_free_bytes=failed.device_free_bytes, limit_bytes=limit)
    assert again.request.succeeds is False
    assert again.free.largest_hole_bytes < failed.bytes < again.free.holes_bytes
    message = (DATA / "h200" / "out_of_memory.message.txt").read_text(encoding="utf-8")
    (explained,) = explain_text(message, snapshot=snapshot).messages
    # Both would have served it: the limit is named, and so is what lies in pieces below it.
    assert explained.verdict == "limit"
    assert "fragmentation" in [cause.verdict for cause in explained.causes]


def test_the_committed_sample_is_what_its_summary_says():
    found = examine_file(str(SAMPLES / "h200_fragmented.snapshot.pickle.gz"))
    printed = examine_file(str(SAMPLES / "h200_fragmented.memory_summary.txt"))
    assert (found.totals.reserved_bytes, len(found.segments)) == (7_960_788_992, 343)
    assert (found.free.holes, found.history.entries, found.history.live_blocks) == (127, 1145, 609)
    assert found.peak.requested_bytes == 7_044_408_704  # the summary's 6718 MiB
    assert found.peak.unexplained_bytes == 2_252_408_704
    assert [printed.totals.allocated_bytes // MIB, found.totals.allocated_bytes // MIB] == [4332, 4332]
    assert [printed.free.holes_bytes // MIB, found.free.holes_bytes // MIB] == [1095, 1095]


def test_blocks_of_which_the_history_has_no_stack_are_counted():
    history = examine_file(str(SAMPLES / "h200_fragmented.snapshot.pickle.gz")).history
    assert (history.live_blocks_with_stack, history.live_blocks) == (135, 609)
