"""torch's optimizers and what their fused implementations move.

Source: ``torch/optim`` of torch 2.4 to 2.13: which classes take ``fused=True`` and ``foreach``, and which tensors
the fused kernels read and write (``aten/src/ATen/native/cuda/fused_adam_utils.cuh`` and its neighbours).
"""

from __future__ import annotations

import re

__all__ = ["FUSED", "FUSED_PASSES", "optimizer_class"]

# Classes with fused=True on CUDA.
FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
# Times that a fused step reads or writes a tensor as large as the parameters: Adam reads the parameter, its
# gradient and both moments and writes all but the gradient.
FUSED_PASSES = {"Adam": 7, "AdamW": 7}

_STEP = re.compile(r"Optimizer\.step#(\w+)\.step")


def optimizer_class(annotation: str) -> str | None:
    """``Optimizer.step#AdamW.step`` → ``AdamW``."""
    found = _STEP.match(annotation)
    return found.group(1) if found else None
