"""The compared step as something to draw, and the events by which its rows are found there."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from comparison.comparing import COMPILED, EAGER, mm, program
from foretrace import compare, explain
from foretrace.comparison.compare import read_with_trace
from foretrace.comparison.drawn import timeline_of_step
from foretrace.trace.table import Trace

TRACES = Path(__file__).parents[1] / "data" / "traces"


def drawn(trace: Trace):
    subject, same = read_with_trace(trace)
    assert same is trace
    return subject, timeline_of_step(subject, trace)


def test_it_starts_at_zero_and_holds_only_its_step():
    trace = program(EAGER, steps=3, wander=2.0).trace()
    subject, timeline = drawn(trace)
    step = subject.steps[subject.typical]
    assert [(band.label, band.start_ns) for band in timeline.bands] == [(step.label, 0)]
    assert timeline.bands[0].end_ns == pytest.approx(step.wall_us * 1000, abs=1)
    gpu = [lane.side == "gpu" for lane in timeline.lanes]
    events = [int(event) for event, lane in zip(timeline.event, timeline.lane, strict=True) if gpu[lane]]
    assert events == [item.event for item in subject.items]
    assert timeline.start.min() == 0
    started = {k.event: k.start_us - step.start_us for k in explain(trace).kernels}
    at = {int(event): start / 1000 for event, start in zip(timeline.event, timeline.start, strict=True)}
    assert {event: at[event] for event in events} == pytest.approx({event: started[event] for event in events})


def test_without_steps_the_whole_trace_starts_at_zero():
    _, timeline = drawn(program(EAGER, annotated=False).trace())
    assert timeline.bands == []
    assert timeline.start.min() == 0
    assert len(timeline) > 0


def test_an_empty_trace_has_nothing_to_draw():
    _, timeline = drawn(TraceBuilder().trace())
    assert timeline is None


def test_a_report_has_no_trace():
    subject, trace = read_with_trace(explain(TRACES / "mlp_eager.json.gz"))
    assert trace is None
    assert subject.items


def test_a_place_names_the_events_of_all_its_rows_in_the_order_of_its_spots():
    calls = [mm(), *EAGER, *EAGER]
    a, b = program(calls).trace(), program([mm(), *COMPILED, *COMPILED]).trace()
    (pair,) = compare([a, b]).pairs
    for place in pair.places:
        assert len(place.a_events) == place.count * len(place.a)
        assert len(place.b_events) == place.count * len(place.b)
        assert place.a_events[: len(place.a)] == [row.event for row in place.a]
        assert place.b_events[: len(place.b)] == [row.event for row in place.b]
    (fused,) = [place for place in pair.places if place.category == "fused"]
    assert fused.count == 2
    names = {kernel.event: kernel.name for kernel in explain(a).kernels}
    assert [names[event] for event in fused.a_events] == 2 * [row.name for row in fused.a]
    every = [event for place in pair.places for event in place.a_events]
    assert len(every) == len(set(every)) == len(calls)
