"""CPU work around kernels that puts nothing on the GPU: views and occupancy queries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.kineto import Call
from foretrace.knowledge.limits import SHOWN_KINDS
from foretrace.knowledge.views import effect
from foretrace.model.report import Finding

__all__ = ["find"]

_TRANSPOSES = frozenset({"t", "transpose", "permute"})


def find(facts: Facts) -> Iterable[Finding]:
    """``metadata_only`` and ``occupancy_queries``."""
    if not facts.context.has_gpu:
        return
    yield from _views(facts)
    yield from _queries(facts)


def _views(facts: Facts) -> Iterable[Finding]:
    """Operators that changed only sizes and strides: views by definition, or as seen where they may copy."""
    trace = facts.context.trace
    kinds = [effect(name) for name in trace.names]
    candidates = np.array([kind in ("view", "maybe") for kind in kinds] or [False])
    operators = facts.context.operator_rows
    steps = [step.index for step in facts.steps]
    operators = operators[np.isin(facts.context.attribution.step[operators], steps)]
    rows = operators[candidates[trace.name_id[operators]]]
    launching = facts.context.launching
    quiet = {row for row in rows.tolist() if row not in launching}
    if not quiet:
        return
    parent = trace.forest.parent
    # A view inside a view (t → transpose → as_strided) is part of the outer one's time.
    outer = sorted((row for row in quiet if int(parent[row]) not in quiet), key=lambda row: int(trace.start[row]))
    time_us = int(trace.duration[outer].sum()) / 1000
    names = Counter(trace.name(row).removeprefix("aten::") for row in quiet)
    listed = ", ".join(name for name, _ in names.most_common(6))
    transposes = any(name in _TRANSPOSES for name in names)
    number, each = facts.tally(len(quiet))
    yield facts.finding(
        "metadata_only",
        outer,
        count=len(quiet),
        number=number,
        each=each,
        names=listed + (", …" if len(names) > 6 else ""),
        time=facts.spent(time_us, each),
        how="predicted" if trace.predicted else "as profiled",
        layout=_layout(facts) if transposes else "",
    )


def _layout(facts: Facts) -> str:
    """Where the transposes went, if a GEMM of the steps reads a transposed operand."""
    layouts = Counter(
        str(shape.layout)
        for row in facts.in_steps
        if facts.kernel_at[row].kind == "gemm"
        and (shape := facts.costs.of(row).gemm) is not None
        and "T" in (shape.layout or "")
    )
    if not layouts:
        return ""
    letters = " and ".join(name for name, _ in layouts.most_common(2))
    return (
        f" The transposes show up in the GEMMs as the letter T of their layout ({letters}): the library reads the "
        "operand with its strides swapped, and no data is moved."
    )


def _queries(facts: Facts) -> Iterable[Finding]:
    context = facts.context
    trace = context.trace
    rows = np.flatnonzero(trace.links.call == Call.OCCUPANCY)
    rows = rows[np.isin(context.attribution.step[rows], [step.index for step in facts.steps])]
    if not len(rows):
        return
    owners = Counter(
        trace.name(int(trace.links.op[row])) if trace.links.op[row] >= 0 else "calls outside operators"
        for row in rows.tolist()
    )
    listed = ", ".join(name for name, _ in owners.most_common(SHOWN_KINDS))
    number, each = facts.tally(len(rows))
    yield facts.finding(
        "occupancy_queries",
        rows.tolist(),
        queries="query" if number == "1" else "queries",
        number=number,
        each=each,
        names=listed + (", …" if len(owners) > SHOWN_KINDS else ""),
        time=facts.spent(int(trace.duration[rows].sum()) / 1000, each),
    )
