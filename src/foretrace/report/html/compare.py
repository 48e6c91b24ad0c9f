"""The page of ``foretrace compare``: what changed, what did not, and the compared steps under each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.model.comparison import CATEGORIES, Change, Comparison, Measure, Metric, Pair, Side
from foretrace.model.timeline import Timeline
from foretrace.model.words import count, listed, number, time
from foretrace.report import compare_cells as cells
from foretrace.report.html import compare_tables
from foretrace.report.html.compare_lanes import lanes_section, pairs_block
from foretrace.report.html.page import Masthead, Page, Section, render, section
from foretrace.report.html.payload import data_block
from foretrace.report.html.tables import Table
from foretrace.report.html.timeline import timeline_block

__all__ = ["compare_page"]

_NEEDS = ("tabulator", "tables", "compare")
_GATE_STATES = {"held": "ok", "failed": "bad", "unknown": "suspect"}


def compare_page(comparison: Comparison, timelines: Sequence[Timeline | None]) -> bytes:
    """One self-contained HTML file in UTF-8.

    Args:
        comparison: what it says.
        timelines: the compared step of each trace on a clock that starts with the step, in the order of the sides
            (`foretrace.comparison.drawn`); ``None`` for a report without its trace, which has no lanes.

    Raises:
        ValueError: not one timeline for each side, or a time beyond 2⁵³ ns.
    """
    if len(timelines) != len(comparison.sides):
        raise ValueError(f"{len(comparison.sides)} traces are compared, and {len(timelines)} timelines were given")
    related = [pair for pair in comparison.pairs if pair.related]
    sections = [_conclusion(comparison)]
    sections += [_gates(comparison)] if comparison.gates else []
    sections += [lanes_section(comparison, timelines)] if related else []
    tables: list[Table] = []
    for pair in related:
        own, its_tables = _pair(comparison, pair)
        sections += own
        tables += its_tables
    sections += [_metrics(comparison), _traces(comparison)]
    blocks = [timeline_block(f"data-side-{at}", one) for at, one in enumerate(timelines) if one is not None]
    blocks += [pairs_block("data-pairs", comparison), data_block("data-tables", [table.data() for table in tables])]
    return render(Page(_masthead(comparison), sections, blocks))


def _masthead(comparison: Comparison) -> Masthead:
    first, *others = comparison.sides
    many = len(others) > 1
    title = f"{first.label} against {listed(side.label for side in others)}" if many else _arrow(first, others[0])
    alarms = [("NOT ALIKE", alarm) for alarm in cells.alarms(comparison)]
    alarms += [
        ("PREDICTED", f"{side.label}: nothing of it ran, nothing was measured")
        for side in comparison.sides
        if side.predicted
    ]
    alarms += [("SUSPECT", f"{side.label}: {said}") for side in comparison.sides for said in side.warnings]
    facts = [f"{side.label}: {cells.setup_words(side, at)}" for at, side in enumerate(comparison.sides)]
    return Masthead(verb="compare", title=title, facts=facts, alarms=alarms)


def _arrow(a: Side, b: Side) -> str:
    return f"{a.label} → {b.label}"


@dataclass(frozen=True)
class _Story:
    """One line of the concluding table, with the numbers that stand out."""

    setup: str
    side: Side
    related: bool
    figures: Sequence[tuple[str, str, str, str, str]]  # what, before, after, change, class of the change
    ratios: Sequence[str]
    changed: Sequence[str]
    same: Sequence[str]
    alarm: str


def _conclusion(comparison: Comparison) -> Section:
    stories = []
    metrics = {metric.name: metric for metric in comparison.metrics}
    for row, pair in zip(comparison.conclusion, comparison.pairs, strict=True):
        figures = []
        for name, said in (("gpu_time", "GPU time"), ("kernels", "kernels"), ("end_to_end", "end to end")):
            metric = metrics.get(name)
            known = metric is not None and None not in (metric.values[at].median for at in (pair.a, pair.b))
            if not pair.related or metric is None or not known:
                continue
            words, kind = _change(metric, pair.b)
            before, after = (cells.value_words(metric, metric.values[at]) for at in (pair.a, pair.b))
            figures.append((said, before, after, words, kind))
        stories.append(
            _Story(
                setup=row.setup,
                side=comparison.sides[pair.b],
                related=pair.related,
                figures=figures,
                ratios=cells.speedup_words(comparison, pair) if pair.related else [],
                changed=row.changed,
                same=row.same if pair.related else [],
                alarm=pair.notes[0] if cells.is_alarming(pair) else "",
            )
        )
    return section(
        "conclusion",
        "Conclusion",
        "compare_conclusion.html.j2",
        needs=("compare",),
        stories=stories,
        baseline=comparison.sides[0].label,
    )


def _change(metric: Metric, at: int) -> tuple[str, str]:
    """A change in words, and how it is coloured: less is good, but for work it only tells of other work."""
    change = metric.changes[at]
    return cells.change_words(change, metric), _direction(change) if metric.name != "flops" else ""


def _direction(change: Change | None) -> str:
    return "" if change is None else change.direction


def _gates(comparison: Comparison) -> Section:
    failed = sum(gate.state == "failed" for gate in comparison.gates)
    rows = [(gate, comparison.sides[gate.side].label, _GATE_STATES[gate.state]) for gate in comparison.gates]
    return section(
        "gates",
        "Gates",
        "compare_gates.html.j2",
        count=f"{failed} failed" if failed else "",
        rows=rows,
        said=f"{number(failed)} of {count(len(rows), 'gate')} failed; a gate fails where its condition holds.",
    )


@dataclass(frozen=True)
class _Cell:
    value: str
    spread: str
    change: str
    direction: str
    note: str


def _metrics(comparison: Comparison) -> Section:
    rows = []
    for words, metric in cells.metric_rows(comparison):
        row = []
        for at, value in enumerate(metric.values):
            change, direction = _change(metric, at)
            told = metric.changes[at]
            note = (told.reason if told is not None else None) or value.reason or ""
            row.append(_Cell(cells.value_words(metric, value), _spread(metric, value), change, direction, note))
        rows.append((words, row))
    return section(
        "numbers",
        "A step in numbers",
        "compare_metrics.html.j2",
        sides=comparison.sides,
        rows=rows,
        said=cells.reasons(comparison),
    )


def _spread(metric: Metric, value: Measure) -> str:
    """The interval that the samples lie in; nothing where they are all alike."""
    if value.low is None or value.high is None or value.low == value.high:
        return ""
    low, high = (cells.value_words(metric, Measure(median=end)) for end in (value.low, value.high))
    return "" if low == high else f"{low} to {high}"


def _pair(comparison: Comparison, pair: Pair) -> tuple[list[Section], list[Table]]:
    """The sections of one pair, and the tables in them that sort and filter."""
    several = len([each for each in comparison.pairs if each.related]) > 1
    a, b = comparison.sides[pair.a], comparison.sides[pair.b]
    lead = f"{b.label}, " if several else ""
    notes = [*(pair.notes[1:] if cells.is_alarming(pair) else pair.notes), cells.share_words(pair)]
    if not pair.categories:
        notes.append("No rows of the GPU can be compared.")
    places = compare_tables.places(pair)
    work = section(
        f"places-{pair.b}",
        f"{lead}kernels: what became of each" if several else "What became of each kernel",
        "compare_pair.html.j2",
        needs=_NEEDS,
        count=str(places.rows) if places.rows else "",
        table=places if places.rows else None,
        notes=notes,
        bars=_bars(comparison, pair),
        categories=compare_tables.categories(pair) if pair.categories else None,
        pair=pair,
    )
    host = [
        table
        for table in (compare_tables.operators(pair, a, b), compare_tables.modules(pair, a, b))
        if table is not None
    ]
    sections = [work]
    if host or pair.copies:
        sections.append(
            section(
                f"host-{pair.b}",
                f"{lead}{'operators' if several else 'Operators'}, copies, modules",
                "compare_host.html.j2",
                needs=_NEEDS,
                copies=compare_tables.copies(pair),
                tables=host,
            )
        )
    return sections, [*([places] if places.rows else []), *host]


@dataclass(frozen=True)
class _Bar:
    """One step's GPU time by what became of it; widths in percent of the longer step."""

    label: str
    total: str
    parts: Sequence[tuple[str, float, str]]  # category, width, in words


def _bars(comparison: Comparison, pair: Pair) -> list[_Bar]:
    bars = []
    longest = max(sum(getattr(one, f"{side}_us") for one in pair.categories) for side in "ab") if pair.categories else 0
    if not longest:
        return []
    ordered = sorted(pair.categories, key=lambda one: CATEGORIES.index(one.category))
    for side, at in (("a", pair.a), ("b", pair.b)):
        times = [(one.category, float(getattr(one, f"{side}_us"))) for one in ordered]
        parts = [(name, 100 * us / longest, f"{name} {time(us)}") for name, us in times if us > 0]
        bars.append(_Bar(comparison.sides[at].label, time(sum(us for _, us in times)), parts))
    return bars


def _traces(comparison: Comparison) -> Section:
    rows = [(side, cells.setup_words(side, at)) for at, side in enumerate(comparison.sides)]
    return section("traces", "Traces", "compare_traces.html.j2", count=str(len(rows)), rows=rows)
