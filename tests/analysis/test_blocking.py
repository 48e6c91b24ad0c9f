"""Which calls hold the CPU, and which synchronization is the profiler's."""

from __future__ import annotations

import pytest

from builders import TraceBuilder
from foretrace.analysis.blocking import blocking_calls, profiler_syncs
from foretrace.knowledge.blocking import holds_cpu, is_profiler_frame


def names(trace, rows):
    return [trace.name(row) for row in rows]


@pytest.mark.parametrize(
    ("call", "copy", "holds"),
    [
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pageable)", True),
        ("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)", False),
        ("cudaMemcpyAsync", "Memcpy HtoD (Pageable -> Device)", False),  # staged: may return early
        ("cudaMemcpy", "Memcpy DtoH (Device -> Pinned)", True),
        ("cudaMemcpy", "Memcpy DtoD (Device -> Device)", False),
        ("cuMemcpyDtoH_v2", "Memcpy DtoH (Device -> Pageable)", True),
        ("cuMemcpyDtoHAsync_v2", "Memcpy DtoH (Device -> Pinned)", False),
        ("hipMemcpyWithStream", "CopyHostToDevice", True),
        ("hipMemcpyWithStream", "CopyDeviceToDevice", False),
        ("hipMemcpyAsync", "CopyHostToDevice", False),
    ],
)
def test_copies_that_hold_the_cpu(call, copy, holds):
    assert holds_cpu(call, copy) is holds


def test_blocking_calls_come_in_order_of_end():
    build = TraceBuilder()
    copy = build.call("cudaMemcpyAsync", 10, 50)
    build.memcpy(20, 38, name="Memcpy DtoH (Device -> Pageable)", launch=copy)
    plain = build.call("cudaMemcpyAsync", 62, 3)
    build.memcpy(64, 5, name="Memcpy HtoD (Pinned -> Device)", launch=plain)
    build.call("cudaStreamSynchronize", 70, 10)
    build.call("cudaEventSynchronize", 5, 3)
    build.call("cudaStreamWaitEvent", 90, 3)
    trace = build.trace()
    assert names(trace, blocking_calls(trace)) == ["cudaEventSynchronize", "cudaMemcpyAsync", "cudaStreamSynchronize"]


def finished(*, stacks: str | None = None, inside: bool = False, after: str | None = None) -> TraceBuilder:
    """A step, then a ``cudaDeviceSynchronize``: in a Python frame, inside the step, or with something after it."""
    build = TraceBuilder()
    build.step(1, 0, 100 if not inside else 200)
    launch = build.launch(10)
    build.kernel("k", 20, 100, launch=launch)
    if stacks:
        build.python(stacks, 105, 40)
    build.call("cudaDeviceSynchronize", 110, 20)
    if after:
        build.call(after, 150, 3)
    return build


@pytest.mark.parametrize(
    ("build", "own"),
    [
        (finished(), 1),
        (finished(after="cudaGetLastError"), 1),
        (finished(after="cudaLaunchKernel"), 0),
        (finished(inside=True), 0),
        (finished(stacks="torch/autograd/profiler.py(403): __exit__"), 1),
        (finished(stacks="/venv/lib/torch/profiler/profiler.py(278): stop_trace", after="cudaLaunchKernel"), 1),
        (finished(stacks="train.py(8): main"), 0),
    ],
    ids=["last", "query after", "launch after", "in a step", "frame", "frame, launch after", "user's frame"],
)
def test_the_final_synchronize_is_the_profilers(build, own):
    assert len(profiler_syncs(build.trace())) == own


def test_only_the_last_of_several_is_the_profilers():
    build = finished(after="cudaDeviceSynchronize")
    trace = build.trace()
    (row,) = profiler_syncs(trace)
    assert trace.start_us(row) == 150


def test_a_final_wait_for_one_stream_is_the_programs():
    build = TraceBuilder()
    build.call("cudaStreamSynchronize", 10, 5)
    assert profiler_syncs(build.trace()) == set()


def test_profiler_frames():
    assert is_profiler_frame("torch/profiler/profiler.py(884): step")
    assert not is_profiler_frame("my_profiler.py(3): step")
    assert not is_profiler_frame("torch/cuda/__init__.py(975): synchronize")
