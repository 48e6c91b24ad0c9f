"""What the CPU did: the dispatch chain as a tree, the operator table, operators that launch nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from foretrace.model.report import ON_GPU, Launcher, Operator, Report
from foretrace.model.words import UNKNOWN, number, scale_of_times, time
from foretrace.report.clock import more
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, cut, line, note, width_of
from foretrace.report.view import View
from foretrace.report.work import fitting_name, short_names

__all__ = ["chain", "metadata_only", "operator_table", "operators"]

CHAIN_LINES = 60


def chain(report: Report, view: View) -> list[Line]:
    """Operator → launch → GPU work of one step; equal neighbours are folded into a count."""
    if not report.chain:
        return [line("  The trace holds no operators, so no dispatch chain.")]
    limit = None if view.everything else CHAIN_LINES if view.top is None else view.top
    text = "N× folds equal neighbours; → is the GPU work of a launch, with its GPU time (sum of the fold)."
    lines = note(text, view.width)
    tree = _tree(report.chain, view.width, short_names(report))
    return lines + tree[:limit] + more(len(tree), limit, "line")


def _tree(roots: Sequence[Launcher], width: int, names: Mapping[str, str]) -> list[Line]:
    """The nodes in depth-first order, without recursion: a call stack may be deeper than Python's."""
    lines: list[Line] = []
    waiting = [(node, "", i == len(roots) - 1, True) for i, node in enumerate(roots)][::-1]
    while waiting:
        node, stem, last, root = waiting.pop()
        guide = stem if root else stem + ("└─ " if last else "├─ ")
        below = stem if root else stem + ("   " if last else "│  ")
        work = node.children[0] if _is_one_launch(node) else None
        lines.append(_node(node, work, guide, width, names))
        children = [] if work is not None else node.children
        waiting += [(child, below, i == len(children) - 1, False) for i, child in enumerate(children)][::-1]
    return lines


def _is_one_launch(node: Launcher) -> bool:
    """A launch that enqueued one thing shows it on its own line."""
    return node.kind == "launch" and len(node.children) == 1 and not node.children[0].children


def _node(node: Launcher, work: Launcher | None, guide: str, width: int, names: Mapping[str, str]) -> Line:
    # Deep trees keep at least half of the line for names.
    guide = guide if width_of(guide) <= width // 2 else "… " + guide[-(width // 2 - 2) :]
    shown = work or node
    after = f"  {time(shown.us)}" if shown.kind in ON_GPU and shown.us is not None else ""
    room = width - 2 - width_of(guide) - width_of(after)
    times = f"{node.count}× " if node.count > 1 else ""
    style = "dim" if node.kind in ("call", "annotation") else ""
    if work is None:
        arrow = times + ("→ " if node.kind in ON_GPU else "")
        name = arrow + fitting_name(node.name, names, room - width_of(arrow))
        return line("  ", Span(guide, "dim"), Span(name, style), Span(after, "saving" if after else ""))
    launch = cut(times + node.name, max(12, room // 2), "middle")
    arrow = " → " + (f"{work.count}× " if work.count not in (1, node.count) else "")
    name = fitting_name(work.name, names, max(8, room - width_of(launch + arrow)))
    return line("  ", Span(guide, "dim"), Span(launch, "dim"), arrow + name, Span(after, "saving"))


def operator_table(rows: Sequence[Operator], width: int) -> list[Line]:
    """The familiar table. CPU and GPU times run in parallel: they are never to be added up."""
    divisor, unit = scale_of_times(row.cpu_us for row in rows)
    gpu_divisor, gpu_unit = scale_of_times(row.gpu_us for row in rows)

    def gpu(value: float | None) -> str:
        return UNKNOWN if value is None else number(value / gpu_divisor)

    # A trace without a GPU has rates of the CPU instead.
    if all(row.gpu_us is None for row in rows):
        return _cpu_table(rows, divisor, unit, width)
    columns = [
        Column("operator", left=True, least=20, keep=9, cut="middle"),
        Column("calls", keep=8),
        Column(f"self CPU\n{unit}", keep=7),
        Column(f"total CPU\n{unit}", keep=6),
        Column(f"self GPU\n{gpu_unit}", keep=7),
        Column(f"total GPU\n{gpu_unit}", keep=6),
        Column("kernels", keep=5),
    ]
    cells = [
        [
            row.name,
            number(row.calls),
            number(row.self_cpu_us / divisor),
            number(row.cpu_us / divisor),
            gpu(row.self_gpu_us),
            gpu(row.gpu_us),
            number(row.kernels),
        ]
        for row in rows
    ]
    return table(columns, cells, width)


def _cpu_table(rows: Sequence[Operator], divisor: float, unit: str, width: int) -> list[Line]:
    columns = [
        Column("operator", left=True, least=20, keep=9, cut="middle"),
        Column("calls", keep=8),
        Column(f"self CPU\n{unit}", keep=7),
        Column(f"total CPU\n{unit}", keep=6),
        Column("GFLOP/s", keep=6),
        Column("GB/s", keep=6),
    ]
    cells = [
        [
            row.name,
            number(row.calls),
            number(row.self_cpu_us / divisor),
            number(row.cpu_us / divisor),
            number(row.cpu_gflops),
            number(row.cpu_gbps),
        ]
        for row in rows
    ]
    return table(columns, cells, width)


def operators(report: Report, view: View) -> list[Line]:
    """Operators with their own time (self) and with what they called (total)."""
    if not report.operators:
        return [line("  The trace holds no operators.")]
    limit = view.rows()
    shown = report.operators[:limit]
    text = (
        "self: without the operators it called; total: with them. CPU and GPU run at the same time: their "
        "times do not add up. GPU time is that of the kernels and copies launched inside, each counted once."
    )
    lines = note(text, view.width)
    lines += operator_table(shown, view.width)
    return lines + more(len(report.operators), limit, "operator")


def metadata_only(report: Report, view: View) -> list[Line]:
    """Operators that only change shapes and strides: CPU time, no GPU work."""
    found = [row for row in report.operators if row.metadata_only]
    if not found:
        return [line("  No operator is known to launch nothing.")]
    limit = view.rows()
    divisor, unit = scale_of_times(row.cpu_us for row in found)
    columns = [
        Column("operator", left=True, least=20, keep=9, cut="middle"),
        Column("calls", keep=8),
        Column(f"self CPU {unit}", keep=7),
    ]
    rows = [[row.name, number(row.calls), number(row.self_cpu_us / divisor)] for row in found[:limit]]
    lines = note("They return a view of the same memory: no kernel, no copy, CPU time only.", view.width)
    return lines + table(columns, rows, view.width) + more(len(found), limit, "operator")
