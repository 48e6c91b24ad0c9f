"""How ATen cuts a reduction on CUDA: threads, blocks, and whether blocks share one result.

When several blocks work on one result they meet through counters that a memset clears before the kernel, so a trace
shows one row more. Source: ``aten/src/ATen/native/cuda/Reduce.cuh`` (``setReduceConfig``, ``ReduceConfig``); checked
against the grids of the H200 traces (528 blocks for a full sum of 6291456 bf16 elements).
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.knowledge.gpus.datasheet import Gpu

__all__ = ["Reduction", "shares_results"]

_WARP = 32
_THREADS = 512
_LEAST_VALUES = 16
_MOST_VALUES = 256
_INPUT_VECTOR = 4
_OUTPUT_VECTOR = 4
# Threads an SM holds; 2048 on the data-centre parts, 1536 on consumer parts of compute capability 8.6, 8.9, 12.0.
_SM_THREADS = {"8.6": 1536, "8.7": 1536, "8.9": 1536, "12.0": 1536, "12.1": 1536}


@dataclass(frozen=True, slots=True)
class Reduction:
    """``outputs`` results of ``inputs`` elements each.

    ``inner``: the fastest-moving dimension is reduced. ``contiguous``: its elements lie side by side. ``flat``: the
    whole reduction is one dimension once neighbours are joined.
    """

    outputs: int
    inputs: int
    inner: bool
    contiguous: bool
    flat: bool


def shares_results(shape: Reduction, gpu: Gpu | None) -> bool | None:
    """Whether several blocks reduce into one result; ``None`` where the GPU is not known."""
    if gpu is None:
        return None
    dim0, dim1 = (shape.inputs, shape.outputs) if shape.inner else (shape.outputs, shape.inputs)
    vector = 1
    if shape.contiguous and shape.inner and dim0 > 128 and shape.flat:
        dim0 //= _INPUT_VECTOR
    elif shape.contiguous and not shape.inner:
        vector = _OUTPUT_VECTOR
        while shape.outputs % vector:
            vector //= 2
        dim0 //= vector
    width, height = _block(dim0, dim1, _THREADS // vector)
    step_in = step_out = 1
    if shape.inner:
        step_in *= width
    else:
        step_out *= width
    values = -(-shape.inputs // step_in)
    across_warps = values >= height * _LEAST_VALUES or values >= _MOST_VALUES
    if across_warps:
        step_in *= height
    else:
        step_out *= height
    values = -(-shape.inputs // step_in)
    blocks = -(-(shape.outputs // vector) // step_out)
    target = gpu.sms * (_SM_THREADS.get(gpu.compute_capability or "", 2048) // (width * height))
    if not across_warps or values < _MOST_VALUES or blocks > target:
        return False
    each = max(min(-(-target // blocks), -(-values // _LEAST_VALUES)), -(-values // _MOST_VALUES))
    return each > 1


def _block(dim0: int, dim1: int, threads: int) -> tuple[int, int]:
    wide = threads if dim0 >= threads else _power(dim0)
    high = threads if dim1 >= threads else _power(dim1)
    width = min(wide, _WARP)
    height = min(high, threads // width)
    return min(wide, threads // height), height


def _power(value: int) -> int:
    """The largest power of two that is not above ``value``."""
    return 1 << max(value.bit_length() - 1, 0)
