"""A step, a finding, an event and a stretch of time as windows, in a recording of an H200."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretrace
from foretrace.analysis import explain
from foretrace.errors import InputError
from foretrace.model.report import Report
from foretrace.trace import load
from foretrace.trace.table import Trace
from foretrace.view import places

SAMPLE = Path(foretrace.__file__).parent / "cli" / "samples" / "h200_mlp_eager.trace.json.gz"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load(SAMPLE)


@pytest.fixture(scope="module")
def report(trace: Trace) -> Report:
    return explain(trace)


def test_a_step_is_shown_with_the_kernels_it_launched(trace: Trace, report: Report) -> None:
    window = places.step_window(trace, [1])
    assert window is not None
    assert window.event is not None
    span = trace.steps[1]
    kernels = [k for k in report.kernels if k.step == 1]
    last = max(round((k.start_us + k.duration_us) * 1000) for k in kernels) + trace.origin
    assert kernels
    assert window.start_ns < span.start
    assert window.end_ns > max(span.end, last)
    assert window.event[:2] == (span.start, span.end - span.start)
    # Nor much more than that.
    assert window.end_ns - window.start_ns < 1.2 * (max(span.end, last) - span.start)


def test_several_steps_are_one_window(trace: Trace) -> None:
    both, first, last = (places.step_window(trace, steps) for steps in ([0, 2], [0], [2]))
    assert both is not None
    assert first is not None
    assert last is not None
    assert both.start_ns <= first.start_ns
    assert both.end_ns >= last.end_ns - 0.05 * (last.end_ns - last.start_ns)
    assert both.event == first.event


def test_a_finding_is_shown_with_all_its_events(trace: Trace, report: Report) -> None:
    finding = report.findings[0]
    window = places.finding_window(trace, report, 1)
    assert window is not None
    assert window.event is not None
    starts = [round(evidence.start_us * 1000) + trace.origin for evidence in finding.evidence]
    assert window.start_ns < min(starts)
    assert window.end_ns > max(starts)
    assert window.event[0] == min(starts)


@pytest.mark.parametrize("number", [0, 99])
def test_a_finding_that_is_not_there(trace: Trace, report: Report, number: int) -> None:
    with pytest.raises(InputError, match=f"has no finding {number}: it has {len(report.findings)} findings"):
        places.finding_window(trace, report, number)


def test_a_finding_about_no_event_says_what_else_to_ask(trace: Trace, report: Report) -> None:
    bare = explain(trace)
    bare.findings[0].evidence = []
    with pytest.raises(InputError, match=r"about no event in particular.*--step"):
        places.finding_window(trace, bare, 1)


def test_an_event_is_the_row_that_reports_name(trace: Trace, report: Report) -> None:
    kernel = report.kernels[3]
    window = places.event_window(trace, kernel.event)
    assert window is not None
    assert window.event is not None
    start, duration, pid, tid = window.event
    assert (start - trace.origin, duration) == (round(kernel.start_us * 1000), round(kernel.duration_us * 1000))
    assert (pid, tid) == (kernel.device, kernel.stream)
    assert window.start_ns < start
    assert start + duration < window.end_ns


def test_an_event_without_a_row(trace: Trace) -> None:
    (arrow,) = np.setdiff1d(np.arange(trace.total_events), trace.event)[:1]
    with pytest.raises(InputError, match="has no duration of its own; events are positions"):
        places.event_window(trace, int(arrow))
    with pytest.raises(InputError, match="does not exist"):
        places.event_window(trace, trace.total_events)


def test_a_stretch_counts_from_the_origin_as_reports_do(trace: Trace) -> None:
    window = places.range_window(trace, 1_000_000, 1_100_000)
    assert window is not None
    assert (window.start_ns - trace.origin, window.end_ns - trace.origin) == (995_000, 1_105_000)
    assert window.event is None


def test_a_stretch_behind_the_trace(trace: Trace) -> None:
    with pytest.raises(InputError, match=r"begins at 1.00 s, after .* ends"):
        places.range_window(trace, 10**9, 2 * 10**9)


def test_an_end_of_a_range_may_be_open(trace: Trace) -> None:
    last = int(trace.end.max()) - trace.origin
    assert places.range_window(trace, None, 2000) == places.range_window(trace, 0, 2000)
    assert places.range_window(trace, 1000, None) == places.range_window(trace, 1000, last)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("1.5ms:3ms", (1_500_000, 3_000_000)),
        ("20:", (20_000, None)),
        (":0.001s", (None, 1_000_000)),
        ("1:2us", (1_000, 2_000)),
        ("1µs : 2μs", (1_000, 2_000)),
        ("5ns:.5us", (5, 500)),
        ("1.:2", (1_000, 2_000)),
        (".5s:1s", (500_000_000, 1_000_000_000)),
        ("0:10", (0, 10_000)),
    ],
)
def test_ranges_are_read(text: str, span: tuple[int | None, int | None]):
    assert places.parse_range(text) == span


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("5", "no range"),
        (":", "no range"),
        ("a:b", "no time"),
        ("3:2", "empty"),
        ("-1:2", "no time"),
        ("1:2:3", "no range"),
        ("1:99999999999s", "no time"),
        ("nan:inf", "no time"),
    ],
)
def test_what_is_no_range_is_said(text: str, word: str):
    with pytest.raises(InputError, match=word):
        places.parse_range(text)
