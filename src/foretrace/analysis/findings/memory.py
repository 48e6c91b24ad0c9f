"""Memory: intermediates that fused kernels would not write, and an allocator that had to empty its cache."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import calls_in_steps, listed, operator_around, times
from foretrace.knowledge.allocator_rows import LEAST_INTERMEDIATE, is_host_memory, searches_algorithms
from foretrace.knowledge.kineto import Call
from foretrace.knowledge.rules_memory import KERNEL_WRITES
from foretrace.model import words
from foretrace.model.report import Finding
from foretrace.model.trace_memory import Intermediates, StepMemory

__all__ = ["find_intermediates", "find_retries"]

_PARTS = 4


def find_intermediates(facts: Facts) -> Iterable[Finding]:
    """``fusable_intermediates``: at most one, of the step (and device) that has most of them."""
    if facts.memory is None:
        return
    found = [
        (step, step.intermediates)
        for device in facts.memory.devices
        for step in device.steps
        if step.intermediates is not None
    ]
    step, worst = max(found, key=lambda item: _avoided(item[1]), default=(None, None))
    if step is None or worst is None or _avoided(worst) < LEAST_INTERMEDIATE:
        return
    trace = facts.context.trace
    events = [tensor.event for tensor in worst.tensors]
    row_of = {int(trace.event[row]): int(row) for row in np.flatnonzero(np.isin(trace.event, events))}
    rows = [row_of[event] for event in events]
    roles = list(dict.fromkeys(tensor.role for tensor in worst.tensors))
    avoided = dict.fromkeys(tensor.role for tensor in worst.tensors if tensor.bytes > tensor.kept_bytes)
    shown = [
        f"{words.mebibytes(tensor.bytes)} {tensor.role} ({times(tensor.tensors, 'tensor')} of {tensor.op}, "
        f"read by {words.listed(tensor.read_by)})"
        for tensor in worst.tensors
    ]
    yield facts.finding(
        "fusable_intermediates",
        rows,
        source_row=rows[0],
        count=sum(tensor.tensors for tensor in worst.tensors),
        bytes=words.mebibytes(_avoided(worst)),
        each=facts.each,
        names=words.listed(avoided),
        parts=words.first_of(shown, _PARTS),
        kernels=" ".join(said for wanted, said in KERNEL_WRITES if any(role in wanted for role in roles)),
        kept=_kept(worst),
        peak=_peak(step, worst),
    )


def _avoided(found: Intermediates) -> int:
    """Bytes of what a fused kernel writes neither in inference nor in training."""
    return found.bytes - found.kept_bytes


def _kept(found: Intermediates) -> str:
    if not found.kept_bytes:
        return ""
    roles = words.listed(dict.fromkeys(tensor.role for tensor in found.tensors if tensor.kept_bytes))
    return (
        f" The backward pass reads {words.mebibytes(found.kept_bytes)} of them again ({roles}): in training these "
        "stay, unless a kernel computes them anew."
    )


def _peak(step: StepMemory, found: Intermediates) -> str:
    without = found.peak_without_bytes
    if without is None or step.peak_bytes is None:
        return ""
    rest = "the rest" if found.kept_bytes else "them"
    if without == step.peak_bytes:
        return f" None of {rest} is alive at the step's peak ({words.mebibytes(step.peak_bytes)}), which would stay."
    return (
        f" Without {rest} the step would peak at {words.mebibytes(without)} instead of "
        f"{words.mebibytes(step.peak_bytes)}, all else as it is: a bound, since a fused kernel may need memory too."
    )


def find_retries(facts: Facts) -> Iterable[Finding]:
    """``allocator_retry``: device memory given back and asked for again within one operator, in any step."""
    side = facts.context.side
    devices = side.memory.devices if side is not None and side.memory is not None else []
    if devices and not any(device.alloc_retries for device in devices):
        return  # the allocator itself counted none
    retries = list(_retries(facts))
    if not retries:
        return
    trace = facts.context.trace
    operators: dict[str, float] = {}
    total = 0.0
    for calls in retries:
        around = operator_around(facts, calls[0])
        us = (int(trace.end[calls[-1]]) - int(trace.start[calls[0]])) / 1000
        operators[trace.name(around)] = operators.get(trace.name(around), 0.0) + us
        total += us
    frees = Counter(trace.name(row) for calls in retries for row in calls[:-1])
    counted = sum(device.alloc_retries or 0 for device in devices)
    yield facts.finding(
        "allocator_retry",
        [calls[0] for calls in retries],
        source_row=retries[0][0],
        times="once" if len(retries) == 1 else f"{len(retries)} times",
        total=words.time(total),
        ops=listed(operators.items()),
        frees=words.listed(f"{count} {name}" for name, count in frees.items()),
        counted=f" Over the whole run the allocator itself counted {counted} (the side file)." if counted else "",
    )


def _retries(facts: Facts) -> Iterator[list[int]]:
    """Calls of each retry: the frees in a row, and the allocation after them.

    All stand below one operator, with the allocation in front that failed: a free alone may be a library's own (making
    a context calls it), and the search for a convolution's algorithm empties the cache, too.
    """
    trace = facts.context.trace
    asked: set[int] = set()
    freeing: dict[int, list[int]] = {}
    for row in calls_in_steps(facts, Call.ALLOCATE, Call.FREE).tolist():
        inside = int(trace.forest.parent[row])
        if inside < 0 or is_host_memory(trace.name(row)):
            continue
        around = operator_around(facts, row)
        if around < 0 or searches_algorithms(trace.name(around)):
            continue
        if trace.links.call[row] == Call.ALLOCATE:
            if inside in freeing:
                yield [*freeing.pop(inside), row]
            asked.add(inside)
        elif inside in asked:
            freeing.setdefault(inside, []).append(row)
