"""Expectations that are no number: bound, order, queries before kernels, the same kernels as another trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np

from foretrace.analysis.context import stacks_recorded
from foretrace.analysis.verdict import bound_of_kernels, verdict
from foretrace.knowledge.expectations import unknown_because
from foretrace.knowledge.kineto import Call
from foretrace.model.expectations import Clause, State
from foretrace.model.report import Kernel, Transfer, Verdict
from foretrace.prediction.expect.observe import distrusted, untimed
from foretrace.prediction.expect.quantities import LIST_FIELDS
from foretrace.prediction.expect.seen import Seen, unknown
from foretrace.prediction.expect.subject import Subject, View

__all__ = ["Answer", "answer", "bound_of_trace", "fits", "matching"]

_FIELD_OF = {"parts": "ops"}


@dataclass(frozen=True)
class Answer:
    """What one clause of words comes to in one view.

    Attributes:
        observed: in words; None where nothing can be said.
        reason: why it is unknown.
        wrong: the kernels that break it.
        notes: sentences that say in which way.
    """

    state: State
    observed: str | None
    reason: str | None = None
    wrong: tuple[Kernel | Transfer, ...] = ()
    notes: tuple[str, ...] = field(default=())


def answer(subject: Subject, view: View, clause: Clause, other: Callable[[str], Subject]) -> Answer:
    """Hold a clause of words against a view; ``other`` loads the trace that ``same_kernels_as`` names."""
    why = distrusted(subject, gpu=True) or view.absent or view.hidden
    if why is not None:
        return Answer("unknown", None, why)
    if clause.quantity == "order":
        return _order(view, clause.words)
    if clause.quantity == "occupancy_query_before":
        return _queried(subject, view, clause.words[0])
    if clause.quantity == "same_kernels_as":
        return _same(view, clause, other)
    return _bound(subject, view, clause.words)


def fits(kernel: Kernel, pattern: Sequence[tuple[str, str]]) -> bool:
    """Whether a kernel has every field of a pattern."""
    return all(_fits(kernel, name, wanted) for name, wanted in pattern)


def matching(subject: Subject, view: View, pattern: Sequence[tuple[str, str]]) -> Seen:
    """How many kernels of a view fit a pattern."""
    why = distrusted(subject, gpu=True) or view.absent or view.hidden
    if why is not None:
        return unknown(why)
    if any(kernel.graph for kernel in view.kernels) and {name for name, _ in pattern} & {"op", "module", "phase"}:
        return unknown(unknown_because("graph_hides_scope", count=sum(kernel.graph for kernel in view.kernels)))
    found = [kernel for kernel in view.kernels if fits(kernel, pattern)]
    return Seen(len(found), events=tuple(kernel.event for kernel in found))


def _fits(kernel: Kernel, name: str, wanted: str) -> bool:
    if name in ("name", "short_name", "kind", "op", "phase", "module", "bound"):
        value = getattr(kernel, name)
    else:
        value = kernel.decoded.get(_FIELD_OF.get(name, name))
    if value is None:
        return False
    if isinstance(value, list | tuple):
        there = [str(item) for item in value]
    else:
        there = [str(value).lower() if isinstance(value, bool) else str(value)]
    # A pattern of several names asks for all of them; only fields that hold several are split.
    several = name in LIST_FIELDS and not wanted.startswith("/")
    for one in [part.strip() for part in wanted.split(",")] if several else [wanted]:
        if not any(_is(item, one) for item in there):
            return False
    return True


def _is(text: str, wanted: str) -> bool:
    if len(wanted) > 2 and wanted.startswith("/") and wanted.endswith("/"):
        return re.search(wanted[1:-1], text) is not None
    return text.lower() == wanted.lower() or fnmatchcase(text.lower(), wanted.lower())


# ---- order ----


def _order(view: View, words: Sequence[str]) -> Answer:
    items = list(dict.fromkeys(words))
    work: list[Kernel | Transfer] = sorted([*view.kernels, *view.transfers], key=lambda item: item.start_us)
    found = [(item, fitting) for item in work if (fitting := [word for word in items if _item_fits(item, word)])]
    shown = " → ".join(_brief([fitting[0] for _, fitting in found])) or "none of them"
    for place, word in enumerate(words):
        if place >= len(found):
            note = f"after {len(found)} of them none follows, where {word} was expected"
            return Answer("broken", shown, notes=(note,))
        item, fitting = found[place]
        if word not in fitting:
            note = f"number {place + 1} is {fitting[0]}, where {word} was expected"
            return Answer("broken", shown, wrong=(item,), notes=(note,))
    if len(found) > len(words):
        extra = tuple(item for item, _ in found[len(words) :])
        return Answer("broken", shown, wrong=extra, notes=(f"{len(extra)} more follow the expected {len(words)}",))
    return Answer("held", shown)


def _item_fits(item: Kernel | Transfer, word: str) -> bool:
    name, colon, wanted = word.partition(":")
    if not colon:
        return item.kind == word
    return isinstance(item, Kernel) and _fits(item, name, wanted)


def _brief(words: list[str]) -> list[str]:
    """Equal neighbours counted, long orders cut."""
    shown: list[str] = []
    for word in words:
        if shown and shown[-1].split(" ×")[0] == word:
            times = int(shown[-1].split(" ×")[1]) if " ×" in shown[-1] else 1
            shown[-1] = f"{word} ×{times + 1}"
        else:
            shown.append(word)
    return shown if len(shown) <= 12 else [*shown[:11], "…"]


# ---- an occupancy query before each kernel of a kind ----


def _queried(subject: Subject, view: View, kind: str) -> Answer:
    context = subject.context
    if context is None:
        return Answer("unknown", None, unknown_because("no_trace"))
    if view.calls is None:
        return Answer("unknown", None, unknown_because("no_calls"))
    # The second kernel of one product (a split-K reduction) has no plan of its own.
    chosen = [kernel for kernel in view.kernels if kernel.kind == kind and not kernel.decoded.get("role")]
    if not chosen:
        return Answer("unknown", None, unknown_because("nothing_to_precede", kind=kind))
    if all(kernel.graph for kernel in chosen):
        return Answer("unknown", None, unknown_because("graph_hides_queries"))
    launches = {subject.launch_of(kernel): kernel for kernel in chosen}
    if -1 in launches:
        lost = sum(subject.launch_of(kernel) < 0 for kernel in chosen)
        return Answer("unknown", None, unknown_because("unlinked_kernels", count=lost))
    trace = context.trace
    calls = np.array(view.calls, dtype=np.int64)
    calls = calls[np.isin(trace.links.call[calls], (Call.OCCUPANCY, Call.LAUNCH_KERNEL, Call.LAUNCH_GRAPH))]
    calls = calls[np.lexsort((calls, trace.start[calls]))]
    asks = (trace.links.call[calls] == Call.OCCUPANCY).tolist()
    asked: dict[int, bool] = {}
    queried: set[int] = set()
    for row, lane, asking in zip(calls.tolist(), trace.lane[calls].tolist(), asks, strict=True):
        # A query is for the next kernel; a memset of the same operator may stand between them.
        if asking:
            asked[lane] = True
        elif asked.pop(lane, False):
            queried.add(row)
    wrong = tuple(kernel for row, kernel in launches.items() if row not in queried)
    said = f"{len(chosen) - len(wrong)} of {len(chosen)}"
    return Answer("broken" if wrong else "held", said, wrong=wrong)


# ---- the same kernels as in another trace ----


def _same(view: View, clause: Clause, other: Callable[[str], Subject]) -> Answer:
    path, *kinds = clause.words
    there = other(path)
    why = distrusted(there, gpu=True)
    if why is not None:
        return Answer("unknown", None, f"{path}: {why}")
    scope = type(clause.scope)(region=clause.scope.region, module=clause.scope.module, op=clause.scope.op)
    views = [there.view(scope, step) for step in there.active]
    for one in views:
        if one.hidden is not None:
            return Answer("unknown", None, f"{path}: {one.hidden}")

    def names(kernels: list[Kernel]) -> Counter[str]:
        return Counter(kernel.name for kernel in kernels if not kinds or kernel.kind in kinds)

    usual = Counter(frozenset(names(one.kernels).items()) for one in views if one.kernels)
    if not usual:
        reason = next((one.absent for one in views if one.absent), None)
        return Answer("unknown", None, f"{path}: {reason or unknown_because('no_kernels_named', path=path)}")
    wanted, here = Counter(dict(usual.most_common(1)[0][0])), names(view.kernels)
    more, fewer = here - wanted, wanted - here
    if not more and not fewer:
        return Answer("held", f"all {sum(here.values())} the same")
    said = f"{sum((here & wanted).values())} of its {sum(wanted.values())} kernels"
    others = sum(more.values())
    said += f" and {others} other{'' if others == 1 else 's'}" if more else ""
    short = {kernel.name: kernel.short_name for kernel in (*view.kernels, *there.report.kernels)}
    notes = [f"only in {path}: {_counted(fewer, short)}"] if fewer else []
    notes += [f"only here: {_counted(more, short)}"] if more else []
    wrong = tuple(kernel for kernel in view.kernels if kernel.name in more)
    return Answer("broken", said, wrong=wrong, notes=tuple(notes))


def _counted(names: Counter[str], short: dict[str, str]) -> str:
    by_short: Counter[str] = Counter()
    for name, times in names.items():
        by_short[short.get(name, name)] += times
    shown = [f"{times} × {name}" if times > 1 else name for name, times in by_short.most_common(6)]
    return ", ".join(shown) + (", …" if len(by_short) > 6 else "")


# ---- bound ----


def bound_of_trace(subject: Subject, words: Sequence[str]) -> Answer:
    """The verdict on all steps together against the expected one."""
    why = distrusted(subject, gpu=True)
    if why is not None:
        return Answer("unknown", None, why)
    found = subject.report.verdict
    return _bounded(subject, subject.report.kernels, found, words)


def _bound(subject: Subject, view: View, words: Sequence[str]) -> Answer:
    if view.scope.inner:
        # Who sets the pace is a matter of whole steps; a part of one has its kernels' nature.
        nature, said = bound_of_kernels(view.kernels)
        if nature == "unknown":
            return Answer("unknown", None, said)
        return Answer("held" if nature in words else "broken", nature, notes=(said,))
    if subject.context is None:
        return Answer("unknown", None, unknown_because("no_trace"))
    report = subject.report
    stacks = stacks_recorded(subject.context.trace)
    found = verdict(subject.context, [view.step], view.kernels, report.health, report.trace.unprofiled, stacks)
    return _bounded(subject, view.kernels, found, words)


def _bounded(subject: Subject, kernels: list[Kernel], found: Verdict, words: Sequence[str]) -> Answer:
    if found.bound != "unknown":
        return Answer("held" if found.bound in words else "broken", found.bound, notes=tuple(found.because))
    nature, said = bound_of_kernels(kernels)
    if nature != "unknown" and not {nature, "overhead", "mixed"} & set(words):
        # Whoever sets the pace, it can only be the CPU, the kernels' own limit, or a mix of the two.
        note = f"{said}: not {' or '.join(words)}-bound, whoever sets the pace"
        return Answer("broken", f"not {' or '.join(words)}", notes=(note,))
    missing = untimed(subject) if subject.report.trace.unprofiled is None else None
    because = "; ".join([*found.because, *([missing] if missing is not None else [])])
    return Answer("unknown", None, unknown_because("verdict", because=because))
