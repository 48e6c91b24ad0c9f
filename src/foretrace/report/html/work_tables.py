"""The tables of a report: kernels by name, matrix products, elementwise kernels, copies, operators."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from foretrace.model.report import Elementwise, Gemm, Group, Report, Transfer
from foretrace.model.words import listed
from foretrace.report.html.tables import Column, Table, times
from foretrace.report.work import issued_by, no_share, peak_marks

__all__ = ["NOWHERE", "Picks", "elementwise", "gemms", "groups", "operators", "picks_of", "transfers"]

Item = TypeVar("Item")

# In a column of row numbers: in no row of that table.
NOWHERE = 2**32 - 1


@dataclass(eq=False)
class Picks:
    """Which row of each table a kernel or a copy is counted in; uint32, ``NOWHERE`` for none."""

    group: NDArray[np.uint32]
    product: NDArray[np.uint32]
    mover: NDArray[np.uint32]
    transfer: NDArray[np.uint32]


def picks_of(report: Report) -> Picks:
    """Find the rows that the kernels and copies of a report are counted in."""
    product_of = {event: row for row, gemm in enumerate(report.gemms) for event in gemm.events}
    return Picks(
        group=_rows_of(report.kernels, [group.name for group in report.groups], lambda kernel: kernel.name),
        product=np.array([product_of.get(kernel.event, NOWHERE) for kernel in report.kernels], dtype=np.uint32),
        mover=_rows_of(
            report.kernels,
            [(row.kernel, row.op, row.bytes, row.kind) for row in report.elementwise],
            lambda kernel: (kernel.name, kernel.op, kernel.bytes, kernel.kind),
        ),
        transfer=_rows_of(report.transfers, list(_alike(report.transfers)), _transfer_key),
    )


def _rows_of(items: Sequence[Item], keys: Sequence[Hashable], key_of: Callable[[Item], Hashable]) -> NDArray[np.uint32]:
    row_of: dict[Hashable, int] = {}
    for row, key in enumerate(keys):
        row_of.setdefault(key, row)
    return np.array([row_of.get(key_of(item), NOWHERE) for item in items], dtype=np.uint32)


def _of_peak(rows: Sequence[Gemm | Elementwise | Group], marks: Mapping[str | None, str], *, at: str = "") -> Column:
    """Shares of the rates that bound; in the place of one that is none, the reason."""
    reasons = [no_share(row.of_peak, getattr(row, "cache_assisted", False)) for row in rows]
    return Column(
        "of_peak",
        "of peak",
        "percent",
        [None if reason else row.of_peak for row, reason in zip(rows, reasons, strict=True)],
        unit="%",
        notes=[
            reason or ("" if row.of_peak is None else marks.get(row.peak, ""))
            for row, reason in zip(rows, reasons, strict=True)
        ],
        help=f"share of the rate that bounds it{at}",
    )


def _peak_remark(marks: Mapping[str | None, str]) -> list[str]:
    if not marks:
        return []
    return ["of peak: share of " + "; ".join(f"{mark} {peak}".strip() for peak, mark in marks.items()) + "."]


def groups(report: Report) -> Table:
    """Kernels by name, most time first."""
    rows = report.groups
    marks = peak_marks(group.peak for group in rows)
    return Table(
        id="kernels",
        title="Kernels by name",
        rows=len(rows),
        picks="group",
        columns=[
            Column("kernel", "kernel", "name", [group.short_name for group in rows]),
            Column("kind", "kind", "text", [group.kind for group in rows]),
            Column("op", "operator", "name", [group.op for group in rows]),
            Column("calls", "calls", "count", [group.calls for group in rows]),
            Column("calls_per_step", "calls a step", "average", [group.calls_per_step for group in rows]),
            times("total", "total", [group.total_us for group in rows]),
            Column("share", "share", "percent", [group.share for group in rows], unit="%", help="of the kernel time"),
            times("median", "median", [group.median_us for group in rows]),
            times("min", "min", [group.min_us for group in rows]),
            Column("bound", "bound", "text", [None if group.bound == "unknown" else group.bound for group in rows]),
            _of_peak(rows, marks, at=", at the median duration"),
            Column("name", "full name", "name", [group.name for group in rows], on_paper=False),
        ],
        remarks=_peak_remark(marks),
    )


def gemms(report: Report) -> Table:
    """Matrix products by shape and kernel, in torch's order: M rows, N columns, K reduction."""
    rows = report.gemms
    marks = peak_marks(gemm.peak for gemm in rows)
    remarks = ["M rows, N columns, K reduction, as torch orders them."]
    if any(gemm.m is None for gemm in rows):
        remarks.append(
            "Without M, N, K: a helper kernel of a product, or shapes that were not recorded or do not give them."
        )
    return Table(
        id="gemms",
        title="Matrix products",
        rows=len(rows),
        picks="product",
        columns=[
            Column("m", "M", "count", [gemm.m for gemm in rows]),
            Column("n", "N", "count", [gemm.n for gemm in rows]),
            Column("k", "K", "count", [gemm.k for gemm in rows]),
            Column("batch", "batch", "count", [gemm.batch for gemm in rows]),
            Column("dtype", "dtype", "text", [gemm.dtype for gemm in rows]),
            Column("layout", "layout", "text", [gemm.layout for gemm in rows]),
            Column("tile", "tile", "text", [gemm.tile for gemm in rows]),
            Column("epilogue", "epilogue", "text", [", ".join(gemm.epilogue) for gemm in rows]),
            Column("calls", "calls", "count", [gemm.calls for gemm in rows]),
            Column("work", "work", "flop", [gemm.flops for gemm in rows]),
            times("median", "median", [gemm.median_us for gemm in rows]),
            times("min", "min", [gemm.min_us for gemm in rows]),
            Column("tflops", "rate", "number", [gemm.tflops for gemm in rows], unit="TFLOP/s", help="at the median"),
            _of_peak(rows, marks),
            Column("op", "operator", "name", [gemm.op for gemm in rows]),
            Column("kernel", "kernel", "name", [gemm.kernel for gemm in rows]),
        ],
        remarks=[*remarks, *_peak_remark(marks)],
    )


