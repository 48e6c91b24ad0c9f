"""What the CPU itself reached, in a trace without a GPU."""

from __future__ import annotations

from collections.abc import Iterable

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.kineto import RowKind
from foretrace.model.report import Finding, Operator

__all__ = ["find"]

_SHOWN = 3


def find(facts: Facts) -> Iterable[Finding]:
    """The operators that take most of the CPU's time, each with the rate it reached."""
    if facts.context.has_gpu:
        return
    total = sum(operator.self_cpu_us for operator in facts.operators)
    rated = [o for o in facts.operators if o.cpu_gflops is not None or o.cpu_gbps is not None][:_SHOWN]
    if not rated or total <= 0:
        return
    trace = facts.context.trace
    names = {operator.name for operator in rated}
    rows = [row for row in trace.rows(RowKind.OPERATOR).tolist() if trace.name(row) in names]
    yield facts.finding(
        "cpu_work",
        rows,
        count=len(rated),
        share=f"{sum(o.self_cpu_us for o in rated) / total:.0%}",
        parts=", ".join(_rate(operator) for operator in rated),
    )


def _rate(operator: Operator) -> str:
    name = operator.name.removeprefix("aten::")
    if operator.cpu_gflops is not None:
        return f"{name} at {operator.cpu_gflops:.3g} GFLOP/s"
    return f"{name} at {operator.cpu_gbps:.3g} GB/s"
