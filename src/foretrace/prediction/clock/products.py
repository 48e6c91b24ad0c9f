"""How long a matrix product takes: tiles, waves, split reductions, cache and memory traffic.

The model is the one a library's own heuristic works with. A kernel covers the result with tiles of ``rows × columns``;
each multiprocessor works on one tile at a time, so the number of rounds ("waves") is the number of tiles over the
number of multiprocessors, rounded up. A tile costs a fixed start, then for every step along ``k`` the larger of its
arithmetic and of the operand bytes it draws from the L2 cache, then the writing of its result. Where the tiles are too
few, ``k`` can be split over several multiprocessors, and the parts are added afterwards. The time of the product is
the best over tiles and splits, or that of moving operands and result between memory and chip if this is longer, plus
a latency.

The constants are fitted to measurements (`foretrace.knowledge.calibration`); tile sizes are those of the kernels that
cuBLAS 13 launches on Hopper and of CUTLASS on Ampere.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["ProductRates", "attention_us", "best_tile", "product_us"]

Floats = NDArray[np.float64]

_TILES = (
    *((64, side) for side in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256)),
    *((128, side) for side in (16, 32, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 256, 320)),
    *((192, 192), (192, 64), (256, 64)),
)
_SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)
# Elements of k that a kernel loads at a time: a split is a multiple of it.
_K_STEP = 64
# How sharply the slower of arithmetic and memory hides the other: 1 would add them, infinity take the larger.
_OVERLAP = 4.0
_PARTIAL_BYTES = 4  # split reductions are kept in fp32


def _tile_table() -> tuple[Floats, Floats, Floats]:
    tiles = sorted(set(_TILES) | {(columns, rows) for rows, columns in _TILES})
    table = np.array([(rows, columns, split) for rows, columns in tiles for split in _SPLITS], dtype=np.float64)
    return table[:, 0], table[:, 1], table[:, 2]


_ROWS, _COLUMNS, _PARTS = _tile_table()


@dataclass(frozen=True, slots=True)
class ProductRates:
    """The constants of the model for one element type on one GPU; TFLOP/s, TB/s and µs."""

    multiprocessors: int
    element_bytes: int
    tflops: float  # of all multiprocessors together, inside the main loop
    cache_tbps: float  # what all multiprocessors together draw from L2
    tile_start_us: float
    store_us: float  # for a hundred thousand elements of one tile's result
    latency_us: float
    cold_tbps: float  # operands come from memory
    warm_tbps: float  # operands that fit are in L2 already
    split_us: float
    split_tbps: float


def product_us(rates: ProductRates, m: Floats, n: Floats, k: Floats, batch: Floats, *, warm: bool) -> Floats:
    """µs of ``batch`` products ``[m, k] @ [k, n]``; the arguments are float64 arrays of one shape ``(points,)``."""
    m, n, k, batch = (np.asarray(a, dtype=np.float64) for a in (m, n, k, batch))
    best = np.full(m.shape, np.inf)
    # One chunk of points at a time: the table of points × tiles × splits of a large sweep would not fit.
    for start in range(0, len(m), 4096):
        part = slice(start, start + 4096)
        best[part] = _tile_us(rates, *(side[part, None] for side in (m, n, k, batch))).min(axis=1)
    moved = rates.element_bytes * batch * (m * n + m * k + n * k)
    memory = moved / ((rates.warm_tbps if warm else rates.cold_tbps) * 1e6)
    together: Floats = rates.latency_us + (best**_OVERLAP + memory**_OVERLAP) ** (1 / _OVERLAP)
    return together


def best_tile(rates: ProductRates, m: int, n: int, k: int, batch: int) -> tuple[int, int, int]:
    """The tile (rows, columns) and the number of parts of ``k`` that the model finds fastest."""
    sizes = (np.array([[float(side)]]) for side in (m, n, k, batch))
    index = int(_tile_us(rates, *sizes)[0].argmin())
    return int(_ROWS[index]), int(_COLUMNS[index]), int(_PARTS[index])


def _tile_us(rates: ProductRates, m: Floats, n: Floats, k: Floats, batch: Floats) -> Floats:
    """µs of every tile and split, shape ``(points, tiles × splits)``; the sizes have shape ``(points, 1)``."""
    depth = np.ceil(k / _PARTS / _K_STEP) * _K_STEP
    tiles = np.ceil(m / _ROWS) * np.ceil(n / _COLUMNS) * _PARTS * batch
    waves = np.ceil(tiles / rates.multiprocessors)
    share = 1e6 / rates.multiprocessors  # of a TFLOP/s or TB/s, for one multiprocessor, in units a µs
    arithmetic = 2 * _ROWS * _COLUMNS / (rates.tflops * share)
    loading = (_ROWS + _COLUMNS) * rates.element_bytes / (rates.cache_tbps * share)
    storing = _ROWS * _COLUMNS * rates.store_us * 1e-5
    took = waves * (rates.tile_start_us + depth * np.maximum(arithmetic, loading) + storing)
    partial = 2 * _PARTIAL_BYTES * _PARTS * m * n * batch / (rates.split_tbps * 1e6)
    everything: Floats = took + np.where(_PARTS > 1, rates.split_us + partial, 0.0)
    return everything


def attention_us(rates: ProductRates, flops: float) -> float:
    """µs of a fused kernel of this many FLOPs at the rate of large products, before measured calls correct it."""
    return rates.latency_us + flops / (rates.tflops * 1e6)
