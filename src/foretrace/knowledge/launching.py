"""How GPU work is put on a stream: which API call does it, and what the hardware takes between call and kernel.

Source of the calls: the rows of real traces of torch 2.1 to 2.13 on CUDA and ROCm (PyTorch's own kernels go through
the runtime, cuBLAS, cuDNN and Triton through the driver). Source of the times: the project's traces of an H200,
3000 launches; medians, with tenth and ninetieth percentile beside them.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["HANDOVER_US", "START_LATENCY_US", "launch_call"]

# From the end of the launch call to the kernel's start on an idle GPU: 9.7 µs (7.8 to 13.2) after the call's start, of
# which the call itself takes about 5 under the profiler.
START_LATENCY_US = 4.5
# Between the end of one row and the start of the next that is already queued on the stream: 1.25 µs (1.1 to 2.0).
HANDOVER_US = 1.25

_RUNTIME, _DRIVER = "cuda_runtime", "cuda_driver"
# Family of the kernel's name → call, category; any other family goes through the runtime.
_NVIDIA = {
    "nvjet": ("cuLaunchKernelEx", _DRIVER),
    "cudnn": ("cuLaunchKernelEx", _DRIVER),
    "cutlass": ("cuLaunchKernel", _DRIVER),
    "nccl": ("cuLaunchKernelEx", _DRIVER),
    "inductor": ("cuLaunchKernel", _DRIVER),
    "foretrace": ("cuLaunchKernelEx", _DRIVER),
    "liger": ("cuLaunchKernelEx", _DRIVER),
    "triton": ("cuLaunchKernelEx", _DRIVER),
}
_AMD = {
    "tensile": ("hipExtModuleLaunchKernel", _RUNTIME),
    "inductor": ("hipModuleLaunchKernel", _RUNTIME),
    "triton": ("hipModuleLaunchKernel", _RUNTIME),
}


def launch_call(row: Literal["kernel", "memset", "memcpy"], family: str, vendor: str) -> tuple[str, str]:
    """The API call that puts a row on a stream, and the category a trace gives the call.

    ``family`` is the library of a kernel's name (`foretrace.knowledge.kernels.Decoded.family`), ``vendor`` that of
    the GPU. ROCm's calls have the category of CUDA's runtime.
    """
    prefix = "hip" if vendor == "AMD" else "cuda"
    if row == "memset":
        return f"{prefix}MemsetAsync", _RUNTIME
    if row == "memcpy":
        return f"{prefix}MemcpyAsync", _RUNTIME
    table = _AMD if vendor == "AMD" else _NVIDIA
    return table.get(family, (f"{prefix}LaunchKernel", _RUNTIME))
