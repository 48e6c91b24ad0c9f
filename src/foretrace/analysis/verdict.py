"""The verdict: what bounds the steps, said only as far as the evidence goes."""

from __future__ import annotations

from foretrace.analysis.context import Context
from foretrace.analysis.health import trusted
from foretrace.analysis.pace import NEEDED_CHECKS, Pace, pace_of
from foretrace.knowledge.dispatching import HOST_MARGIN
from foretrace.knowledge.limits import (
    DOMINANT_SHARE,
    GPU_BOUND_SHARE,
    KNOWN_BOUND_SHARE,
)
from foretrace.model.report import Bound, Health, Kernel, Step, Timing, Verdict
from foretrace.model.words import share_of, time

__all__ = ["bound_of_kernels", "verdict"]


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
    pace = pace_of(steps, unprofiled.median_us if unprofiled else None, stacks, context.trace.predicted)
    if pace is None:
        return Verdict(bound="unknown", because=["no GPU work was launched inside the steps"])
    nature, nature_reason = bound_of_kernels(kernels)
    annotated = context.trace.steps[0].row >= 0
    said = _busy(pace, annotated, len(steps))
    if pace.setter == "gpu":
        return Verdict(bound=nature, because=[said, nature_reason, *_host_open(pace)])
    if pace.setter == "both":
        why = "neither the CPU nor the GPU alone sets the pace"
        return Verdict(bound="mixed", because=[said, why, nature_reason, *_host_open(pace)])
    if pace.predicted:
        why = "launch-bound at this size: the CPU needs longer to dispatch the step than the GPU to run it"
        return Verdict(bound="overhead", because=[said, why, *_host_open(pace)])
    if pace.unprofiled_us is not None:
        return Verdict(bound="overhead", because=[said, "the GPU waits for the CPU even without the profiler"])
    if not annotated:
        why = (
            "the trace has no profiler steps, so start-up and idle time around the work count too: record with a "
            "schedule and call step() (foretrace.profile does)"
        )
        return Verdict(bound="unknown", because=[said, why, nature_reason])
    if pace.setter == "cpu":
        why = (
            f"profiling lengthens CPU time by up to {pace.inflation:.0f} times; even then the GPU would be busy "
            f"{share_of(pace.share * pace.inflation)} of an unprofiled step at most"
        )
        return Verdict(bound="overhead", because=[said, why])
    return Verdict(
        bound="unknown",
        because=[
            said,
            f"profiling lengthens CPU time by up to {pace.inflation:.0f} times, so this trace alone cannot tell a GPU "
            "that waits from one that does not",
            f"to find out, time the step without the profiler: at {time(pace.busy_us / GPU_BOUND_SHARE)} or "
            "less it is GPU-bound (`foretrace run` measures it and keeps it beside the trace)",
            nature_reason,
        ],
    )


def _host_open(pace: Pace) -> list[str]:
    """What a prediction leaves open: a CPU that takes as much longer as recorded ones did would set the pace."""
    if pace.cpu_us is None or pace.busy_us >= HOST_MARGIN * pace.cpu_us:
        return []
    loose = f"recorded steps took up to {HOST_MARGIN:.0f} times the CPU time predicted for them; only a recording tells"
    if pace.setter == "gpu":
        alone = "this speaks of the GPU's work alone: host time is not calibrated, and"
        return [f"{alone} {loose} whether the CPU keeps up"]
    return [f"host time is not calibrated: {loose} how long this host takes"]


def _busy(pace: Pace, annotated: bool, steps: int) -> str:
    """How busy the GPU was, by the better of the two timings."""
    busy, period = time(pace.busy_us), time(pace.period_us)
    if pace.cpu_us is not None:
        return f"predicted, not measured: {busy} of GPU work a step, {time(pace.cpu_us)} to dispatch it on the CPU"
    if pace.unprofiled_us is not None:
        real = time(pace.unprofiled_us)
        if pace.slower_profiled:
            said = f"GPU busy {busy} as profiled, more than an unprofiled step of {real}"
            why = "kernels took longer while profiled, and the GPU works throughout"
            return f"{said}: {why} (the profiled step takes {period})"
        share = pace.busy_us / pace.unprofiled_us
        return f"GPU busy {busy} of an unprofiled step of {real} ({share_of(share)}; the profiled step takes {period})"
    said = f"GPU busy {share_of(pace.share)} of the profiled time"
    if not annotated:
        return f"{said}; the trace spans {period} and holds {busy} of GPU work"
    which = "the median step" if steps > 1 else "the step"
    return f"{said}; {which} takes {period} and launches {busy} of GPU work"


def bound_of_kernels(kernels: list[Kernel]) -> tuple[Bound, str]:
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
    shares = {name: us / total for name, us in by_bound.items()}
    unknown = shares.get("unknown", 0.0)
    parts = [
        f"{share_of(shares[name])} {word}"
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
        of += f" without communication ({time(total)} in all)"
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
