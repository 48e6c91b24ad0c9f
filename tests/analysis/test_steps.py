"""The numbers of each step, by the definitions of docs/concepts: wall, period, busy, idle, counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace import load
from foretrace.analysis.context import Context
from foretrace.analysis.steps import gaps_within, step_reports

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.json.gz"))


def reports(build: TraceBuilder, **options):
    return step_reports(Context(trace=build.trace(), **options))


def two_steps() -> TraceBuilder:
    """Step 1 from 0 to 90, step 2 from 100 to 190; the first one's kernel runs into the second."""
    build = TraceBuilder()
    build.step(1, 0, 90)
    one = build.launch(10)
    build.kernel("one", 20, 100, launch=one)  # 20 to 120
    build.step(2, 100, 90)
    build.op("aten::mm", 110, 60)
    build.call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", 112, 2)
    memset = build.call("cudaMemsetAsync", 115, 3)
    build.memset(130, 5, launch=memset)
    two = build.launch(140)
    build.kernel("two", 150, 20, launch=two)
    build.kernel("side", 160, 25, launch=build.launch(146), stream=9)
    copy = build.call("cudaMemcpyAsync", 152, 3)
    build.memcpy(190, 40, launch=copy)
    build.call("cudaStreamSynchronize", 160, 5)
    build.call("cudaDeviceSynchronize", 200, 40)  # the profiler's
    return build


def test_wall_is_the_annotation_and_period_reaches_to_the_next_step():
    (first, second), _ = reports(two_steps())
    assert (first.wall_us, first.period_us) == (90, 100)
    assert (second.wall_us, second.period_us) == (90, 130)  # the last: until its last row ends at 230
    assert (first.label, second.label) == ("ProfilerStep#1", "ProfilerStep#2")


def test_busy_is_the_union_of_what_the_step_launched_not_clipped():
    (first, second), _ = reports(two_steps())
    assert first.gpu_busy_us == 100
    assert second.gpu_busy_us == 5 + 35 + 40  # two and side overlap by 10


def test_idle_is_the_period_less_all_gpu_rows_clipped_to_it():
    (first, second), _ = reports(two_steps())
    assert first.gpu_idle_us == 20  # before `one`
    assert second.gpu_idle_us == 130 - (20 + 5 + 35 + 40)  # `one` still runs for 20
    assert sum(cause.us for cause in second.idle) == pytest.approx(second.gpu_idle_us)


def test_counts():
    (first, second), _ = reports(two_steps())
    assert (first.kernels, first.launches, first.kernel_launches) == (1, 1, 1)
    assert (second.kernels, second.memsets, second.memcpys) == (2, 1, 1)
    assert (second.launches, second.kernel_launches, second.occupancy_queries) == (4, 2, 1)
    assert second.synchronizations == 1


def test_a_graph_launch_is_one_launch_of_many_kernels():
    build = TraceBuilder()
    build.step(1, 0, 100)
    graph = build.call("cudaGraphLaunch", 10)
    for i in range(4):
        build.kernel("node", 20 + 10 * i, 8, launch=graph)
    ((step,), _) = reports(build)
    assert (step.kernels, step.launches, step.kernel_launches) == (4, 1, 1)


def test_phases_are_given_apart():
    build = TraceBuilder()
    build.step(1, 0, 300)
    for name, at in (("aten::mm", 10), ("autograd::engine::evaluate_function: MmBackward0", 100)):
        build.op(name, at, 30)
        build.kernel("k", at + 20, 40, launch=build.launch(at + 5))
    build.annotation("Optimizer.step#AdamW.step", 200, 50)
    build.kernel("k", 230, 40, launch=build.launch(205))
    ((step,), _) = reports(build)
    assert [(p.phase, p.gpu_us, p.kernels) for p in step.phases] == [
        ("forward", 40, 1),
        ("backward", 40, 1),
        ("optimizer", 40, 1),
    ]


