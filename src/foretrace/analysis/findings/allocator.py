"""Memory allocated from the driver inside steps, where PyTorch's caching allocator should have it already."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import calls_in_steps, listed, operator_around, per, times
from foretrace.knowledge.kineto import Call, step_number
from foretrace.model.report import Finding
from foretrace.model.words import time

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """At most one finding; the program's first step, where the cache fills, is left out."""
    trace = facts.context.trace
    # Without step annotations a first use cannot be told from a repeated one.
    late = [span.index for span in facts.context.steps if (step_number(span.label) or 0) > 0]
    calls = calls_in_steps(facts, Call.ALLOCATE, Call.FREE)
    calls = calls[np.isin(facts.context.attribution.step[calls], late)]
    if not len(calls):
        return
    by_name: dict[str, float] = {}
    operators: dict[str, float] = {}
    for row in calls.tolist():
        us = int(trace.duration[row]) / 1000
        by_name[trace.name(row)] = by_name.get(trace.name(row), 0.0) + us
        op = operator_around(facts, row)
        name = trace.name(op) if op >= 0 else "code outside operators"
        operators[name] = operators.get(name, 0.0) + us
    allocations = int((trace.links.call[calls] == Call.ALLOCATE).sum())
    frees = len(calls) - allocations
    said = [times(allocations, "allocation")] if allocations else []
    if frees:
        said.append(times(frees, "free"))
    longest = calls[np.argsort(-trace.duration[calls], kind="stable")]
    yield facts.finding(
        "allocator_calls",
        longest.tolist(),
        source_row=int(longest[0]),
        calls=" and ".join(said),
        total=time(facts.per_step(int(trace.duration[calls].sum()) / 1000)),
        per=per(facts),
        names=listed(by_name.items()),
        ops=listed(operators.items()),
        freed=" Frees among them mean that the allocator gave memory back and asked again: it ran into its limit or "
        "was told to empty its cache."
        if frees and allocations
        else "",
    )
