"""How well measured products foretell one another: each asked of the calibration without itself.

    python benchmarks/predictor/leave_out.py rows.json.gz --gpu H200

For each element width: the error with operands in memory and in the cache, the share of products inside the clock's
interval, and the same for the tile model alone. What the margins in ``foretrace.knowledge.calibration`` are set by.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from calibrate import Product, features_of, products_of, read

from foretrace.knowledge import gpus
from foretrace.knowledge.calibration.margins import AGREEING, DISAGREEMENT, MODEL_ONLY
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.neighbours import Measured
from foretrace.prediction.clock.products import product_us

# Squared distance below which a measured product is the one that is asked for.
SAME = 1e-6


def judge(product: Product, clock: Machine) -> list[float] | None:
    """Logarithms of measured over predicted time: cold and warm, cold and warm of the bare model; the half-width."""
    group = clock.product_group(product.dtype, product.layout)
    if group is None or math.isnan(product.cold):
        return None
    (point,) = features_of([product])
    others = ((group.features - point) ** 2).sum(axis=1) > SAME
    arrays = (group.features, group.cold, group.warm, group.pattern, group.extra)
    near = Measured(*(array[others] for array in arrays)).near(point)
    rates, sizes = clock.product_rates(product.dtype), [np.array([float(side)]) for side in product.sizes]
    cold, warm = (
        math.log(measured / float(product_us(rates, *sizes, warm=is_warm)[0]))
        for is_warm, measured in ((False, product.cold), (True, product.warm))
    )
    return [cold - near.cold, warm - near.warm, cold, warm, math.hypot(AGREEING, DISAGREEMENT * near.spread)]


def said(found: Any) -> str:
    """One line of the table from the rows of `judge`."""
    errors, width = np.abs(found[:, :4]), found[:, 4:]
    typical, inside = np.median(errors, axis=0), (errors[:, :2] <= width).mean(axis=0)
    alone = (errors[:, 2:] <= MODEL_ONLY).mean(axis=0)
    return (
        f"{len(found)} products; median error cold {typical[0]:.1%}, warm {typical[1]:.1%}; "
        f"inside the interval {inside[0]:.0%}, {inside[1]:.0%} (median half-width {np.median(width):.1%}); "
        f"the model alone {typical[2]:.1%}, {typical[3]:.1%}, within {MODEL_ONLY:.0%}: {alone[0]:.0%}, {alone[1]:.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--gpu", required=True)
    parser.add_argument("--count", type=int, default=3000, help="how many products to ask for, drawn at random")
    args = parser.parse_args()
    gpu = gpus.find(args.gpu)
    assert gpu is not None
    clock = Machine(gpu)
    products = products_of(read(args.rows, warm_only=False), set())
    chosen = [products[i] for i in np.random.default_rng(1).permutation(len(products))[: args.count]]
    for dtypes in (("bf16", "fp16"), ("fp32",)):
        found = [judge(product, clock) for product in chosen if product.dtype in dtypes]
        print(f"{', '.join(dtypes)}: {said(np.array([line for line in found if line is not None]))}")


if __name__ == "__main__":
    main()
