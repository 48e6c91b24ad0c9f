"""How PyTorch's profiler writes what its allocators do (``profile_memory``), and how those allocators round.

Sources: ``[memory]`` rows of real traces (torch 1.8 to 2.13; ``torch/csrc/profiler/collection.cpp`` and
``torch/csrc/autograd/profiler_kineto.cpp``), the numbers of ``c10/core/DeviceType.h``, and the constants of
``c10/cuda/CUDACachingAllocator``.
"""

from __future__ import annotations

__all__ = [
    "CPU",
    "HISTORY_ENTRIES",
    "LEAST_INTERMEDIATE",
    "LITTLE_ON_CPU",
    "OUTLIVED_WORKS",
    "device_name",
    "fits_block",
    "is_host_memory",
    "searches_algorithms",
]

CPU = "cpu"
# c10/core/DeviceType.h; a row of a type that is not here is shown by its number.
_DEVICE_TYPES = {0: CPU, 1: "cuda", 6: "hip", 9: "xla", 12: "xpu", 13: "mps", 15: "hpu", 19: "mtia", 20: "privateuse1"}

# kMinBlockSize: sizes are multiples of it.
_GRAIN = 512
# kSmallSize: of a large block a rest up to here is not split off, and counts as allocated.
_UNSPLIT = 1 << 20

# Where a GPU computes and a step allocates less than this on the CPU, those are numbers on their way (scalars of the
# optimizer, sizes, labels): less than the smallest segment that the GPU's allocator takes (kSmallBuffer, 2 MiB), and no
# host is short of it. A batch of images, or a checkpoint, is above it.
LITTLE_ON_CPU = 1 << 20
# Tensors that fusing would avoid are worth a word from here on: smaller ones stay in the L2 cache of any GPU of the
# last ten years (4 MB and more), and all of a step's together are no memory that anyone misses.
LEAST_INTERMEDIATE = 4 << 20

# A tensor lives on until its Python variable goes out of scope: while so many more operators ran after its last known
# reader, it may well have waited for that (the projection down, dropout, a sum). With more, something else read it.
OUTLIVED_WORKS = 4

# Events the allocator's history keeps: a ring, so that the last ones stay. An entry takes some kB with its stack
# (torch's own documentation); a training step of a large model makes some ten thousand.
HISTORY_ENTRIES = 200_000


def device_name(kind: int, index: int) -> str:
    """``cuda:0``, ``cpu``; a type of device without a known name by its number: ``device type 42:0``."""
    name = _DEVICE_TYPES.get(kind, f"device type {kind}")
    return name if index < 0 or name == CPU else f"{name}:{index}"


def fits_block(asked: int, block: int) -> bool:
    """Whether a block of so many bytes is what the caching allocator gives for a request of ``asked`` bytes."""
    rounded = -(-asked // _GRAIN) * _GRAIN
    return asked == block or rounded <= block <= rounded + (_UNSPLIT if asked > _UNSPLIT else 0)


def is_host_memory(call: str) -> bool:
    """Whether a runtime call allocates or frees pinned memory of the host (``cudaHostAlloc``, ``cudaFreeHost``)."""
    return "Host" in call


def searches_algorithms(op: str) -> bool:
    """Whether an operator may time a library's algorithms and empty the cache after it (``cudnn.benchmark``)."""
    return "convolution" in op or op.removeprefix("aten::").startswith("conv")
