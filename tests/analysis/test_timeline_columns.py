"""The timeline holds what the trace holds: every GPU row, every link, and no row hidden under another."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import TraceBuilder
from foretrace import explain, load
from foretrace.analysis.timeline import timeline_of
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.timeline import (
    LEFT_OUT,
    LONGEST_NS,
    OUT_OF_REACH,
    PROFILER_GROUP,
    SHORT_CPU_ROWS,
    SHORT_FRAMES,
)
from foretrace.model.timeline import Timeline

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "src/foretrace/cli/samples").rglob("*.trace.json.gz"))
TRACES = sorted((ROOT / "tests/data/traces").glob("*.json.gz")) + SAMPLES


def timeline(build: TraceBuilder, **options) -> Timeline:
    trace = build.trace()
    return timeline_of(trace, explain(trace), **options)


def names(made: Timeline) -> list[str]:
    return [made.names[i] for i in made.name.tolist()]


def rectangles(made: Timeline):
    return zip(made.lane.tolist(), made.depth.tolist(), made.start.tolist(), made.duration.tolist(), strict=True)


def assert_nothing_is_hidden(made: Timeline) -> None:
    tracks = defaultdict(list)
    for lane, depth, start, duration in rectangles(made):
        assert depth < made.lanes[lane].depth
        tracks[lane, depth].append((start, start + duration))
    for rows in tracks.values():
        assert rows == sorted(rows)
        for (start, end), (following, _) in pairwise(rows):
            assert end <= following
            assert start < following


def assert_in_order(made: Timeline) -> None:
    keys = list(zip(made.lane.tolist(), made.start.tolist(), strict=True))
    assert keys == sorted(keys)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_a_real_trace_is_drawn_whole(path):
    trace = load(path)
    report = explain(trace)
    made = timeline_of(trace, report)
    row_of = {event: row for row, event in enumerate(made.event.tolist())}
    assert len(row_of) == len(made)

    drawn = {event for event, lane in zip(made.event.tolist(), made.lane.tolist(), strict=True) if is_gpu(made, lane)}
    assert drawn == set(trace.event[trace.gpu_rows].tolist())
    for one in [*report.kernels, *report.transfers]:
        row = row_of[one.event]
        assert made.start[row] / 1000 == pytest.approx(one.start_us)
        assert made.duration[row] / 1000 == pytest.approx(one.duration_us)
        assert made.kinds[made.kind[row]] == one.kind
        assert made.names[made.name[row]] == one.name

    linked = trace.gpu_rows[trace.links.launch[trace.gpu_rows] >= 0]
    links = set(zip(trace.event[trace.links.launch[linked]].tolist(), trace.event[linked].tolist(), strict=True))
    arrows = zip(made.event[made.arrow_from].tolist(), made.event[made.arrow_to].tolist(), strict=True)
    assert set(arrows) == links
    assert len(made.arrow_from) == len(links)

    assert all(one.event in row_of for finding in report.findings for one in finding.evidence)
    left_out = {LEFT_OUT[kind]: len(trace.rows(kind)) for kind in LEFT_OUT if len(trace.rows(kind))}
    assert made.left_out == left_out
    assert len(made) + sum(left_out.values()) == len(trace)
    assert_nothing_is_hidden(made)
    assert_in_order(made)


def is_gpu(made: Timeline, lane: int) -> bool:
    return made.lanes[lane].side == "gpu"


def test_the_eager_mlp_runs_three_gemms_between_elementwise_kernels_in_each_step():
    trace = load(ROOT / "src/foretrace/cli/samples/h200_mlp_eager.trace.json.gz")
    made = timeline_of(trace, explain(trace))
    assert [lane.title for lane in made.lanes] == ["thread 478 (python3)", "stream 7"]
    assert [lane.group for lane in made.lanes] == ["CPU, process 478", "GPU 0: NVIDIA H200"]
    assert [lane.subtitle for lane in made.lanes] == ["115 rows", "705 µs busy"]
    stream = [made.kinds[kind] for kind in made.kind[made.lane == 1].tolist()]
    work = [kind for kind in stream if kind != "memset"]
    assert work == 3 * ["gemm", "elementwise", "gemm", "elementwise", "gemm"]
    assert [band.label for band in made.bands] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
    labels = {made.labels[i] for i in made.name[made.lane == 1].tolist()}
    assert "nvjet 256x128 64x4 TN" in labels


def small() -> TraceBuilder:
    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 30)
    build.kernel("sgemm", 50, 12, launch=build.launch(20, 5))
    build.step(2, 100, 100)
    build.op("aten::mul", 110, 30)
    # The second step's kernel runs beyond it.
    build.kernel("mul", 190, 40, launch=build.launch(120, 5))
    return build


def test_rows_nest_as_they_were_called():
    made = timeline(small())
    assert list(zip(names(made), made.depth.tolist(), strict=True)) == [
        ("ProfilerStep#1", 0),
        ("aten::mm", 1),
        ("cudaLaunchKernel", 2),
        ("ProfilerStep#2", 0),
        ("aten::mul", 1),
        ("cudaLaunchKernel", 2),
        ("sgemm", 0),
        ("mul", 0),
    ]
    assert made.start.tolist() == [0, 10_000, 20_000, 100_000, 110_000, 120_000, 50_000, 190_000]
    assert [(band.start_ns, band.end_ns) for band in made.bands] == [(0, 100_000), (100_000, 200_000)]


def test_one_step_is_what_it_holds_and_what_it_launched():
    made = timeline(small(), steps=[1])
    assert names(made) == ["ProfilerStep#2", "aten::mul", "cudaLaunchKernel", "mul"]
    assert [band.label for band in made.bands] == ["ProfilerStep#2"]
    # Times stay those of the whole trace, so that the report's numbers can be found in it.
    assert made.start.tolist() == [100_000, 110_000, 120_000, 190_000]
    assert made.arrow_from.tolist() == [2]
    assert made.arrow_to.tolist() == [3]


def test_a_step_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="there is no step 7"):
        timeline(small(), steps=[7])


def test_a_step_that_begins_inside_python_frames_is_drawn_above_them():
    build = TraceBuilder()
    build.python("main.py(1): main", 0, 100)
    build.python("profiler.py(1): step", 10, 12)
    build.python("profiler.py(2): __enter__", 12, 8)
    build.step(1, 15, 80)
    build.op("aten::mm", 30, 10)
    made = timeline(build)
    assert list(zip(names(made), made.depth.tolist(), strict=True)) == [
        ("main.py(1): main", 0),
        ("profiler.py(1): step", 2),
        ("profiler.py(2): __enter__", 3),
        ("ProfilerStep#1", 1),
        ("aten::mm", 2),
    ]


def test_overlapping_rows_of_a_stream_lie_under_each_other():
    build = TraceBuilder()
    for start, duration in ((0, 10), (5, 10), (7, 2), (15, 5)):
        build.kernel("k", start, duration)
    made = timeline(build)
    assert made.depth.tolist() == [0, 1, 2, 0]
    assert made.lanes[0].depth == 3
    # Busy time counts what overlaps once.
    assert made.lanes[0].subtitle == "20.0 µs busy"


def test_a_trace_without_steps_has_no_bands():
    build = TraceBuilder()
    build.op("aten::mm", 0, 10)
    assert timeline(build).bands == []


def test_an_empty_trace_is_an_empty_timeline():
    made = timeline(TraceBuilder())
    assert len(made) == 0
    assert made.lanes == []


def test_the_profilers_own_work_has_a_lane_of_its_own():
    build = small()
    build.overhead(60, 5)
    made = timeline(build)
    assert [lane.group for lane in made.lanes] == ["CPU, process 100", PROFILER_GROUP, "GPU 0: NVIDIA H200"]
    assert made.kinds[made.kind[names(made).index("Activity Buffer Request")]] == "profiler"


def test_mirrored_annotations_are_left_out_and_counted():
    build = small()
    build.gpu_annotation("ProfilerStep#1", 0, 80)
    made = timeline(build)
    assert made.left_out == {LEFT_OUT[RowKind.GPU_ANNOTATION]: 1}


def test_streams_of_two_devices_are_two_groups():
    build = TraceBuilder()
    build.kernel("k", 0, 5, device=1, stream=7)
    build.kernel("k", 0, 5, device=0, stream=20)
    build.kernel("k", 0, 5, device=0, stream=7)
    made = timeline(build)
    assert [(lane.group, lane.title) for lane in made.lanes] == [
        ("GPU 0: NVIDIA H200", "stream 7"),
        ("GPU 0: NVIDIA H200", "stream 20"),
        ("GPU 1", "stream 7"),
    ]


def crowded() -> TraceBuilder:
    build = TraceBuilder()
    build.python("main.py(1): main", 0, 100)
    build.python("main.py(2): short", 1, 2)
    build.op("aten::mm", 10, 30)
    build.op("aten::as_strided", 11, 1)
    build.kernel("sgemm", 50, 12, launch=build.launch(20, 0.5))
    return build


@pytest.mark.parametrize(
    ("most", "kept", "left_out"),
    [
        (6, ["main", "short", "mm", "as_strided", "cudaLaunchKernel", "sgemm"], {}),
        (5, ["main", "mm", "as_strided", "cudaLaunchKernel", "sgemm"], {SHORT_FRAMES: 1}),
        (4, ["mm", "as_strided", "cudaLaunchKernel", "sgemm"], {SHORT_FRAMES: 2}),
        (3, ["mm", "cudaLaunchKernel", "sgemm"], {SHORT_FRAMES: 2, SHORT_CPU_ROWS: 1}),
        (2, ["cudaLaunchKernel", "sgemm"], {SHORT_FRAMES: 2, SHORT_CPU_ROWS: 2}),
        (1, ["sgemm"], {SHORT_FRAMES: 2, SHORT_CPU_ROWS: 3}),
        (0, ["sgemm"], {SHORT_FRAMES: 2, SHORT_CPU_ROWS: 3}),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else None,
)
def test_too_many_rows_lose_frames_first_and_gpu_rows_never(most, kept, left_out):
    trace = crowded().trace()
    report = explain(trace)
    report.findings = []  # what findings rest on would stay longest
    made = timeline_of(trace, report, most_rows=most)
    assert [name.split("::")[-1].split(" ")[-1] for name in names(made)] == kept
    assert made.left_out == left_out
    # Rows take the place of those around them that are gone.
    assert made.depth[0] == 0
    assert len(made.arrow_from) == ("cudaLaunchKernel" in kept)


def test_rows_that_findings_rest_on_stay_longest():
    trace = crowded().trace()
    report = explain(trace)
    short = next(row for row in range(len(trace)) if trace.name(row) == "main.py(2): short")
    evidence = type("Evidence", (), {"event": int(trace.event[short])})
    report.findings = [type("Finding", (), {"evidence": [evidence]})]
    assert names(timeline_of(trace, report, most_rows=2)) == ["main.py(2): short", "sgemm"]


SPANS = st.tuples(st.integers(0, 60), st.integers(0, 25))


@settings(max_examples=150)
@given(
    st.lists(st.tuples(SPANS, st.sampled_from(["op", "python", "call", "annotation", "step"]), st.integers(0, 1))),
    st.lists(st.tuples(SPANS, st.integers(0, 1))),
    st.integers(0, 40),
)
def test_no_row_hides_another_whatever_the_trace(cpu, gpu, most):
    build = TraceBuilder()
    launches = [None]
    for number, ((start, duration), what, thread) in enumerate(cpu):
        if what == "call":
            launches.append(build.launch(start, duration, tid=thread))
        elif what == "step":
            build.step(number, start, duration, tid=thread)
        else:
            getattr(build, what)(f"{what}{number}", start, duration, tid=thread)
    for number, ((start, duration), stream) in enumerate(gpu):
        build.kernel(f"k{number}", start, duration, stream=stream, launch=launches[number % len(launches)])
    trace = build.trace()
    report = explain(trace)
    for options in ({}, {"most_rows": most}, {"steps": [0]}):
        made = timeline_of(trace, report, **options)
        assert_nothing_is_hidden(made)
        assert_in_order(made)
        if "steps" not in options:
            assert np.isin(trace.event[trace.gpu_rows], made.event).all()


FAR = 1_700_000_000_000_000.0  # µs: an epoch


@pytest.mark.parametrize(
    "stray",
    [
        lambda build: build.kernel("stray", start=5 - FAR, duration=3),
        lambda build: build.op("far", start=1e14, duration=3, tid=2),
        lambda build: build.op("long", start=1, duration=1e13, tid=2),
    ],
    ids=["kernel-at-the-beginning-of-time", "years-later", "months-long"],
)
def test_a_row_months_away_is_left_out_and_said(stray):
    build = TraceBuilder(base_us=FAR)
    for at in range(3):
        build.kernel(f"kernel_{at}", start=at * 100 + 10, duration=20, launch=build.launch(at * 100))
    stray(build)
    made = timeline(build)
    assert made.left_out[OUT_OF_REACH] == 1
    assert {name for name in names(made) if name.startswith("kernel")} == {"kernel_0", "kernel_1", "kernel_2"}
    assert not {"stray", "far", "long"} & set(made.names)
    assert int(made.start.min()) >= 0
    assert int((made.start + made.duration).max()) <= LONGEST_NS


def test_times_count_from_the_trace_s_origin_where_all_can_be_drawn():
    build = TraceBuilder(base_us=FAR, gpu=None)
    build.op("a", start=0, duration=1)
    build.op("b", start=1e12, duration=1)
    made = timeline(build)
    assert made.origin_ns == 0
    assert OUT_OF_REACH not in made.left_out
    assert made.start.tolist() == [0, 10**15]


def test_more_than_two_bytes_of_threads_keep_their_lanes():
    many = 2**16 + 3
    build = TraceBuilder()
    for tid in range(many):
        build.op(f"op_{tid}", start=tid, duration=0.5, tid=tid + 10)
    made = timeline(build)
    assert len(made.lanes) == many
    assert len(set(made.lane.tolist())) == many
