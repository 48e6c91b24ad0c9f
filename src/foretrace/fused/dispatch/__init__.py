"""Which kernels serve a call: the fastest that are known to be right.

A plan comes from what a person asked for, else from a measurement on this GPU, else from a table of measurements
that is shipped, else from an analytical model; where no kernel can run, from plain PyTorch. `explain.explain` says
which, `autotune.autotune` measures; they are not imported here, because no call needs them.
"""

from __future__ import annotations

from foretrace.fused.dispatch.overrides import override
from foretrace.fused.dispatch.plans import clear, plan_for, plan_for_key

__all__ = ["clear", "override", "plan_for", "plan_for_key"]
