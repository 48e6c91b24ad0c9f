"""Which call launched which GPU row, whatever API and whatever mess of ids."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import TraceBuilder
from foretrace import load
from foretrace.knowledge.kineto import Call, RowKind

TRACES = sorted((Path(__file__).parents[1] / "data" / "traces").glob("*.json.gz"))


def row_of(trace, name: str) -> int:
    return next(r for r in range(len(trace)) if trace.name(r) == name)


@pytest.mark.parametrize("path", TRACES, ids=lambda p: p.name)
def test_every_gpu_row_of_real_traces_has_its_launch(path):
    trace = load(path)
    launch = trace.links.launch[trace.gpu_rows]
    assert (launch >= 0).all()
    assert (trace.correlation[launch] == trace.correlation[trace.gpu_rows]).all()
    assert trace.links.enqueues[launch].all()


@pytest.mark.parametrize(
    ("api", "category"),
    [
        ("cudaLaunchKernel", "cuda_runtime"),
        ("cudaLaunchKernelExC", "cuda_runtime"),
        ("cuLaunchKernel", "cuda_driver"),
        ("cuLaunchKernelEx", "cuda_driver"),
        ("hipLaunchKernel", "cuda_runtime"),
        ("hipExtModuleLaunchKernel", "hip_runtime"),
        ("Launch of a runtime nobody has named yet", "privateuse1_runtime"),
    ],
)
def test_kernels_link_to_every_kind_of_launch(api, category):
    build = TraceBuilder()
    build.op("aten::mm", 0, 20)
    build.kernel("k", 30, 5, launch=build.launch(5, name=api, category=category))
    trace = build.trace()
    kernel = row_of(trace, "k")
    assert trace.name(trace.links.launch[kernel]) == api
    assert trace.name(trace.links.op[kernel]) == "aten::mm"
    assert trace.links.enqueues[row_of(trace, api)]


def test_one_graph_launch_has_many_kernels_and_no_operators():
    build = TraceBuilder()
    graph = build.launch(5, name="cudaGraphLaunch")
    for at in (20, 30, 40):
        build.kernel(f"k{at}", at, 5, launch=graph)
    build.memset(50, 1, launch=graph)
    trace = build.trace()
    gpu = trace.gpu_rows
    assert trace.links.graph[gpu].all()
    assert (trace.links.launch[gpu] == row_of(trace, "cudaGraphLaunch")).all()
    assert (trace.links.op[gpu] == -1).all()


def test_a_row_without_launch_stays_and_is_unlinked():
    build = TraceBuilder()
    build.kernel("orphan", 0, 5)
    build.kernel("before the window", 10, 5, launch=999)
    trace = build.trace()
    assert trace.links.launch[trace.gpu_rows].tolist() == [-1, -1]
    assert len(trace.gpu_rows) == 2


def test_correlation_zero_is_none():
    build = TraceBuilder()
    build.call("hipMalloc", 0, correlation=0)
    build.kernel("k", 10, 5, launch=0)
    trace = build.trace()
    assert trace.links.launch[row_of(trace, "k")] == -1


def test_without_its_launch_a_kernel_finds_its_operator_by_external_id():
    build = TraceBuilder()
    build.op("aten::mm", 0, 20)
    build.kernel("k", 30, 5, args={"External id": 1})
    trace = build.trace()
    assert trace.name(trace.links.op[row_of(trace, "k")]) == "aten::mm"


def test_annotations_and_sync_rows_on_the_gpu_are_no_work():
    build = TraceBuilder()
    build.kernel("k", 10, 5, launch=build.launch(0))
    build.gpu_annotation("step", 0, 100)
    build.event(ph="X", cat="cuda_sync", name="Stream Sync", pid=0, tid=7, ts=1_000_000.0, dur=50)
    build.overhead(0, 500)
    trace = build.trace()
    assert [trace.name(r) for r in trace.gpu_rows] == ["k"]


def test_the_launch_beats_a_query_that_reused_its_id():
    build = TraceBuilder()
    launch = build.launch(5)
    build.call("cudaEventQuery", 8, correlation=launch)
    build.kernel("k", 20, 5, launch=launch)
    trace = build.trace()
    assert trace.name(trace.links.launch[row_of(trace, "k")]) == "cudaLaunchKernel"
    assert trace.links.ambiguous == 0


def test_merged_files_take_the_nearest_earlier_launch_and_say_so():
    build = TraceBuilder()
    build.launch(5, correlation=7)
    build.launch(105, correlation=7, pid=200, tid=200)
    build.kernel("first", 20, 5, launch=7)
    build.kernel("second", 120, 5, launch=7)
    trace = build.trace()
    first, second = trace.gpu_rows.tolist()
    assert trace.start_us(trace.links.launch[first]) < trace.start_us(trace.links.launch[second])
    assert trace.links.ambiguous == 2


def test_numbers_in_strings_still_link():
    build = TraceBuilder()
    build.launch(5, correlation=7)
    build.kernel("k", 20, 5, args={"correlation": "7", "stream": "13", "device": 4294967295})
    trace = build.trace()
    kernel = row_of(trace, "k")
    assert trace.links.launch[kernel] >= 0
    assert trace.stream[kernel] == 13
    assert trace.device[kernel] == -1


def test_ids_beyond_64_bits_stay_equal():
    build = TraceBuilder()
    build.launch(5, correlation=2**63 + 5)
    build.kernel("k", 20, 5, launch=2**63 + 5)
    trace = build.trace()
    assert trace.links.launch[row_of(trace, "k")] == row_of(trace, "cudaLaunchKernel")


def test_call_kinds_are_stored_for_calls_only():
    build = TraceBuilder()
    build.op("cudaLaunchKernel", 0, 1)
    build.launch(5)
    trace = build.trace()
    assert trace.links.call.tolist() == [Call.OTHER, Call.LAUNCH_KERNEL]
    assert trace.kind.tolist() == [RowKind.OPERATOR, RowKind.CALL]


def test_ids_of_operators_are_read_on_first_use():
    build = TraceBuilder()
    build.op("aten::mm", 0, 20, sequence=41)
    build.op("aten::add", 30, 5, args={"External id": "9", "Sequence number": None})
    trace = build.trace()
    assert trace.external.tolist() == [1, 9]
    assert trace.sequence.tolist() == [41, -1]


def two_ranks(*, behind: float, devices: tuple[int, int] = (0, 1), own_id: bool = False):
    """Two processes with the same ids, the second ``behind`` µs late; kernels begin 20 µs after their launch."""
    build = TraceBuilder()
    for rank, device in enumerate(devices):
        ids = [*range(1, 51), *([60 + rank] if own_id else [])]
        for k, correlation in enumerate(ids):
            at = 50 * k + rank * behind
            build.launch(at, 5, correlation=correlation, pid=100 + rank, tid=100 + rank)
            build.kernel(f"rank {rank}", at + 20, 5, launch=correlation, device=device)
    return build.trace()


def ranks_that_match(trace) -> int:
    launched = trace.links.launch[trace.gpu_rows].tolist()
    pairs = zip(trace.gpu_rows.tolist(), launched, strict=True)
    return sum(trace.name(row) == f"rank {trace.lanes[trace.lane[launch]].pid - 100}" for row, launch in pairs)


@pytest.mark.parametrize("behind", [0.0, 5.0, 30.0, 20_000.0])
def test_an_id_of_one_process_tells_which_device_it_drives(behind):
    trace = two_ranks(behind=behind, own_id=True)
    assert ranks_that_match(trace) == len(trace.gpu_rows) == 102
    assert trace.links.ambiguous == 0


def test_the_order_in_time_tells_which_process_drives_a_device():
    trace = two_ranks(behind=30.0)
    assert ranks_that_match(trace) == 100
    assert trace.links.ambiguous == 0


def test_what_neither_ids_nor_times_tell_is_counted():
    assert two_ranks(behind=5.0).links.ambiguous == 100
    assert two_ranks(behind=30.0, devices=(0, 0)).links.ambiguous == 100
    assert two_ranks(behind=30.0, devices=(0, 0), own_id=True).links.ambiguous == 100


def test_one_process_that_uses_an_id_again_takes_the_nearest_earlier_launch():
    build = TraceBuilder()
    for at in (0, 100, 200):
        build.launch(at, 5, correlation=7)
        build.kernel("k", at + 20, 5, launch=7)
    build.kernel("too early", -10, 5, launch=7)
    trace = build.trace()
    starts = [trace.start_us(launch) for launch in trace.links.launch[trace.gpu_rows]]
    assert starts == [10.0, 10.0, 110.0, 210.0]
    assert trace.links.ambiguous == 4


def test_with_one_id_for_everything_the_nearest_earlier_launch_is_taken():
    build = TraceBuilder()
    for k in range(5000):
        build.launch(10 * k, 1, correlation=7, pid=100 + k % 2)
        build.kernel("k", 10 * k + 5, 1, launch=7, device=k)
    trace = build.trace()
    assert (trace.start[trace.gpu_rows] - trace.start[trace.links.launch[trace.gpu_rows]] == 5000).all()
