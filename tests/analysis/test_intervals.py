"""Interval arithmetic against a brute-force count of single nanoseconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace import load
from foretrace.analysis.intervals import clip, covered_between, gaps, union_intervals, union_ns

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.json.gz"))

interval = st.tuples(st.integers(-60, 60), st.integers(-5, 40)).map(lambda p: (p[0], p[0] + p[1]))
intervals = st.lists(interval, max_size=14)
window = st.tuples(st.integers(-70, 70), st.integers(-70, 70))


def arrays(pairs):
    table = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    return table[:, 0], table[:, 1]


def nanoseconds(pairs):
    """The set of single nanoseconds that the intervals cover."""
    return {t for start, end in pairs for t in range(start, end)}


def sweep(start, end):
    """Length of the union by a plain loop over sorted intervals."""
    total, reach = 0, None
    for s, e in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if e <= s:
            continue
        if reach is None or s > reach:
            total, reach = total + e - s, e
        elif e > reach:
            total, reach = total + e - reach, e
    return total


@given(intervals)
def test_union_counts_every_nanosecond_once(pairs):
    assert union_ns(*arrays(pairs)) == len(nanoseconds(pairs))


@given(intervals)
def test_union_pieces_are_sorted_apart_and_cover_the_same_time(pairs):
    starts, ends = union_intervals(*arrays(pairs))
    assert (starts < ends).all()
    assert (ends[:-1] < starts[1:]).all()
    assert nanoseconds(zip(starts.tolist(), ends.tolist(), strict=True)) == nanoseconds(pairs)


@given(intervals, window)
def test_clip_keeps_what_lies_inside(pairs, bounds):
    low, high = bounds
    start, end = clip(*arrays(pairs), low, high)
    inside = {t for t in nanoseconds(pairs) if low <= t < high}
    assert nanoseconds(zip(start.tolist(), end.tolist(), strict=True)) == inside


@given(intervals, window)
def test_gaps_are_the_rest_of_the_window(pairs, bounds):
    low, high = bounds
    start, end = gaps(*arrays(pairs), low, high)
    assert nanoseconds(zip(start.tolist(), end.tolist(), strict=True)) == set(range(low, high)) - nanoseconds(pairs)


@given(intervals, st.lists(window, max_size=6))
def test_coverage_of_many_windows_at_once(pairs, windows):
    low, high = arrays(windows)
    expected = [len({t for t in nanoseconds(pairs) if a <= t < b}) for a, b in windows]
    assert covered_between(*arrays(pairs), low, high).tolist() == expected


NOW = 1_700_000_000_000_000_000


@given(st.lists(st.tuples(st.integers(NOW, NOW + 1000), st.integers(0, 99))))
def test_absolute_clocks_stay_exact(pairs):
    start, duration = arrays(pairs)
    assert union_ns(start, start + duration) == sweep(start, start + duration)


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_busy_time_of_real_traces_is_the_union_over_streams(path):
    trace = load(path)
    rows = trace.gpu_rows
    assert len(rows)
    start, end = trace.start[rows], trace.end[rows]
    assert union_ns(start, end) == sweep(start, end) <= int(trace.duration[rows].sum())


def test_two_streams_at_once_are_busy_once():
    start, end = arrays([(0, 10), (5, 15), (15, 20), (30, 31)])
    assert union_ns(start, end) == 21
    starts, ends = union_intervals(start, end)
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 20), (30, 31)]
