"""How long a product takes that does more with its result before it writes it: foretrace's fused kernels.

On the H200 a gate and up product with its gated activation takes between 0.93 and 1.05 of the bare product of the
library, whatever the activation: the epilogue of one tile hides behind the product of the next (8192×768×6144 and
8192×4096×28672 in bf16). What the epilogue moves beside the product's own bytes (pre-activations read and written in
the backward) can hide in the same way, as far as the memory has time for it.
"""

from __future__ import annotations

from math import exp

from foretrace.knowledge.calibration.margins import MODEL_ONLY, STAND_IN
from foretrace.knowledge.kernels.predicted import spell
from foretrace.prediction.clock.library import bare_product_us
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.memory import memory_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Work

__all__ = ["fused_row"]

# How sharply the slower of product and memory hides the other, as in `foretrace.prediction.clock.products`.
_OVERLAP = 4.0


def fused_row(work: Work, missing: float, clock: Machine) -> Planned:
    """The one kernel of a product with an epilogue; ``missing``: share of its operands that come from memory, 0..1.

    Raises ``KeyError`` where the datasheet has no rate for its element type.
    """
    product = work.product
    assert product is not None
    moved = sum(access.bytes for access in (*work.reads, *work.writes))
    cold, warm = (memory_us(clock.memory, moved, warm=is_warm) for is_warm in (False, True))
    memory = warm + missing * (cold - warm)
    bare = bare_product_us(work, missing, clock)
    us = max(bare, (bare**_OVERLAP + memory**_OVERLAP) ** (1 / _OVERLAP))
    is_backward = any(name.endswith("_backward") for name in work.epilogue)
    width = clock.half_width(MODEL_ONLY if is_backward else STAND_IN)
    return Planned(
        row="kernel",
        name=spell("gemm", dtype=work.dtype, layout=product.layout, ops=("mm", *work.epilogue), epilogue=work.epilogue),
        kind="gemm",
        us=us,
        low_us=us * exp(-width),
        high_us=us * exp(width),
        flops=work.flops,
        bytes=moved or None,
        basis=clock.basis("the bare product; its epilogue hides behind it, as measured on the H200"),
    )
