"""Each health check: quiet on sound recordings, loud on the fault it looks for."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import load
from foretrace.analysis.health import check_health, trusted, why_not
from foretrace.trace.load import parse

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.json.gz"))


def states(trace) -> dict[str, str]:
    return {check.check: check.state for check in check_health(trace)}


def sound(steps: int = 2, **options) -> TraceBuilder:
    """A small recording with nothing wrong: per step one operator, one launch, one kernel."""
    build = TraceBuilder(**options)
    for number in range(steps):
        at = 100 * number
        build.step(number, at, 90)
        build.op("aten::mm", at + 5, 20)
        build.kernel("gemm", at + 30, 40, launch=build.launch(at + 10))
    return build


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_sound_recordings_raise_no_alarm(path):
    assert {c.check: c.detail for c in check_health(load(path)) if c.state != "ok"} == {}


def test_the_small_sound_recording_is_sound():
    found = states(sound().trace())
    assert set(found.values()) == {"ok"}
    assert {"gpu_rows_unlinked", "launches_without_kernels", "stream_overlap", "launch_delays", "steps"} <= set(found)


def test_bad_checks_come_first_and_take_the_verdict_with_them():
    build = TraceBuilder()
    build.launch(0)
    health = check_health(build.trace())
    assert health[0].check == "gpu_rows"
    assert not trusted(health)
    assert not trusted(health, "gpu_rows")
    assert trusted(health, "stream_overlap")
    assert "no GPU row" in (why_not(health, "gpu_rows") or "")
    assert why_not(health, "stream_overlap") is None


def test_empty_recording():
    health = check_health(TraceBuilder().trace())
    assert [(h.check, h.state) for h in health] == [("empty", "bad")]


def test_gpu_calls_without_any_gpu_row():
    build = TraceBuilder()
    build.op("aten::mm", 0, 10)
    build.launch(5)
    assert states(build.trace())["gpu_rows"] == "bad"


def test_cpu_only_recordings_have_no_gpu_checks():
    build = TraceBuilder(gpu=None)
    build.op("aten::mm", 0, 10)
    assert set(states(build.trace())) == {"timestamps", "nesting"}


@pytest.mark.parametrize(("orphan_us", "state"), [(0.5, "ok"), (20, "suspect"), (200, "bad")])
def test_unlinked_gpu_time(orphan_us, state):
    build = sound()
    build.kernel("before the window", 200, orphan_us, launch=999)
    assert states(build.trace())["gpu_rows_unlinked"] == state


def test_gpu_rows_without_any_calls():
    build = TraceBuilder()
    build.kernel("k", 0, 5, launch=3)
    assert states(build.trace())["gpu_rows_unlinked"] == "bad"


@pytest.mark.parametrize(("lost", "state"), [(0, "ok"), (1, "suspect"), (20, "bad")])
def test_launches_whose_kernels_were_dropped(lost, state):
    build = sound(steps=30)
    for k in range(lost):
        build.launch(30 + 2 * k, 1)
    assert states(build.trace())["launches_without_kernels"] == state


def test_launches_still_in_flight_are_said_to_be():
    build = sound(steps=30)
    build.launch(2990, 1)
    check = next(c for c in check_health(build.trace()) if c.check == "launches_without_kernels")
    assert check.state == "suspect"
    assert "in flight" in check.detail


def test_launches_into_a_graph_capture_are_not_missed():
    build = sound()
    build.call("cudaStreamBeginCapture", 200, 1)
    for at in range(202, 250, 2):
        build.launch(at, 1)
    build.call("cudaStreamEndCapture", 260, 1)
    assert states(build.trace())["launches_without_kernels"] == "ok"


def test_a_driver_call_inside_a_runtime_call_is_one_launch():
    build = sound()
    build.launch(200, 10)
    build.kernel("k", 220, 5, launch=build.launch(202, 5, name="cuLaunchKernel", category="cuda_driver"))
    assert states(build.trace())["launches_without_kernels"] == "ok"


def replays(rows_per_step: list[int]) -> TraceBuilder:
    build = TraceBuilder()
    for number, rows in enumerate(rows_per_step):
        at = 1000 * number
        build.step(number, at, 900)
        graph = build.launch(at + 5, name="cudaGraphLaunch")
        for k in range(rows):
            build.kernel("k", at + 20 + 8 * k, 5, launch=graph)
    return build


@pytest.mark.parametrize(
    ("rows", "state"), [([50, 50, 50], "ok"), ([50, 48, 50], "suspect"), ([50, 1, 50], "bad"), ([50, 0, 50], "bad")]
)
def test_graph_replays_recorded_in_part(rows, state):
    assert states(replays(rows).trace())["graph_replays"] == state


def test_zero_timestamps():
    build = sound(base_us=5e12)
    build.op("lost", -5e12, 1)
    assert states(build.trace())["zero_timestamps"] == "bad"


def test_one_kernel_longer_than_the_recording():
    build = sound()
    build.kernel("stuck", 150, 3e9, launch=build.launch(140))
    assert states(build.trace())["row_longer_than_trace"] == "bad"


def test_a_long_kernel_in_flight_at_the_end_is_plausible():
    build = sound()
    build.kernel("long", 150, 5_000, launch=build.launch(140))
    assert "row_longer_than_trace" not in states(build.trace())


def test_durations_in_nanoseconds():
    build = TraceBuilder()
    for k in range(5):
        build.kernel("k", 1e8 * k, 3e6, launch=build.launch(1e8 * k - 20))
    assert states(build.trace())["duration_unit"] == "bad"


@pytest.mark.parametrize(("start", "state"), [(31, "bad"), (67, "suspect"), (69, "ok"), (70, "ok")])
def test_overlap_on_one_stream(start, state):
    build = sound(steps=1)
    build.kernel("next", start, 40, launch=build.launch(20))
    assert states(build.trace())["stream_overlap"] == state


def test_overlap_of_two_streams_is_normal():
    build = sound(steps=1)
    build.kernel("other", 30, 40, launch=build.launch(20), stream=13)
    assert states(build.trace())["stream_overlap"] == "ok"


def test_kernels_before_their_launch():
    build = sound()
    build.kernel("early", 180, 5, launch=build.launch(190))
    assert states(build.trace())["launch_delays"] == "bad"


def test_two_ranks_in_one_file():
    build = sound()
    for at, name in ((10, "a"), (110, "b")):
        build.launch(at, correlation=1, pid=999, tid=999)
        build.kernel(name, at + 20, 5, launch=1, device=1)
    assert states(build.trace())["merged_recordings"] == "bad"


def test_the_same_step_twice():
    build = sound()
    build.step(1, 500, 10)
    assert states(build.trace())["merged_recordings"] == "suspect"


def test_missing_steps():
    build = sound()
    build.step(5, 500, 10)
    check = next(c for c in check_health(build.trace()) if c.check == "steps")
    assert (check.state, check.count) == ("suspect", 3)


def test_rows_that_cross():
    build = sound()
    build.op("late", 20, 30)
    assert states(build.trace())["nesting"] == "bad"


def test_repairs_are_repeated_here():
    text = sound().text()
    harmless = parse(b"\xef\xbb\xbf" + text)
    assert states(harmless)["repaired"] == "ok"
    cut = parse(text[: len(text) // 2])
    assert states(cut)["repaired"] == "bad", "GPU rows stand behind the CPU rows: a cut loses work of every step"
    skipped = sound().trace()
    skipped.repairs.append("1 event could not be read and was skipped")
    assert states(skipped)["repaired"] == "suspect"


def test_rows_the_reader_left_out():
    build = sound()
    build.event(ph="X", cat="cpu_op", name="no time", pid=1, tid=1, dur=1)
    assert states(build.trace())["rows_without_time"] == "bad"


def test_the_profilers_own_log():
    line = "INFO: CuptiActivityProfiler.cpp:395] Record counts: Out-of-range = 7, Blocklisted runtime = 9, " + (
        "Invalid ext correlations = 0, CUPTI stopped early? = 0"
    )
    build = sound(meta={"INFO": [line]})
    check = next(c for c in check_health(build.trace()) if c.check == "profiler_log")
    assert (check.state, check.count) == ("suspect", 7)
    stopped = sound(meta={"INFO": [line.replace("early? = 0", "early? = 1")]})
    assert states(stopped.trace())["profiler_log"] == "bad"


def half_timeless(begin: float, lost: int, whole: int):
    build = sound(base_us=0.0) if begin == 0 else TraceBuilder(base_us=0.0)
    for _ in range(lost):
        build.op("lost", 0, 1)
    for k in range(whole):
        build.op("fine", begin + 5 * k, 2)
    return states(build.trace()).get("zero_timestamps", "ok")


def test_many_rows_at_the_earliest_moment_have_no_time():
    assert half_timeless(50_000, lost=20, whole=20) == "bad"
    assert half_timeless(50_000, lost=20, whole=0) == "bad"


def test_a_clock_that_begins_at_zero_is_fine():
    assert half_timeless(0, lost=3, whole=40) == "ok"
    assert half_timeless(50_000, lost=3, whole=40) == "ok"
    assert half_timeless(900, lost=20, whole=20) == "ok"
    build = TraceBuilder(base_us=0.0)
    for at in (0, 10, 3_000_000):
        build.op("op", at, 1)
    assert "zero_timestamps" not in states(build.trace()), "a recording that begins at zero may last seconds"


def test_frames_that_were_open_at_the_beginning_share_its_time():
    build = TraceBuilder(base_us=0.0)
    for _ in range(60):
        build.python("frame", 0, 100_000)
    build.op("op", 50_000, 10)
    assert "zero_timestamps" not in states(build.trace())


def test_a_step_that_overlaps_its_neighbour_is_not_missing():
    build = TraceBuilder()
    for number in range(5):
        build.step(number, 100 * number, 100.002)
        build.op("aten::mm", 100 * number + 10, 5)
    assert states(build.trace())["steps"] == "ok"
