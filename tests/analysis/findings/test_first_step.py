"""The cold first step: how much longer, and what it did."""

from __future__ import annotations

import pytest
from timeline import found, found_in, work

from builders import TraceBuilder
from foretrace.analysis.pace import is_cold


def steps(first: float, others: float, count: int = 4) -> TraceBuilder:
    """Steps with one kernel each; the first has an operator that takes the extra time."""
    build = TraceBuilder()
    at = 0.0
    for number in range(count):
        length = first if number == 0 else others
        build.step(number, at, length)
        build.op("aten::linear", at + 5, length - 80)
        work(build, "aten::mm", at + length - 60, runs=20)
        at += length
    return build


def test_a_first_step_that_takes_twice_as_long_is_found():
    (finding,) = found(steps(600, 200), "cold_first_step")
    assert finding.title == "ProfilerStep#0 takes 3.0× as long as the others (600 µs against 200 µs)"
    assert "aten::linear 400 µs" in finding.explanation
    assert "as in the others" in finding.explanation  # the GPU's share
    assert finding.saving_us is None


def test_half_of_it_more_is_enough_where_the_others_are_alike():
    (finding,) = found(steps(290, 200), "cold_first_step")
    assert finding.title.startswith("ProfilerStep#0 takes 1.4× as long")


def test_a_first_step_shorter_than_a_later_one_is_not_cold():
    assert is_cold(290, [200, 210, 200])
    assert not is_cold(290, [200, 300, 200])
    for others in ([], [200]):  # one other step is no measure
        assert not is_cold(290, others)


def test_what_happens_once_is_named():
    build = steps(600, 200)
    build.call("cudaMalloc", 100, 90)
    build.call("cuModuleLoadData", 200, 120, category="cuda_driver")
    build.op("_compile.compile_inner", 330, 100)
    build.overhead(210, 50, name="Lazy Function Loading")
    build.overhead(700, 50, name="Lazy Function Loading")  # not in the first step
    (finding,) = found(build, "cold_first_step")
    assert "1 first use of a kernel that had to be loaded (50.0 µs)" in finding.explanation
    assert "1 memory allocation (90.0 µs), 1 module load (120 µs), " in finding.explanation
    assert "compilation (100 µs)" in finding.explanation


@pytest.mark.parametrize(("first", "count"), [(250, 4), (600, 2), (600, 1)])
def test_an_even_step_or_one_of_two_is_not_cold(first, count):
    assert found(steps(first, 200, count), "cold_first_step") == []


def test_steps_that_launch_nothing_are_no_measure():
    build = TraceBuilder()
    build.step(0, 0, 600)
    for i in range(4):
        work(build, "aten::mm", 100 * i + 10, runs=20)
    build.step(1, 600, 50)
    assert found(build, "cold_first_step") == []


def test_a_selection_without_the_first_step_says_nothing_of_it():
    assert found(steps(600, 200), "cold_first_step", steps=[1, 2]) == []


def test_real_trace_of_a_linear_layer_has_a_slow_first_step():
    (finding,) = found_in("linear_eager", "cold_first_step")
    assert finding.title.startswith("ProfilerStep#2 takes 3.6×")


def test_a_last_step_with_nothing_in_it_is_no_measure():
    build = TraceBuilder(gpu=None)
    build.step(1, 0, 500)
    build.op("aten::mm", 5, 480)
    build.step(2, 510, 410)
    build.op("aten::mm", 515, 400)
    build.step(3, 950, 9)
    assert not found(build, "cold_first_step")
