"""Times are exact: the nanosecond written in the file is the nanosecond in the column."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.trace.load import parse


def text_with(times: list[str], durations: list[str], *, quoted: bool = False) -> bytes:
    """A bare list of operators with times exactly as given, digit by digit."""
    mark = '"' if quoted else ""
    events = [
        f'{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, '
        f'"ts": {mark}{ts}{mark}, "dur": {mark}{dur}{mark}}}'
        for ts, dur in zip(times, durations, strict=True)
    ]
    return f"[{','.join(events)}]".encode()


def micro(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000:03d}"


# Relative clocks (torch 2.4 on), absolute clocks since 1970 (torch 2.2 and 2.3), and everything between.
nanoseconds = st.one_of(
    st.integers(0, 10**12),
    st.integers(5 * 10**18, 51 * 10**17),
    st.integers(1_500_000_000 * 10**9, 1_900_000_000 * 10**9),
)


@given(st.lists(st.tuples(nanoseconds, st.integers(0, 10**10)), min_size=1, max_size=8), st.booleans())
def test_decimal_microseconds_round_trip_to_the_nanosecond(spans, quoted):
    starts = [start for start, _ in spans]
    durations = [duration for _, duration in spans]
    trace = parse(text_with([micro(t) for t in starts], [micro(d) for d in durations], quoted=quoted))
    assert trace.start.tolist() == starts
    assert trace.duration.tolist() == durations


def test_absolute_decimal_times_survive_a_repair():
    whole = text_with(["1695835542514261.123", "1695835542514261.124"], ["0.001", "0.001"])
    trace = parse(whole[:-1])
    assert trace.repairs
    assert trace.start.tolist() == [1695835542514261123, 1695835542514261124]


EXACT = 1234567890123460001  # ns; a float64 of µs would say …460.0


@pytest.mark.parametrize(
    ("whole", "damaged"),
    [
        ('"args": {"x": 1}', '"args": {"x": NaN}'),
        ('"args": {"x": 1}', '"args": {"x": None}'),
        ('"args": {"x": 1}', '"args": {"x": 1,}'),
        ('"args": {"x": 1}', '"args": {"x": "a"b"}'),
        ('"args": {"x": 1}', '"args": {"x": "a\x01\\q"}'),
        ('"name": "op"', '"name": "op" '),
        ('"name": "op"', '"name": null'),
        ('"pid": 1', '"pid": 1.0'),
        ('"pid": 1', '"pid": [1, 0]'),
        ('"args": {"x": 1}}', '"args": {"x": 1}'),
        ('"ts": ', '"ts": +'),
    ],
    ids=["nan", "none", "comma", "quote", "control", "sound", "null", "pid", "list", "brace", "plus"],
)
@pytest.mark.parametrize("others", [0, 3, 80])
def test_what_is_mended_keeps_the_digits_of_its_time(whole, damaged, others):
    event = (
        '{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1234567890123460.001, "dur": 2.5, '
        '"args": {"x": 1}}'
    )
    beside = [event.replace("460.001", f"460.{at * 7 % 1000:03}") for at in range(1, others + 1)]
    trace = parse(f'{{"traceEvents": [{",".join([event.replace(whole, damaged), *beside])}]}}'.encode())
    assert sorted(trace.start.tolist()) == sorted([EXACT, *(EXACT - 1 + at * 7 % 1000 for at in range(1, others + 1))])


def test_a_time_of_another_type_takes_no_digits_from_the_ones_beside_it():
    row = '{{"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": {}, "dur": 1}}'
    trace = parse(f"[{row.format('1234567890123460.001')}, {row.format('{}')}]".encode())
    assert trace.start.tolist() == [EXACT]


def test_a_mended_half_of_a_pair_fits_the_sound_one():
    head = '"cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": '
    pair = f'{{"ph": "B", {head}1234567890123460.001, "args": {{"x": NaN}}}}, {{"ph": "E", {head}1234567890123462.501}}'
    sound = ", ".join(f'{{"ph": "X", {head}{1234567890123500 + at}, "dur": 1}}' for at in range(100))
    for text in (f"[{pair}]", f"[{pair}, {sound}]", f"[{sound}, {pair}]"):
        trace = parse(text.encode())
        place = trace.start.tolist().index(EXACT)
        assert trace.duration[place] == 2500


def test_whole_microseconds_of_older_torch():
    trace = parse(text_with(["1695835542514261"], ["104"]))
    assert trace.start.tolist() == [1695835542514261000]
    assert trace.duration.tolist() == [104_000]
    assert not trace.in_nanoseconds


def test_nanoseconds_written_as_microseconds_are_read_and_named():
    trace = parse(text_with(["1695835542514261123", "1695835542514262000"], ["500", "20"]))
    assert trace.start.tolist()[0] == pytest.approx(1695835542514261123, abs=256)
    assert trace.duration.tolist() == [500, 20]
    assert trace.odd["nanoseconds as microseconds"] == 2
    assert trace.in_nanoseconds
    assert any("nanoseconds" in repair for repair in trace.repairs)


def test_rows_without_time_are_left_out_and_counted():
    build = TraceBuilder()
    build.op("aten::mm", 0, 1)
    build.event(ph="X", cat="cpu_op", name="no time", pid=1, tid=1, dur=1)
    build.event(ph="X", cat="cpu_op", name="no duration", pid=1, tid=1, ts=2_000_000.0)
    build.event(ph="X", cat="cpu_op", name="backwards", pid=1, tid=1, ts=2_000_000.0, dur=-5)
    build.event(ph="X", cat="cpu_op", name="forever", pid=1, tid=1, ts=2_000_000.0, dur=1e17)
    trace = build.trace()
    assert sorted(trace.names) == ["aten::mm", "backwards", "no duration"]
    assert trace.odd == {
        "without time": 1,
        "without duration": 1,
        "negative duration": 1,
        "duration beyond reason": 1,
    }


def test_begin_and_end_become_one_row():
    build = TraceBuilder()
    common = {"cat": "cpu_op", "pid": 1, "tid": 1}
    build.event(ph="B", name="outer", ts=10.0, **common)
    build.event(ph="B", name="inner", ts=12.0, **common)
    build.event(ph="E", ts=15.5, **common)
    build.event(ph="E", ts=20.0, **common)
    build.event(ph="E", ts=21.0, **common)
    trace = build.trace()
    spans = {trace.name(r): (int(trace.start[r]), int(trace.duration[r])) for r in range(len(trace))}
    assert spans == {"outer": (10_000, 10_000), "inner": (12_000, 3_500)}
    assert trace.odd == {"begin or end without partner": 1}


def test_event_numbers_are_positions_in_the_file():
    build = TraceBuilder()
    build.flow("ac2g", 1, True, 0)
    position = build.op("aten::mm", 0, 1)
    trace = build.trace()
    assert trace.event.tolist() == [position] == [1]
    assert trace.total_events == 2
    assert json.loads(build.text())["traceEvents"][position]["name"] == "aten::mm"
