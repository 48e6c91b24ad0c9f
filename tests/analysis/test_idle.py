"""Why the GPU was idle: one cause for each gap, from what surrounds it."""

from __future__ import annotations

import pytest

from builders import TraceBuilder
from foretrace import explain
from foretrace.analysis.context import Context
from foretrace.analysis.idle import QUEUED, IdleCauses


def two_kernels(*, first_ends: float = 100.0, second_starts: float = 300.0, launched: float = 290.0) -> TraceBuilder:
    """A kernel from 10, a second one whose launch is given; the gap between them is what is asked about."""
    build = TraceBuilder()
    one = build.launch(2)
    build.kernel("one", 10, first_ends - 10, launch=one)
    two = build.launch(launched)
    build.kernel("two", second_starts, 50, launch=two)
    return build


def cause(build: TraceBuilder, start: float = 100.0, end: float = 300.0):
    trace = build.trace()
    zero = round(build.base_us * 1000)
    found = IdleCauses(Context(trace=trace)).explain(zero + round(start * 1000), zero + round(end * 1000), zero + 10**9)
    return found.cause, found.detail


def test_an_operator_that_had_not_launched_yet():
    build = two_kernels()
    build.op("aten::linear", 90, 220)
    build.op("aten::mm", 280, 25)
    assert cause(build) == ("waiting_for_cpu", "aten::linear")


def test_the_deepest_operator_that_covers_half_of_the_gap_is_named():
    build = two_kernels()
    build.op("aten::linear", 90, 220)
    build.op("aten::mm", 120, 180)
    assert cause(build) == ("waiting_for_cpu", "aten::mm")


def test_python_between_operators():
    build = two_kernels()
    build.step(1, 0, 500)
    build.annotation("train_step", 5, 400)
    build.op("aten::mm", 285, 25)
    assert cause(build) == ("waiting_for_cpu", "Python in train_step")


def test_python_of_the_step_itself_names_no_number():
    build = two_kernels()
    build.step(7, 0, 500)
    assert cause(build) == ("waiting_for_cpu", "Python in the step")


def test_with_stacks_the_function_is_named():
    build = two_kernels()
    build.step(1, 0, 500)
    build.python("train.py(3): prepare", 95, 150)
    assert cause(build) == ("waiting_for_cpu", "train.py(3): prepare")


def test_nothing_recorded():
    assert cause(two_kernels()) == ("waiting_for_cpu", "code outside every recorded row")


def test_a_wait_that_began_before_the_gpu_ran_dry():
    build = two_kernels()
    build.op("aten::item", 20, 100)
    build.call("cudaStreamSynchronize", 30, 80)
    assert cause(build) == ("synchronization", "aten::item → cudaStreamSynchronize")


def test_a_copy_to_pageable_memory_waits_as_well():
    build = two_kernels()
    copy = build.call("cudaMemcpyAsync", 30, 75)
    build.memcpy(98, 2, name="Memcpy DtoH (Device -> Pageable)", launch=copy)
    assert cause(build) == ("synchronization", "cudaMemcpyAsync")


def test_a_wait_that_began_when_the_gpu_was_idle_is_no_cause():
    build = two_kernels()
    build.op("aten::slow", 90, 205)
    build.call("cudaStreamSynchronize", 200, 5)
    assert cause(build) == ("waiting_for_cpu", "aten::slow")


def test_a_wait_of_another_thread_is_no_cause():
    build = two_kernels()
    build.call("cudaStreamSynchronize", 30, 80, tid=555)
    assert cause(build)[0] == "waiting_for_cpu"


def test_data_loading():
    build = two_kernels()
    build.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 95, 150)
    build.op("aten::stack", 100, 140)
    assert cause(build)[0] == "data_loading"


def test_compilation():
    build = two_kernels()
    build.op("_compile.compile_inner", 95, 180)
    build.op("aten::empty", 100, 160)
    assert cause(build)[0] == "compile"


