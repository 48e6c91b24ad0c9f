"""What a program without a GPU spends its time on: its operators with the rates they reached, and waits for data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from foretrace.analysis import intervals
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import listed, per, steps_annotated
from foretrace.analysis.steps import period_end
from foretrace.knowledge.kineto import RowKind, fx_graph, is_data_loading
from foretrace.knowledge.limits import (
    CPU_CALL_BYTES,
    CPU_CALL_FLOPS,
    CPU_DATA_SHARE,
    CPU_OPERATOR_SHARE,
    SHOWN_KINDS,
)
from foretrace.knowledge.rules_timeline import CPU_COMPILED, CPU_SMALL
from foretrace.model.report import Finding, Operator
from foretrace.model.words import bytes_of, flop, number, rate_of, share_of, time

__all__ = ["find"]

_COMPILED = "compiled graph code"


def find(facts: Facts) -> Iterable[Finding]:
    """``cpu_work`` and ``cpu_data_loading``, at most one of each."""
    if facts.context.cpu_only:
        yield from _operators(facts)
    if not facts.context.has_gpu:
        yield from _data_loading(facts)


@dataclass
class _Part:
    """One operator, or all calls of compiled graphs together.

    ``rate``: in words, empty where there is none. ``small``: the FLOPs or bytes of a call in words where they are so
    few that the rate would be that of calling the operator.
    """

    name: str
    self_us: float
    names: set[str]
    rate: str = ""
    small: str = ""


def _operators(facts: Facts) -> Iterable[Finding]:
    """The operators that take most of the CPU's time, each with the rate it reached."""
    total = sum(operator.self_cpu_us for operator in facts.operators)
    parts = [part for part in _parts(facts.operators) if total and part.self_us >= CPU_OPERATOR_SHARE * total]
    parts = sorted(parts, key=lambda part: (-part.self_us, part.name))[:SHOWN_KINDS]
    if not parts:
        return
    trace = facts.context.trace
    names = {name for part in parts for name in part.names}
    chosen = np.array([name in names for name in trace.names])
    rows = facts.context.operator_rows
    if any(part.name == _COMPILED for part in parts):
        rows = np.union1d(rows, trace.rows(RowKind.ANNOTATION)).astype(np.int64)
    small = [part for part in parts if part.small]
    yield facts.finding(
        "cpu_work",
        rows[chosen[trace.name_id[rows]]].tolist(),
        count=len(parts),
        share=share_of(sum(part.self_us for part in parts) / total),
        parts=", ".join(f"{part.name} at {part.rate}" if part.rate else part.name for part in parts),
        compiled=CPU_COMPILED if any(part.name == _COMPILED for part in parts) else "",
        small=CPU_SMALL.format(
            names=" and ".join(part.name for part in small), size=" and ".join(part.small for part in small)
        )
        if small
        else "",
    )


def _parts(operators: Iterable[Operator]) -> Iterable[_Part]:
    """What can be named: operators whose FLOPs or bytes are known, and compiled code."""
    compiled = _Part(_COMPILED, 0.0, set())
    for operator in operators:
        if fx_graph(operator.name) is not None:
            compiled.self_us += operator.self_cpu_us
            compiled.names.add(operator.name)
        elif operator.cpu_gflops is not None or operator.cpu_gbps is not None:
            yield _rated(operator)
    if compiled.names:
        yield compiled


def _rated(operator: Operator) -> _Part:
    part = _Part(operator.name.removeprefix("aten::"), operator.self_cpu_us, {operator.name})
    own_ns = operator.self_cpu_us * 1000
    if operator.cpu_gflops is not None:
        flops = operator.cpu_gflops * own_ns / operator.calls
        if flops < CPU_CALL_FLOPS:
            part.small = flop(flops)
        else:
            part.rate = f"{number(operator.cpu_gflops)} GFLOP/s"
    elif operator.cpu_gbps is not None:
        size = operator.cpu_gbps * own_ns / operator.calls
        if size < CPU_CALL_BYTES:
            part.small = bytes_of(size)
        else:
            part.rate = rate_of(operator.cpu_gbps)
    return part


def _data_loading(facts: Facts) -> Iterable[Finding]:
    """Waits for the next batch in the steps and between them, on the thread that runs the steps."""
    context = facts.context
    trace = context.trace
    wanted = np.array([is_data_loading(name) for name in trace.names] or [False])
    rows = np.flatnonzero(wanted[trace.name_id] & np.isin(trace.kind, (RowKind.OPERATOR, RowKind.ANNOTATION)))
    if not len(rows):
        return
    waited = whole = 0
    seen: dict[int, int] = {}  # row → its time inside the steps, ns
    for span in context.steps:
        if span.index not in context.working_steps:
            continue
        end = period_end(context, span)
        # A row may begin before the step's annotation does; only what lies in the period counts.
        inside = rows[(trace.start[rows] < end) & (trace.end[rows] > span.start)]
        if span.row >= 0:
            inside = inside[trace.lane[inside] == trace.lane[span.row]]
        starts, ends = np.maximum(trace.start[inside], span.start), np.minimum(trace.end[inside], end)
        waited += intervals.union_ns(starts, ends)
        whole += end - span.start
        for row, ns in zip(inside.tolist(), (ends - starts).tolist(), strict=True):
            seen[row] = seen.get(row, 0) + ns
    if not whole or waited < CPU_DATA_SHARE * whole:
        return
    saving = facts.per_step(waited / 1000)
    longest = sorted(seen, key=lambda row: -seen[row])
    yield facts.finding(
        "cpu_data_loading",
        longest,
        saving_us=saving if steps_annotated(facts) and context.cpu_only else None,
        source_row=longest[0],
        time=time(saving),
        per=per(facts),
        share=share_of(waited / whole),
        names=listed((name, us) for name, us in _by_name(facts, seen)),
    )


def _by_name(facts: Facts, seen: dict[int, int]) -> Iterable[tuple[str, float]]:
    """Name → time a step, µs; one inside another of the same kind counts under both."""
    table: dict[str, float] = {}
    for row, ns in seen.items():
        name = facts.context.trace.name(row)
        table[name] = table.get(name, 0.0) + facts.per_step(ns / 1000)
    return table.items()
