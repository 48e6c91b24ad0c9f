"""One trace as a comparison sees it: a typical step as a sequence of GPU rows, and every step's numbers."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.analysis.pace import is_cold
from foretrace.comparison.host import HostFacts, facts_of_chain, facts_of_trace
from foretrace.comparison.products import Products, products_of
from foretrace.knowledge.compiled import code_name, is_compile_row
from foretrace.knowledge.limits import COMPUTE_KINDS
from foretrace.model.report import Kernel, Report, Step, Transfer
from foretrace.model.sidefile import SideFile
from foretrace.model.words import time
from foretrace.trace.table import Trace

__all__ = ["Item", "Subject", "make_subject"]


GpuRow = Kernel | Transfer
# Event of a product → (m, n, k, batch); None where several sizes fit it.
Sizes = dict[int, tuple[int | None, ...] | None]
Intervals = dict[int, tuple[float, float]]


@dataclass(slots=True, eq=False)
class Item:
    """One GPU row of the typical step; ``samples`` are its durations (µs) in all steps like it."""

    name: str
    short_name: str
    kind: str  # a kernel kind, or memcpy, memset
    op: str | None
    regions: tuple[str, ...]  # annotations around it, outermost first
    path: tuple[str, ...]  # operators around it and its own, without the rows of torch.compile
    module: str | None
    us: float
    samples: list[float]
    bytes: int | None
    flops: int | None
    event: int
    parts: tuple[str, ...]  # operators a fused kernel's name lists, views left out
    epilogue: tuple[str, ...]
    dtype: str | None
    size: tuple[object, ...] | None  # equal sizes are equal work; None where shapes were not recorded
    graph: bool
    predicted: tuple[float, float] | None  # the interval (µs) of a predicted row

    @property
    def code(self) -> str:
        """The kernel's name without the number that Inductor gives its kernels in turn."""
        return code_name(self.name)

    @property
    def is_kernel(self) -> bool:
        """Whether the row is a kernel, not a copy or memset of the copy engine."""
        return self.kind not in ("memcpy", "memset")

    @property
    def is_product(self) -> bool:
        """Whether the row is a matrix product whose ``size`` is (m, n, k, batch)."""
        return self.kind == "gemm" and self.size is not None and len(self.size) == 4

    @property
    def unites(self) -> bool:
        """Whether a product names more work than itself: a fused kernel, which takes its parts by their names."""
        return self.kind in COMPUTE_KINDS and len(self.parts) > 1


@dataclass(eq=False)
class Subject:
    """What is kept of a trace once it is read."""

    report: Report
    side: SideFile | None
    steps: list[Step]  # those that hold work
    like: list[int]  # positions in ``steps`` of those that launch the same work as the typical one
    typical: int | None  # position in ``steps``
    cold: int | None  # position in ``steps`` of a first step that takes much longer than the others
    items: list[Item]
    rows: dict[int, list[GpuRow]]  # GPU rows of each step by index, in order of launch
    host: HostFacts
    warnings: list[str] = field(default_factory=list)
    products: Products | None = None  # of the typical step, where the trace holds no GPU rows
    uncounted: list[str] = field(default_factory=list)  # why bytes of kernels of the typical step are unknown

    @property
    def timed(self) -> list[Step]:
        """The steps whose CPU times count: all with work but a cold first one."""
        return [step for position, step in enumerate(self.steps) if position != self.cold]


