"""A slim trace says of what it keeps what the whole one says; links hold at both ends; damage is mended."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.analysis.explain import report_of
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.slimming import SLIM_KEY
from foretrace.model.prediction import METADATA_KEY
from foretrace.model.report import Report
from foretrace.model.sidefile import MemoryHistory, SideFile, Unprofiled, read_side, side_path, write_side
from foretrace.trace import load
from foretrace.trace.table import Trace
from foretrace.view import raw as raw_module
from foretrace.view.overlaps import fitting_lanes
from foretrace.view.raw import open_raw
from foretrace.view.slim import slim
from readings import document, events

DATA = Path(__file__).parents[1] / "data"
SAMPLES = Path(__file__).parents[2] / "src" / "foretrace" / "cli" / "samples"
TRACES = sorted([*DATA.glob("traces*/*.json.gz"), *SAMPLES.glob("**/*.trace.json.gz")])
NAMES = [f"{path.parent.name}/{path.name.partition('.')[0]}" for path in TRACES]
whole_trace = lru_cache(maxsize=None)(load)
# Large ones, of which one step is enough.
LARGE = ("llama_train", "ddp_rank0")
CASES = [
    pytest.param(path, step, id=f"{name}-{step}")
    for path, name in zip(TRACES, NAMES, strict=True)
    for step in range(1 if name.endswith(LARGE) else len(whole_trace(path).steps))
]


def facts(report: Report) -> dict[str, Any]:
    """What a report of one step says of that step, its times counted from the step's start.

    Findings and what idle time is put down to also rest on the steps around.
    """
    found = msgspec.to_builtins(report)
    start = found["steps"][0]["start_us"]
    for row in (*found["kernels"], *found["transfers"]):
        del row["event"]
        row["step"] = None
        row["start_us"] = round(row["start_us"] - start, 3)
    for row in found["gemms"]:
        row["events"] = len(row["events"])
    for step in found["steps"]:
        del step["index"], step["start_us"], step["idle"]
    parts = ("steps", "kernels", "transfers", "groups", "operators", "gemms", "elementwise", "chain", "coverage")
    return {part: found[part] for part in (*parts, "verdict")}


def same_step(whole: Trace, step: int, slimmed: Trace) -> None:
    """Hold the report of a step of the whole trace against that of the same step of the slim one."""
    span = whole.steps[step]
    at = [s.index for s in slimmed.steps if (s.label, s.start, s.pid) == (span.label, span.start, span.pid)]
    assert len(at) == 1
    # A trace that was cut to one step speaks of that one unasked.
    asked = None if len(slimmed.steps) == 1 else at
    found, expected = facts(report_of(slimmed, steps=asked)), facts(report_of(whole, steps=[step]))
    for part, value in expected.items():
        assert found[part] == value, part


@pytest.mark.parametrize(("path", "step"), CASES)
def test_a_kept_step_of_a_real_trace_keeps_its_numbers(tmp_path: Path, path: Path, step: int):
    whole = whole_trace(path)
    made = slim(path, tmp_path / "s.json", steps=[step])
    slimmed = load(made.path)
    assert slimmed.repairs == []
    same_step(whole, step, slimmed)
    assert slimmed.total_events == made.after_events == made.before_events - sum(made.dropped.values())
    assert len(whole.steps) == 1 or made.after_events < made.before_events


@pytest.mark.parametrize(
    "path",
    [path for path, name in zip(TRACES, NAMES, strict=True) if not name.endswith(LARGE)],
    ids=lambda p: p.parent.name + "/" + p.name,
)
def test_nothing_is_lost_where_nothing_is_left_out(tmp_path: Path, path: Path):
    made = slim(path, tmp_path / "s.json.gz", drop=())
    before, after = document(path), document(made.path)
    assert after.pop(SLIM_KEY) == {"dropped": []}
    assert after == before


# Built traces


@st.composite
def programs(draw: st.DrawFn) -> TraceBuilder:
    """A loop of steps with operators on two threads, a stream behind the CPU, and something around it all."""
    build = TraceBuilder()
    whole = st.integers(1, 30)
    now = stream_free = 0.0
    begin = now
    for number in range(draw(st.integers(1, 4))):
        now += draw(st.integers(0, 20))
        start = now
        for _ in range(draw(st.integers(0, 3))):
            now += draw(whole)
            thread = draw(st.sampled_from([100, 101]))
            opened = now
            sequence = draw(st.integers(0, 3))
            launched = []
            for _ in range(draw(st.integers(0, 2))):
                launched.append((build.launch(now + 1, 2, tid=thread), now + 1))
                now += 4
            now += 1
            build.op("aten::mm", opened, now - opened, tid=thread, shapes=[[4, 4], [4, 4]], sequence=sequence)
            build.flow("fwdbwd", sequence, bool(number % 2), opened, tid=thread)
            for correlation, at in launched:
                begins = max(at + draw(st.integers(0, 120)), stream_free)
                stream_free = begins + draw(whole)
                build.kernel("gemm", begins, stream_free - begins, launch=correlation)
                build.flow("ac2g", correlation, True, at, tid=thread)
                build.event(
                    ph="f", bp="e", id=correlation, pid=0, tid=7, ts=build.base_us + begins, cat="ac2g", name="ac2g"
                )
        now += draw(st.integers(0, 5))
        build.step(number, start, now - start)
        build.python("loop.py(3): step", start, now - start)
        build.call("cudaDeviceSynchronize", now, draw(st.integers(0, 9)))
        now += 10
    if draw(st.booleans()):
        build.annotation("epoch", begin - 1, now - begin + 1)
    if draw(st.booleans()):
        build.kernel("unlinked", stream_free + 1, 5)
    return build


@settings(max_examples=20)
@given(build=programs(), data=st.data())
def test_a_kept_step_of_any_trace_keeps_its_numbers(tmp_path_factory: pytest.TempPathFactory, build, data):
    folder = tmp_path_factory.mktemp("slim")
    path = build.write(folder / "t.json")
    whole = load(path)
    chosen = data.draw(st.sets(st.integers(0, len(whole.steps) - 1), min_size=1))
    slimmed = load(slim(path, folder / "s.json", steps=sorted(chosen), drop=()).path)
    assert len(slimmed.steps) == len(chosen)
    for step in sorted(chosen):
        same_step(whole, step, slimmed)


@settings(max_examples=20)
@given(build=programs(), data=st.data())
def test_no_arrow_loses_one_of_its_ends(tmp_path_factory: pytest.TempPathFactory, build, data):
    folder = tmp_path_factory.mktemp("slim")
    path = build.write(folder / "t.json")
    steps = data.draw(st.sets(st.integers(0, len(load(path).steps) - 1), min_size=1))
    kept = events(slim(path, folder / "s.json", steps=sorted(steps)).path)
    spans = [(e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in kept if e["ph"] == "X"]
    ends: defaultdict[tuple[str, int], set[str]] = defaultdict(set)
    for event in kept:
        if event["ph"] in "sf":
            ends[event["cat"], event["id"]].add(event["ph"])
            at = event["ts"]
            assert any((event["pid"], event["tid"]) == (p, t) and s <= at <= e for p, t, s, e in spans)
    assert all(found == {"s", "f"} for found in ends.values())
    linked = {e["args"]["correlation"] for e in kept if e.get("cat") == "kernel" and "correlation" in e["args"]}
    calls = {e["args"]["correlation"] for e in kept if e.get("cat") == "cuda_runtime"}
    assert linked <= calls
    assert {number for cat, number in ends if cat == "ac2g"} == linked


def test_an_arrow_to_a_kernel_that_goes_does_not_end_at_the_one_before(tmp_path: Path):
    build = TraceBuilder()
    for number, start, duration in ((0, 0, 95), (1, 100, 8), (2, 110, 50)):
        build.step(number, start, duration)
    build.op("aten::mm", 10, 30)
    build.op("aten::add", 102, 3)
    # The first kernel runs during step 1; the second begins where the first, and step 1's period, end.
    for at, begins in ((12, 90), (22, 110)):
        correlation = build.launch(at)
        build.kernel("k", begins, 20, launch=correlation)
        build.flow("ac2g", correlation, True, at)
        build.event(ph="f", id=correlation, pid=0, tid=7, ts=build.base_us + begins, cat="ac2g", name="ac2g")
    kept = events(slim(build.write(tmp_path / "t.json"), tmp_path / "s.json", steps=[1]).path)
    assert [e["args"]["correlation"] for e in kept if e.get("cat") == "kernel"] == [1]
    assert [e["id"] for e in kept if e["ph"] in "sf"] == [1, 1]


def test_a_kernel_that_runs_after_its_step_stays_and_what_ran_meanwhile_too(tmp_path: Path):
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 20)
    build.kernel("early", 90, 30, launch=build.launch(12))
    build.kernel("late", 250, 50, launch=build.launch(22))
    build.step(2, 100, 100)
    build.op("aten::add", 110, 20)
    build.kernel("other", 320, 10, launch=build.launch(112))
    build.step(3, 200, 100)
    path = build.write(tmp_path / "t.json")
    first = load(slim(path, tmp_path / "a.json", steps=[0]).path)
    assert {first.name(row) for row in first.gpu_rows} == {"early", "late"}
    second = load(slim(path, tmp_path / "b.json", steps=[1]).path)
    # "early" and "late" ran during the second step and were launched by the first.
    assert {second.name(row) for row in second.gpu_rows} == {"early", "other"}
    assert [(row.name, row.step) for row in report_of(second).kernels] == [("other", 0)]
    assert {second.name(row) for row in second.links.op[second.gpu_rows].tolist()} == {"aten::mm", "aten::add"}


@settings(max_examples=20)
@given(build=programs(), data=st.data())
def test_cutting_to_the_same_steps_again_changes_nothing(tmp_path_factory: pytest.TempPathFactory, build, data):
    folder = tmp_path_factory.mktemp("slim")
    path = build.write(folder / "t.json")
    whole = load(path)
    chosen = sorted(data.draw(st.sets(st.integers(0, len(whole.steps) - 1), min_size=1)))
    once = slim(path, folder / "a.json", steps=chosen).path
    kept = {whole.steps[index].label for index in chosen}
    again = slim(once, folder / "b.json", steps=[s.index for s in load(once).steps if s.label in kept], drop=()).path
    assert Path(again).read_bytes() == Path(once).read_bytes()


def test_what_spans_the_cut_is_whole_and_the_next_step_is_a_mark(tmp_path: Path):
    build = TraceBuilder()
    build.annotation("epoch", -50, 500)
    for number in range(3):
        build.step(number, 100 * number, 90)
        build.op("aten::mm", 100 * number + 10, 20)
    kept = events(slim(build.write(tmp_path / "t.json"), tmp_path / "s.json", steps=[1]).path)
    assert [(e["name"], e["ts"] - build.base_us, e["dur"]) for e in kept] == [
        ("epoch", -50, 500),
        ("ProfilerStep#1", 100, 90),
        ("aten::mm", 110, 20),
        ("ProfilerStep#2", 200, 0),
    ]


def test_steps_of_merged_ranks_are_cut_each_from_its_process(tmp_path: Path):
    one, other = TraceBuilder(pid=100, thread=100), TraceBuilder(pid=200, thread=200)
    for build in (one, other):
        for number in range(2):
            build.step(number, 100 * number, 90)
            build.op(f"aten::of_{build.pid}", 100 * number + 10, 20)
    one.events += other.events
    path = one.write(tmp_path / "t.json")
    whole = load(path)
    position = next(s.index for s in whole.steps if s.pid == 200 and s.label == "ProfilerStep#0")
    kept = events(slim(path, tmp_path / "s.json", steps=[position]).path)
    assert {(e["pid"], e["name"]) for e in kept} == {
        (200, "ProfilerStep#0"),
        (200, "aten::of_200"),
        (200, "ProfilerStep#1"),
    }


def test_a_range_keeps_what_is_open_launched_or_running_in_it(tmp_path: Path):
    build = TraceBuilder()
    build.op("aten::before", 0, 10)
    build.op("aten::open", 5, 100)
    build.kernel("running", 20, 40, launch=build.launch(6))
    build.kernel("launched", 400, 10, launch=build.launch(55))
    build.kernel("neither", 300, 10, launch=build.launch(99))
    build.op("aten::behind", 200, 10)
    path = build.write(tmp_path / "t.json")
    made = slim(path, tmp_path / "s.json", span=(50_000, 60_000))
    trace = load(made.path)
    assert set(trace.names) == {"aten::open", "running", "launched", "cudaLaunchKernel"}
    assert document(made.path)[SLIM_KEY]["range_us"] == [50, 60]
    assert len(load(slim(path, tmp_path / "all.json", span=(None, None)).path)) == len(load(path))
    with pytest.raises(InputError, match="nothing was recorded in that range"):
        slim(path, tmp_path / "n.json", span=(10**9, 2 * 10**9))


# Parts


@pytest.fixture
def rich(tmp_path: Path) -> Path:
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.python("nn.Module: Linear_0", 5, 60)
    build.python("model.py(3): forward", 6, 50)
    build.op("aten::mm", 10, 30, shapes=[[2, 2]], dtypes=["float"], args={"Call stack": "model.py(3): forward"})
    build.kernel("gemm", 50, 10, launch=build.launch(12), grid=[3, 1, 1], args={"registers per thread": 9})
    build.event(
        ph="i", cat="cpu_instant_event", name="[memory]", s="t", pid=100, tid=100, ts=1_000_020.0, args={"Bytes": 8}
    )
    build.event(ph="M", name="thread_name", pid=0, tid=7, args={"name": "stream 7"})
    build.event(ph="C", name="power", pid=0, ts=1_000_030.0, args={"W": 7})
    return build.write(tmp_path / "rich.json")


@pytest.mark.parametrize(
    ("drop", "gone"),
    [
        (("stacks",), {"model.py(3): forward", "Call stack"}),
        (("modules",), {"nn.Module: Linear_0"}),
        (("shapes",), {"Input Dims", "Input type"}),
        (("memory",), {"[memory]"}),
        (("args",), {"Input Dims", "Input type", "Call stack", "registers per thread"}),
    ],
)
def test_only_the_part_named_is_left_out(tmp_path: Path, rich: Path, drop: tuple[str, ...], gone: set[str]):
    def words(path: Path) -> set[str]:
        found = events(path)
        return {e["name"] for e in found} | {key for e in found for key in e.get("args", {})}

    made = slim(rich, tmp_path / "s.json", drop=drop)
    assert words(rich) - words(made.path) == gone | ({"Bytes"} if "memory" in drop else set())
    assert document(made.path)[SLIM_KEY] == {"dropped": [*drop, *(["shapes"] if drop == ("args",) else [])]}


def test_without_arrows_none_is_left(tmp_path: Path):
    path = DATA / "traces" / "mlp_eager.json.gz"
    made = slim(path, tmp_path / "s.json", drop=("arrows",))
    assert made.dropped == {"arrow": 43}
    assert not [e for e in events(made.path) if e["ph"] in "sf"]


def test_what_stays_keeps_its_digits(tmp_path: Path, rich: Path):
    text = rich.read_bytes().replace(b'"ts": 1000010.0', b'"ts": 1234567890123.456789')
    rich.write_bytes(text)
    out = Path(slim(rich, tmp_path / "s.json", drop=("stacks",)).path).read_bytes()
    assert b"1234567890123.456789" in out


def test_counts_by_kind_are_those_of_the_file(tmp_path: Path):
    path = DATA / "traces_memory" / "llama_train.json.gz"
    whole = load(path)
    made = slim(path, tmp_path / "s.json.gz", drop=("memory", "stacks", "modules"))
    count = {kind: int((whole.kind == kind).sum()) for kind in (RowKind.MEMORY, RowKind.PYTHON, RowKind.KERNEL)}
    expected = {"memory": count[RowKind.MEMORY]} | ({"python": count[RowKind.PYTHON]} if count[RowKind.PYTHON] else {})
    assert made.dropped == expected
    assert made.kept["kernel"] == count[RowKind.KERNEL] == int((load(made.path).kind == RowKind.KERNEL).sum())
    assert made.after_bytes == Path(made.path).stat().st_size < made.before_bytes


# Mending

CLEAN = gzip.decompress((DATA / "traces" / "mlp_eager.json.gz").read_bytes())
LIST = json.dumps(json.loads(CLEAN)["traceEvents"]).encode()
DAMAGED = {
    "control characters": CLEAN.replace(b"aten::linear", b"aten::\x01\x02linear"),
    "a cut end": CLEAN[: len(CLEAN) // 2],
    "a cut in the closing metadata": CLEAN[:-30],
    "bytes that are no UTF-8": CLEAN.replace(b"aten::linear", b"aten::\xff\xfelinear"),
    "UTF-16": CLEAN.decode().encode("utf-16"),
    "NaN": CLEAN.replace(b'"bytes": 4', b'"bytes": NaN'),
    "a stray escape": CLEAN.replace(b"aten::linear", b"C:\\qdir"),
    "times as text": json.dumps(
        {"traceEvents": [{**e, "ts": str(e["ts"])} if "ts" in e else e for e in json.loads(LIST)]}
    ).encode(),
    "a bare list": LIST,
    "a cut bare list": LIST[:30_000],
    "a byte order mark": b"\xef\xbb\xbf" + CLEAN,
    "two lists": CLEAN.rstrip()[:-1] + b', "traceEvents": ' + LIST + b"}",
    "a cut gzip stream": gzip.compress(CLEAN)[:4000],
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED)
def test_what_the_reader_mends_is_mended_in_the_copy(tmp_path: Path, text: bytes):
    path = tmp_path / "broken.json"
    path.write_bytes(text)
    read = load(path)
    made = slim(path, tmp_path / "mended.json", drop=())
    assert made.repairs == read.repairs
    again = load(made.path)  # and any strict parser reads it
    assert json.loads(Path(made.path).read_bytes())["traceEvents"]
    assert again.repairs == []
    assert again.total_events == read.total_events
    for column in ("start", "duration", "kind", "correlation", "stream"):
        assert np.array_equal(getattr(again, column), getattr(read, column)), column
    assert [again.name(row) for row in range(len(again))] == [read.name(row) for row in range(len(read))]
    assert again.flows == read.flows
    assert again.lane_names == read.lane_names


def test_a_mended_event_keeps_every_digit_of_its_time(tmp_path: Path):
    path = tmp_path / "broken.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1234567890123460.001, "dur": 0.003'
    path.write_text(f'{{"traceEvents": [{event}, "args": {{"x": NaN}}}}, {event}}}]}}')
    made = slim(path, tmp_path / "mended.json", drop=())
    assert Path(made.path).read_text().count("1234567890123460.001") == 2
    assert load(made.path).start.tolist() == [1234567890123460001] * 2


def test_nanoseconds_become_the_microseconds_that_they_should_be(tmp_path: Path):
    build = TraceBuilder(base_us=1.7e18)
    build.step(1, 0, 100_000)
    build.op("aten::mm", 10_000, 30_000)
    path = build.write(tmp_path / "ns.json")
    read, again = load(path), load(slim(path, tmp_path / "us.json").path)
    assert "nanoseconds as microseconds" in read.odd
    assert again.odd == {}
    # A float64 that counts nanoseconds since 1970 has lost some; the text has not.
    assert np.abs(again.start - read.start).max() < 256
    assert again.duration.tolist() == read.duration.tolist()


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, len(CLEAN) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=5))
def test_random_damage_is_mended_or_refused_in_one_sentence(tmp_path_factory: pytest.TempPathFactory, changes):
    folder = tmp_path_factory.mktemp("damage")
    text = bytearray(CLEAN)
    for at, data in changes:
        text[at : at + len(data)] = data
    (folder / "t.json").write_bytes(bytes(text))
    try:
        made = slim(folder / "t.json", folder / "s.json", drop=())
    except InputError:
        assert not (folder / "s.json").exists()
        return
    assert json.loads(Path(made.path).read_bytes())["traceEvents"] is not None
    assert load(made.path).repairs == []


# Reading piece by piece


def test_a_large_file_is_read_piece_by_piece_and_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(raw_module, "PIECE", 5000)
    path = DATA / "traces" / "mlp_train_eager.json.gz"
    trace = load(path)
    pieces = open_raw(trace)
    assert pieces._held is None
    batches = list(pieces.batches())
    assert len(batches) > 10
    assert [json.loads(bytes(event)) for batch in batches for event in batch] == events(path)


def test_a_file_that_changed_meanwhile_is_refused(tmp_path: Path):
    path = TraceBuilder().write(tmp_path / "t.json")
    build = TraceBuilder()
    build.op("aten::mm", 0, 5)
    trace = load(build.write(path))
    build.op("aten::mm", 10, 5)
    build.write(path)
    with pytest.raises(InputError, match="has changed"):
        open_raw(trace)


def test_halves_of_a_pair_go_together(tmp_path: Path):
    build = TraceBuilder()
    for number in range(2):
        build.step(number, 100 * number, 90)
        for phase, at in (("B", 10), ("E", 30)):
            ts = build.base_us + 100 * number + at
            build.event(ph=phase, cat="cpu_op", name=f"aten::of_{number}", pid=100, tid=100, ts=ts)
    kept = events(slim(build.write(tmp_path / "t.json"), tmp_path / "s.json", steps=[1]).path)
    assert [(e["ph"], e["name"]) for e in kept if e["ph"] in "BE"] == [("B", "aten::of_1"), ("E", "aten::of_1")]


# Overlaps


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)), max_size=30))
def test_spans_of_one_lane_nest_or_are_apart(found):
    spans = sorted(((start, start + duration) for start, duration in found), key=lambda s: (s[0], -s[1]))
    lanes = fitting_lanes([s for s, _ in spans], [e for _, e in spans])
    for i, (one, lane) in enumerate(zip(spans, lanes, strict=True)):
        for other, its in zip(spans[:i], lanes[:i], strict=True):
            assert lane != its or other[1] <= one[0] or one[1] <= other[1]


def test_overlapping_rows_get_lanes_of_their_own(tmp_path: Path):
    build = TraceBuilder()
    build.op("aten::mm", 0, 30)
    one, two = build.launch(1, 2), build.launch(4, 2)
    build.kernel("first", 50, 20, launch=one)
    build.kernel("second", 65, 20, launch=two)  # begins before the first one ends
    for correlation, at in ((one, 50), (two, 65)):
        build.event(ph="f", bp="e", id=correlation, pid=0, tid=7, ts=build.base_us + at, cat="ac2g", name="ac2g")
    build.event(ph="M", name="thread_name", pid=0, tid=7, args={"name": "stream 7"})
    path = build.write(tmp_path / "t.json")
    made = slim(path, tmp_path / "s.json", fix_overlaps=True)
    assert made.moved == 1
    found = events(made.path)
    second = next(e for e in found if e["name"] == "second")
    assert second["tid"] != 7
    assert [e["tid"] for e in found if e["ph"] == "f"] == [7, second["tid"]]
    names = {e["tid"]: e["args"]["name"] for e in found if e["name"] == "thread_name"}
    assert names == {7: "stream 7", second["tid"]: "stream 7 (overlapping rows, 1)"}
    kernels = [(k.name, k.stream, k.op, k.start_us) for k in report_of(load(made.path)).kernels]
    assert kernels == [(k.name, k.stream, k.op, k.start_us) for k in report_of(load(path)).kernels]
    assert slim(path, tmp_path / "n.json").moved == 0


# What lies beside, and what must not happen


def test_the_side_file_goes_along_without_what_no_longer_applies(tmp_path: Path, rich: Path):
    timing = Unprofiled(median_us=5, iqr_us=1, runs=9, method="cuda_events")
    side = SideFile(trace="rich.json", unprofiled=timing, profiled_steps_us=[1, 2], memory=MemoryHistory(snapshot="x"))
    write_side(rich, side)
    made = slim(rich, tmp_path / "s.json.gz", steps=[0])
    assert made.side == str(side_path(made.path))
    copied = read_side(made.path)
    assert copied is not None
    assert (copied.trace, copied.unprofiled, copied.profiled_steps_us) == ("s.json.gz", timing, None)
    assert copied.memory is not None
    assert copied.memory.snapshot is None
    assert set(copied.missing) == {"profiled_steps_us", "memory.snapshot"}
    uncut = slim(rich, tmp_path / "u.json", drop=("memory",))
    found = read_side(uncut.path)
    assert found is not None
    assert found.profiled_steps_us == [1, 2]
    # Packed under the same name, both have one side file.
    assert slim(rich, tmp_path / "rich.json.gz").side == str(side_path(rich))
    assert read_side(rich) == side


def test_a_side_file_of_another_trace_is_neither_taken_nor_replaced(tmp_path: Path, rich: Path):
    other = write_side(tmp_path / "s.json", SideFile(label="another"))
    for force in (False, True):
        with pytest.raises(InputError, match="would be taken for"):
            slim(rich, tmp_path / "s.json", force=force)
    write_side(rich, SideFile(label="ours"))
    with pytest.raises(InputError, match="--force"):
        slim(rich, tmp_path / "s.json")
    slim(rich, tmp_path / "s.json", force=True)
    assert json.loads(other.read_bytes())["label"] == "ours"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"drop": ("stack",)}, "no part 'stack'"),
        ({"steps": [0], "span": (0, 1)}, "not to both"),
        ({"steps": [7]}, "no step 7"),
        ({"steps": []}, "no step was chosen"),
        ({"steps": ["#99"], "what": "--step takes"}, "no step '#99'; --step takes a position or a label, of: 0"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(tmp_path: Path, rich: Path, options: Any, word: str):
    with pytest.raises(InputError, match=word):
        slim(rich, tmp_path / "s.json", **options)
    assert not (tmp_path / "s.json").exists()


def test_no_file_is_replaced_unasked_and_never_the_trace(tmp_path: Path, rich: Path):
    (tmp_path / "s.json").write_text("mine")
    with pytest.raises(InputError, match="--force"):
        slim(rich, tmp_path / "s.json")
    assert (tmp_path / "s.json").read_text() == "mine"
    with pytest.raises(InputError, match="the trace itself"):
        slim(rich, rich, force=True)
    assert slim(rich, tmp_path / "s.json", force=True).after_events > 0


def test_a_prediction_still_points_at_its_rows(tmp_path: Path):
    build = TraceBuilder(meta={METADATA_KEY: {"predicted": True, "rows": [{"event": 2}]}})
    build.python("model.py(3): forward", 0, 50)
    build.op("aten::mm", 10, 30)
    build.kernel("predicted", 50, 10)
    path = build.write(tmp_path / "t.json")
    made = slim(path, tmp_path / "s.json")
    place = document(made.path)[METADATA_KEY]["rows"][0]["event"]
    assert events(made.path)[place]["name"] == "predicted"
    with pytest.raises(InputError, match="predicted step"):
        slim(path, tmp_path / "n.json", span=(0, 10))


def test_an_empty_recording_stays_one(tmp_path: Path):
    path = TraceBuilder().write(tmp_path / "t.json")
    made = slim(path, tmp_path / "s.json")
    assert (made.before_events, made.after_events, dict(made.dropped)) == (0, 0, {})
    assert load(made.path).meta["deviceProperties"][0]["name"] == "NVIDIA H200"
