"""Reading a file piece by piece gives exactly what reading it at once gives."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from builders import TraceBuilder
from foretrace import load
from foretrace.trace import stream
from foretrace.trace.load import parse
from readings import events as events_of
from readings import text_of

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.json.gz"))
COLUMNS = ("start", "duration", "event", "kind", "correlation", "external", "stream", "device", "sequence")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(stream, "_SMALLEST", 0)
    monkeypatch.setattr(stream, "PIECE", 3000)


def assert_same(streamed, whole):
    for name in COLUMNS:
        np.testing.assert_array_equal(getattr(streamed, name), getattr(whole, name), err_msg=name)
    rows = range(len(whole))
    assert [streamed.name(r) for r in rows] == [whole.name(r) for r in rows]
    assert [streamed.lanes[n] for n in streamed.lane] == [whole.lanes[n] for n in whole.lane]
    assert [bytes(a) for a in streamed.arguments] == [bytes(a) for a in whole.arguments]
    for name in ("meta", "total_events", "repairs", "names", "categories", "flows", "lane_names", "odd"):
        assert getattr(streamed, name) == getattr(whole, name), name


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_pieces_and_whole_agree(path):
    assert stream.stream_events(path) is not None
    streamed = load(path)
    assert streamed.format == "kineto, gzip"
    assert_same(streamed, parse(text_of(path)))


def test_bare_list_and_plain_text(tmp_path):
    events = events_of(TRACES[-1])
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(events))
    assert stream.stream_events(path) is not None
    assert load(path).format == "kineto array"
    assert_same(load(path), parse(path.read_bytes()))


def test_begins_and_ends_pair_across_pieces(tmp_path):
    build = TraceBuilder()
    build.event(ph="B", cat="cpu_op", name="outer", pid=1, tid=1, ts=10.0)
    for at in range(100):
        build.op("aten::mm", at, 0.5)
    build.event(ph="E", pid=1, tid=1, ts=500.0)
    path = build.write(tmp_path / "pairs.json")
    assert stream.stream_events(path) is not None
    assert_same(load(path), build.trace())


def test_absolute_clocks_are_exact_in_pieces_too(tmp_path):
    build = TraceBuilder()
    for _ in range(100):
        build.event(ph="X", cat="cpu_op", name="op", pid=1, tid=1, ts="@", dur=1, args={})
    text = build.text().decode()
    for k in range(100):
        text = text.replace('"@"', f"1695835542514261.{k:03d}", 1)
    path = tmp_path / "absolute.json"
    path.write_text(text)
    assert stream.stream_events(path) is not None
    assert load(path).start.tolist() == [1695835542514261000 + k for k in range(100)]


@pytest.mark.parametrize("damage", ["cut", "NaN", "UTF-8", "no list", "foreign"])
def test_anything_unusual_is_left_to_the_careful_reader(tmp_path, damage):
    text = text_of(TRACES[-1])
    path = tmp_path / "x.json"
    path.write_bytes(
        {
            "cut": text[:-5000],
            "NaN": text.replace(b'"bytes": 4', b'"bytes": NaN'),
            "UTF-8": text.replace(b"c10::BFloat16", b"c10\xff"),
            "no list": b" " * 9000 + text,
            "foreign": b'[{"ph": "X", "cat": "toplevel", "name": "x", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]',
        }[damage]
    )
    assert stream.stream_events(path) is None


def test_a_second_list_of_events_is_left_to_the_careful_reader(tmp_path):
    build = TraceBuilder()
    for at in range(200):
        build.op(f"op {at}", at, 0.5)
    listed = json.dumps(build.events)
    path = tmp_path / "twice.json"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": {listed}, "traceEvents": {listed}}}')
    trace = load(path)
    assert len(trace) == 400
    assert trace.repairs == ["the document names traceEvents 2 times; the events of all lists were read"]
