"""What the GPU ran: kernels by name, matrix products, elementwise kernels, copies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from foretrace.model.report import Elementwise, Gemm, Group, Report, Transfer
from foretrace.model.words import UNKNOWN, bytes_of, flop, number, percent, scale_of_times, whole
from foretrace.report.clock import more
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, cut, line, note, width_of, wrap
from foretrace.report.view import View

__all__ = [
    "elementwise",
    "fitting_name",
    "gemms",
    "group_table",
    "issued_by",
    "kernels",
    "no_share",
    "of_peak_words",
    "peak_marks",
    "short_names",
    "transfers",
]


def of_peak_words(part: float | None, cache_assisted: bool, mark: str = "") -> str:
    """A share of a peak rate in percent, or why there is none."""
    return no_share(part, cache_assisted) or (UNKNOWN if part is None else percent(part) + mark)


def no_share(part: float | None, cache_assisted: bool) -> str:
    """Why a rate is no share of its peak: bytes served by the L2 cache are none of the memory's; else empty."""
    if cache_assisted:
        return "cache-assisted"
    return "above peak" if part is not None and part > 1 else ""


def issued_by(transfer: Transfer) -> str | None:
    """The operator that issued a copy or memset, or what stands for it."""
    return "graph replay" if transfer.graph and not transfer.op else transfer.op


def peak_marks(peaks: Iterable[str | None]) -> dict[str | None, str]:
    """A mark for each peak rate where a table divides by more than one: " a", " b"; else none."""
    named = list(dict.fromkeys(peak for peak in peaks if peak))
    if len(named) < 2:
        return dict.fromkeys(named, "")
    return {peak: f" {chr(ord('a') + at)}" for at, peak in enumerate(named)}


def peak_note(marks: Mapping[str | None, str], view: View) -> list[Line]:
    """Which rates the shares divide by."""
    if not marks:
        return []
    return note("of peak: share of " + "; ".join(f"{mark} {peak}".strip() for peak, mark in marks.items()), view.width)


def group_table(groups: Sequence[Group], width: int, *, full: bool = False) -> list[Line]:
    """Kernels by name; the name is cut in the middle where the width does not hold it.

    Calls are those of a step where that is known, and of the whole trace too in the ``full`` table. The share
    of peak is that of the rate which bounds the kernel.
    """
    by_step = all(group.calls_per_step is not None for group in groups)
    divisor, unit = scale_of_times(group.total_us for group in groups)
    one_divisor, one = scale_of_times(group.median_us for group in groups)
    columns = [
        Column("kernel", left=True, least=24, keep=9, cut="middle"),
        Column("kind", left=True, keep=7, least=8),
        Column("operator", left=True, keep=2, least=12, cut="middle"),
        *([Column("calls", keep=3 if by_step else 6)] if full or not by_step else []),
        Column("calls/\nstep", keep=6),
        Column(f"total\n{unit}", keep=8),
        Column("share\n%", keep=9),
        Column(f"median\n{one}", keep=8),
        Column(f"min\n{one}", keep=4),
        Column("bound", left=True, keep=3),
        Column("of peak\n%", keep=6),
    ]
    rows = [
        [
            group.short_name,
            group.kind,
            group.op or UNKNOWN,
            *([number(group.calls)] if full or not by_step else []),
            whole(group.calls_per_step),
            number(group.total_us / divisor),
            percent(group.share),
            number(group.median_us / one_divisor),
            number(group.min_us / one_divisor),
            UNKNOWN if group.bound == "unknown" else group.bound,
            of_peak_words(group.of_peak, group.cache_assisted),
        ]
        for group in groups
    ]
    return table(columns, rows, width)


def kernels(report: Report, view: View) -> list[Line]:
    """All kernels by name, most time first, with their full names below the table."""
    if not report.groups:
        return [_no_gpu(report, "kernels")]
    limit = view.rows()
    shown = report.groups[:limit]
    lines = group_table(shown, view.width, full=True) + more(len(report.groups), limit, "kernel")
    lines += full_names(((group.short_name, group.name) for group in shown), view)
    return lines


def full_names(pairs: Iterable[tuple[str, str]], view: View) -> list[Line]:
    """The names as the trace has them, wrapped and never cut, each once."""
    names = {name: short for short, name in pairs if short != name}
    if not names:
        return []
    lines: list[Line] = [[], line("  Full names")]
    for name, short in names.items():
        lines.append(line("  ", short))
        lines += [line("      ", Span(piece, "dim")) for piece in wrap(name, view.width - 6)]
    return lines


def short_names(report: Report) -> dict[str, str]:
    """Kernel name of the trace → the short name the report gives it."""
    return {group.name: group.short_name for group in report.groups}


def fitting_name(name: str, names: Mapping[str, str], room: int) -> str:
    """The full name where it fits, else the short one, cut in the middle where even that is too long."""
    return cut(name if width_of(name) <= room else names.get(name, name), room, "middle")


def _no_gpu(report: Report, what: str) -> Line:
    if report.trace.has.gpu:
        return line(f"  The trace holds no {what}.")
    return line(f"  The trace holds no GPU rows, so no {what}.")


_NO_SIZES = "M, N, K unknown: the operator's shapes were not recorded, or do not give them."
_SOME_SIZES = "Without M, N, K: a product's helper kernel, or the shapes were not recorded or do not give them."