def test_without_gpu_rows_gpu_numbers_are_unknown_not_zero():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 50)
    ((step,), gaps) = reports(build)
    assert step.wall_us == 100
    assert step.gpu_busy_us is step.gpu_idle_us is step.kernels is step.launches is None
    assert gaps == []


def test_a_step_that_launched_nothing_was_busy_for_no_time():
    build = two_steps()
    build.step(3, 300, 50)
    (*_, third), _ = reports(build)
    assert (third.gpu_busy_us, third.kernels, third.gpu_idle_us) == (0, 0, 50)


def test_without_steps_the_whole_trace_is_one():
    build = TraceBuilder()
    build.kernel("one", 20, 30, launch=build.launch(10))
    build.kernel("unlinked", 80, 20)
    ((step,), _) = reports(build)
    assert (step.label, step.kernels, step.gpu_busy_us, step.period_us) == ("whole trace", 2, 50, 90)


def test_selected_steps_only():
    (only,), gaps = reports(two_steps(), selected=[1])
    assert only.index == 1
    assert {gap.step for gap in gaps} == {1}


def test_the_longest_gaps_come_first():
    _, gaps = reports(two_steps())
    lengths = [gap.duration_us for gap in gaps]
    assert lengths == sorted(lengths, reverse=True)
    assert max(lengths) == 20


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_real_traces_agree_with_a_count_of_single_intervals(path):
    context = Context(trace=load(path))
    trace = context.trace
    steps, _ = step_reports(context)
    assert sum(s.kernels for s in steps) <= int((trace.is_gpu_work).sum())
    for span, step in zip(context.steps, steps, strict=True):
        rows = context.attribution.rows_of(trace, span.index)
        assert round(step.gpu_busy_us * 1000) == swept(trace.start[rows], trace.end[rows])
        low, high = span.start, span.start + round(step.period_us * 1000)
        everything = trace.gpu_rows
        inside = swept(np.maximum(trace.start[everything], low), np.minimum(trace.end[everything], high))
        assert round(step.gpu_idle_us * 1000) == high - low - inside
        assert sum(cause.us for cause in step.idle) == pytest.approx(step.gpu_idle_us, abs=0.01)


def swept(start, end) -> int:
    """Covered time by a plain loop."""
    total, reach = 0, None
    for s, e in sorted(zip(start.tolist(), end.tolist(), strict=True)):
        if e <= s:
            continue
        if reach is None or s > reach:
            total, reach = total + e - s, e
        elif e > reach:
            total, reach = total + e - reach, e
    return total


kernels = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 80), st.sampled_from([7, 8, 9])), max_size=12)


@settings(max_examples=60, deadline=None)
@given(kernels)
def test_busy_and_idle_of_random_streams(rows):
    build = TraceBuilder()
    build.step(1, 0, 200)
    build.step(2, 200, 200)
    for start, duration, stream in rows:
        build.kernel("k", start, duration, launch=build.launch(max(0, start - 5), 1), stream=stream)
    steps, _ = reports(build)
    if not rows:
        assert steps[0].gpu_busy_us is None
        return
    for number, step in enumerate(steps):
        mine = [(s, s + d) for s, d, _ in rows if (max(0, s - 5) >= 200) == bool(number)]
        assert step.gpu_busy_us == len({t for s, e in mine for t in range(s, e)})
        window = range(200 * number, 200 * number + round(step.period_us))
        covered = {t for s, d, _ in rows for t in range(s, s + d)}
        assert step.gpu_idle_us == len(set(window) - covered)
        assert sum(cause.us for cause in step.idle) == pytest.approx(step.gpu_idle_us)


def test_gaps_within_a_window():
    context = Context(trace=two_steps().trace())
    zero = 10**9
    starts, ends = gaps_within(context, zero + 10_000, zero + 140_000)
    assert [(int(s) - zero, int(e) - zero) for s, e in zip(starts, ends, strict=True)] == [
        (10_000, 20_000),
        (120_000, 130_000),
        (135_000, 140_000),
    ]