def elementwise(report: Report) -> Table:
    """Kernels that mostly move bytes, with what they move and how fast."""
    rows = report.elementwise
    marks = peak_marks(row.peak for row in rows)
    remarks = ["bytes: each operand read once, each result written once."]
    if any(row.cache_assisted for row in rows):
        remarks.append("cache-assisted: faster than the memory can be, because the L2 cache served part of the bytes.")
    return Table(
        id="elementwise",
        title="Elementwise, reductions and copies on the GPU",
        rows=len(rows),
        picks="mover",
        columns=[
            Column("kernel", "kernel", "name", [row.short_name for row in rows]),
            Column("kind", "kind", "text", [row.kind for row in rows]),
            Column("op", "operator", "name", [row.op for row in rows]),
            Column("does", "does", "text", [", ".join(row.parts) for row in rows]),
            Column("calls", "calls", "count", [row.calls for row in rows]),
            Column("bytes", "bytes", "bytes", [row.bytes for row in rows]),
            times("median", "median", [row.median_us for row in rows]),
            times("min", "min", [row.min_us for row in rows]),
            Column("gbps", "rate", "number", [row.gbps for row in rows], unit="GB/s", help="at the median"),
            _of_peak(rows, marks),
            Column("name", "full name", "name", [row.kernel for row in rows], on_paper=False),
        ],
        remarks=[*remarks, *_peak_remark(marks)],
    )


def _transfer_key(transfer: Transfer) -> Hashable:
    return (
        transfer.step is None,
        transfer.name,
        transfer.direction,
        transfer.bytes,
        transfer.stream,
        issued_by(transfer),
    )


def _alike(transfers: Sequence[Transfer]) -> dict[Hashable, list[Transfer]]:
    found: dict[Hashable, list[Transfer]] = {}
    for transfer in transfers:
        found.setdefault(_transfer_key(transfer), []).append(transfer)
    return found


def transfers(report: Report) -> Table:
    """Copies and memsets; equal ones share a row."""
    alike = _alike(report.transfers)
    firsts = [rows[0] for rows in alike.values()]
    return Table(
        id="transfers",
        title="Memory copies and sets",
        rows=len(alike),
        picks="transfer",
        columns=[
            Column("what", "what", "text", [row.name for row in firsts]),
            Column("direction", "direction", "text", [row.direction for row in firsts]),
            Column("bytes", "bytes each", "bytes", [row.bytes for row in firsts]),
            Column("stream", "stream", "count", [row.stream for row in firsts]),
            Column("calls", "calls", "count", [len(rows) for rows in alike.values()]),
            times("total", "total", [sum(row.duration_us for row in rows) for rows in alike.values()]),
            Column("where", "where", "text", ["no step" if row.step is None else "in a step" for row in firsts]),
            Column("op", "issued by", "name", [issued_by(row) for row in firsts]),
        ],
    )


def operators(report: Report) -> Table:
    """Operators with their own time (self) and with what they called (total)."""
    rows = report.operators
    columns = [
        Column("op", "operator", "name", [row.name for row in rows]),
        Column("calls", "calls", "count", [row.calls for row in rows]),
        times("self_cpu", "self CPU", [row.self_cpu_us for row in rows]),
        times("cpu", "total CPU", [row.cpu_us for row in rows]),
    ]
    if all(row.gpu_us is None for row in rows):
        # A trace without a GPU has rates of the CPU instead.
        columns += [
            Column("gflops", "rate", "number", [row.cpu_gflops for row in rows], unit="GFLOP/s"),
            Column("gbps", "rate", "number", [row.cpu_gbps for row in rows], unit="GB/s"),
        ]
    else:
        columns += [
            times("self_gpu", "self GPU", [row.self_gpu_us for row in rows]),
            times("gpu", "total GPU", [row.gpu_us for row in rows]),
            Column("kernels", "kernels", "count", [row.kernels for row in rows]),
        ]
    views = [row.name for row in rows if row.metadata_only]
    columns.append(Column("view", "launches", "text", ["nothing: a view" if row.metadata_only else "" for row in rows]))
    remarks = [
        "self: without the operators it called; total: with them. CPU and GPU run at the same time: their times do not "
        "add up. GPU time is that of the kernels and copies launched inside, each counted once."
    ]
    if views:
        remarks.append(
            f"They return a view of the same memory, so no kernel and no copy, CPU time only: {listed(views)}."
        )
    return Table(id="operators", title="Operators", rows=len(rows), picks="operator", columns=columns, remarks=remarks)
