"""Where a call lies among the measured ones: the axes of the neighbour search, in doublings."""

from __future__ import annotations

from math import log2

import numpy as np
from numpy.typing import NDArray

__all__ = ["PRODUCT_AXES", "attention_point", "dtype_and_layout", "memory_point", "product_group", "product_points"]

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

_MISALIGNMENTS = ("first misaligned", "second misaligned", "result misaligned")
PRODUCT_AXES = ("m", "n", "k", "batch", *_MISALIGNMENTS, "bias", "fp16", *("tiles",) * 3)
# Libraries choose by how many tiles cover the result; that number jumps where the sizes themselves do not.
_TILES = ((64, 64), (128, 128), (128, 256))
_TILED = 0.6
# Rows that are no multiple of 16 bytes get other, slower kernels: as far away as a factor of 2.4 in one size.
_MISALIGNED = 1.25
_BIAS = 0.5
_FP16 = 0.4
# A reduction ten times as long is less of another call than one over ten times as many bytes.
_REDUCED = 0.5
_STRIDED = 1.0
_CAUSAL = 3.0  # far enough that full attention is a neighbour only where no masked one was measured
_HALF = "16-bit"


def product_group(dtype: str, layout: str) -> str:
    """Products are compared within one width of element and one layout; bf16 and fp16 share their kernels."""
    return f"{_HALF if dtype in ('bf16', 'fp16') else dtype} {layout}"


def dtype_and_layout(group: str) -> tuple[str, str]:
    """An element type of a group of products, and its layout: the way back from `product_group`."""
    width, layout = group.split()
    return ("bf16" if width == _HALF else width), layout


def product_points(sizes: Floats, layout: str, *, bias: Flags, dtype: str, fp16: Flags) -> Floats:
    """The positions of products, shape ``(points, 12)``, in the order of `PRODUCT_AXES`.

    ``sizes``: m, n, k and batch, shape ``(points, 4)``; ``bias`` and ``fp16``: shape ``(points,)``.
    """
    m, n, k, batch = np.asarray(sizes, dtype=np.float64).T
    # The dimension along which each operand is contiguous in memory, first operand (row-major m × k) first.
    first, second = (k if layout[1] == "N" else m), (n if layout[0] == "N" else k)
    vector = 4 if dtype == "fp32" else 8
    axes = [
        *(np.log2(extent) for extent in (m, n, k, batch)),
        _MISALIGNED * (first % vector != 0),
        _MISALIGNED * (second % vector != 0),
        _MISALIGNED * (n % vector != 0),
        _BIAS * np.asarray(bias, dtype=np.float64),
        _FP16 * np.asarray(fp16, dtype=np.float64),
        *(_TILED * np.log2(np.ceil(m / rows) * np.ceil(n / columns)) for rows, columns in _TILES),
    ]
    return np.stack(axes, axis=1)


def memory_point(moved: int, reduced: int, *, strided: bool) -> Floats:
    """The position of a memory-bound call, shape ``(3,)``: bytes moved, length of a reduction, its direction."""
    return np.array([log2(max(moved, 1)), _REDUCED * log2(max(reduced, 1)), _STRIDED * strided])


def attention_point(flops: float, moved: int, *, causal: bool) -> Floats:
    """The position of an attention kernel, shape ``(3,)``: FLOPs, bytes, and whether half of the scores is masked."""
    return np.array([log2(max(flops, 1)), log2(max(moved, 1)), _CAUSAL * causal])
