"""Whether clauses can hold at all: contradictions a person would see at once, found before a trace is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from foretrace.knowledge.kernels import KINDS
from foretrace.model.expectations import EVERYWHERE, Clause, Range, Scope
from foretrace.prediction.expect.quantities import find
from foretrace.prediction.expect.values import number_text, range_text

__all__ = ["problems"]

# A part can never be more than the whole: (part, whole).
_PARTS = (
    *((kind, "kernels") for kind in KINDS),
    ("kernel_launches", "launches"),
    ("graph_launches", "kernel_launches"),
)


def problems(clauses: Sequence[Clause]) -> Iterator[tuple[int, str]]:
    """Each contradiction as the position of a clause that takes part in it and a sentence."""
    for position, clause in enumerate(clauses):
        sentence = _alone(clause)
        if sentence:
            yield position, sentence
            return
    by_scope: dict[Scope, list[int]] = {}
    for position, clause in enumerate(clauses):
        by_scope.setdefault(clause.scope, []).append(position)
    for scope, positions in by_scope.items():
        # What every step must hold is true of a scope in a step as well, as an upper limit.
        whole = [p for p in by_scope.get(EVERYWHERE, []) if scope != EVERYWHERE]
        yield from _together(clauses, positions, whole)


def _alone(clause: Clause) -> str | None:
    quantity, wanted = find(clause.quantity), clause.range
    if quantity is None or wanted is None:
        return None
    name, low, high = clause.quantity, wanted.low, wanted.high
    if (low is not None and low < 0) or (high is not None and high < 0):
        return f"{name} cannot be negative ({range_text(wanted)})"
    if low is not None and high is not None and (low > high or (low == high and wanted.exact is None)):
        return f"{name}: no number is in {range_text(wanted)}; the lower limit comes first"
    if high == 0 and wanted.high_open:
        return f"{name} cannot be below 0"
    if quantity.unit == "count" and wanted.exact is not None and wanted.exact != int(wanted.exact):
        return f"{name} is a whole number of things, never {number_text(wanted.exact)}"
    if quantity.unit == "us" and wanted.exact:
        shown = number_text(wanted.exact)
        return f"{name}: no measured time is exactly {shown} µs; write '{shown} us ± 10%', a range, or a limit"
    if quantity.unit in ("share", "ratio") and wanted.exact:
        shown = number_text(wanted.exact)
        return f"{name}: no measured ratio is exactly {shown}; write a range, such as '{shown} ± 0.05', or a limit"
    return None


def _together(clauses: Sequence[Clause], positions: list[int], whole: list[int]) -> Iterator[tuple[int, str]]:
    limits: dict[str, Range] = {}
    bounds: set[str] | None = None
    for position in positions:
        clause = clauses[position]
        if clause.quantity == "bound":
            bounds = set(clause.words) if bounds is None else bounds & set(clause.words)
            if not bounds:
                yield position, f"bound cannot be {clause.words[0]} and something else at the same time"
                return
        if clause.range is None or clause.pattern:
            continue
        known = limits.get(clause.quantity)
        joined = clause.range if known is None else _both(known, clause.range)
        if joined is None:
            assert known is not None
            said = f"{range_text(known)} and {range_text(clause.range)}"
            yield position, f"{clause.quantity} cannot be both {said}"
            return
        limits[clause.quantity] = joined
    above = dict(limits)
    for position in whole:
        clause = clauses[position]
        if clause.range is not None and not clause.pattern and clause.quantity not in above:
            above[clause.quantity] = Range(high=clause.range.high, high_open=clause.range.high_open)
    yield from _too_many(clauses, positions, limits, above)
    yield from _ordered(clauses, positions, limits)
    for position in whole:
        outer, inner = clauses[position], limits.get(clauses[position].quantity)
        quantity = find(outer.quantity)
        if outer.range is None or inner is None or quantity is None or quantity.unit != "count":
            continue
        if outer.range.high is not None and inner.low is not None and inner.low > outer.range.high:
            at = next(p for p in positions if clauses[p].quantity == outer.quantity)
            yield (
                at,
                (
                    f"{outer.quantity}: at least {number_text(inner.low)} in a part of a step, "
                    f"but at most {number_text(outer.range.high)} in the whole of it"
                ),
            )
            return


def _too_many(
    clauses: Sequence[Clause], positions: list[int], limits: dict[str, Range], above: dict[str, Range]
) -> Iterator[tuple[int, str]]:
    """Parts that are more than their whole, one by one and all kinds together."""

    def first(name: str) -> int:
        return next(p for p in positions if clauses[p].quantity == name)

    for part, total in _PARTS:
        low = limits[part].low if part in limits else None
        most = above[total].high if total in above else None
        if low is not None and most is not None and low > most:
            yield first(part), f"{number_text(low)} {part} cannot be among {number_text(most)} {total}"
            return
    most = above["kernels"].high if "kernels" in above else None
    kinds = [(kind, limits[kind].low or 0) for kind in KINDS if kind in limits]
    total_low = sum(low for _, low in kinds)
    if most is not None and total_low > most:
        said = " + ".join(f"{number_text(low)} {kind}" for kind, low in kinds if low)
        yield first(kinds[-1][0]), f"{said} is more than {number_text(most)} kernels"
        return
    for position in positions:
        clause = clauses[position]
        if not clause.pattern or clause.range is None or clause.range.low is None:
            continue
        kind = dict(clause.pattern).get("kind", "kernels")
        high = above[kind].high if kind in above else most
        if high is not None and clause.range.low > high:
            yield (
                position,
                (
                    f"{number_text(clause.range.low)} kernels of this pattern cannot be among {number_text(high)} "
                    + (kind if kind == "kernels" or kind not in above else f"{kind} kernels")
                ),
            )
            return


def _ordered(clauses: Sequence[Clause], positions: list[int], limits: dict[str, Range]) -> Iterator[tuple[int, str]]:
    """An order that names a kind more or less often than the count allows."""
    for position in positions:
        clause = clauses[position]
        if clause.quantity != "order" or any(":" in word for word in clause.words):
            continue
        for kind in dict.fromkeys(clause.words):
            times = clause.words.count(kind)
            if kind in limits and times not in limits[kind]:
                yield position, f"order names {kind} {times} times, but {kind} is {range_text(limits[kind])}"
                return


def _both(one: Range, other: Range) -> Range | None:
    """The numbers in both ranges; None where there are none."""
    lows = [(r.low, r.low_open) for r in (one, other) if r.low is not None]
    highs = [(r.high, not r.high_open) for r in (one, other) if r.high is not None]
    low, low_open = max(lows) if lows else (None, False)
    high, high_closed = min(highs) if highs else (None, True)
    if low is not None and high is not None and (low > high or (low == high and (low_open or not high_closed))):
        return None
    return Range(low=low, high=high, low_open=low_open, high_open=not high_closed)
