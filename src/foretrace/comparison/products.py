"""The matrix products of a step without GPU rows: what stands for its work where no kernel does."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from foretrace.analysis.costs import KernelCosts
from foretrace.knowledge.compiled import is_compile_row
from foretrace.knowledge.costs import has_formula
from foretrace.knowledge.kineto import RowKind
from foretrace.trace.steps import step_of_rows

__all__ = ["Products", "products_of", "same_share"]


@dataclass(frozen=True)
class Products:
    """Products of one step by size, and their FLOPs.

    Attributes:
        sizes: (smaller of m and n, larger, k, batch) → calls; a product and its transpose are the same work.
        flops: of all rows that have any, other than products (attention, convolutions) included.
        hidden: whether generated code ran, which may hold products that no row tells.
    """

    sizes: Counter[tuple[int, int, int, int]] = field(default_factory=Counter)
    flops: int = 0
    hidden: bool = False


def products_of(costs: KernelCosts, step: int) -> Products | None:
    """The products of a step from the recorded shapes; None where it has none, or one without shapes.

    Of nested rows that tell a product (``aten::linear``, ``aten::addmm``) the innermost counts.
    """
    trace = costs.context.trace
    telling = [has_formula(name) for name in trace.names]
    rows = trace.rows(RowKind.OPERATOR)
    rows = rows[step_of_rows(trace, rows) == step]
    hidden = any(is_compile_row(trace.names[i]) for i in set(trace.name_id[rows].tolist()))
    found = {}
    for row in rows.tolist():
        if telling[int(trace.name_id[row])]:
            cost = costs.of_operator(row)
            if cost.flops:
                found[row] = cost
    around = {up for row in found for up in trace.forest.ancestors(row)}
    inner = [cost for row, cost in found.items() if row not in around]
    if not inner:
        return None
    sizes: Counter[tuple[int, int, int, int]] = Counter()
    for cost in inner:
        for gemm in cost.gemms:
            sizes[(min(gemm.m, gemm.n), max(gemm.m, gemm.n), gemm.k, gemm.batch)] += 1
    return Products(sizes, sum(cost.flops or 0 for cost in inner), hidden)


def same_share(a: Products | None, b: Products | None) -> float | None:
    """Share of the FLOPs of both steps' matrix products that stand in products of equal size; None where unknown."""
    if a is None or b is None:
        return None
    everything = _flops(a.sizes) + _flops(b.sizes)
    return 2 * _flops(a.sizes & b.sizes) / everything if everything else None


def _flops(sizes: Counter[tuple[int, int, int, int]]) -> int:
    return sum(2 * m * n * k * batch * calls for (m, n, k, batch), calls in sizes.items())
