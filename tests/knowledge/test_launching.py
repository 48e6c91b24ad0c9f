"""The calls that put work on a stream are calls the reader knows as such."""

import pytest

from foretrace.knowledge.kineto import Call, RowKind, call_kind, row_kind
from foretrace.knowledge.launching import launch_call

FAMILIES = (
    "aten",
    "nvjet",
    "cudnn",
    "cutlass",
    "nccl",
    "foretrace",
    "inductor",
    "liger",
    "triton",
    "tensile",
    "predicted",
    "unknown",
)


@pytest.mark.parametrize("vendor", ["NVIDIA", "AMD"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_kernel_is_launched_by_a_kernel_launch(family, vendor):
    name, category = launch_call("kernel", family, vendor)
    assert call_kind(name) == Call.LAUNCH_KERNEL
    assert row_kind(category) == RowKind.CALL
    assert name.startswith("hip") == (vendor == "AMD")


@pytest.mark.parametrize(("row", "kind"), [("memset", Call.MEMSET), ("memcpy", Call.MEMCPY)])
@pytest.mark.parametrize("vendor", ["NVIDIA", "AMD"])
def test_copies_and_memsets_have_calls_of_their_own(row, kind, vendor):
    assert call_kind(launch_call(row, row, vendor)[0]) == kind


def test_libraries_differ():
    assert launch_call("kernel", "nvjet", "NVIDIA") == ("cuLaunchKernelEx", "cuda_driver")
    assert launch_call("kernel", "aten", "NVIDIA") == ("cudaLaunchKernel", "cuda_runtime")
