"""Damaged variants of one real trace: each loads with a named repair, or is refused in one sentence."""

from __future__ import annotations

import gzip
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.errors import TraceReadError
from foretrace.trace import repair
from foretrace.trace.load import parse

TRACE = Path(__file__).parents[1] / "data" / "traces" / "mlp_eager.json.gz"
SAMPLES = Path(__file__).parents[2] / "src" / "foretrace" / "cli" / "samples"
RAW = gzip.decompress(TRACE.read_bytes())
WHOLE = json.loads(RAW)
EVENTS = len(WHOLE["traceEvents"])
LIST = json.dumps(WHOLE["traceEvents"]).encode()
COMPACT = json.dumps(WHOLE).encode()


def swap(old: bytes, new: bytes, count: int = 1) -> bytes:
    assert old in RAW
    return RAW.replace(old, new, count)


def resub(pattern: bytes, new: bytes, count: int = 0) -> bytes:
    assert re.search(pattern, RAW)
    return re.sub(pattern, new, RAW, count=count)


def whole_events(text: bytes) -> int:
    """How many entries of the list lie wholly before the end of ``text``."""
    decoder = json.JSONDecoder()
    body = text.decode()
    at = body.index("[", body.find("traceEvents") + 1) + 1
    count = 0
    while True:
        at += len(body[at:]) - len(body[at:].lstrip(" \t\r\n,"))
        try:
            _, at = decoder.raw_decode(body, at)
        except json.JSONDecodeError:
            return count
        count += 1


