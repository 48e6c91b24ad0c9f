"""The rows a matrix-product library launches for one call: the kernel, a split's reduction, a counter's memset."""

from __future__ import annotations

from math import exp, hypot

import numpy as np

from foretrace.knowledge.kernels import decode
from foretrace.knowledge.kernels.predicted import spell
from foretrace.knowledge.lowering.cublas import SPLIT_K_ROLE, uses_tile_counter
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.memory import memory_us
from foretrace.prediction.clock.neighbours import Correction
from foretrace.prediction.clock.points import product_points
from foretrace.prediction.clock.products import best_tile, product_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Product, Work

__all__ = ["product_rows"]

# Half-width of the interval where all neighbours agree, and how much of their disagreement is added; logarithms, so
# that eight of ten products left out of the calibration fall inside.
_FLOOR = 0.03
_SPREAD = 1.1
_MODEL_ONLY = 0.25
_COUNTER_BYTES = 4


def product_rows(work: Work, missing: float, clock: Machine) -> list[Planned]:
    """The rows of one product; ``missing``: share of its operands that come from memory.

    Raises ``KeyError`` where the datasheet has no rate for its element type.
    """
    product = work.product
    assert product is not None
    sizes = [np.array([float(side)]) for side in (product.m, product.n, product.k, product.batch)]
    rates = clock.product_rates(work.dtype)
    cold, warm = (float(product_us(rates, *sizes, warm=is_warm)[0]) for is_warm in (False, True))
    near = _correction(product, work.dtype, clock)
    moved = sum(access.bytes for access in (*work.reads, *work.writes))
    if near is None or not near.is_near:
        basis = "the tile model with constants of another GPU" if near is None else "the tile model alone"
        return _modelled(work, product, warm + missing * (cold - warm), moved, clock, basis)
    cold, warm = cold * exp(near.cold), warm * exp(near.warm)
    us = warm + missing * (cold - warm)
    width = hypot(_FLOOR, _SPREAD * near.spread)
    basis = f"the tile model, corrected by measured products of the {clock.calibration.gpu}"
    if not clock.calibration.exact:
        width, basis = hypot(width, _MODEL_ONLY), f"{basis}, scaled by the datasheets"
    names = clock.calibration.patterns[near.pattern]
    found = [] if names[0] != "memset" else [_memset(clock, basis)]
    names = tuple(name for name in names if name != "memset")
    shares = _shares(names, near.extra)
    main = names[shares.index(max(shares))]
    tile = decode(main)
    if tile.family == "nvjet" and "tile_m" in tile.decoded:
        counted = uses_tile_counter(
            product.m, product.n, product.batch, tile.decoded["tile_m"], tile.decoded["tile_n"], clock.gpu.sms
        )
        found = [_memset(clock, basis)] if counted else []
    for name, share in zip(names, shares, strict=True):
        found.append(_row(name, us * share, width, work if name == main else None, moved, basis))
    return found


def _correction(product: Product, dtype: str, clock: Machine) -> Correction | None:
    """What measured products say; ``None`` for another architecture, whose kernels are other ones."""
    group = clock.product_group(dtype, product.layout) if clock.related else None
    if group is None:
        return None
    point = product_points(
        np.array([[product.m, product.n, product.k, product.batch]], dtype=np.float64),
        product.layout,
        bias=np.array([product.bias]),
        dtype=dtype,
        fp16=np.array([dtype == "fp16"]),
    )
    return group.near(point[0])


def _shares(names: tuple[str, ...], extra: float) -> list[float]:
    """Which part of the time each row takes: the helpers share ``extra`` equally, the longest-running has the rest."""
    helpers = [_is_helper(name) for name in names]
    if all(helpers) or not any(helpers):
        helpers = [index > 0 for index in range(len(names))]
    count = sum(helpers)
    return [extra / count if helper else (1 - extra) / (len(names) - count) for helper in helpers]


def _is_helper(name: str) -> bool:
    decoded = decode(name)
    return decoded.kind != "gemm" or "role" in decoded.decoded


def _row(name: str, us: float, width: float, work: Work | None, moved: int, basis: str) -> Planned:
    return Planned(
        row="kernel",
        name=name,
        kind=decode(name).kind,
        us=us,
        low_us=us * exp(-width),
        high_us=us * exp(width),
        flops=work.flops if work is not None else None,
        bytes=moved if work is not None else None,
        basis=basis,
    )


def _memset(clock: Machine, basis: str) -> Planned:
    us = memory_us(clock.memory, _COUNTER_BYTES, warm=True)
    return Planned(
        "memset", "Memset (Device)", "memset", us, us * exp(-0.3), us * exp(0.3), None, _COUNTER_BYTES, None, basis
    )


def _modelled(work: Work, product: Product, us: float, moved: int, clock: Machine, basis: str) -> list[Planned]:
    """Without measured neighbours: the tile and the split that the model finds best."""
    rows, columns, parts = best_tile(clock.product_rates(work.dtype), product.m, product.n, product.k, product.batch)
    name = spell(
        "gemm",
        dtype=work.dtype,
        layout=product.layout,
        tile=f"{rows}x{columns}",
        splitk=parts > 1,
        epilogue=("bias",) if product.bias else (),
    )
    main = _row(name, us, _MODEL_ONLY, work, moved, basis)
    if parts == 1:
        return [main]
    reduction = clock.product_rates(work.dtype).split_us
    share = min(0.5, reduction / us)
    return [
        _row(name, us * (1 - share), _MODEL_ONLY, work, moved, basis),
        _row(spell("gemm", dtype=work.dtype, role=SPLIT_K_ROLE), us * share, _MODEL_ONLY, None, moved, basis),
    ]
