"""A comparison as Markdown, for a pull request or a report: the same facts as on the terminal, as tables."""

from __future__ import annotations

import re
from collections.abc import Sequence

from foretrace.model.comparison import Comparison, Pair
from foretrace.model.words import UNKNOWN, time
from foretrace.report import compare_cells as cells
from foretrace.report.text import clean

__all__ = ["comparison_markdown"]

_PLACES = 20
# What Markdown or HTML would read as markup; a trace's names may hold any of it.
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~])")


def comparison_markdown(comparison: Comparison, *, everything: bool = False) -> str:
    """The comparison as GitHub-flavoured Markdown that ends in a newline; ``everything`` shows all rows."""
    lines = ["# Comparison", ""]
    lines += [
        f"- **{_text(side.label)}**: {_text(cells.setup_words(side, position))}"
        for position, side in enumerate(comparison.sides)
    ]
    lines += [f"  - {_text(side.label)}: {_text(said)}" for side in comparison.sides for said in side.warnings]
    lines += [line for alarm in cells.alarms(comparison) for line in ("", f"> **{_text(alarm)}**")]
    lines += ["", *_metrics(comparison)]
    for pair in (pair for pair in comparison.pairs if pair.related):
        lines += ["", *_pair(comparison, pair, everything)]
    lines += ["", "## Conclusion", ""]
    rows = [[_text(row.setup), _stack(row.changed), _stack(row.same)] for row in comparison.conclusion]
    lines += _table(["setup", "what changed", "what stayed the same"], rows)
    if comparison.gates:
        labels = [side.label for side in comparison.sides]
        gates = [
            [_text(gate.expression), _text(labels[gate.side]), gate.state, _text(gate.detail)]
            for gate in comparison.gates
        ]
        lines += ["", "## Gates", "", *_table(["fails on", "trace", "state", "measured"], gates)]
    return "\n".join(lines) + "\n"


def _metrics(comparison: Comparison) -> list[str]:
    head = ["a step (medians)", *(_text(side.label) for side in comparison.sides)]
    rows = []
    for words, metric in cells.metric_rows(comparison):
        row = [words]
        for value, change in zip(metric.values, metric.changes, strict=True):
            told = cells.change_words(change, metric)
            row.append(cells.value_words(metric, value) + (f" ({told})" if told and told != UNKNOWN else ""))
        rows.append(row)
    lines = _table(head, rows)
    said = [*cells.reasons(comparison), "= is no difference beyond the spread over steps."]
    return [*lines, "", *(f"{_text(reason)}  " for reason in said)]


def _pair(comparison: Comparison, pair: Pair, everything: bool) -> list[str]:
    a, b = comparison.sides[pair.a].label, comparison.sides[pair.b].label
    lines = [f"## {_text(a)} → {_text(b)}", ""]
    notes = pair.notes[1:] if cells.is_alarming(pair) else pair.notes
    notes = [*notes, *cells.speedup_words(comparison, pair), cells.share_words(pair)]
    lines += [f"- {_text(note)}" for note in notes]
    if not pair.places:
        return lines
    places = cells.places_in_order(pair)
    shown = places if everything else places[:_PLACES]
    head, memory = cells.memory_words(shown)
    rows = [
        [
            place.category,
            _text(cells.place_words(place)),
            time(place.a_us) if place.a else UNKNOWN,
            time(place.b_us) if place.b else UNKNOWN,
            cells.change_words(place.change) if place.a and place.b else UNKNOWN,
            moved,
        ]
        for place, moved in zip(shown, memory, strict=True)
    ]
    lines += ["", *_table(["", "kernel", "before", "after", "change", head], rows)]
    if len(shown) < len(places):
        lines += ["", f"{len(places) - len(shown)} more places are not shown."]
    return lines


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_line(head), _line(["---"] * len(head)), *(_line(row) for row in rows)]


def _line(cells_of_row: Sequence[str]) -> str:
    return f"| {' | '.join(cells_of_row)} |"


def _stack(texts: Sequence[str]) -> str:
    return "<br>".join(_text(text) for text in texts) or "nothing"


def _text(text: str) -> str:
    return _MARKUP.sub(r"\\\1", clean(text))
