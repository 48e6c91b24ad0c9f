"""Expected and observed values in the words of an outcome."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.expectations import Clause
from foretrace.model.words import bytes_of, flop, number, share_of, time
from foretrace.prediction.expect.quantities import find
from foretrace.prediction.expect.values import number_text

__all__ = ["amount", "expected", "observed"]

_SHOWN = 4


# unit → what stands behind a number of all its digits, and what it is multiplied with
_EXACT = {"us": (" µs", 1), "bytes": (" B", 1), "flop": (" FLOP", 1), "share": (" %", 100)}


def amount(value: float, unit: str, *, exact: bool = False) -> str:
    """A number with its unit: ``236 µs``, ``5``, ``38.65 GFLOP``, ``53.2 %``; ``exact``: with all its digits."""
    if exact:
        sign, factor = _EXACT.get(unit, ("", 1))
        return f"{value * factor:.12g}{sign}"
    if unit == "us":
        return time(value)
    if unit == "bytes":
        return bytes_of(value)
    if unit == "flop":
        return flop(value)
    if unit == "share":
        return share_of(value)
    return number_text(value) if unit == "count" else number(value)


def expected(clause: Clause, *, exact: bool = False) -> str:
    """What a clause asks for, in words; ``exact``: with all digits of its numbers."""
    if clause.range is None:
        if clause.quantity == "bound":
            return " or ".join(clause.words)
        if clause.quantity == "order":
            return " → ".join(clause.words)
        if clause.quantity == "same_kernels_as":
            path, *kind = clause.words
            return f"the {kind[0]} kernels of {path}" if kind else f"the kernels of {path}"
        return f"before each {clause.words[0]}"
    quantity = find(clause.quantity)
    unit = quantity.unit if quantity is not None else "count"
    wanted = clause.range
    if wanted.exact is not None:
        return amount(wanted.exact, unit, exact=exact)
    low, high = (None if end is None else amount(end, unit, exact=exact) for end in (wanted.low, wanted.high))
    if low is not None and high is not None:
        return f"{low} to {high}"
    if low is not None:
        return f"{'more than' if wanted.low_open else 'at least'} {low}"
    return f"{'less than' if wanted.high_open else 'at most'} {high}"


def observed(clause: Clause, values: Sequence[tuple[str, float | str | None]], *, exact: bool = False) -> str | None:
    """What the steps came to, in words: one value where they agree, else each with its step, or their span."""
    quantity = find(clause.quantity)
    unit = quantity.unit if quantity is not None else "count"
    known = [(label, value) for label, value in values if value is not None]
    if not known:
        return None
    said = [
        (label, amount(value, unit, exact=exact) if isinstance(value, int | float) else value) for label, value in known
    ]
    distinct = list(dict.fromkeys(text for _, text in said))
    if len(distinct) == 1:
        return distinct[0]
    numbers = [value for _, value in known if isinstance(value, int | float)]
    if len(numbers) == len(known) and (unit != "count" or len(known) > _SHOWN):
        return f"{amount(min(numbers), unit, exact=exact)} to {amount(max(numbers), unit, exact=exact)}"
    shown = [f"{text} in {_short(label)}" for label, text in said[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(said) > _SHOWN else "")


def _short(label: str) -> str:
    """``ProfilerStep#3`` → ``#3``."""
    return f"#{label.rpartition('#')[2]}" if "#" in label else label
