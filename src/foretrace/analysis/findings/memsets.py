"""Memsets that a library issues beside its kernels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from foretrace.analysis.context import whole
from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.lowering.cublas import clears_tile_counter
from foretrace.knowledge.results import is_fill
from foretrace.knowledge.rules_kernels import MEMSET_ORIGIN
from foretrace.model.report import Finding
from foretrace.model.words import bytes_of

__all__ = ["find"]

_IN_GRAPH = "a CUDA graph"
_NAMED = 2
_LONGEST_NAME = 40


def find(facts: Facts) -> Iterable[Finding]:
    """``library_memsets``: memsets of an operator that is no fill itself and runs a kernel too, or of a graph."""
    context = facts.context
    trace, attribution = context.trace, context.attribution
    steps = {step.index for step in facts.steps}
    owners: Counter[str] = Counter()
    sizes: Counter[int] = Counter()
    rows: list[int] = []
    counters = 0
    for row in context.gpu_rows.tolist():
        if trace.kind[row] != RowKind.MEMSET or int(attribution.step[row]) not in steps:
            continue
        op = int(attribution.op[row])
        if op >= 0:
            if is_fill(trace.name(op)) or op not in context.kernels_of_op:
                continue
            owners[trace.name(op)] += 1
        elif trace.links.graph[row]:
            owners[_IN_GRAPH] += 1
        else:
            continue
        rows.append(row)
        cleared = whole(trace.args(row).get("bytes"))
        if cleared is not None:
            sizes[cleared] += 1
        beside = context.kernels_of_op.get(op, [])
        counters += any(clears_tile_counter(context.decoded(kernel), cleared) for kernel in beside)
    if not rows:
        return
    origin = "counter" if counters == len(rows) else "some_counters" if counters else "operator"
    common = sizes.most_common(1)
    size = f" of {bytes_of(common[0][0])}" if len(sizes) == 1 and common else ""
    listed = ", ".join(shorten(name) for name, _ in owners.most_common(_NAMED))
    number, each = facts.tally(len(rows))
    yield facts.finding(
        "library_memsets",
        rows,
        memsets=f"{number} memset{'s' if number != '1' else ''}{size}{each}",
        names=listed + (", …" if len(owners) > _NAMED else ""),
        time=facts.spent(int(trace.duration[rows].sum()) / 1000, each),
        origin=MEMSET_ORIGIN["graph" if set(owners) == {_IN_GRAPH} else origin],
    )


def shorten(name: str) -> str:
    """A name short enough for a title."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
