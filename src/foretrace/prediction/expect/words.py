"""Expected and observed values in the words of an outcome."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.analysis.words import megabytes, microseconds
from foretrace.model.expectations import Clause
from foretrace.prediction.expect.quantities import find
from foretrace.prediction.expect.values import number_text

__all__ = ["amount", "expected", "observed"]

_SHOWN = 4


def amount(value: float, unit: str) -> str:
    """A number with its unit: ``236 µs``, ``5``, ``38.65 GFLOP``, ``53.2 %``."""
    if unit == "us":
        return microseconds(value)
    if unit == "bytes":
        return megabytes(value)
    if unit == "flop":
        for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            if value >= factor:
                return f"{value / factor:.4g} {prefix}FLOP"
        return f"{number_text(value)} FLOP"
    if unit == "share":
        return f"{100 * value:.3g} %"
    return number_text(value) if unit == "count" else f"{value:.4g}"


def expected(clause: Clause) -> str:
    """What a clause asks for, in words."""
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
        return amount(wanted.exact, unit)
    if wanted.low is not None and wanted.high is not None:
        return f"{amount(wanted.low, unit)} to {amount(wanted.high, unit)}"
    if wanted.low is not None:
        return f"{'more than' if wanted.low_open else 'at least'} {amount(wanted.low, unit)}"
    assert wanted.high is not None
    return f"{'less than' if wanted.high_open else 'at most'} {amount(wanted.high, unit)}"


def observed(clause: Clause, values: Sequence[tuple[str, float | str | None]]) -> str | None:
    """What the steps came to, in words: one value where they agree, else each with its step, or their span."""
    quantity = find(clause.quantity)
    unit = quantity.unit if quantity is not None else "count"
    known = [(label, value) for label, value in values if value is not None]
    if not known:
        return None
    said = [(label, amount(value, unit) if isinstance(value, int | float) else value) for label, value in known]
    distinct = list(dict.fromkeys(text for _, text in said))
    if len(distinct) == 1:
        return distinct[0]
    numbers = [value for _, value in known if isinstance(value, int | float)]
    if len(numbers) == len(known) and (unit != "count" or len(known) > _SHOWN):
        return f"{amount(min(numbers), unit)} to {amount(max(numbers), unit)}"
    shown = [f"{text} in {_short(label)}" for label, text in said[:_SHOWN]]
    return ", ".join(shown) + (", …" if len(said) > _SHOWN else "")


def _short(label: str) -> str:
    """``ProfilerStep#3`` → ``#3``."""
    return f"#{label.rpartition('#')[2]}" if "#" in label else label