def make_subject(report: Report, trace: Trace | None, side: SideFile | None) -> Subject:
    """Reduce a report, and the trace it was made of where there is one, to what is compared.

    GPU rows are taken in order of launch, which the timing of streams cannot change; a report alone does not tell
    it, so their order of start stands in for it.
    """
    rows = _rows_by_step(report, trace)
    steps = _working(report, rows)
    cold = _cold(steps)
    signatures = [_signature(rows.get(step.index, [])) for step in steps]
    like = _most_alike(signatures, steps)
    typical = _middle(steps, [p for p in like if p != cold] or like)
    warm = [steps[p].index for p in like if p != cold] or [steps[p].index for p in like]
    chosen = None if typical is None else steps[typical].index
    costs = None if trace is None else KernelCosts(Context(trace))
    host = facts_of_chain(report) if trace is None else facts_of_trace(trace, report, chosen, warm)
    items = []
    if chosen is not None:
        sizes = _sizes(report, costs, rows.get(chosen, []))
        items = _items(rows, chosen, [steps[p].index for p in like], sizes, host, _intervals(report))
    subject = Subject(report, side, steps, like, typical, cold, items, rows, host)
    if costs is not None and report.trace.has.shapes:
        subject.uncounted = _uncounted(costs, items)
    if costs is not None and chosen is not None and not report.trace.has.gpu:
        subject.products = products_of(costs, chosen)
    if steps and len(like) < len(steps) and len(items):
        subject.warnings.append(
            f"{len(steps) - len(like)} of {len(steps)} steps launch other work than the step that is compared"
        )
    everything: list[GpuRow] = [*report.kernels, *report.transfers]
    loose = sum(row.duration_us for row in everything if row.step is None)
    if loose:
        subject.warnings.append(f"{time(loose)} of GPU work belong to no step and are not compared")
    return subject


def _rows_by_step(report: Report, trace: Trace | None) -> dict[int, list[GpuRow]]:
    rows: dict[int, list[GpuRow]] = {}
    everything: list[GpuRow] = [*report.kernels, *report.transfers]
    for row in everything:
        if row.step is not None:
            rows.setdefault(row.step, []).append(row)
    launched: dict[int, int] = {}
    if trace is not None:
        gpu = trace.gpu_rows
        launch = trace.links.launch[gpu]
        times = trace.start[launch.clip(min=0)]
        times[launch < 0] = trace.start[gpu][launch < 0]
        launched = _by_event(trace, times)
    for found in rows.values():
        found.sort(key=lambda r: (launched.get(r.event, 0), r.start_us, r.event))
    return rows


def _by_event(trace: Trace, values: NDArray[np.int64]) -> dict[int, int]:
    """Event of each GPU row → its value."""
    return dict(zip(trace.event[trace.gpu_rows].tolist(), values.tolist(), strict=True))


def _kernels_of(trace: Trace, events: set[int]) -> dict[int, int]:
    """Event → its row in the trace, of these events of GPU rows."""
    return {event: row for event, row in _by_event(trace, trace.gpu_rows).items() if event in events}


def _working(report: Report, rows: dict[int, list[GpuRow]]) -> list[Step]:
    """The steps that launched something; all of them where none did."""
    return [step for step in report.steps if rows.get(step.index)] or report.steps


def _cold(steps: list[Step]) -> int | None:
    periods = [step.period_us for step in steps]
    return 0 if periods and is_cold(periods[0], periods[1:]) else None


def _signature(rows: list[GpuRow]) -> int:
    return hash(tuple((row.name, row.op) for row in rows))


def _most_alike(signatures: list[int], steps: list[Step]) -> list[int]:
    """Positions of the steps of the most common signature; of equally common ones, those nearest the median period."""
    if not signatures:
        return []
    counts = Counter(signatures)
    most = max(counts.values())
    middle = median(step.period_us for step in steps)
    nearest = min(
        (p for p, signature in enumerate(signatures) if counts[signature] == most),
        key=lambda p: (abs(steps[p].period_us - middle), p),
    )
    return [p for p, signature in enumerate(signatures) if signature == signatures[nearest]]


def _middle(steps: list[Step], positions: list[int]) -> int | None:
    if not positions:
        return None
    middle = median(steps[p].period_us for p in positions)
    return min(positions, key=lambda p: (abs(steps[p].period_us - middle), p))


