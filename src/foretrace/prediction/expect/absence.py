"""Why a place holds nothing, and what that says of how often it ran.

That an operator never ran is a finding: its calls are 0. That nothing ran inside a region or module which the trace
does not have is none: the name may be misspelt, and a misspelt name must not let a clause pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from foretrace.knowledge.expectations import unknown_because
from foretrace.knowledge.kernels.aten_ops import operator_names
from foretrace.knowledge.kineto import RowKind, module_name
from foretrace.trace.table import Trace

__all__ = ["Absence", "absence_of"]

_LISTED = 6
_WORDS = {"op": "operator", "module": "module", "region": "region"}
_ROWS = {
    "op": (RowKind.OPERATOR,),
    "module": (RowKind.PYTHON, RowKind.ANNOTATION),
    "region": (RowKind.ANNOTATION,),
}
_UNRECORDED = {"op": "no_operators", "module": "no_modules", "region": "no_labels"}
_ATEN = "aten::"
# Edits between a misspelt operator and the one that was meant; in a short name a second one makes another word.
_FEW, _SHORT = 2, 6


@dataclass(frozen=True)
class Absence:
    """Why a scope holds nothing in a step.

    Attributes:
        reason: a sentence.
        missing: whether a name of it occurs nowhere in a trace that records such rows.
        uncounted: why not even its calls can be counted; None where they are 0.
        note: what is to be said beside 0 calls, None where nothing is.
        outside: whether the scope is inside of a place that does not run in this step, but in others.
    """

    reason: str
    missing: bool = False
    uncounted: str | None = None
    note: str | None = None
    outside: bool = False


Named = Callable[[str, str], Sequence[int]]


def absence_of(trace: Trace, parts: Sequence[tuple[str, str]], named: Named, *, around: bool) -> Absence:
    """Why nothing of a step is in a scope.

    Args:
        trace: the trace.
        parts: kind and name of the scope's parts, outermost first.
        named: the rows of the trace that a kind and a name fit.
        around: whether the places around the innermost one run in the step.
    """
    for kind, wanted in parts:
        if named(kind, wanted):
            continue
        word, names = _WORDS[kind], _names(trace, kind)
        meant = _meant(trace, kind, wanted, named)
        if meant is not None:
            reason = unknown_because("absent", word=word, name=wanted, there=meant)
            return Absence(reason, uncounted=reason)
        if not names and not _recorded(trace, kind):
            reason = unknown_because(_UNRECORDED[kind], name=wanted)
            return Absence(reason, uncounted=reason)
        near = get_close_matches(wanted, sorted(names), n=1, cutoff=0.5) or sorted(names)[:_LISTED]
        there = f"it has {', '.join(near)}" if near else "it has none at all"
        reason = unknown_because("absent", word=word, name=wanted, there=there)
        inside = (kind, wanted) != parts[-1]
        note = _slip(wanted, names) if kind == "op" else reason
        return Absence(reason, missing=True, uncounted=reason if inside else None, note=note)
    reason = unknown_because("absent_here")
    return Absence(reason, uncounted=None if around else reason, outside=not around)


def _names(trace: Trace, kind: str) -> set[str]:
    """Names of that kind that the trace has; the labels of its steps are none."""
    names = {trace.names[i] for i in set(trace.name_id[trace.rows(*_ROWS[kind])].tolist())}
    if kind == "module":
        return {found for name in names if (found := module_name(name)) is not None}
    return names - {span.label for span in (*trace.steps, *trace.marks)}


def _recorded(trace: Trace, kind: str) -> bool:
    """Whether rows of that kind would be in the trace if there were any: labels come with the operators."""
    if kind == "module":
        return False  # without one there is nothing that tells it from a trace without stacks
    return bool(len(trace.rows(RowKind.OPERATOR)) or (kind == "region" and len(trace.rows(RowKind.ANNOTATION))))


def _meant(trace: Trace, kind: str, wanted: str, named: Named) -> str | None:
    """What a name that nothing of its kind has stands for in another kind or with its namespace; None where nothing.

    A region may have two colons in its name; that it is none but an operator's is seen by the namespace.
    """
    if kind == "op" and "::" not in wanted:
        full = f"{_ATEN}{wanted}"
        if named("op", full) or wanted in operator_names():
            return f"{wanted} is recorded as {full}"
    for other in _WORDS:
        if other != kind and named(other, wanted):
            return f"{wanted} is {_article(_WORDS[other])}: write {other} {wanted}"
    space = wanted.partition("::")[0]
    if kind == "region" and "::" in wanted:
        spaces = {name.partition("::")[0] for name in _names(trace, "op") if "::" in name}
        if space in spaces or wanted.startswith(_ATEN):
            return f"{wanted} is named like an operator: write op {wanted}"
    return None


def _article(word: str) -> str:
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _slip(wanted: str, names: set[str]) -> str | None:
    """The operator of the trace that differs from an unknown one by a slip of the pen, as a question; else None."""
    space, colons, own = wanted.partition("::")
    if not colons or (f"{space}::" == _ATEN and own.partition(".")[0].rstrip("_") in operator_names()):
        return None
    most = 1 if len(own) < _SHORT else _FEW
    near = sorted((far, name) for name in names if (far := _edits(wanted, name, most)) <= most)
    if not near:
        return None
    return unknown_because("absent", word="operator", name=wanted, there=f"did you mean {near[0][1]}?")


def _edits(one: str, other: str, most: int) -> int:
    """Letters to insert, leave out or exchange to make one text of the other; above ``most`` a number above it."""
    if abs(len(one) - len(other)) > most:
        return most + 1
    last = list(range(len(other) + 1))
    for row in _rows(one, other, last):
        last = row
    return last[-1]


def _rows(one: str, other: str, first: list[int]) -> Iterator[list[int]]:
    above = first
    for place, letter in enumerate(one, 1):
        row = [place]
        for at, against in enumerate(other, 1):
            row.append(min(above[at] + 1, row[-1] + 1, above[at - 1] + (letter != against)))
        yield row
        above = row
