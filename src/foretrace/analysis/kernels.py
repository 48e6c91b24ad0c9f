"""The kernel and transfer rows of the report, and what they add up to."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median, median_low
from typing import Any

import numpy as np

from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.analysis.roofline import place
from foretrace.knowledge.kineto import RowKind, memcpy_direction
from foretrace.knowledge.limits import COMPUTE_KINDS, POINTWISE_KINDS
from foretrace.model.report import Coverage, Elementwise, Gemm, Group, Kernel, KernelBound, Transfer

__all__ = ["coverage", "elementwise", "gemms", "groups", "kernel_reports", "transfer_reports"]


def kernel_reports(context: Context, costs: KernelCosts) -> list[Kernel]:
    """Every kernel row of the selected steps, in order of start."""
    trace, attribution = context.trace, context.attribution
    paths: dict[tuple[int, int], list[str]] = {}
    reports = []
    for row in context.kernel_rows.tolist():
        decoded = context.decoded(row)
        cost = costs.of(row)
        roof = place(context, row, decoded, cost)
        args = trace.args(row)
        step = int(attribution.step[row])
        anchor = (int(attribution.op[row]), int(trace.links.launch[row]))
        path = paths.get(anchor)
        if path is None:
            path = paths[anchor] = context.op_path(row)
        reports.append(
            Kernel(
                event=int(trace.event[row]),
                name=trace.name(row),
                short_name=decoded.short_name,
                kind=decoded.kind,
                decoded=decoded.decoded,
                step=step if step >= 0 else None,
                phase=attribution.phase.get(row),
                op=context.op_name(row),
                op_path=path,
                module=attribution.module.get(row),
                start_us=trace.start_us(row),
                duration_us=int(trace.duration[row]) / 1000,
                stream=_known(trace.stream[row]),
                grid=_numbers(args.get("grid")),
                block=_numbers(args.get("block")),
                registers=_number(args.get("registers per thread")),
                shared_memory_bytes=_number(args.get("shared memory")),
                flops=cost.flops,
                bytes=cost.bytes,
                bound=roof.bound,
                achieved_tflops=roof.tflops,
                achieved_gbps=roof.gbps,
                of_peak=roof.of_peak,
                peak=roof.peak,
                device=_known(trace.device[row]),
                graph=bool(trace.links.graph[row]),
                cache_assisted=roof.cache_assisted,
            )
        )
    return reports


def transfer_reports(context: Context) -> list[Transfer]:
    """Every memcpy and memset row of the selected steps, in order of start."""
    trace = context.trace
    reports = []
    for row in context.gpu_rows.tolist():
        kind = trace.kind[row]
        if kind == RowKind.KERNEL:
            continue
        name = trace.name(row)
        step = int(context.attribution.step[row])
        reports.append(
            Transfer(
                event=int(trace.event[row]),
                name=name,
                kind="memcpy" if kind == RowKind.MEMCPY else "memset",
                direction=memcpy_direction(name) if kind == RowKind.MEMCPY else None,
                bytes=_number(trace.args(row).get("bytes")),
                step=step if step >= 0 else None,
                op=context.op_name(row),
                start_us=trace.start_us(row),
                duration_us=int(trace.duration[row]) / 1000,
                stream=_known(trace.stream[row]),
                device=_known(trace.device[row]),
                graph=bool(trace.links.graph[row]),
            )
        )
    return reports


def groups(kernels: list[Kernel], steps: int) -> list[Group]:
    """Kernels by name, most time first; ``steps`` is the number of steps the kernels are of."""
    total = sum(k.duration_us for k in kernels)
    found = []
    for members in _grouped(kernels, lambda k: k.name).values():
        durations = [k.duration_us for k in members]
        first = members[0]
        alike = len({(k.flops, k.bytes) for k in members}) == 1
        share, peak, assisted = _share_at_the_median(members) if alike else (None, None, False)
        found.append(
            Group(
                name=first.name,
                short_name=first.short_name,
                kind=first.kind,
                op=_common(k.op for k in members),
                calls=len(members),
                total_us=_us(sum(durations)),
                share=sum(durations) / total if total else 0.0,
                median_us=_us(median(durations)),
                min_us=min(durations),
                bound=_bound_of_most_time(members),
                calls_per_step=sum(k.step is not None for k in members) / steps,
                of_peak=share,
                peak=peak,
                cache_assisted=assisted,
            )
        )
    return sorted(found, key=lambda g: (-g.total_us, g.name))


def gemms(context: Context, kernels: list[Kernel], costs: KernelCosts) -> list[Gemm]:
    """Matrix products by shape and kernel, most time first."""
    rows = dict(zip((k.event for k in kernels), context.kernel_rows.tolist(), strict=True))
    products = [k for k in kernels if k.kind == "gemm"]

    def key(kernel: Kernel) -> tuple[Any, ...]:
        shape = costs.of(rows[kernel.event]).gemm
        sizes = (shape.m, shape.n, shape.k, shape.batch, shape.dtype, shape.layout) if shape else None
        return (kernel.name, kernel.op, sizes)

    table = []
    for members in _grouped(products, key).values():
        best = min(members, key=lambda k: k.duration_us)
        shape = costs.of(rows[best.event]).gemm
        decoded = best.decoded
        middle = _us(median(k.duration_us for k in members))
        flops = best.flops
        of_peak, peak, _ = _share_at_the_median(members)
        table.append(
            Gemm(
                m=shape.m if shape else None,
                n=shape.n if shape else None,
                k=shape.k if shape else None,
                batch=shape.batch if shape else None,
                dtype=(shape.dtype if shape else None) or decoded.get("dtype"),
                layout=_operands(decoded.get("layout")) or (shape.layout if shape else None),
                tile=decoded.get("tile"),
                op=best.op,
                kernel=best.name,
                epilogue=[str(e) for e in decoded.get("epilogue") or []],
                calls=len(members),
                median_us=middle,
                min_us=best.duration_us,
                flops=flops,
                tflops=flops / middle / 1e6 if flops and middle else None,
                of_peak=of_peak,
                peak=peak,
                events=[k.event for k in members],
            )
        )
    return sorted(table, key=lambda g: (-g.calls * g.median_us, g.kernel))


def elementwise(kernels: list[Kernel]) -> list[Elementwise]:
    """Kernels that only move bytes, by name, operator and size, most time first."""
    movers = [k for k in kernels if k.kind in POINTWISE_KINDS]
    table = []
    for members in _grouped(movers, lambda k: (k.name, k.op, k.bytes)).values():
        best = min(members, key=lambda k: k.duration_us)
        middle = _us(median(k.duration_us for k in members))
        share, peak, assisted = _share_at_the_median(members)
        table.append(
            Elementwise(
                kernel=best.name,
                short_name=best.short_name,
                kind=best.kind,
                op=best.op,
                parts=[str(p) for p in best.decoded.get("ops") or []],
                calls=len(members),
                median_us=middle,
                min_us=best.duration_us,
                bytes=best.bytes,
                gbps=best.bytes / middle / 1e3 if best.bytes and middle else None,
                of_peak=share,
                peak=peak,
                cache_assisted=assisted,
            )
        )
    return sorted(table, key=lambda e: (-e.calls * e.median_us, e.kernel, e.bytes or 0))


def coverage(context: Context, kernels: list[Kernel]) -> Coverage:
    """Shares of the kernel time that are linked, have an operator, have their FLOPs counted."""
    trace = context.trace
    rows = context.kernel_rows
    time = trace.duration[rows]
    total = int(time.sum())
    if not total:
        return Coverage(kernels_linked=None, kernels_with_op=None, flops_counted=None)

    def share(mask: Any) -> float:
        return int(time[mask].sum()) / total

    counted = np.array([k.flops is not None for k in kernels], dtype=np.bool_)
    # The FLOPs of an operator are given to the kernel that does the product; its helpers have none that are missing.
    ops = context.attribution.op[rows]
    counted |= (ops >= 0) & np.isin(ops, ops[counted])
    products = np.array([k.kind in COMPUTE_KINDS and k.duration_us > 0 for k in kernels], dtype=np.bool_)
    return Coverage(
        kernels_linked=share(trace.links.launch[rows] >= 0),
        kernels_with_op=share(context.attribution.op[rows] >= 0),
        flops_counted=share(counted),
        products_counted=int(time[products & counted].sum()) / int(time[products].sum()) if products.any() else None,
    )


def _us(value: float) -> float:
    """Microseconds to the picosecond: sums of exact nanoseconds, without the dust of binary fractions."""
    return round(value, 6)


def _grouped(kernels: list[Kernel], key: Any) -> dict[Any, list[Kernel]]:
    table: dict[Any, list[Kernel]] = {}
    for kernel in kernels:
        table.setdefault(key(kernel), []).append(kernel)
    return table


def _share_at_the_median(members: list[Kernel]) -> tuple[float | None, str | None, bool]:
    """Share of peak, the peak's name, and whether caches helped, of the call whose duration is the median."""
    middle = median_low(sorted(k.duration_us for k in members))
    typical = next(k for k in members if k.duration_us == middle)
    return typical.of_peak, typical.peak, typical.cache_assisted


def _bound_of_most_time(members: list[Kernel]) -> KernelBound:
    time: dict[KernelBound, float] = {}
    for kernel in members:
        time[kernel.bound] = time.get(kernel.bound, 0.0) + kernel.duration_us
    return max(time, key=lambda bound: time[bound])


def _common(values: Iterable[Any]) -> Any:
    """The one value all share; None where they differ."""
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _operands(layout: Any) -> str | None:
    """``TNT`` → ``TN``: the letters of the two operands."""
    return str(layout)[:2].upper() if layout else None


def _known(value: Any) -> int | None:
    return int(value) if value >= 0 else None


def _number(value: Any) -> int | None:
    return int(value) if isinstance(value, int | float) and value == value else None


def _numbers(value: Any) -> list[int] | None:
    if isinstance(value, list) and all(isinstance(v, int) for v in value):
        return value
    return None