# name, text, events that must be there, a word of the repair that must be named
READABLE = [
    ("cut in the middle", RAW[: len(RAW) // 2], whole_events(RAW[: len(RAW) // 2]), "cut off"),
    ("cut in a compact file", COMPACT[:20_000], whole_events(COMPACT[:20_000]), "cut off"),
    ("cut in a bare list", LIST[:30_000], whole_events(LIST[:30_000]), "cut off"),
    ("bare list without its bracket", LIST[:-1], EVENTS, "cut off"),
    ("cut in the closing metadata", RAW[:-30], EVENTS, "cut off in the metadata"),
    ("last brace missing", RAW.rstrip()[:-1], EVENTS, "metadata"),
    ("NaN", swap(b'"bytes": 4', b'"bytes": NaN', 3), EVENTS, "NaN"),
    ("-Infinity", swap(b'"bytes": 4', b'"bytes": -Infinity'), EVENTS, "Infinity"),
    ("nan from C++", swap(b'"bytes": 4', b'"bytes": -nan'), EVENTS, "NaN"),
    ("control character in a name", swap(b"nvjet", b"nv\x01jet", 2), EVENTS, "control characters"),
    ("newline in a name", swap(b"aten::linear", b"aten\n::linear"), EVENTS, "control characters"),
    ("control character in args", swap(b"c10::BFloat16", b"c10\x02"), EVENTS, "control characters"),
    ("Windows path", swap(b"aten::linear", b"C:\\path\\x.py(3): f"), EVENTS, "backslashes"),
    ("Windows path with \\u", swap(b"aten::linear", b"C:\\users\\x"), EVENTS, "backslashes"),
    ("backslash before the quote", swap(b'"aten::linear"', b'"C:\\dir\\"'), EVENTS, "backslashes"),
    ("half a surrogate pair", swap(b"aten::linear", b"a\\ud800"), EVENTS, "surrogate"),
    ("bad UTF-8 in a name", swap(b"aten::linear", b"aten\xff\xfe"), EVENTS, "UTF-8"),
    ("bad UTF-8 in args", swap(b"c10::BFloat16", b"c10\xff"), EVENTS, "UTF-8"),
    ("UTF-8 byte order mark", b"\xef\xbb\xbf" + RAW, EVENTS, "byte order mark"),
    ("UTF-16", RAW.decode().encode("utf-16"), EVENTS, "UTF-16"),
    ("UTF-16 without mark", RAW.decode().encode("utf-16-le"), EVENTS, "UTF-16"),
    ("UTF-16 big endian", RAW.decode().encode("utf-16-be"), EVENTS, "UTF-16"),
    ("times as strings", resub(rb'"ts": ([\d.]+)', rb'"ts": "\1"'), EVENTS, "unexpected type"),
    ("fractional process id", swap(b'"pid": 425', b'"pid": 425.5', 5), EVENTS, "unexpected type"),
    ("list as process id", swap(b'"pid": 425', b'"pid": [1]', 5), EVENTS, "unexpected type"),
    ("number as name", swap(b'"name": "aten::linear"', b'"name": 12'), EVENTS, "unexpected type"),
    ("list as category", swap(b'"cat": "cpu_op"', b'"cat": ["cpu_op"]', 3), EVENTS, "unexpected type"),
    ("fractional flow id", resub(rb'"id": (\d+)(?=,\s*"pid")', rb'"id": \1.5'), EVENTS, "unexpected type"),
    ("time out of range", resub(rb'"ts": [\d.]+', b'"ts": 1e999', 1), EVENTS, "unexpected type"),
    ("number with leading zeros", swap(b'"Ev Idx": 0', b'"Ev Idx": 007'), EVENTS, "notation"),
    ("number without leading digit", swap(b'"Ev Idx": 0', b'"Ev Idx": .5'), EVENTS, "notation"),
    ("Python literal", swap(b'"Ev Idx": 0', b'"Ev Idx": None'), EVENTS, "notation"),
    ("comma before the bracket", resub(rb'\}\s*\],\s*"traceName"', b'},],"traceName"'), EVENTS, "commas"),
    ("comma at the end of args", swap(b'"Ev Idx": 0\n', b'"Ev Idx": 0,\n'), EVENTS, "commas"),
    ("commas between events missing", resub(rb"\},\n  \{", b"}\n  {", 5), EVENTS, "commas"),
    ("commas doubled", resub(rb"\},\n  \{", b"},,\n  {", 5), EVENTS, "commas"),
    ("comma after a string missing", swap(b'"cpu_op", "name"', b'"cpu_op" "name"', 2), EVENTS, "commas"),
    ("comma after a number missing", resub(rb'("ts": [\d.]+), "dur"', rb'\1 "dur"', 3), EVENTS, "commas"),
    ("quotes in a name", swap(b"aten::linear", b'a "quoted" name'), EVENTS, "quotes"),
    ("quotes and commas in a name", swap(b"aten::linear", b'f("a", "b")'), EVENTS, "quotes"),
    ("quote and newline in a name", swap(b"aten::linear", b'f("a\n", 3)'), EVENTS, "quotes"),
    ("quote in the metadata", swap(b'"NVIDIA H200"', b'"NVIDIA "H200"'), EVENTS, "quotes"),
    ("brace of an event missing", resub(rb"\}\n  \},\n", b"}\n  ,\n", 2), EVENTS, "brace"),
    ("brace too many", resub(rb"\}\n  \},\n", b"}\n  }},\n", 2), EVENTS, "brackets"),
    ("bracket too many", resub(rb"\}\n  \},\n", b"}\n  }],\n", 2), EVENTS, "brackets"),
    ("null among the events", resub(rb"\},\n  \{", b"},\n null,\n  {", 2), EVENTS, "no events"),
    ("junk over one event", RAW[:9000] + b"@" * 200 + RAW[9200:], EVENTS - 1, "broken event skipped"),
    ("opening bracket missing", swap(b'"traceEvents": [', b'"traceEvents": '), EVENTS, "bracket"),
    ("garbage after the end", RAW + b"garbage", EVENTS, "after the end"),
    ("zero bytes after the end", RAW + b"\0" * 100, EVENTS, "zero bytes"),
    ("two documents", RAW + b"\n" + RAW, 2 * EVENTS, "2 documents"),
    ("beginning missing", RAW[RAW.index(b'"traceEvents"') + 40 :], EVENTS - 1, "beginning"),
    (
        "one event a line",
        b"\n".join(json.dumps(e).encode() for e in WHOLE["traceEvents"]),
        EVENTS,
        "without a list",
    ),
]  # fmt: skip

REFUSED = [
    ("cut before the first event", RAW[:900], "cut off before its first whole event"),
    ("cut in the metadata", RAW[:300], "cut off before its first whole event"),
    ("only an opening", b'{"traceEvents": [', "cut off before its first whole event"),
    ("one brace", b"{", "broken JSON"),
    ("brackets without end", b"[" * 100_000, "broken JSON"),
    ("object instead of the list", b'{"traceEvents": {}}', "no list of events"),
    ("null instead of the list", b'{"traceEvents": null}', "no list of events"),
    ("empty list", b'{"traceEvents": []}', "no events"),
    ("empty bare list", b"[]", "no events"),
    ("configuration", b'{"lr": 0.1}', "no traceEvents list"),
    ("empty object", b"{}", "no traceEvents list"),
    ("numbers", b"[1, 2, 3]", "a list without trace events"),
    ("one string", b'"trace"', "a single value"),
    ("prose", b"hello world", "not JSON"),
    ("web page", b"<!DOCTYPE html><html></html>", "a web page"),
    ("LFS pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "Git LFS"),
    ("folded stacks", b"main;train;aten::mm 120\nmain;eval 3\n", "folded stacks"),
    ("execution trace", b'{"schema": "1.1.1-chakra.0.0.4", "nodes": [{"id": 1, "name": "x"}]}', "Chakra"),
    (
        "memory snapshot",
        b'{"segments": [], "device_traces": []}',
        "a memory snapshot of the CUDA caching allocator, not a timeline; this command reads profiler traces; read it "
        "with `foretrace memory FILE`",
    ),
    ("snapshot as text", pickle.dumps({"segments": []}, 0), "read it with `foretrace memory FILE`"),
    ("another pickle as text", pickle.dumps({"a": 1}, 0), "a Python pickle; name a profiler trace"),
    (
        "out-of-memory log",
        b"step 3\nTraceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate",
        "a text with an out-of-memory message, not a timeline; read it with `foretrace oom FILE`",
    ),
    ("out-of-memory log of HIP", b"RuntimeError: HIP out of memory. Tried to allocate 2 GiB", "`foretrace oom FILE`"),
    ("out of memory in CUDA itself", b"RuntimeError: CUDA error: out of memory", "`foretrace oom FILE`"),
    ("words about memory", b"we never run out of memory here", "is not JSON"),
    (
        "memory summary",
        (SAMPLES / "h200_fragmented.memory_summary.txt").read_bytes(),
        "the printed table of torch.cuda.memory_summary(), not a timeline; read it with `foretrace memory FILE`",
    ),
    ("memory counters", b'{"allocated_bytes.all.current": 512}', "read it with `foretrace memory FILE`"),
    ("nested counters", b'{"allocated_bytes": {}, "reserved_bytes": {}}', "read it with `foretrace memory FILE`"),
    (
        "page of a snapshot",
        b"<!DOCTYPE html><script>import {add_local_files} from 'MemoryViz.js'</script>",
        "a page of memory_viz with a snapshot inside",
    ),
    ("Proton", b'[{"frame": {"name": "ROOT"}, "metrics": {}, "children": []}]', "Hatchet"),
    (
        "Chrome's own trace",
        b'{"traceEvents": [{"ph": "X", "cat": "toplevel", "name": "t", "ts": 1, "dur": 1, "pid": 1, "tid": 1}]}',
        "Chrome trace",
    ),
]  # fmt: skip


def test_there_are_enough_variants():
    assert len(READABLE) + len(REFUSED) >= 40


@pytest.mark.parametrize(("text", "events", "word"), [v[1:] for v in READABLE], ids=[v[0] for v in READABLE])
def test_readable_damage_is_read_and_named(text, events, word):
    trace = parse(text)
    assert trace.total_events == events
    assert any(word in repair for repair in trace.repairs), trace.repairs
    assert len(trace.links.launch) == len(trace.forest.parent) == len(trace)


@pytest.mark.parametrize(("text", "word"), [v[1:] for v in REFUSED], ids=[v[0] for v in REFUSED])
def test_what_is_no_trace_is_refused_in_one_sentence(text, word):
    with pytest.raises(TraceReadError) as caught:
        parse(text, path="x.json")
    message = str(caught.value)
    assert message.startswith("x.json")
    assert word in message
    assert "\n" not in message
    assert caught.value.exit_code == 2


def test_a_healthy_file_names_no_repair():
    trace = parse(RAW)
    assert trace.repairs == []
    assert trace.total_events == EVENTS


def test_repairs_keep_the_metadata():
    trace = parse(swap(b"aten::linear", b"aten\x01"))
    assert trace.meta["deviceProperties"][0]["name"] == "NVIDIA H200"
    assert trace.meta["traceName"] == WHOLE["traceName"]


def test_mended_names_read_as_they_were_meant():
    assert 'f("a", "b")' in parse(swap(b"aten::linear", b'f("a", "b")')).names
    assert "C:\\users\\x" in parse(swap(b"aten::linear", b"C:\\users\\x")).names
    assert "C:\\dir\\" in parse(swap(b"aten::linear", b"C:\\dir\\")).names
    assert "aten\n::linear" in parse(swap(b"aten::linear", b"aten\n::linear")).names


def test_a_mended_event_keeps_its_args():
    trace = parse(swap(b'"bytes": 4', b'"bytes": NaN'))
    row = next(r for r in range(len(trace)) if trace.args(r).get("bytes", 0) is None)
    assert trace.args(row)["stream"] == 7


def test_every_cut_keeps_every_whole_event():
    begin = RAW.index(b"[", RAW.index(b"traceEvents"))
    for cut in range(begin + 3000, len(RAW), 4111):
        assert parse(RAW[:cut]).total_events == whole_events(RAW[:cut])


SMALL = gzip.decompress((TRACE.parent / "linear_eager.json.gz").read_bytes())
damage = st.tuples(
    st.sampled_from(["replace", "delete", "insert", "cut"]),
    st.integers(0, len(SMALL) - 1),
    st.binary(min_size=1, max_size=6),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(damage, min_size=1, max_size=6))
def test_random_damage_never_raises_anything_else(changes):
    text = bytearray(SMALL)
    for how, at, data in changes:
        if how == "replace":
            text[at : at + len(data)] = data
        elif how == "delete":
            del text[at : at + 4 * len(data)]
        elif how == "insert":
            text[at:at] = data
        elif at > len(SMALL) // 4:
            del text[at:]
    try:
        trace = parse(bytes(text))
    except TraceReadError:
        return  # refused is fine; any other exception fails the test
    for row in range(len(trace)):
        trace.args(row)
    assert len(trace.links.launch) == len(trace)
    assert trace.steps


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=300))
def test_random_bytes_are_refused_or_read(data):
    with pytest.raises(TraceReadError):
        parse(data)


def several_lists(*names: str) -> bytes:
    lists = []
    for name in names:
        build = TraceBuilder()
        build.op(name, 0, 1, args={"traceEvents": [1]})
        lists.append('"traceEvents": ' + json.dumps(build.events).replace("\\\\", "\\"))
    return ('{"schemaVersion": 1, ' + ', "other": 2, '.join(lists) + ', "last": 3}').encode()


@pytest.mark.parametrize("names", [("a", "b"), ("a", "b", "c"), ("a\\q", "b", "c"), ("a", "b\\q", "c\\q")])
def test_all_of_several_event_lists_count(names):
    trace = parse(several_lists(*names))
    assert trace.names == list(names)
    assert trace.meta == {"schemaVersion": 1, "other": 2, "last": 3}
    assert f"the document names traceEvents {len(names)} times; the events of all lists were read" in trace.repairs


def test_the_key_inside_a_value_is_no_second_list():
    trace = parse(several_lists("a"))
    assert trace.repairs == []
    assert trace.args(0)["traceEvents"] == [1]


def deep(inside: str) -> str:
    return '{"ph": "X", "cat": "cpu_op", "name": "deep", "pid": 1, "tid": 1, "ts": 1, "dur": 1, "args": ' + inside + "}"


@pytest.mark.parametrize(
    "inside", ['{"x": ' + "[" * 100_000 + "]" * 100_000 + "}", '{"args": ' * 50_000 + "1" + "}" * 50_000]
)
def test_an_event_that_nests_beyond_reason_is_given_up_at_once(monkeypatch, inside):
    tried = []
    monkeypatch.setattr(repair, "mend", lambda *_, **__: tried.append(1))
    with pytest.raises(TraceReadError, match="nests too deeply"):
        parse(b'{"schemaVersion": 1, "traceEvents": [' + deep(inside).encode() + b"]}")
    assert len(tried) <= 2  # the keys around the list


def test_only_the_event_that_nests_beyond_reason_is_lost():
    build = TraceBuilder()
    build.op("before", 0, 1)
    build.op("after", 5, 1)
    before, after = map(json.dumps, build.events)
    inside = '{"x": ' + "[" * 5000 + "]" * 5000 + "}"
    trace = parse(f'{{"schemaVersion": 1, "traceEvents": [{before}, {deep(inside)}, {after}]}}'.encode())
    assert trace.names == ["before", "after"]
    assert trace.repairs == ["1 broken event skipped"]


def test_pieces_without_end_are_not_mended_one_by_one(monkeypatch):
    tried = []
    real = repair.mend
    monkeypatch.setattr(repair, "mend", lambda *a, **k: (tried.append(1), real(*a, **k))[1])
    inside = '{"name": [' * 20_000 + "]}" * 20_000
    parse(b'{"schemaVersion": 1, "traceEvents": [' + deep(inside).encode() + b"]}")
    assert len(tried) < 3 * repair._HOPELESS


def test_booleans_are_no_times_and_no_ids():
    build = TraceBuilder()
    build.op("timeless", 0, 1, ts=True)
    build.op("endless", 0, 1, dur=True)
    build.launch(5, correlation=1)
    build.kernel("k", 20, 5, args={"correlation": True, "device": False, "stream": True})
    build.op("named", 30, 1, args={"External id": True, "Sequence number": False})
    trace = build.trace()
    rows = {trace.name(row): row for row in range(len(trace))}
    assert "timeless" not in rows
    assert trace.duration[rows["endless"]] == 0
    assert trace.odd["without time"] == trace.odd["without duration"] == 1
    assert trace.links.launch[rows["k"]] == -1
    assert (trace.device[rows["k"]], trace.stream[rows["k"]]) == (-1, -1)
    assert (trace.external[rows["named"]], trace.sequence[rows["named"]]) == (0, -1)
