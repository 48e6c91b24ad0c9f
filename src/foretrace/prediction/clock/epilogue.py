"""How long a product takes that does more with its result before it writes it: foretrace's fused kernels.

On the H200 a gate and up product with its gated activation takes between 0.93 and 1.05 of the bare product of the
library, whatever the activation: the epilogue of one tile hides behind the product of the next (8192×768×6144 and
8192×4096×28672 in bf16), and what it writes beside hidden hides in the same way, as far as the memory has time for it.

The backward's epilogue reads as much as it writes, and hides less well. There a product of 8192×3072×768 took 89 µs
where the bare one takes 59.5 and all its bytes 56, and one of 8192×14336×4096 took 1.00 to 1.07 of the bare one.

All these are times of the Hopper kernel. How much longer another kernel takes, dispatch knows, and the work says it.
Where the two do not compare, as with few rows, dispatch's model expects a time of the kernel itself: one fitted to
calls on the H200 that found the L2 cache empty. Neither estimate is a measurement of that kernel, so that the
prediction lies between them, and its interval holds both.
"""

from __future__ import annotations

from math import hypot, log, sqrt

from foretrace.knowledge.calibration.margins import MODEL_ONLY, STAND_IN
from foretrace.knowledge.kernels.predicted import spell
from foretrace.prediction.clock.library import bare_product_us, kernel_row
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.memory import memory_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Work

__all__ = ["fused_row"]

# How sharply the slower of product and memory hides the other, forward as in `foretrace.prediction.clock.products`;
# backward so that both measured products come out.
_OVERLAP = 4.0
_OVERLAP_BACKWARD = 1.6


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
    is_backward = any(name.endswith("_backward") for name in work.epilogue)
    overlap = _OVERLAP_BACKWARD if is_backward else _OVERLAP
    us = max(bare, (bare**overlap + memory**overlap) ** (1 / overlap)) * work.beside_hopper
    width = clock.half_width(MODEL_ONLY if is_backward else STAND_IN)
    if work.expected_us is not None:
        # Dispatch's figure is that of a GPU of the architecture, and no kernel takes less than its bytes do.
        expected = max(work.expected_us, memory)
        width = hypot(width, log(expected / us) / 2)
        us = sqrt(us * expected)
    name = spell("gemm", dtype=work.dtype, layout=product.layout, ops=("mm", *work.epilogue), epilogue=work.epilogue)
    return kernel_row(name, us, width, work, clock.basis(_basis(work)))


def _basis(work: Work) -> str:
    rests = "the bare product, and its epilogue as far as that hides behind it"
    if work.expected_us is not None:
        return f"between {rests}, measured on the H200, and what dispatch expects of this kernel"
    if work.beside_hopper != 1.0:
        rests += ", in the Hopper kernel, times what dispatch knows of this one beside it"
    return f"{rests}, measured on the H200"
