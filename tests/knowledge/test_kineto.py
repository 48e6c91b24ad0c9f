"""What the profiler's own words mean."""

from __future__ import annotations

import pytest

from foretrace.knowledge.kineto import (
    Call,
    RowKind,
    call_kind,
    compiled_region,
    graph_capture,
    log_counts,
    memcpy_direction,
    row_kind,
    source_line,
    step_number,
)


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", RowKind.OPERATOR),
        ("Operator", RowKind.OPERATOR),
        ("Kernel", RowKind.KERNEL),
        ("gpu_memcpy", RowKind.MEMCPY),
        ("Memset", RowKind.MEMSET),
        ("cuda_driver", RowKind.CALL),
        ("gpu_user_annotation", RowKind.GPU_ANNOTATION),
        ("overhead", RowKind.OVERHEAD),
        ("cuda_sync", RowKind.SYNC),
        ("toplevel", RowKind.OTHER),
        (None, RowKind.OTHER),
    ],
)
def test_categories(category, kind):
    assert row_kind(category) is kind


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("cudaLaunchKernel", Call.LAUNCH_KERNEL),
        ("cudaLaunchKernelExC_v11060", Call.LAUNCH_KERNEL),
        ("cudaLaunchCooperativeKernel", Call.LAUNCH_KERNEL),
        ("cuLaunchKernel", Call.LAUNCH_KERNEL),
        ("cuLaunchKernelEx", Call.LAUNCH_KERNEL),
        ("hipLaunchKernel", Call.LAUNCH_KERNEL),
        ("hipModuleLaunchKernel", Call.LAUNCH_KERNEL),
        ("hipExtModuleLaunchKernel", Call.LAUNCH_KERNEL),
        ("cudaGraphLaunch", Call.LAUNCH_GRAPH),
        ("hipGraphLaunch", Call.LAUNCH_GRAPH),
        ("cudaMemcpyAsync", Call.MEMCPY),
        ("hipMemcpyWithStream", Call.MEMCPY),
        ("cuMemcpyHtoDAsync_v2", Call.MEMCPY),
        ("cudaMemsetAsync", Call.MEMSET),
        ("cuMemsetD32Async", Call.MEMSET),
        ("cudaStreamWaitEvent", Call.STREAM_WAIT),
        ("cudaDeviceSynchronize", Call.SYNCHRONIZE),
        ("cuStreamSynchronize", Call.SYNCHRONIZE),
        ("hipEventSynchronize", Call.SYNCHRONIZE),
        ("cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", Call.OCCUPANCY),
        ("cudaMalloc", Call.ALLOCATE),
        ("cudaFree", Call.FREE),
        ("cuModuleLoadData", Call.MODULE_LOAD),
        ("cudaStreamIsCapturing", Call.QUERY),
        ("aten::mm", Call.OTHER),
    ],
)
def test_calls(name, call):
    assert call_kind(name) is call


def test_names_with_a_meaning():
    assert step_number("ProfilerStep#12") == 12
    assert step_number("ProfilerStep#12 (warm)") is None
    assert compiled_region("Torch-Compiled Region: 0/1") == "0/1"
    assert source_line("train.py(12): step") == ("train.py", 12, "step")
    assert memcpy_direction("Memcpy HtoD (Pageable -> Device)") == "HtoD"
    assert memcpy_direction("CopyDeviceToHost") == "DtoH"


def test_graph_capture_calls():
    assert graph_capture("cudaStreamBeginCapture_v10010") == 1
    assert graph_capture("hipStreamEndCapture") == -1
    assert graph_capture("cudaStreamIsCapturing") == 0


def test_counts_of_lost_records_in_the_profilers_log():
    line = "Record counts: Out-of-range = 3, Blocklisted runtime = 9, CUPTI stopped early? = 1"
    assert log_counts(line) == {"Out-of-range": 3, "Blocklisted runtime": 9, "CUPTI stopped early?": 1}
    assert log_counts("Dropped 17 activity records") == {"Dropped": 17}
    assert log_counts("Processed 27 GPU records") == {}
