"""What cuBLAS puts beside its matrix-product kernels.

Hopper's own kernels (``nvjet_sm90_*``) stay resident and hand out tiles themselves. Up to two and a half tiles a
multiprocessor they are dealt in a fixed order; beyond that through a counter, which a 4-byte memset clears before each
call. Measured on an H200 (torch 2.11, cuBLAS 13): of 24 000 products, 7 700 have more than 2.5 tiles a multiprocessor,
and 99.2 % of these have the memset; of the others 0.1 % have it (benchmarks/predictor).
"""

from __future__ import annotations

from math import ceil

from foretrace.knowledge.kernels import Decoded

__all__ = ["COUNTER_BYTES", "SPLIT_K_ROLE", "TILE_COUNTER", "clears_tile_counter", "has_tile_counter"]

COUNTER_BYTES = 4
_TILES_DEALT_IN_ORDER = 2.5  # a multiprocessor
# The law in words, for the texts that explain such a memset.
TILE_COUNTER = (
    "cuBLAS's nvjet kernels deal out their output tiles through a counter once a product has more than "
    f"{_TILES_DEALT_IN_ORDER} tiles a multiprocessor, and a memset of {COUNTER_BYTES} B clears it before each call"
)
# The role of the kernel that adds the parts of a product whose reduction was split, as the kernel decoder words it.
SPLIT_K_ROLE = "split-K reduction"


def has_tile_counter(kernel: Decoded, m: int, n: int, batch: int, multiprocessors: int) -> bool | None:
    """Whether this kernel deals the tiles of ``batch`` results ``[m, n]`` through a counter: a memset precedes it.

    ``None`` for kernels of which this is not known: those that are no ``nvjet`` or whose name tells no tile.
    """
    if kernel.family != "nvjet" or "tile_m" not in kernel.decoded:
        return None
    tiles = ceil(m / kernel.decoded["tile_m"]) * ceil(n / kernel.decoded["tile_n"]) * batch
    return bool(tiles > _TILES_DEALT_IN_ORDER * multiprocessors)


def clears_tile_counter(kernel: Decoded, size: int | None) -> bool:
    """Whether a memset of ``size`` bytes by the operator that launched this kernel clears its tile counter."""
    return kernel.family == "nvjet" and size == COUNTER_BYTES
