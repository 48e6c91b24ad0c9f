"""What cuBLAS puts beside its matrix-product kernels.

Hopper's own kernels (``nvjet_sm90_*``) stay resident and hand out tiles themselves. Up to two and a half rounds of
tiles they are dealt in a fixed order; beyond that through a counter, which a 4-byte memset clears before each call.
Measured on an H200 (torch 2.11, cuBLAS 13): of 24 000 products, 7 700 have more than 2.5 tiles a multiprocessor, and
99.2 % of these have the memset; of the others 0.1 % have it (benchmarks/predictor).
"""

from __future__ import annotations

from math import ceil

__all__ = ["SPLIT_K_ROLE", "uses_tile_counter"]

_FIXED_ROUNDS = 2.5
# The role of the kernel that adds the parts of a product whose reduction was split, as the kernel decoder words it.
SPLIT_K_ROLE = "split-K reduction"


def uses_tile_counter(m: int, n: int, batch: int, tile_m: int, tile_n: int, multiprocessors: int) -> bool:
    """Whether an ``nvjet`` kernel of this tile deals its tiles through a counter, and so has a memset before it."""
    tiles = ceil(m / tile_m) * ceil(n / tile_n) * batch
    return tiles > _FIXED_ROUNDS * multiprocessors
