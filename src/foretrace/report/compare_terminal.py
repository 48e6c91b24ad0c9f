"""A comparison as text: the numbers of every trace, then each pair, then the conclusion and the gates."""

from __future__ import annotations

from foretrace.model.comparison import Comparison, Gate, OperatorChange, Pair
from foretrace.model.words import UNKNOWN, bytes_of, listed, number, time
from foretrace.report import compare_cells as cells
from foretrace.report.clock import more
from foretrace.report.ink import finished
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, cut, line
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["render_comparison"]

_COLUMNS = 3  # traces beside the baseline in one table; more go into further tables
_LABEL = 18
_PLACES = 12
_OPERATORS = 8
_STATES = {"held": "good", "failed": "bad", "unknown": "suspect"}


def render_comparison(comparison: Comparison, view: View | None = None) -> str:
    """The comparison as text that ends in a newline; ``view`` as for a report."""
    view = view or View()
    content = [*_title(comparison, view), [], *_metrics(comparison, view)]
    for pair in comparison.pairs:
        if pair.related:
            content += [[], *_pair(comparison, pair, view)]
    content += [[], *_conclusion(comparison, view)]
    if comparison.gates:
        content += [[], *_gates(comparison, view)]
    return finished(content, view)


def _title(comparison: Comparison, view: View) -> list[Line]:
    lines = [line(Span("foretrace compare", "dim"), "  ", Span(f"{len(comparison.sides)} traces", "title"))]
    for position, side in enumerate(comparison.sides):
        lead = Span(f"{cut(side.label, view.width // 2, 'middle')}  ", "head")
        lines += paragraph(cells.setup_words(side, position), view.width, lead=lead, hang=6)
        for warning in side.warnings:
            lines += paragraph(warning, view.width, lead="! ", indent=6)
    for alarm in cells.alarms(comparison):
        lines += paragraph(alarm, view.width, lead=Span("! ", "suspect"), style="suspect")
    return lines


def _metrics(comparison: Comparison, view: View) -> list[Line]:
    lines: list[Line] = [[Span("A STEP", "section"), Span("  medians; = is no difference beyond the spread", "dim")]]
    rows = cells.metric_rows(comparison)
    if not rows:
        return [*lines, line("  No number could be taken from these traces.")]
    for first in range(1, len(comparison.sides), _COLUMNS):
        shown = range(first, min(first + _COLUMNS, len(comparison.sides)))
        columns = [Column("", left=True, keep=9)]
        columns += [Column(cut(comparison.sides[0].label, _LABEL, "middle"), keep=8)]
        for at in shown:
            columns += [Column(cut(comparison.sides[at].label, _LABEL, "middle"), keep=7), Column("", keep=6)]
        body = []
        for words, metric in rows:
            row = [words, cells.value_words(metric, metric.values[0])]
            for at in shown:
                row += [cells.value_words(metric, metric.values[at]), cells.change_words(metric.changes[at], metric)]
            body.append(row)
        lines += table(columns, body, view.width)
    for reason in cells.reasons(comparison):
        lines += paragraph(reason, view.width, style="dim")
    return lines


def _pair(comparison: Comparison, pair: Pair, view: View) -> list[Line]:
    a, b = comparison.sides[pair.a].label, comparison.sides[pair.b].label
    lines: list[Line] = [line(Span(f"{a} → {b}", "section"))]
    for note in pair.notes[1:] if cells.is_alarming(pair) else pair.notes:
        lines += paragraph(note, view.width, lead="• ")
    for said in cells.speedup_words(comparison, pair):
        lines += paragraph(said, view.width, lead="• ")
    lines += paragraph(cells.share_words(pair), view.width, lead="• ")
    lines += _categories(pair, view)
    lines += _places(pair, view)
    lines += _copies(pair, view)
    lines += _operators(pair, view)
    lines += _modules(pair, view)
    return lines


def _categories(pair: Pair, view: View) -> list[Line]:
    if not pair.categories:
        return []
    columns = [
        Column("GPU rows, one step", left=True),
        Column("kernels"),
        Column("copies, sets"),
        Column("before"),
        Column("after"),
    ]
    body = [
        [
            c.category,
            f"{c.a_kernels} → {c.b_kernels}",
            f"{c.a_transfers} → {c.b_transfers}" if c.a_transfers or c.b_transfers else UNKNOWN,
            time(c.a_us),
            time(c.b_us),
        ]
        for c in pair.categories
    ]
    every = pair.categories
    if len(every) > 1:
        body.append(
            [
                "all",
                f"{sum(c.a_kernels for c in every)} → {sum(c.b_kernels for c in every)}",
                f"{sum(c.a_transfers for c in every)} → {sum(c.b_transfers for c in every)}",
                time(sum(c.a_us for c in every)),
                time(sum(c.b_us for c in every)),
            ]
        )
    return table(columns, body, view.width)


