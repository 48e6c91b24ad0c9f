"""Steps made of very many very short kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.limits import SHOWN_KINDS, TINY_COUNT, TINY_KERNEL_US, TINY_SHARE
from foretrace.model.report import Finding
from foretrace.model.words import share_of

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """``tiny_kernels``: most kernels of a step take less than a launch costs."""
    rows = facts.in_steps
    tiny = [row for row in rows if facts.kernel_at[row].duration_us < TINY_KERNEL_US]
    if facts.per_step(len(tiny)) < TINY_COUNT or len(tiny) < TINY_SHARE * len(rows):
        return
    time_us = sum(facts.kernel_at[row].duration_us for row in tiny)
    owners = Counter(facts.kernel_at[row].op or facts.kernel_at[row].short_name for row in tiny)
    yield facts.finding(
        "tiny_kernels",
        tiny,
        source_row=facts.anchor(tiny[0]),
        number=f"{facts.per_step(len(tiny)):.0f}",
        total=f"{facts.per_step(len(rows)):.0f}",
        each=facts.each,
        limit=f"{TINY_KERNEL_US:.0f} µs",
        share=share_of(time_us / facts.kernel_us) if facts.kernel_us else "unknown",
        time=facts.spent(time_us),
        idle=facts.spent(_idle_before(facts, set(tiny))),
        names=", ".join(name for name, _ in owners.most_common(SHOWN_KINDS)),
    )


def _idle_before(facts: Facts, tiny: set[int]) -> float:
    """Time in µs that nothing ran on the GPUs right before a tiny kernel, inside the steps."""
    trace = facts.context.trace
    steps = {step.index for step in facts.steps}
    step = facts.context.attribution.step
    idle = 0
    reached: int | None = None
    current = -1
    for row in facts.context.gpu_rows.tolist():
        start, index = int(trace.start[row]), int(step[row])
        if index not in steps:
            continue
        if row in tiny and reached is not None and index == current and start > reached:
            idle += start - reached
        reached = max(reached or 0, int(trace.end[row]))
        current = index
    return idle / 1000
