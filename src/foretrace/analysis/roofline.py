"""Which peak a kernel is held against, and what bounds it."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCost
from foretrace.knowledge.gpus import Gpu, bandwidth_label, peak_for
from foretrace.knowledge.kernels import Decoded
from foretrace.knowledge.limits import COMPUTE_KINDS, LATENCY_SHARE, LATENCY_US
from foretrace.model.report import KernelBound

__all__ = ["Roofline", "arithmetic_peak", "bound_of", "place"]


@dataclass(frozen=True)
class Roofline:
    """Where a kernel stands under its GPU's roofline; ``of_peak`` is 0..1 of the rate ``peak`` names."""

    bound: KernelBound
    tflops: float | None
    gbps: float | None
    of_peak: float | None
    peak: str | None
    cache_assisted: bool


def place(context: Context, row: int, decoded: Decoded, cost: KernelCost) -> Roofline:
    """Rates and bound of one kernel.

    The larger of FLOPs over the arithmetic peak and least bytes over the memory bandwidth bounds a kernel; one
    that is short and far below both is bound by latency. A rate above the memory bandwidth means the caches served
    part of it, and no share of peak is given.
    """
    seconds = int(context.trace.duration[row]) / 1e9
    if seconds <= 0:
        return Roofline("unknown", None, None, None, None, False)
    tflops = cost.flops / seconds / 1e12 if cost.flops else None
    gbps = cost.bytes / seconds / 1e9 if cost.bytes else None
    sheet = context.datasheet(row)
    if sheet is None:
        return Roofline("unknown", tflops, gbps, None, None, False)
    rate = arithmetic_peak(sheet, decoded, cost.dtype)
    compute_us = cost.flops / rate[0] / 1e6 if cost.flops and rate else None
    memory_us = cost.bytes / sheet.memory_bandwidth_gbps / 1e3 if cost.bytes else None
    duration_us = seconds * 1e6
    if compute_us is None and memory_us is None:
        return Roofline("unknown", tflops, gbps, None, None, False)
    if cost.flops and rate is None and decoded.kind in COMPUTE_KINDS:
        return Roofline("unknown", tflops, gbps, None, None, False)
    by_compute = (compute_us or 0.0) >= (memory_us or 0.0)
    share = max(compute_us or 0.0, memory_us or 0.0) / duration_us
    bound = bound_of(compute_us, memory_us, duration_us)
    peak = rate[1] if by_compute and rate is not None else bandwidth_label(sheet)
    # Above 100 %: bytes came from the caches. For FLOPs it means that the count or the peak is wrong: say nothing.
    beyond = share > 1.0
    if beyond and by_compute:
        return Roofline("unknown", None, gbps, None, None, False)
    return Roofline(
        bound=bound,
        tflops=tflops,
        gbps=gbps,
        of_peak=None if beyond else share,
        peak=peak,
        cache_assisted=beyond and not by_compute,
    )


def bound_of(compute_us: float | None, memory_us: float | None, duration_us: float) -> KernelBound:
    """What bounds a kernel of ``duration_us``: the larger of its two floors, or latency where it is far above both."""
    if compute_us is None and memory_us is None:
        return "unknown"
    floor = max(compute_us or 0.0, memory_us or 0.0)
    if duration_us < LATENCY_US and floor < LATENCY_SHARE * duration_us:
        return "latency"
    return "compute" if compute_us is not None and compute_us >= (memory_us or 0.0) else "memory"


def arithmetic_peak(sheet: Gpu, decoded: Decoded, operands: str | None) -> tuple[float, str] | None:
    """The arithmetic rate of the units a kernel uses, from its name first, then from the type of its operands.

    TFLOP/s and the rate's name; None where neither tells, or the datasheet has no such rate.
    """
    dtype = decoded.decoded.get("dtype") or decoded.decoded.get("a_dtype")
    if not isinstance(dtype, str):
        # The operands say it too, except for fp32, which may run as TF32 or on the plain units.
        dtype = operands if operands not in ("fp32", "fp64") else None
    if not isinstance(dtype, str):
        return None
    # 16-bit and narrower products run on matrix units wherever there are any; fp32 and fp64 only if the name says so.
    matrix_units = decoded.decoded.get("unit") == "tensor cores" or dtype not in ("fp32", "fp64")
    return peak_for(sheet, dtype, matrix_units)