def _places(pair: Pair, view: View) -> list[Line]:
    limit = view.rows(_PLACES)
    places = cells.places_in_order(pair)
    if not places:
        return []
    head, memory = cells.memory_words(places[:limit])
    columns = [
        Column("", left=True, keep=9),
        Column("kernel", left=True, least=46, keep=8, cut="middle"),
        Column("before", keep=7),
        Column("after", keep=7),
        Column("change", keep=6),
        Column(head.replace(" memory", "\nmemory"), keep=4),
        Column("aligned\nby", left=True, keep=2),
    ]
    body = [
        [
            place.category,
            cells.place_words(place),
            time(place.a_us) if place.a else UNKNOWN,
            time(place.b_us) if place.b else UNKNOWN,
            cells.change_words(place.change) if place.a and place.b else UNKNOWN,
            moved,
            cells.how_words(place),
        ]
        for place, moved in zip(places[:limit], memory, strict=True)
    ]
    lines = table(columns, body, view.width)
    left = 0 if limit is None else len(places) - limit
    return lines + (
        [line(Span(f"  + {left} more {'place' if left == 1 else 'places'} (--all)", "dim"))] if left > 0 else []
    )


def _copies(pair: Pair, view: View) -> list[Line]:
    lines: list[Line] = []
    for copy in pair.copies[: view.rows(_OPERATORS)]:
        size = f", {bytes_of(copy.bytes)}" if copy.bytes is not None else ""
        why = f": {copy.why}" if copy.why else ""
        times = f"{copy.count}× " if copy.count > 1 else ""
        by = f" by {copy.op}" if copy.op else ""
        said = f"{times}{copy.name}{by} ({time(copy.us)}{size}){why}"
        lines += paragraph(said, view.width, lead="copy that appears: ", hang=4)
    return lines


def _operators(pair: Pair, view: View) -> list[Line]:
    lines: list[Line] = []
    limit = view.rows(_OPERATORS)
    for role, words in (
        ("view", "views, which launch nothing"),
        ("compile", "rows of torch.compile"),
        ("compute", "other operators"),
        ("allocation", "allocations"),
        ("query", "queries"),
    ):
        found = [change for change in pair.operators if change.role == role]
        if found:
            shown = [_operator(change) for change in found[:limit]]
            rest = [f"{len(found) - len(shown)} more names"] if len(shown) < len(found) else []
            lines += paragraph(listed([*shown, *rest]), view.width, lead=f"CPU, {words}: ", hang=4)
    return lines


def _operator(change: OperatorChange) -> str:
    return f"{change.name.removeprefix('## ')} {change.a_calls} → {change.b_calls}"


def _modules(pair: Pair, view: View) -> list[Line]:
    columns = [Column("module", left=True, least=16), Column("before"), Column("after")]
    body = [[module.name, time(module.a_us), time(module.b_us)] for module in pair.modules[: view.rows(_OPERATORS)]]
    return table(columns, body, view.width) + more(len(pair.modules), len(body), "module") if body else []


def _conclusion(comparison: Comparison, view: View) -> list[Line]:
    against = comparison.sides[0].label
    lines: list[Line] = [[Span("CONCLUSION", "section"), Span(f"  against {against}", "dim")]]
    for row, pair in zip(comparison.conclusion, comparison.pairs, strict=True):
        lines.append(line("  ", Span(cut(row.setup, view.width - 2, "middle"), "head")))
        stories = (("changed  ", row.changed), ("same     ", row.same))
        for lead, said in stories if pair.related else stories[:1]:
            for position, text in enumerate(said or ["nothing"]):
                start = Span(lead if position == 0 else " " * len(lead), "dim")
                lines += paragraph(text, view.width, lead=start, indent=4)
    return lines


def _gates(comparison: Comparison, view: View) -> list[Line]:
    lines: list[Line] = [[Span("GATES", "section"), Span("  a gate fails where its condition holds", "dim")]]
    for gate in comparison.gates:
        lines += paragraph(_gate(comparison, gate), view.width, lead=Span(f"{gate.state:<8}", _STATES[gate.state]))
    failed = sum(gate.state == "failed" for gate in comparison.gates)
    return [*lines, line(f"  {number(failed)} of {number(len(comparison.gates))} failed")]


def _gate(comparison: Comparison, gate: Gate) -> str:
    return f"{gate.expression}  {comparison.sides[gate.side].label}: {gate.detail}"
