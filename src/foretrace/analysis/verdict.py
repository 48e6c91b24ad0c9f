"""The verdict: what bounds the steps, said only as far as the evidence goes."""

from __future__ import annotations

from statistics import median

from foretrace.analysis.context import Context
from foretrace.analysis.health import trusted
from foretrace.analysis.pace import NEEDED_CHECKS
from foretrace.knowledge.limits import (
    DOMINANT_SHARE,
    GPU_BOUND_SHARE,
    KNOWN_BOUND_SHARE,
    OVERHEAD_SHARE,
    PROFILING_INFLATION,
    PROFILING_INFLATION_STACKS,
)
from foretrace.model.report import Bound, Health, Kernel, Step, Timing, Verdict

__all__ = ["verdict"]


def verdict(
    context: Context,
    steps: list[Step],
    kernels: list[Kernel],
    health: list[Health],
    unprofiled: Timing | None,
    stacks: bool,
) -> Verdict:
    """Overhead-, compute- or memory-bound, mixed, or unknown with what is missing."""
    if not context.has_gpu:
        return Verdict(bound="unknown", because=["the trace holds no GPU work, so nothing can be said of a GPU"])
    bad = [h.detail for h in health if h.state == "bad" and h.check in NEEDED_CHECKS]
    if not trusted(health, *NEEDED_CHECKS):
        return Verdict(bound="unknown", because=["the trace cannot be trusted: " + reason for reason in bad])
    timed = [s for s in steps if s.gpu_busy_us and s.period_us > 0]
    if not timed:
        return Verdict(bound="unknown", because=["no GPU work was launched inside the steps"])
    busy = median(s.gpu_busy_us or 0.0 for s in timed)
    period = median(s.period_us for s in timed)
    # A step may launch work that runs after it (the GPU is behind): then what it launched says more than its period.
    worked = sum(s.period_us - (s.gpu_idle_us or 0.0) for s in timed)
    share = min(1.0, max(worked, sum(s.gpu_busy_us or 0.0 for s in timed)) / sum(s.period_us for s in timed))
    nature, nature_reason = _nature(kernels)

    if unprofiled is not None:
        real = busy / unprofiled.median_us
        said = (
            f"GPU busy {_us(busy)} of an unprofiled step of {_us(unprofiled.median_us)} ({min(real, 1.0):.0%}; "
            f"the profiled step takes {_us(period)})"
        )
        if real < OVERHEAD_SHARE:
            return Verdict(bound="overhead", because=[said, "the GPU waits for the CPU even without the profiler"])
        if real < GPU_BOUND_SHARE:
            return Verdict(
                bound="mixed",
                because=[said, "neither the CPU nor the GPU alone sets the pace", nature_reason],
            )
        return Verdict(bound=nature, because=[said, nature_reason])

    said = (
        f"GPU busy {share:.0%} of the profiled time; the median step takes {_us(period)} "
        f"and launches {_us(busy)} of GPU work"
    )
    if share >= GPU_BOUND_SHARE:
        return Verdict(bound=nature, because=[said, nature_reason])
    inflation = PROFILING_INFLATION_STACKS if stacks else PROFILING_INFLATION
    if share * inflation < OVERHEAD_SHARE:
        return Verdict(
            bound="overhead",
            because=[
                said,
                f"profiling lengthens CPU time, but not the {OVERHEAD_SHARE / share:.0f}-fold that it would take to "
                "keep this GPU busy",
            ],
        )
    return Verdict(
        bound="unknown",
        because=[
            said,
            "profiling lengthens CPU time by up to "
            f"{inflation:.0f} times, so this trace alone cannot tell a GPU that waits from one that does not",
            f"to find out, time the step without the profiler: at {_us(busy / GPU_BOUND_SHARE)} or less it is "
            f"GPU-bound (`foretrace run` measures it and keeps it beside the trace)",
            nature_reason,
        ],
    )


def _nature(kernels: list[Kernel]) -> tuple[Bound, str]:
    """Whether the kernels' time is compute- or memory-bound, and the sentence that says so.

    Communication is left out: it runs beside the others and waits for other ranks, so no roofline bounds it.
    """
    everything = sum(k.duration_us for k in kernels)
    kernels = [k for k in kernels if k.kind != "communication"]
    total = sum(k.duration_us for k in kernels)
    if not total:
        return "unknown", "the steps launch communication only" if everything else "the steps launch copies only"
    by_bound: dict[str, float] = {}
    for kernel in kernels:
        by_bound[kernel.bound] = by_bound.get(kernel.bound, 0.0) + kernel.duration_us
    shares = {name: time / total for name, time in by_bound.items()}
    unknown = shares.get("unknown", 0.0)
    parts = [
        f"{shares[name]:.0%} {word}"
        for name, word in (
            ("compute", "compute-bound"),
            ("memory", "memory-bound"),
            ("latency", "too short to fill the GPU"),
            ("unknown", "of unknown bound"),
        )
        if shares.get(name, 0.0) >= 0.005
    ]
    of = "of the kernel time"
    if total != everything:
        of += f" without communication ({_us(total)} in all)"
    reason = f"{of}, " + ", ".join(parts)
    if 1.0 - unknown < KNOWN_BOUND_SHARE:
        return "unknown", reason + " (too much is unknown for a roofline verdict)"
    known = 1.0 - unknown
    for name in ("compute", "memory"):
        if shares.get(name, 0.0) >= DOMINANT_SHARE * known:
            return ("compute" if name == "compute" else "memory"), reason
    if shares.get("latency", 0.0) >= DOMINANT_SHARE * known:
        return "overhead", reason + ": the work is cut too small"
    return "mixed", reason


def _us(value: float) -> str:
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.0f} µs"