def _sizes(report: Report, costs: KernelCosts | None, rows: list[GpuRow]) -> Sizes:
    """Sizes of the products among the rows, from the report's table, which is by kernel, operator and size.

    FLOPs stand in for the size there. Where one kernel made products of equal FLOPs and other sizes the trace tells,
    and a report alone does not.
    """
    table: dict[tuple[str, str | None, int | None], list[tuple[int | None, ...]]] = {}
    for gemm in report.gemms:
        if gemm.m is not None:
            table.setdefault((gemm.kernel, gemm.op, gemm.flops), []).append((gemm.m, gemm.n, gemm.k, gemm.batch))
    found: Sizes = {}
    for row in rows:
        if isinstance(row, Kernel) and row.kind == "gemm" and (fitting := table.get((row.name, row.op, row.flops))):
            found[row.event] = fitting[0] if len(set(fitting)) == 1 else None
    unclear = {event for event, size in found.items() if size is None}
    if unclear and costs is not None:
        for event, kernel in _kernels_of(costs.context.trace, unclear).items():
            if (shape := costs.of(kernel).gemm) is not None:
                found[event] = (shape.m, shape.n, shape.k, shape.batch)
    return found


def _intervals(report: Report) -> Intervals:
    """Event of a predicted row → the interval it was predicted with; none in a recording."""
    told = report.prediction.rows if report.trace.predicted and report.prediction is not None else []
    return {row.event: (row.low_us, row.high_us) for row in told}


def _uncounted(costs: KernelCosts, items: list[Item]) -> list[str]:
    """Why the bytes of some kernels are unknown though shapes were recorded; each reason once."""
    missing = {item.event for item in items if item.is_kernel and item.bytes is None}
    if not missing:
        return []
    rows = _kernels_of(costs.context.trace, missing)
    reasons = [reason for row in rows.values() if (reason := costs.of(row).reason) is not None]
    return list(dict.fromkeys(reasons))


def _items(
    rows: dict[int, list[GpuRow]],
    chosen: int,
    like: list[int],
    sizes: Sizes,
    host: HostFacts,
    intervals: Intervals,
) -> list[Item]:
    columns = zip(*(rows.get(step, []) for step in like), strict=True)
    items = []
    for row, same in zip(rows.get(chosen, []), columns, strict=True):
        samples = [other.duration_us for other in same]
        items.append(_item(row, samples, sizes, host, intervals.get(row.event)))
    return items


def _item(
    row: GpuRow, samples: list[float], sizes: Sizes, host: HostFacts, predicted: tuple[float, float] | None
) -> Item:
    if isinstance(row, Transfer):
        names = list(host.paths.get(row.event) or ((row.op,) if row.op else ()))
        return Item(
            name=row.name,
            short_name=row.name,
            kind=row.kind,
            op=row.op,
            regions=tuple(name for name in names if name in host.labels),
            path=tuple(code_name(name) for name in names if name not in host.labels),
            module=None,
            us=median(samples),
            samples=samples,
            bytes=row.bytes,
            flops=None,
            event=row.event,
            parts=(),
            epilogue=(),
            dtype=None,
            size=None if row.bytes is None else (row.bytes,),
            graph=row.graph,
            predicted=predicted,
        )
    names = [name for name in row.op_path if not is_compile_row(name)]
    decoded = row.decoded
    views = decoded.get("view_ops") or []
    known = row.flops is not None or row.bytes is not None
    return Item(
        name=row.name,
        short_name=row.short_name,
        kind=row.kind,
        op=row.op,
        regions=tuple(name for name in names if name in host.labels),
        path=tuple(code_name(name) for name in names if name not in host.labels),
        module=row.module,
        us=median(samples),
        samples=samples,
        bytes=row.bytes,
        flops=row.flops,
        event=row.event,
        parts=tuple(str(part) for part in decoded.get("ops") or [] if part not in views),
        epilogue=tuple(str(part) for part in decoded.get("epilogue") or []),
        dtype=decoded.get("dtype"),
        size=sizes.get(row.event, (row.flops, row.bytes) if known else None),
        graph=row.graph,
        predicted=predicted,
    )
