"""What was not recorded and would have answered something."""

from __future__ import annotations

from timeline import found, found_in, work

from builders import TraceBuilder


def test_stacks_are_missed_where_a_synchronization_has_no_line():
    build = TraceBuilder()
    for number in (1, 2):
        at = 1000 * number
        build.step(number, at, 900)
        work(build, "aten::mm", at + 10, runs=100)
        build.op("aten::item", at + 30, 100)
        build.call("cudaStreamSynchronize", at + 35, 90)
        work(build, "aten::mm", at + 200, runs=100)
    (finding,) = found(build, "missing_records")
    assert finding.title == "Not recorded: Python stacks"
    build.python("train.py(1): step", 1005, 800)
    assert found(build, "missing_records") == []


def test_a_single_step_shows_no_spread():
    build = TraceBuilder()
    build.step(1, 0, 1000)
    work(build, "aten::mm", 10, runs=100)
    (finding,) = found(build, "missing_records")
    assert "more than one step" in finding.title
    assert "active=3" in finding.suggestion


def test_kernels_without_operators_need_cpu_activity():
    build = TraceBuilder()
    launch = build.launch(10)
    build.kernel("k", 20, 10, launch=launch)
    (finding,) = found(build, "missing_records")
    assert "operators" in finding.title


def test_a_full_recording_misses_nothing():
    assert found_in("mlp_eager", "missing_records") == []


def test_waits_of_ddp_itself_need_no_line():
    assert found_in("ddp_rank0", "missing_records") == []