def gemms(report: Report, view: View) -> list[Line]:
    """Matrix products by shape and kernel, in torch's order M (rows), N (columns), K (reduction)."""
    if not report.gemms:
        return [_no_gpu(report, "matrix products")]
    limit = view.rows()
    shown = report.gemms[:limit]
    lines = _gemm_table(shown, view.width) + more(len(report.gemms), limit, "matrix product")
    if any(gemm.m is None for gemm in shown):
        lines += note(_NO_SIZES if all(gemm.m is None for gemm in shown) else _SOME_SIZES, view.width)
    lines += peak_note(peak_marks(gemm.peak for gemm in shown), view)
    return lines


def _gemm_table(shown: Sequence[Gemm], width: int) -> list[Line]:
    divisor, unit = scale_of_times(gemm.median_us for gemm in shown)
    marks = peak_marks(gemm.peak for gemm in shown)
    columns = [
        Column("batch", keep=4),
        Column("M", keep=9),
        Column("N", keep=9),
        Column("K", keep=9),
        Column("dtype", left=True, keep=5),
        Column("lay-\nout", left=True, keep=6),
        Column("tile", left=True, keep=5),
        Column("epilogue", left=True, keep=4, least=8),
        Column("calls", keep=6),
        Column("work", keep=6),
        Column(f"median\n{unit}", keep=8),
        Column(f"min\n{unit}", keep=3),
        Column("TFLOP/s", keep=8),
        Column("of peak\n%", keep=7),
        Column("operator", left=True, keep=2, least=8, cut="middle"),
        Column("kernel", left=True, keep=1, least=16, cut="middle"),
    ]
    rows = [
        [
            number(gemm.batch) if gemm.batch not in (None, 1) else "",
            number(gemm.m),
            number(gemm.n),
            number(gemm.k),
            gemm.dtype or UNKNOWN,
            gemm.layout or UNKNOWN,
            gemm.tile or UNKNOWN,
            ", ".join(gemm.epilogue),
            number(gemm.calls),
            flop(gemm.flops),
            number(gemm.median_us / divisor),
            number(gemm.min_us / divisor),
            number(gemm.tflops),
            of_peak_words(gemm.of_peak, False, marks.get(gemm.peak, "")),
            gemm.op or UNKNOWN,
            gemm.kernel,
        ]
        for gemm in shown
    ]
    return table(columns, rows, width)


def elementwise(report: Report, view: View) -> list[Line]:
    """Kernels that mostly move bytes, with what they move and how fast."""
    if not report.elementwise:
        return [_no_gpu(report, "elementwise kernels")]
    limit = view.rows()
    shown = report.elementwise[:limit]
    lines = _elementwise_table(shown, view.width) + more(len(report.elementwise), limit, "kernel")
    if any(row.cache_assisted for row in shown):
        text = (
            "cache-assisted: faster than the memory can be, because the L2 cache served part of the bytes; "
            "bytes are logical (each operand read once, each result written once)."
        )
        lines += note(text, view.width)
    lines += peak_note(peak_marks(row.peak for row in shown), view)
    return lines


def _elementwise_table(shown: Sequence[Elementwise], width: int) -> list[Line]:
    divisor, unit = scale_of_times(row.median_us for row in shown)
    marks = peak_marks(row.peak for row in shown)
    columns = [
        Column("kernel", left=True, least=18, keep=9, cut="middle"),
        Column("kind", left=True, keep=4, least=8),
        Column("operator", left=True, keep=3, least=10, cut="middle"),
        Column("does", left=True, keep=2, least=10),
        Column("calls", keep=6),
        Column("bytes", keep=8),
        Column(f"median\n{unit}", keep=9),
        Column(f"min\n{unit}", keep=4),
        Column("GB/s", keep=8),
        Column("of peak\n%", keep=7),
    ]
    rows = [
        [
            row.short_name,
            row.kind,
            row.op or UNKNOWN,
            ", ".join(row.parts),
            number(row.calls),
            bytes_of(row.bytes),
            number(row.median_us / divisor),
            number(row.min_us / divisor),
            number(row.gbps),
            of_peak_words(row.of_peak, row.cache_assisted, marks.get(row.peak, "")),
        ]
        for row in shown
    ]
    return table(columns, rows, width)


def transfers(report: Report, view: View) -> list[Line]:
    """Copies and memsets; equal ones share a row. Kernels that copy are under elementwise."""
    if not report.transfers:
        return [_no_gpu(report, "memory copies or memsets")]
    alike: dict[tuple[str, ...], list[Transfer]] = {}
    for row in report.transfers:
        issued = issued_by(row) or UNKNOWN
        # Work of no step (its launch lies outside, or is unknown) stays visible as such.
        where = "no step" if row.step is None else ""
        key = (where, row.name, row.direction or UNKNOWN, bytes_of(row.bytes), number(row.stream), issued)
        alike.setdefault(key, []).append(row)
    limit = view.rows()
    divisor, unit = scale_of_times(sum(row.duration_us for row in rows) for rows in alike.values())
    columns = [
        Column("", left=True, keep=6),
        Column("what", left=True, least=12, keep=9),
        Column("direction", left=True, keep=3),
        Column("bytes each", keep=8),
        Column("stream", keep=2),
        Column("issued by", left=True, least=14, keep=7, cut="middle"),
        Column("calls", keep=8),
        Column(f"total {unit}", keep=9),
    ]
    cells = [
        [*key, number(len(rows)), number(sum(row.duration_us for row in rows) / divisor)] for key, rows in alike.items()
    ]
    return table(columns, cells[:limit], view.width) + more(len(cells), limit, "row")
