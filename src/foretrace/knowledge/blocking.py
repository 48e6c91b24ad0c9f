"""Which API calls and loads hold the CPU up, and whose they are.

Sources: the CUDA Runtime API's page "API synchronization behavior" (a copy between device memory and pageable host
memory returns only when it is done; copies inside the device do not hold the host), HIP's ``hipMemcpyWithStream``
(a copy followed by a wait for its stream), and the Python frames and labels of PyTorch's own sources.
"""

from __future__ import annotations

import re
from functools import lru_cache

__all__ = [
    "holds_cpu",
    "is_communication_owner",
    "is_device_wide",
    "is_lazy_loading",
    "is_profiler_frame",
]

# Copies whose name lacks ``Async`` return when they are done.
_SYNCHRONOUS_COPY = re.compile(
    r"(?:cuda|hip)Memcpy(?:2D|3D)?(?:ToSymbol|FromSymbol|ToArray|FromArray|WithStream|DtoH|HtoD)?(?:_v\d+|_ptds)?\Z"
    r"|cuMemcpy(?:2D|3D)?(?:DtoH|HtoD|AtoH|HtoA)?(?:_v\d+|_ptds)*\Z"
)
_TO_PAGEABLE = re.compile(r"Memcpy DtoH \(\w+ -> Pageable\)")
_INSIDE_DEVICE = re.compile(r"Memcpy (?:DtoD|PtoP)|CopyDeviceToDevice")
_DEVICE_WIDE = re.compile(r"(?:cuda|hip)(?:Device|Thread)Synchronize|cuCtxSynchronize")
_PROFILER_FRAME = re.compile(r"(?:.*/)?torch/(?:profiler/\w+|autograd/profiler)\.py\(\d+\): ")


@lru_cache(maxsize=4096)
def holds_cpu(call: str, copy: str) -> bool:
    """Whether an API call that made a copy row returns only when the copy is done.

    ``call`` is the API's name (``cudaMemcpyAsync``), ``copy`` the row it put on the GPU
    (``Memcpy DtoH (Device -> Pageable)``).
    """
    if _INSIDE_DEVICE.match(copy):
        return False
    return bool(_SYNCHRONOUS_COPY.match(call) or _TO_PAGEABLE.match(copy))


@lru_cache(maxsize=4096)
def is_device_wide(call: str) -> bool:
    """Whether a synchronizing call waits for everything on the device (``cudaDeviceSynchronize``)."""
    return bool(_DEVICE_WIDE.match(call))


def is_lazy_loading(name: str) -> bool:
    """Whether an overhead row is CUDA loading a kernel on its first use: the program's doing, not the profiler's.

    CUPTI reports it among its overheads (``RUNTIME_TRIGGERED_MODULE_LOADING``, ``LAZY_FUNCTION_LOADING``).
    """
    return name in ("Runtime Triggered Module Loading", "Lazy Function Loading")


@lru_cache(maxsize=4096)
def is_profiler_frame(name: str) -> bool:
    """Whether a Python frame is the profiler's own code (``torch/profiler/profiler.py(278): stop_trace``)."""
    return bool(_PROFILER_FRAME.match(name))


@lru_cache(maxsize=4096)
def is_communication_owner(name: str) -> bool:
    """Whether an operator or annotation is torch.distributed's own (DDP, collectives), not the user's code."""
    return name.startswith(("DistributedDataParallel.", "nccl:", "gloo:", "c10d::", "_c10d_functional::", "FSDP::"))
