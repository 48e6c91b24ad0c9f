"""Tables of a comparison: what became of the GPU's rows, operators, copies and modules."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.comparison import Change, OperatorChange, Pair, Place, Side
from foretrace.model.words import bytes_of, time
from foretrace.report import compare_cells as cells
from foretrace.report.html.tables import Column, Table, times

__all__ = ["categories", "copies", "modules", "operators", "places"]

# What an operator is for, in the order in which roles are told.
_ROLES = {
    "view": "view, launches nothing",
    "compile": "torch.compile",
    "compute": "other operator",
    "allocation": "allocation",
    "query": "query",
}


def _changes(key: str, changes: Sequence[Change | None], *, help: str = "") -> Column:
    """Relative changes; ``=`` for none beyond the spread."""
    real = [None if one is None or one.direction in ("same", "unknown") else one.relative for one in changes]
    said = ["" if value is not None else cells.change_words(one) for value, one in zip(real, changes, strict=True)]
    return Column(key, "change", "signed", real, divisor=0.01, notes=said, help=help)


def _pair_of_times(before: Sequence[float | None], after: Sequence[float | None]) -> list[Column]:
    """Two columns in one unit, so that they can be held against each other."""
    whole = times("before", "before", [*before, *after])
    return [
        Column(key, title, "number", values, unit=whole.unit, divisor=whole.divisor)
        for key, title, values in (("before", "before", before), ("after", "after", after))
    ]


def places(pair: Pair) -> Table:
    """Where every GPU row went, what changed before what did not; in the order of ``compare_cells.places_in_order``."""
    rows = cells.places_in_order(pair)
    columns = [
        Column("category", "what", "text", [place.category for place in rows]),
        Column("place", "kernel", "name", [cells.place_words(place) for place in rows]),
        Column("rows", "rows", "text", [f"{len(p.a_events)} → {len(p.b_events)}" for p in rows]),
        *_pair_of_times([p.a_us if p.a else None for p in rows], [p.b_us if p.b else None for p in rows]),
        _changes(
            "change",
            [place.change if place.a and place.b else None for place in rows],
            help="= is no difference beyond the spread over steps",
        ),
    ]
    if any(place.predicted_low_us is not None for place in rows):
        columns.append(Column("interval", "predicted interval", "text", [_interval(place) for place in rows]))
    vanished = [place.bytes_vanished for place in rows]
    if any(amount is not None for amount in vanished):
        told = "logical bytes that no longer travel through memory"
        columns.append(Column("memory", "less through memory", "bytes", vanished, help=told))
    columns += [
        Column("how", "aligned by", "text", [cells.how_words(place) for place in rows]),
        Column("ops", "operators", "name", [_operators(place) for place in rows]),
    ]
    return Table(f"places-{pair.b}", "What became of each kernel", columns, len(rows), picks="places")


def _interval(place: Place) -> str | None:
    if place.predicted_low_us is None or place.predicted_high_us is None:
        return None
    said = f"{time(place.predicted_low_us)} to {time(place.predicted_high_us)}"
    return said if place.off is None else f"{said}, measured {place.off}"


def _operators(place: Place) -> str:
    names = dict.fromkeys(row.op for row in (*place.a, *place.b) if row.op)
    return ", ".join(names)


def categories(pair: Pair) -> Table:
    """Kernels, copies and GPU time by what became of them, with their sum."""
    rows = pair.categories
    a_kernels, b_kernels = [one.a_kernels for one in rows], [one.b_kernels for one in rows]
    a_moved, b_moved = [one.a_transfers for one in rows], [one.b_transfers for one in rows]
    a_us, b_us = [one.a_us for one in rows], [one.b_us for one in rows]
    names: list[str] = [one.category for one in rows]
    if len(rows) > 1:
        names.append("all")
        for values in (a_kernels, b_kernels, a_moved, b_moved):
            values.append(sum(values))
        for measured in (a_us, b_us):
            measured.append(sum(measured))
    columns = [
        Column("category", "GPU rows", "text", names),
        Column("kernels", "kernels", "text", _arrows(a_kernels, b_kernels)),
        Column("moved", "copies, sets", "text", _arrows(a_moved, b_moved)),
        Column("before", "before", "text", [time(us) for us in a_us]),
        Column("after", "after", "text", [time(us) for us in b_us]),
    ]
    return Table(f"categories-{pair.b}", "GPU rows by what became of them", columns, len(names))


def _arrows(before: Sequence[int], after: Sequence[int]) -> list[str | None]:
    return [f"{a} → {b}" if a or b else None for a, b in zip(before, after, strict=True)]


def operators(pair: Pair, a: Side, b: Side) -> Table | None:
    """Operators whose calls differ, by what they are for; ``None`` where there are none."""
    roles = list(_ROLES)
    rows = sorted(pair.operators, key=lambda change: roles.index(change.role) if change.role in roles else len(roles))
    if not rows:
        return None
    spent = [[change.a_self_us for change in rows], [change.b_self_us for change in rows]]
    columns = [
        Column("op", "operator", "name", [change.name.removeprefix("## ") for change in rows]),
        Column("a_calls", "calls before", "count", [change.a_calls for change in rows], help=a.label),
        Column("b_calls", "calls after", "count", [change.b_calls for change in rows], help=b.label),
        Column("difference", "difference", "count", [_more_calls(change) for change in rows]),
        *_pair_of_times(*spent),
        Column("role", "what it is", "text", [_ROLES.get(change.role, change.role) for change in rows]),
    ]
    remarks = ["Calls in the compared step; before and after: CPU time of its own, as profiled."]
    return Table(f"operators-{pair.b}", "Operators", columns, len(rows), picks="operators", remarks=remarks)


def _more_calls(change: OperatorChange) -> int:
    return change.b_calls - change.a_calls


def modules(pair: Pair, a: Side, b: Side) -> Table | None:
    """GPU time by module; ``None`` where no trace names any."""
    rows = pair.modules
    if not rows:
        return None
    columns = [
        *_pair_of_times([module.a_us for module in rows], [module.b_us for module in rows]),
        Column("module", "module", "name", [module.name for module in rows]),
    ]
    remarks = [f"GPU time of the compared step, before in {a.label}, after in {b.label}."]
    return Table(f"modules-{pair.b}", "Modules", columns, len(rows), picks="modules", remarks=remarks)


def copies(pair: Pair) -> list[tuple[str, str]]:
    """Copies that only the other trace makes: what, and why."""
    found = []
    for copy in pair.copies:
        size = f", {bytes_of(copy.bytes)}" if copy.bytes is not None else ""
        many = f"{copy.count}× " if copy.count > 1 else ""
        by = f" by {copy.op}" if copy.op else ""
        found.append((f"{many}{copy.name}{by} ({time(copy.us)}{size})", copy.why or ""))
    return found
