"""How long the gradient of a weight from few rows takes: a product that is written once and hardly reads anything.

foretrace's kernels for it take the time of a pass over memory, whatever L2 holds: what they write goes there in the
end. To that come the start of the first tiles and the product, at half the rate of large ones (as fitted to the figures
below); tensor cores take rows by sixteens, so that 2 are as many as 16.

On the H200, in bf16, L2 cold, of 1, 16 and 32 rows: weights of 16384×2048 took 18.0, 20.7 and 23.1 µs, of 28672×4096
53.9, 58.8 and 66.6, of 1536×512 1.7, 2.2 and 2.3. Of 15 such products 14 come out within 13 %, and one at 0.84 of its
time.
"""

from __future__ import annotations

from math import ceil

from foretrace.knowledge.calibration.margins import STAND_IN
from foretrace.knowledge.kernels.predicted import spell
from foretrace.prediction.clock.library import kernel_row
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.memory import memory_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Work

__all__ = ["weight_gradient_row"]

# Until the first tiles are written.
_START_US = 0.5
# Of the rate of large products.
_ARITHMETIC = 0.5
# Rows of the tensor cores' smallest product; a single row is multiplied without them.
_STEP = 16


def weight_gradient_row(work: Work, clock: Machine) -> Planned:
    """The one kernel of a gradient from few rows.

    Raises ``KeyError`` where the datasheet has no rate for its element type.
    """
    assert work.product is not None
    m, n, rows = work.product.m, work.product.n, work.product.k
    multiplied = rows if rows == 1 else ceil(rows / _STEP) * _STEP
    moved = sum(access.bytes for access in (*work.reads, *work.writes))
    arithmetic = 2 * m * n * multiplied / (_ARITHMETIC * clock.product_rates(work.dtype).tflops * 1e6)
    us = memory_us(clock.memory, moved, warm=False) + _START_US + arithmetic
    width = clock.half_width(STAND_IN)
    name = spell("gemm", dtype=work.dtype, layout=work.product.layout, ops=("mm",))
    basis = clock.basis("a pass over memory, and the product besides, measured on the H200")
    return kernel_row(name, us, width, work, basis)
