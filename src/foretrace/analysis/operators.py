"""The operator table, with GPU time counted once: from kernel, memcpy and memset rows only."""

from __future__ import annotations

import numpy as np

from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.knowledge.kineto import RowKind, fx_graph
from foretrace.knowledge.views import effect
from foretrace.model.report import Operator

__all__ = ["operator_table"]


def operator_table(context: Context, costs: KernelCosts | None = None) -> list[Operator]:
    """Operators by name, most GPU time first, then most CPU time of their own.

    Total CPU time counts an operator inside another one of its own name once (``aten::sum`` dispatches to
    ``aten::sum``); self time leaves out everything recorded inside, API calls too. GPU time is the sum of the rows
    launched below (total) or directly (self): it cannot count an annotation or a profiler row.
    """
    trace = context.trace
    costs = costs or KernelCosts(context)
    rows = np.union1d(context.operator_rows, _compiled_graphs(context)).astype(np.int64)
    if not len(rows):
        return []
    forest = trace.forest
    duration = trace.duration
    inside = np.zeros(len(trace), dtype=np.int64)
    host = forest.order
    has_parent = host[forest.parent[host] >= 0]
    np.add.at(inside, forest.parent[has_parent], duration[has_parent])
    self_cpu = np.maximum(duration - inside, 0)

    gpu = context.gpu_rows
    links = trace.links
    # Work counts inside everything around its launch; where no launch was recorded, inside its operator.
    hangs_on = np.where(links.launch[gpu] >= 0, links.launch[gpu], links.op[gpu])
    hanging, is_kernel = gpu[hangs_on >= 0], trace.kind[gpu[hangs_on >= 0]] == RowKind.KERNEL
    hangs_on = hangs_on[hangs_on >= 0]
    gpu_below = np.zeros(len(trace), dtype=np.int64)
    np.add.at(gpu_below, hangs_on, duration[hanging])
    kernels_below = np.zeros(len(trace), dtype=np.int64)
    np.add.at(kernels_below, hangs_on[is_kernel], 1)
    total_gpu, total_kernels = gpu_below.tolist(), kernels_below.tolist()
    # Its own work is what it launched itself; what a graph replays is inside it, but no operator's own.
    op = context.attribution.op
    owned = gpu[op[gpu] >= 0]
    own_gpu = np.zeros(len(trace), dtype=np.int64)
    np.add.at(own_gpu, op[owned], duration[owned])
    parent = forest.parent.tolist()
    for row in reversed(host.tolist()):
        up = parent[row]
        if up >= 0:
            total_gpu[up] += total_gpu[row]
            total_kernels[up] += total_kernels[row]

    nested = _nested_in_same_name(context)
    measured = context.has_gpu
    table: dict[int, list[int]] = {}
    for row in rows.tolist():
        table.setdefault(int(trace.name_id[row]), []).append(row)
    operators = []
    for name_id, members in table.items():
        name = trace.names[name_id]
        outer = [r for r in members if not nested[r]]
        launched = sum(total_kernels[r] for r in outer)
        gpu_ns = sum(total_gpu[r] for r in outer)
        own_ns = int(self_cpu[members].sum())
        gflops, gbps = (
            (None, None) if not context.cpu_only else _cpu_rates(costs, members, own_ns, int(duration[members].sum()))
        )
        operators.append(
            Operator(
                name=name,
                calls=len(members),
                cpu_us=int(duration[outer].sum()) / 1000,
                self_cpu_us=own_ns / 1000,
                gpu_us=gpu_ns / 1000 if measured else None,
                self_gpu_us=int(own_gpu[members].sum()) / 1000 if measured else None,
                kernels=launched if measured else None,
                metadata_only=_metadata_only(name, measured, gpu_ns),
                cpu_gflops=gflops,
                cpu_gbps=gbps,
            )
        )
    return sorted(operators, key=lambda o: (-(o.self_gpu_us or 0.0), -o.self_cpu_us, o.name))


def _compiled_graphs(context: Context) -> list[int]:
    """Calls of compiled graphs: annotations by their category, operators by what they do (they run kernels)."""
    trace = context.trace
    is_graph = np.array([fx_graph(name) is not None for name in trace.names] or [False])
    rows = trace.rows(RowKind.ANNOTATION)
    rows = rows[is_graph[trace.name_id[rows]]]
    chosen = [span.index for span in context.steps]
    found: list[int] = rows[np.isin(context.attribution.step[rows], chosen) | (context.selected is None)].tolist()
    return found


def _cpu_rates(costs: KernelCosts, members: list[int], own_ns: int, total_ns: int) -> tuple[float | None, float | None]:
    """GFLOP/s and GB/s of an operator that works on the CPU itself; None unless the cost of every call is known.

    An operator that spends most of its time in others (``aten::linear`` around ``aten::addmm``) does not do the work.
    """
    if own_ns <= 0 or 2 * own_ns < total_ns:
        return None, None
    known = [costs.of_operator(row) for row in members]
    flops = [cost.flops for cost in known if cost.flops]
    moved = [cost.bytes for cost in known if cost.bytes]
    return (
        sum(flops) / own_ns if len(flops) == len(known) else None,
        sum(moved) / own_ns if len(moved) == len(known) else None,
    )


def _metadata_only(name: str, measured: bool, gpu_ns: int) -> bool:
    """Whether an operator changed only sizes and strides: by definition, or, where it may copy, as observed."""
    kind = effect(name)
    if kind == "view":
        return gpu_ns == 0
    return kind == "maybe" and measured and gpu_ns == 0


def _nested_in_same_name(context: Context) -> list[bool]:
    """Rows that run inside an operator of their own name."""
    trace = context.trace
    parent = trace.forest.parent.tolist()
    name = trace.name_id.tolist()
    nested = [False] * len(trace)
    for row in trace.forest.order.tolist():
        up = parent[row]
        while up >= 0:
            if name[up] == name[row]:
                nested[row] = True
                break
            up = parent[up]
    return nested
