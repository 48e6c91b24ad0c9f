"""Nesting of CPU rows, and the steps of a trace."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind
from foretrace.trace.steps import StepSpan, select_steps, step_of_rows, steps_of_rows


def parents(trace) -> dict[str, str | None]:
    up = trace.forest.parent
    return {trace.name(r): trace.name(up[r]) if up[r] >= 0 else None for r in trace.forest.order.tolist()}


def test_rows_nest_by_time_within_their_thread():
    build = TraceBuilder()
    build.op("outer", 0, 100)
    build.op("inner", 10, 20)
    build.launch(15, 5)
    build.op("next", 40, 10)
    build.op("elsewhere", 12, 5, tid=7)
    trace = build.trace()
    assert parents(trace) == {
        "outer": None,
        "inner": "outer",
        "cudaLaunchKernel": "inner",
        "next": "outer",
        "elsewhere": None,
    }
    assert trace.forest.crossing == 0


def test_equal_spans_nest_in_the_order_of_the_file_and_calls_are_innermost():
    build = TraceBuilder()
    build.launch(0, 10)
    build.op("outer", 0, 10)
    build.op("inner", 0, 10)
    assert parents(build.trace()) == {"outer": None, "inner": "outer", "cudaLaunchKernel": "inner"}


def test_touching_rows_are_neighbours_not_parent_and_child():
    build = TraceBuilder()
    build.op("first", 0, 10)
    build.op("second", 10, 10)
    assert parents(build.trace()) == {"first": None, "second": None}


def test_a_row_that_ends_a_little_late_stays_a_child_and_is_counted():
    build = TraceBuilder()
    build.op("outer", 0, 10)
    build.launch(2, 8.5)
    trace = build.trace()
    assert parents(trace)["cudaLaunchKernel"] == "outer"
    assert trace.forest.crossing == 1


def test_a_row_that_outlives_the_one_it_begins_in_hangs_further_out():
    build = TraceBuilder()
    build.python("train.py(1): main", 0, 200)
    build.python("profiler.py(9): __enter__", 5, 10)
    build.step(1, 12, 100)
    trace = build.trace()
    assert parents(trace)["ProfilerStep#1"] == "train.py(1): main"
    assert trace.forest.crossing == 0, "an annotation outlives the frame that opened it by design"


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 30)), min_size=1, max_size=12)


@given(spans)
def test_parents_enclose_the_start_of_their_children(pairs):
    build = TraceBuilder()
    for start, duration in pairs:
        build.op("op", start, duration)
    trace = build.trace()
    forest = trace.forest
    assert sorted(forest.order.tolist()) == list(range(len(pairs)))
    seen = set()
    for row in forest.order.tolist():
        parent = int(forest.parent[row])
        if parent >= 0:
            assert parent in seen
            assert trace.start[parent] <= trace.start[row] <= trace.end[parent]
        seen.add(row)


def test_steps_are_the_profilers_own_and_the_last_is_kept():
    build = TraceBuilder()
    for number, start in ((2, 0), (3, 100), (4, 200)):
        build.step(number, start, 90)
    build.op("inside", 210, 5)
    build.op("between", 195, 2)
    trace = build.trace()
    assert [step.label for step in trace.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    names = ["inside", "between"]
    rows = np.array([next(r for r in range(len(trace)) if trace.name(r) == name) for name in names])
    assert step_of_rows(trace, rows).tolist() == [2, -1]


def test_without_profiler_steps_the_whole_trace_is_one():
    build = TraceBuilder()
    build.op("aten::mm", 0, 10)
    build.kernel("k", 20, 30)
    (step,) = build.trace().steps
    assert (step.label, step.row, step.end - step.start) == ("whole trace", -1, 50_000)


def test_a_step_written_twice_counts_once():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.step(1, 0, 99, cat="cpu_op")
    assert len(build.trace().steps) == 1


@pytest.mark.parametrize("category", ["Operator", "cpu_op", "Runtime", "User annotation"])
def test_category_names_of_2021_and_today(category):
    build = TraceBuilder(gpu=None)
    build.op("row", 0, 10, cat=category)
    trace = build.trace()
    assert trace.forest.order.tolist() == [0]


def test_legacy_trace_with_its_own_names_and_arrows():
    build = TraceBuilder(meta={"deviceProperties": [{"id": "0", "name": "Tesla V100", "numSms": "80"}]})
    build.op("aten::conv2d", 0, 50, cat="Operator", args={"external id": 3})
    launch = build.call("cudaLaunchKernel", 10, category="Runtime", args={"external id": 3})
    build.flow("async_gpu", launch, True, 10)
    build.kernel("volta_sgemm", 60, 20, launch=launch, cat="Kernel")
    build.memcpy(90, 2, cat="Memcpy")
    trace = build.trace()
    assert [trace.name(r) for r in trace.gpu_rows] == ["volta_sgemm", "Memcpy DtoD (Device -> Device)"]
    assert trace.name(trace.links.op[trace.gpu_rows[0]]) == "aten::conv2d"
    assert trace.meta["deviceProperties"][0]["numSms"] == "80"
    assert trace.external[0] == 1


def test_rocm_names():
    build = TraceBuilder(gpu="AMD Instinct MI300X")
    build.op("aten::mm", 0, 20)
    build.kernel("Cijk_Ailk_Bljk", 30, 5, launch=build.launch(5, name="hipExtModuleLaunchKernel"), stream=0)
    build.memcpy(40, 2, name="CopyDeviceToDevice", launch=build.call("hipMemcpyWithStream", 12))
    trace = build.trace()
    assert (trace.links.launch[trace.gpu_rows] >= 0).all()
    assert trace.stream[trace.gpu_rows[0]] == 0


def steps_by_name(trace) -> dict[str, int]:
    rows = np.arange(len(trace))
    return {trace.name(row): step for row, step in zip(rows, step_of_rows(trace, rows).tolist(), strict=True)}


def test_steps_that_overlap_by_a_rounding_error_are_all_kept():
    build = TraceBuilder()
    build.step(1, 0, 100.002)
    build.step(2, 100, 50)
    build.op("first", 50, 1)
    build.op("second", 100.001, 1)
    trace = build.trace()
    assert [step.label for step in trace.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    found = steps_by_name(trace)
    assert (found["first"], found["second"]) == (0, 1)


def test_steps_of_two_threads_overlap_and_keep_their_own_rows():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.step(2, 40, 100, tid=7)
    build.op("own", 50, 1)
    build.op("other", 50, 1, tid=7)
    build.op("backward", 50, 1, tid=8)
    trace = build.trace()
    assert len(trace.steps) == 2
    found = steps_by_name(trace)
    assert (found["own"], found["other"], found["backward"]) == (0, 1, 1)


def test_behind_a_step_inside_another_the_outer_one_goes_on():
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.step(2, 20, 10)
    build.op("inner", 25, 1)
    build.op("outer", 50, 1)
    found = steps_by_name(build.trace())
    assert (found["inner"], found["outer"]) == (1, 0)


@pytest.mark.parametrize(("start", "duration"), [(0, 100), (0, 99), (1, 99), (1, 100), (40, 0)])
def test_the_same_number_over_the_same_time_is_the_same_step(start, duration):
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.step(1, start, duration, cat="cpu_op")
    build.step(2, 101, 100)
    assert [step.label for step in build.trace().steps] == ["ProfilerStep#1", "ProfilerStep#2"]


step_spans = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=8)


@given(step_spans)
def test_a_row_belongs_to_the_latest_step_around_its_start(pairs):
    build = TraceBuilder()
    for number, (start, duration) in enumerate(pairs):
        build.step(number, start, duration)
    for at in range(60):
        build.op(f"op {at}", at, 0.1)
    trace = build.trace()
    assert len(trace.steps) == len(pairs)
    found = steps_by_name(trace)
    for at in range(60):
        time = (1_000_000 + at) * 1000
        around = [step for step in trace.steps if step.start <= time < step.end]
        expected = max(around, key=lambda step: (step.start, step.index)).index if around else -1
        assert found[f"op {at}"] == expected


def spans_of(count: int) -> list[StepSpan]:
    return [StepSpan(i, f"ProfilerStep#{i + 2}", i, i + 1, i, 1) for i in range(count)]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["#5", "1", "ProfilerStep#3"], [1, 3]),
        (["#2"], [0]),  # and not also step 12 or 20
        ([7, "#4"], [2, 7]),
        ([], []),
    ],
    ids=["any way", "the whole number", "positions", "nothing"],
)
def test_steps_are_selected_in_the_traces_order_and_once(asked, found):
    assert select_steps(spans_of(20), asked) == found


@pytest.mark.parametrize("word", ["99", 99, -1, "-1", "Step#3", "#", ""], ids=repr)
def test_a_step_that_is_not_there_is_said_with_the_choices(word):
    with pytest.raises(InputError) as told:
        select_steps(spans_of(20), [0, word], what="--step takes")
    assert str(told.value).startswith(f"there is no step {word!r}; --step takes a position or a label, of: 0 (Prof")
    assert str(told.value).endswith("5 (ProfilerStep#7), …, 19 (ProfilerStep#21)")


def test_steps_of_a_part_keep_their_positions():
    part = spans_of(4)[2:]
    assert select_steps(part, ["2"]) == [2]
    with pytest.raises(InputError, match=r"no step '0'.* of: 2 \(ProfilerStep#4\), 3 \(ProfilerStep#5\)$"):
        select_steps(part, ["0"])
    with pytest.raises(InputError, match=r"of: none$"):
        select_steps([], ["0"])


@pytest.mark.parametrize("stepped", [True, False])
def test_every_row_has_a_step_gpu_work_that_of_its_launch(stepped):
    build = TraceBuilder()
    if stepped:
        build.step(1, 0, 100)
        build.step(2, 100, 100)
    build.op("aten::mm", 10, 30)
    build.kernel("launched in the first", 150, 10, launch=build.launch(20))
    build.kernel("launched by none", 50, 10, launch=None)
    trace = build.trace()
    step = steps_of_rows(trace)
    kernels = {trace.name(row): int(step[row]) for row in trace.rows(RowKind.KERNEL).tolist()}
    assert kernels == {"launched in the first": 0, "launched by none": -1 if stepped else 0}
    assert [int(step[row]) for row in trace.rows(RowKind.OPERATOR).tolist()] == [0]
