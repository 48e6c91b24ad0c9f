"""What a finished recording is worth: complete, cut short, or empty, in words that say what to do."""

from __future__ import annotations

from pathlib import Path

from foretrace.capture.backend import GpuUse
from foretrace.capture.files import Rows
from foretrace.capture.plan import Plan
from foretrace.errors import EmptyTraceError

__all__ = ["empty_trace", "incomplete"]

_CAUSES = (
    "a CPU-only profile ran first in this process (Kineto registers the GPU only with the first one: "
    "record in a fresh process), CUPTI does not load or is another version's (LD_LIBRARY_PATH), the driver "
    "allows profiling to root only, or another tool (Nsight, DCGM) holds CUPTI. "
    "`foretrace doctor` finds out which"
)


def empty_trace(rows: Rows, gpu: GpuUse, path: Path) -> EmptyTraceError | str | None:
    """Judge a trace without kernels: an error if the GPU worked, a warning if nothing at all ran, else
    ``None``.

    That the GPU worked is known from launches in the trace itself, or from allocations on the GPU meanwhile.
    """
    if rows.kernels or (rows.transfers and not rows.launches):
        return None
    if rows.launches:
        return EmptyTraceError(
            f"{rows.launches} kernel launches were recorded and not one kernel, so GPU times are missing "
            f"from {path}. Causes: {_CAUSES}"
        )
    if gpu.used:
        return EmptyTraceError(
            f"CUDA tensors were made in the recorded steps, and {path} holds neither a kernel nor a launch. "
            f"Causes: {_CAUSES}"
        )
    if rows.empty:
        return f"no operator ran in the recorded steps: {path} is empty. Was the work done outside of the block?"
    return None


def incomplete(plan: Plan | None, steps: int, *, failed: bool, path: Path | None) -> str:
    """Say how much of the plan a recording that ended early holds; ``path``: ``None`` when it is empty."""
    why = "an exception ended the recording" if failed else "the loop ended early"
    if plan is None:
        return why if path is None else f"{why}; {path} holds what ran until then"
    recorded = plan.recorded(steps)
    return (
        f"{why}: {recorded} of {plan.active} active steps are complete ({plan.strip(steps)}, "
        f"the schedule needs {plan.total} steps and got {steps})"
    ) + ("" if path is None else f"; {path} holds them")
