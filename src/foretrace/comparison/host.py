"""The CPU side of a typical step: operators by name and by call path, time waited, paths of copies."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.attribution import rows_by_step
from foretrace.analysis.blocking import blocking_calls, profiler_syncs
from foretrace.knowledge.compiled import is_compile_row
from foretrace.knowledge.kineto import RowKind
from foretrace.model.report import Launcher, Report
from foretrace.trace.steps import step_of_rows
from foretrace.trace.table import Trace

__all__ = ["HostFacts", "facts_of_chain", "facts_of_trace"]

Int64 = NDArray[np.int64]


@dataclass(eq=False)
class HostFacts:
    """What is known of a step's CPU rows.

    Attributes:
        calls: operator (or row of torch.compile) → calls in the typical step; None where they are not known.
        self_us: the same → CPU time of its own, µs, median over the steps like it.
        paths: event of a copy or memset → the operators and annotations around its launch.
        call_paths: how often each call path stands in the typical step.
        labels: names of annotations; what a program calls its regions may differ where its operators do not.
        cpu_us: step index → time its CPU thread spent, less what it waited for the GPU.
    """

    calls: dict[str, int] | None
    self_us: dict[str, float] = field(default_factory=dict)
    paths: dict[int, tuple[str, ...]] = field(default_factory=dict)
    call_paths: Counter[tuple[str, ...]] = field(default_factory=Counter)
    labels: frozenset[str] = frozenset()
    cpu_us: dict[int, float] = field(default_factory=dict)


def facts_of_chain(report: Report) -> HostFacts:
    """What a report alone tells: the dispatch chain of its representative step."""
    calls: Counter[str] = Counter()
    call_paths: Counter[tuple[str, ...]] = Counter()
    labels: set[str] = set()
    whole = True
    pending: list[tuple[Launcher, tuple[str, ...], int]] = [(node, (), 1) for node in report.chain]
    steps = {step.label for step in report.steps}
    while pending:
        node, path, times = pending.pop()
        if node.name.startswith("… "):
            whole = False
            continue
        if node.kind in ("operator", "annotation") and node.name not in steps:
            if node.kind == "annotation":
                labels.add(node.name)
            if node.kind == "operator" or is_compile_row(node.name):
                calls[node.name] += times * node.count
            if not is_compile_row(node.name):
                path = (*path, node.name)
                call_paths[path] += times * node.count
        pending += [(child, path, times) for child in node.children]
    return HostFacts(calls=dict(calls) if whole and calls else None, call_paths=call_paths, labels=frozenset(labels))


def facts_of_trace(trace: Trace, report: Report, typical: int | None, like: list[int]) -> HostFacts:
    """What a trace tells of one step, and of the time its CPU thread spent in each of its steps."""
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    step_rows = {span.row for span in trace.steps}
    step = step_of_rows(trace, rows)
    compiled = np.array([is_compile_row(name) for name in trace.names] or [False])
    counted = (trace.kind[rows] == RowKind.OPERATOR) | compiled[trace.name_id[rows]]
    counted &= ~np.isin(rows, list(step_rows))
    calls: dict[str, int] | None = None
    self_us: dict[str, float] = {}
    if counted.any() and typical is not None:
        calls, self_us = _by_name(trace, rows[counted], step[counted], typical, like)
    chosen = rows[step == typical] if typical is not None else rows[:0]
    paths = _paths(trace, chosen, step_rows)
    return HostFacts(
        calls=calls,
        self_us=self_us,
        paths=_transfer_paths(trace, report, paths, typical),
        call_paths=Counter(
            paths[row] for row in chosen.tolist() if row not in step_rows and not is_compile_row(trace.name(row))
        ),
        labels=frozenset(trace.names[i] for i in set(trace.name_id[trace.rows(RowKind.ANNOTATION)].tolist())),
        cpu_us=_cpu_time(trace),
    )


def _by_name(
    trace: Trace, rows: Int64, step: Int64, typical: int, like: list[int]
) -> tuple[dict[str, int], dict[str, float]]:
    host = trace.forest.order
    nested = host[trace.forest.parent[host] >= 0]
    inside = np.zeros(len(trace), dtype=np.int64)
    np.add.at(inside, trace.forest.parent[nested], trace.duration[nested])
    own = np.maximum(trace.duration[rows] - inside[rows], 0)
    names = trace.name_id[rows].astype(np.int64)
    calls = np.bincount(names[step == typical], minlength=len(trace.names))
    # One sum for each pair of a step and a name; a step without an operator took none of its time.
    position = {index: place for place, index in enumerate(like)}
    chosen = np.isin(step, like)
    places = np.array([position[index] for index in step[chosen].tolist()], dtype=np.int64)
    pairs, which = np.unique(names[chosen] * len(like) + places, return_inverse=True)
    sums = np.bincount(which, weights=own[chosen], minlength=len(pairs))
    by_name: dict[int, list[float]] = {}
    for name, ns in zip((pairs // len(like)).tolist(), sums.tolist(), strict=True):
        by_name.setdefault(name, []).append(ns)
    present = np.flatnonzero(calls).tolist()
    return (
        {trace.names[i]: int(calls[i]) for i in present},
        {trace.names[i]: _median_of(by_name[i], len(like)) / 1000 for i in present},
    )


def _median_of(found: list[float], steps: int) -> float:
    return median(found + [0.0] * (steps - len(found)))


def _paths(trace: Trace, rows: Int64, step_rows: set[int]) -> dict[int, tuple[str, ...]]:
    """Call path of each operator and annotation, itself included; rows of torch.compile and Python are left out."""
    found: dict[int, tuple[str, ...]] = {}
    parent = trace.forest.parent.tolist()
    named = set(rows.tolist()) - step_rows
    for start in rows.tolist():
        pending = []
        row = start
        while row >= 0 and row not in found:
            pending.append(row)
            row = parent[row]
        path = found[row] if row >= 0 else ()
        for inner in reversed(pending):
            if inner in named and not is_compile_row(trace.name(inner)):
                path = (*path, trace.name(inner))
            found[inner] = path
    return found


def _transfer_paths(
    trace: Trace, report: Report, paths: dict[int, tuple[str, ...]], typical: int | None
) -> dict[int, tuple[str, ...]]:
    wanted = {transfer.event for transfer in report.transfers if transfer.step == typical}
    if not wanted:
        return {}
    found: dict[int, tuple[str, ...]] = {}
    gpu = trace.rows(RowKind.MEMCPY, RowKind.MEMSET)
    parent, launch = trace.forest.parent, trace.links.launch
    for row, event in zip(gpu.tolist(), trace.event[gpu].tolist(), strict=True):
        if event in wanted:
            up = int(launch[row])
            while up >= 0 and up not in paths:
                up = int(parent[up])
            found[event] = paths.get(up, ())
    return found


def _cpu_time(trace: Trace) -> dict[int, float]:
    """Each step's time on its own CPU thread, less the calls in which that thread waited for the GPU; µs."""
    own = profiler_syncs(trace)
    blocking = np.array([row for row in blocking_calls(trace).tolist() if row not in own], dtype=np.int64)
    by_step = rows_by_step(blocking, _by_row(trace, blocking))
    none = np.zeros(0, dtype=np.int64)
    found = {}
    for span in trace.steps:
        if span.row >= 0:
            low, high, lane = span.start, span.end, int(trace.lane[span.row])
        else:
            host = trace.rows(RowKind.OPERATOR, RowKind.CALL)
            host = host[~np.isin(host, list(own))]
            if not len(host):
                continue
            lane = int(np.bincount(trace.lane[host]).argmax())
            host = host[trace.lane[host] == lane]
            low, high = int(trace.start[host].min()), int(trace.end[host].max())
        waits = by_step.get(span.index, none)
        waits = waits[trace.lane[waits] == lane]
        waited = np.minimum(trace.end[waits], high) - np.maximum(trace.start[waits], low)
        found[span.index] = (high - low - int(waited.clip(min=0).sum())) / 1000
    return found


def _by_row(trace: Trace, rows: Int64) -> Int64:
    """The step of some rows in a column over all rows."""
    column = np.full(len(trace), -1, dtype=np.int64)
    column[rows] = step_of_rows(trace, rows)
    return column
