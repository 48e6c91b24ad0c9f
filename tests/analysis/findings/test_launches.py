"""Long launch calls: a full queue is harmless, an idle GPU is not."""

from __future__ import annotations

import numpy as np
from timeline import found, found_in, work

from builders import TraceBuilder
from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.launches import queue_depths
from foretrace.knowledge.kineto import Call


def full_queue(queued: int) -> TraceBuilder:
    """Launches every 2 µs of kernels that run 50 µs; the last ones wait for a place in the queue."""
    build = TraceBuilder()
    build.step(1, 0, 2 * queued + 3000)
    end = 10.0
    for i in range(queued):
        launch = build.launch(2 * i + 5, 1)
        build.kernel("busy_kernel", end, 50, launch=launch)
        end += 50
    for i in range(3):
        launch = build.launch(2 * queued + 100 + 500 * i, 400)
        build.kernel("busy_kernel", end, 50, launch=launch)
        end += 50
    return build


def test_a_full_queue_is_found_and_said_to_be_harmless():
    (finding,) = found(full_queue(1024), "launch_queue_full")
    assert finding.severity == "info"
    assert finding.saving_us is None
    assert finding.count == 3
    assert "up to 400 µs" in finding.title
    assert found(full_queue(1024), "slow_launches") == []


def test_a_long_launch_behind_a_short_queue_is_neither():
    build = full_queue(100)
    assert found(build, "launch_queue_full") == []
    assert found(build, "slow_launches") == []


def test_a_long_launch_on_an_idle_gpu_names_its_operator():
    build = TraceBuilder()
    build.step(1, 0, 2000)
    build.op("aten::mm", 10, 900)
    launch = build.launch(20, 800)
    build.kernel("first_use", 830, 20, launch=launch)
    work(build, "aten::mul", 1000, runs=20, kernel="usual")
    (finding,) = found(build, "slow_launches")
    assert finding.severity == "note"
    assert finding.title == "1 launch call took 800 µs while the GPU had nothing to do"
    assert "aten::mm 800 µs" in finding.explanation
    assert "1 of 1 launched a kernel for the first time" in finding.explanation
    assert found(build, "launch_queue_full") == []


def test_usual_launches_are_not_mentioned():
    build = TraceBuilder()
    build.step(1, 0, 400)
    work(build, "aten::mm", 10, runs=100)
    assert found(build, "slow_launches") == found(build, "launch_queue_full") == []
    assert found_in("mlp_eager", "slow_launches") == []


def test_queue_depth_counts_launches_of_the_same_stream_that_are_not_done():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    for i, (ends, stream) in enumerate([(50, 7), (500, 7), (600, 7), (900, 20)]):
        launch = build.launch(10 * i + 1, 2)
        build.kernel("k", ends - 10, 10, launch=launch, stream=stream)
    late = build.launch(100, 5)  # 50 is done; 500 and 600 are waiting; 900 is on another stream
    build.kernel("k", 700, 10, launch=late)
    trace = build.trace()
    context = Context(trace=trace)
    facts = Facts(context=context, costs=KernelCosts(context), steps=[], kernels=[])
    launches = np.flatnonzero(trace.links.call == Call.LAUNCH_KERNEL)
    launches = launches[np.argsort(trace.start[launches])]
    assert queue_depths(facts, launches).tolist() == [0, 1, 2, 0, 2]
