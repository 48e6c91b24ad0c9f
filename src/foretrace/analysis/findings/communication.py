"""Communication kernels that no computation hides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis import intervals
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import listed, per
from foretrace.knowledge.limits import LEAST_IDLE_US
from foretrace.knowledge.rules_timeline import MESSAGE_KEYS, WAITS_FOR_RANKS, WAITS_UNKNOWN
from foretrace.model.report import Finding
from foretrace.model.words import share_of, time

__all__ = ["find", "overlap"]

Int64 = NDArray[np.int64]


def find(facts: Facts) -> Iterable[Finding]:
    """At most one finding; kernels are told apart by their family, copies and memsets count as neither."""
    trace = facts.context.trace
    kinds = np.array([kernel.kind == "communication" for kernel in facts.kernels], dtype=np.bool_)
    rows = facts.context.kernel_rows
    if not kinds.any():
        return
    steps = [s.index for s in facts.steps]
    communication = rows[kinds & np.isin(facts.context.attribution.step[rows], steps)]
    if not len(communication):
        return
    total, hidden = overlap(facts, communication, rows[~kinds])
    exposed_us = facts.per_step((total - hidden) / 1000)
    total_us = facts.per_step(total / 1000)
    bare = exposed_us >= LEAST_IDLE_US
    waiting_us = min(exposed_us, facts.per_step(_waiting(facts, communication, rows[~kinds]) / 1000))
    by_name: dict[str, float] = {}
    for row in communication.tolist():
        name = facts.kernel_at[row].short_name
        by_name[name] = by_name.get(name, 0.0) + facts.per_step(int(trace.duration[row]) / 1000)
    if waiting_us >= LEAST_IDLE_US:
        waited = f"; {time(waiting_us)} waits"
        waits = WAITS_FOR_RANKS.format(waiting=time(waiting_us), saving=time(exposed_us - waiting_us))
    else:
        waited, waits = "", WAITS_UNKNOWN
    longest = communication[np.argsort(-trace.duration[communication], kind="stable")]
    found = facts.finding(
        "exposed_communication" if bare else "hidden_communication",
        longest.tolist(),
        saving_us=exposed_us - waiting_us if bare else None,
        total=time(total_us),
        hidden=time(total_us - exposed_us),
        exposed=time(exposed_us),
        share=share_of(exposed_us / total_us) if total_us else "0 %",
        per=per(facts),
        names=listed(by_name.items()),
        waits=waits,
        waited=waited,
    )
    found.rule = "exposed_communication"
    yield found


def _waiting(facts: Facts, communication: Int64, computation: Int64) -> int:
    """ns of exposed time that equal messages show to be waiting for other ranks, not transfer.

    The same collective over the same number of elements in the same group once took as little as the shortest of its
    kernels; what another took beyond that was no transfer. Without recorded message sizes nothing can be said: 0.
    """
    trace = facts.context.trace
    groups: dict[tuple[Any, ...], list[int]] = {}
    for row in communication.tolist():
        args = trace.args(row)
        if "In msg nelems" in args:
            key = tuple(repr(args.get(name)) for name in MESSAGE_KEYS)
            groups.setdefault((trace.name(row), *key), []).append(row)
    waiting = 0
    for members in groups.values():
        shortest = int(trace.duration[members].min())
        low, high = trace.start[members], trace.end[members]
        covered = intervals.covered_between(trace.start[computation], trace.end[computation], low, high)
        waiting += int(np.minimum(high - low - covered, high - low - shortest).sum())
    return waiting


def overlap(facts: Facts, communication: Int64, computation: Int64) -> tuple[int, int]:
    """ns in which communication ran, and ns of them in which computation ran on the same device too."""
    trace = facts.context.trace
    total = hidden = 0
    for device in np.unique(trace.device[communication]).tolist():
        mine = communication[trace.device[communication] == device]
        work = computation[trace.device[computation] == device]
        starts, ends = intervals.union_intervals(trace.start[mine], trace.end[mine])
        total += int((ends - starts).sum())
        hidden += int(intervals.covered_between(trace.start[work], trace.end[work], starts, ends).sum())
    return total, hidden
