"""What a kernel is said to do, and why it is not known where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from builders import TraceBuilder
from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCost, KernelCosts
from foretrace.model.prediction import METADATA_KEY


def cost_beside_a_plan(*, flops: int | None, moved: int | None, plan: bool = True) -> KernelCost:
    """The cost of a kernel whose operator has no formula, in a trace predicted with these amounts."""
    build = TraceBuilder()
    build.step(0, 0, 100)
    build.op("aten::nonesuch", 10, 40, shapes=[[64, 32]], dtypes=["c10::BFloat16"])
    build.kernel("nonesuch_kernel", 60, 10, launch=build.launch(15, 2))
    event = build.trace().event[build.trace().gpu_rows].tolist()[0]
    row: dict[str, Any] = {
        "event": event,
        "row": "kernel",
        "name": "nonesuch_kernel",
        "kind": "other",
        "op": "aten::nonesuch",
        "shape": None,
        **dict.fromkeys(("us", "low_us", "high_us"), 10.0),
        "flops": flops,
        "bytes": moved,
        "floor_us": None,
        "bound": "unknown",
        "basis": None,
    }
    numbers = ("gpu_busy_us", "gpu_busy_low_us", "gpu_busy_high_us", "cpu_us", "kernels", "memsets", "memcpys")
    build.meta[METADATA_KEY] = {
        **dict.fromkeys(("version", "program", "gpu", "variant", "mode"), ""),
        **{key: [] for key in ("peaks", "basis", "notes", "groups")},
        **dict.fromkeys(numbers, 0),
        **dict.fromkeys(("flops", "bytes", "compute_floor_us", "memory_floor_us")),
        "rows": [row] if plan else [],
        "predicted": True,
        "unknown": {},
    }
    trace = build.trace()
    return KernelCosts(Context(trace)).of(int(trace.gpu_rows[0]))


def test_what_the_operands_leave_open_the_prediction_tells() -> None:
    known = cost_beside_a_plan(flops=None, moved=4096)
    assert (known.flops, known.bytes, known.reason) == (None, 4096, None)


@pytest.mark.parametrize("plan", [True, False])
def test_a_prediction_that_tells_nothing_leaves_the_reason(plan: bool) -> None:
    cost = cost_beside_a_plan(flops=None, moved=None, plan=plan)
    assert (cost.flops, cost.bytes) == (None, None)
    assert cost.reason is not None
    assert "nonesuch" in cost.reason
