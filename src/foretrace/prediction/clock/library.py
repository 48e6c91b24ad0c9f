"""The rows a matrix-product library launches for one call: the kernel, a split's reduction, a counter's memset."""

from __future__ import annotations

from math import exp, hypot

import numpy as np

from foretrace.knowledge.calibration.margins import AGREEING, DISAGREEMENT, MEMSET, MODEL_ONLY
from foretrace.knowledge.calibration.stand_ins import measured_as
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.kernels.predicted import spell
from foretrace.knowledge.lowering.cublas import COUNTER_BYTES, SPLIT_K_ROLE, has_tile_counter
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.neighbours import Correction
from foretrace.prediction.clock.points import product_points
from foretrace.prediction.clock.products import best_tile, product_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Product, Work

__all__ = ["bare_product_us", "kernel_row", "product_rows"]

# As the calibration's patterns write the memset that some libraries issue before a product's kernel.
_CLEARED = "memset"


def product_rows(work: Work, missing: float, clock: Machine) -> list[Planned]:
    """The rows of one product; ``missing``: share of its operands that come from memory, 0..1.

    Raises ``KeyError`` where the datasheet has no rate for its element type.
    """
    us, near = _product_us(work, missing, clock)
    assert work.product is not None
    if near is None:
        return _modelled(work, work.product, us, clock)
    return _measured(work, work.product, us, near, clock)


def bare_product_us(work: Work, missing: float, clock: Machine) -> float:
    """µs of a product by itself, whatever a fused kernel does besides; arguments as for `product_rows`."""
    return _product_us(work, missing, clock)[0]


def _product_us(work: Work, missing: float, clock: Machine) -> tuple[float, Correction | None]:
    """µs, and the measured products near it, where there are any."""
    product = work.product
    assert product is not None
    sizes = [np.array([float(side)]) for side in (product.m, product.n, product.k, product.batch)]
    rates = clock.product_rates(work.dtype)
    cold, warm = (float(product_us(rates, *sizes, warm=is_warm)[0]) for is_warm in (False, True))
    near = _correction(product, work.dtype, clock)
    if near is None or not near.is_near:
        return warm + missing * (cold - warm), None
    cold, warm = cold * exp(near.cold), warm * exp(near.warm)
    return warm + missing * (cold - warm), near


def _correction(product: Product, dtype: str, clock: Machine) -> Correction | None:
    """What measured products say; ``None`` for another architecture, whose kernels are other ones."""
    group = clock.product_group(dtype, product.layout) if clock.related else None
    if group is None:
        return None
    (point,) = product_points(
        np.array([[product.m, product.n, product.k, product.batch]], dtype=np.float64),
        product.layout,
        bias=np.array([product.bias]),
        dtype=dtype,
        fp16=np.array([dtype == "fp16"]),
    )
    return group.near(point)


def _measured(work: Work, product: Product, us: float, near: Correction, clock: Machine) -> list[Planned]:
    """The rows that the neighbours launched, under their names."""
    width = clock.half_width(hypot(AGREEING, DISAGREEMENT * near.spread))
    basis = clock.basis(f"the tile model, corrected by measured products of the {clock.calibration.gpu}")
    pattern = clock.calibration.patterns[near.pattern]
    names = tuple(name for name in pattern if name != _CLEARED)
    shares = _shares(names, near.extra)
    main = names[shares.index(max(shares))]
    # The neighbours' tile, but this product's number of tiles.
    counted = has_tile_counter(decode(main), product.m, product.n, product.batch, clock.gpu.sms)
    cleared = counted if counted is not None else _CLEARED in pattern
    rows = [
        kernel_row(name, us * share, width, work if name == main else None, basis)
        for name, share in zip(names, shares, strict=True)
    ]
    return [_memset(work.dtype, clock), *rows] if cleared else rows


def _modelled(work: Work, product: Product, us: float, clock: Machine) -> list[Planned]:
    """Without measured neighbours: the tile and the split that the model finds best."""
    rates = clock.product_rates(work.dtype)
    width = clock.half_width(MODEL_ONLY)
    basis = "the tile model alone"
    if not clock.calibration.exact:
        basis = f"the tile model with constants of the {clock.calibration.gpu}, scaled by the datasheets"
    rows, columns, parts = best_tile(rates, product.m, product.n, product.k, product.batch)
    name = spell(
        "gemm",
        dtype=work.dtype,
        layout=product.layout,
        tile=f"{rows}x{columns}",
        splitk=parts > 1,
        epilogue=("bias",) if product.bias else (),
    )
    if parts == 1:
        return [kernel_row(name, us, width, work, basis)]
    reduction_us = min(us / 2, rates.split_us)
    reduction = spell("gemm", dtype=work.dtype, role=SPLIT_K_ROLE)
    return [
        kernel_row(name, us - reduction_us, width, work, basis),
        kernel_row(reduction, reduction_us, width, None, basis),
    ]


def _shares(names: tuple[str, ...], extra: float) -> list[float]:
    """Which part of the time each row takes: the helpers share ``extra`` equally, the other rows the rest."""
    helpers = [_is_helper(name) for name in names]
    if all(helpers) or not any(helpers):
        helpers = [index > 0 for index in range(len(names))]
    count = sum(helpers)
    return [extra / count if helper else (1 - extra) / (len(names) - count) for helper in helpers]


def _is_helper(name: str) -> bool:
    decoded = decode(name)
    return decoded.kind != "gemm" or "role" in decoded.decoded


def kernel_row(name: str, us: float, width: float, work: Work | None, basis: str) -> Planned:
    """One kernel; the main one of a product carries its FLOPs and bytes, a helper (``work`` None) none."""
    return Planned(
        row="kernel",
        name=name,
        kind=decode(name).kind,
        us=us,
        low_us=us * exp(-width),
        high_us=us * exp(width),
        flops=work.flops if work is not None else None,
        bytes=sum(access.bytes for access in (*work.reads, *work.writes)) if work is not None else None,
        basis=basis,
    )


def _memset(dtype: str, clock: Machine) -> Planned:
    """The counter that is cleared before a product; one row, so that it is counted in no kernel."""
    _, us = clock.memory_bound_us(measured_as("memset", "memset", dtype), COUNTER_BYTES)
    width = clock.half_width(MEMSET)
    return Planned(
        row="memset",
        name="Memset (Device)",
        kind="memset",
        us=us,
        low_us=us * exp(-width),
        high_us=us * exp(width),
        flops=None,
        bytes=COUNTER_BYTES,
        basis=clock.basis(f"measured memsets of the {clock.calibration.gpu}"),
    )