def test_the_autograd_engine_between_its_operators():
    build = TraceBuilder()
    one = build.launch(2)
    build.kernel("one", 10, 90, launch=one)
    build.op("autograd::engine::evaluate_function: MmBackward0", 285, 50, tid=777)
    two = build.launch(290, tid=777)
    build.kernel("two", 300, 50, launch=two)
    assert cause(build) == ("waiting_for_cpu", "the autograd engine, outside its operators")


def test_a_hand_over_between_kernels():
    assert cause(two_kernels(second_starts=100.9, launched=50), 100, 100.9) == (
        "launch_latency",
        "hand-over between kernels",
    )


@pytest.mark.parametrize("launched", [92.0, 99.9])
def test_a_launch_on_its_way_is_launch_latency(launched):
    assert cause(two_kernels(second_starts=105, launched=launched), 100, 105) == ("launch_latency", "cudaLaunchKernel")


def test_a_kernel_queued_long_before_waited_for_something_else():
    found, detail = cause(two_kernels(launched=20))
    assert (found, detail) == ("unknown", QUEUED)


def test_the_cpu_is_blamed_only_until_its_launch_returned():
    """A kernel launched after the gap began, but long before it started, waited for something else after that."""
    build = TraceBuilder()
    build.step(1, 0, 2000)
    build.kernel("one", 10, 90, launch=build.launch(2))
    build.op("aten::slow", 110, 95)
    build.kernel("two", 1000, 50, launch=build.launch(200, 5))
    (step,) = explain(build.trace()).steps
    causes = {(i.cause, i.detail): i.us for i in step.idle if i.us > 20}
    assert causes[("waiting_for_cpu", "aten::slow")] == 105.0
    assert causes[("unknown", QUEUED)] == 795.0


def test_a_kernel_without_a_launch():
    build = TraceBuilder()
    one = build.launch(2)
    build.kernel("one", 10, 90, launch=one)
    build.kernel("two", 300, 50)
    assert cause(build) == ("unknown", "the next kernel's launch is not in the trace")


def test_between_the_nodes_of_a_graph():
    build = TraceBuilder()
    graph = build.call("cudaGraphLaunch", 2, 6)
    build.kernel("one", 10, 90, launch=graph)
    build.kernel("two", 300, 50, launch=graph)
    assert cause(build) == ("graph", "between the nodes of one graph launch")


def test_before_a_graph_launch_it_is_the_cpu():
    build = TraceBuilder()
    one = build.launch(2)
    build.kernel("one", 10, 90, launch=one)
    build.op("Torch-Compiled Region: 0/0", 50, 260)
    graph = build.call("cudaGraphLaunch", 290, 8)
    build.kernel("two", 300, 50, launch=graph)
    assert cause(build) == ("waiting_for_cpu", "Torch-Compiled Region: 0/0")


def test_a_buffer_request_that_holds_the_thread():
    build = two_kernels()
    build.overhead(110, 170)
    assert cause(build) == ("profiler", "Activity Buffer Request")


def test_a_buffer_request_while_the_thread_goes_on_is_not_the_cause():
    build = two_kernels()
    build.overhead(110, 170)
    build.op("aten::slow", 90, 215)
    build.op("aten::inner", 150, 5)
    assert cause(build) == ("waiting_for_cpu", "aten::slow")


def test_a_buffer_request_that_delays_a_queued_kernel():
    build = two_kernels(launched=95)
    build.overhead(110, 170)
    assert cause(build) == ("profiler", "Activity Buffer Request")


def test_loading_a_kernel_on_its_first_use_is_not_the_profilers():
    build = two_kernels()
    build.op("aten::mm", 90, 215)
    build.overhead(110, 170, name="Lazy Function Loading")
    assert cause(build) == ("waiting_for_cpu", "aten::mm")


def test_many_overhead_rows_do_not_hide_the_long_one():
    build = two_kernels()
    build.overhead(110, 170)
    for i in range(50):
        build.overhead(111 + i, 0.5)
    assert cause(build) == ("profiler", "Activity Buffer Request")


def test_after_the_last_kernel_the_launching_thread_is_looked_at():
    build = two_kernels()
    build.op("aten::after", 340, 200)
    assert cause(build, 350, 540) == ("waiting_for_cpu", "aten::after")
