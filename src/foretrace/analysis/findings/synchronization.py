"""Calls inside the step that hold the CPU until the GPU is done, and how long the GPU then has nothing to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import often, operator_around, pace, per, short, steps_annotated
from foretrace.analysis.steps import period_end
from foretrace.knowledge.blocking import is_communication_owner
from foretrace.knowledge.kineto import Call, RowKind, memcpy_direction, source_line, step_number
from foretrace.knowledge.limits import LEAST_IDLE_US, NAMED_PLACES
from foretrace.knowledge.rules_timeline import SYNC_ADVICE, SYNC_SHAPES
from foretrace.model.report import Finding
from foretrace.model.words import time

__all__ = ["find"]

# A label of the user's own in a title beside the call it holds.
_LABEL_LENGTH = 24


@dataclass
class _Place:
    """All waits of one operator on one line of code."""

    what: str
    source_row: int
    owner: str | None  # torch.distributed's own operator around it
    advice: str
    calls: list[int] = field(default_factory=list)
    points: set[int] = field(default_factory=set)  # operator rows, or calls outside operators
    gaps: dict[int, int] = field(default_factory=dict)  # stretch of GPU work that ran dry → idle ns after it
    ends_step: bool = True


def find(facts: Facts) -> Iterable[Finding]:
    """One finding a place, most idle time first."""
    context = facts.context
    if not context.has_gpu:
        return
    steps = {s.index for s in facts.steps}
    places: dict[tuple[str, str | None, str | None], _Place] = {}
    tails = _Tails(facts)
    for row in context.blocking.tolist():
        if row in context.profiler_syncs or int(context.attribution.step[row]) not in steps:
            continue
        _add(facts, tails, places, row)
    ranked = sorted(places.values(), key=lambda p: (p.owner is not None, -sum(p.gaps.values()), p.calls[0]))
    for place in ranked[:NAMED_PLACES]:
        yield _finding(facts, [place])
    rest = ranked[NAMED_PLACES:]
    if rest:
        yield _finding(facts, rest)


@dataclass(eq=False)
class _Tails:
    """What follows a wait: idle time of the GPU, and launches of the same step."""

    facts: Facts

    def __post_init__(self) -> None:
        context = self.facts.context
        launches = np.flatnonzero(context.trace.links.enqueues)
        self.launches = np.sort(context.trace.start[launches])
        self.ends = {span.index: period_end(context, span) for span in context.steps}
        self.spans = {span.index: span.end for span in context.steps}
        self.copies: dict[int, list[int]] = {}  # operator → the copies it launched itself
        for gpu in context.trace.rows(RowKind.MEMCPY).tolist():
            self.copies.setdefault(int(context.trace.links.op[gpu]), []).append(gpu)

    def idle_after(self, row: int) -> tuple[int, int] | None:
        """(which stretch of GPU work ended, ns until the next began), if it ended during the call."""
        trace = self.facts.context.trace
        starts, ends = self.facts.context.busy
        last = int(np.searchsorted(starts, trace.end[row], side="right")) - 1
        if last < 0 or not trace.start[row] <= ends[last] <= trace.end[row]:
            return None
        limit = self.ends[int(self.facts.context.attribution.step[row])]
        following = int(starts[last + 1]) if last + 1 < len(starts) else limit
        return last, max(0, following - int(ends[last]))

    def is_last(self, row: int) -> bool:
        """Whether the step launches nothing after the call."""
        trace = self.facts.context.trace
        at = int(np.searchsorted(self.launches, trace.end[row]))
        limit = self.spans[int(self.facts.context.attribution.step[row])]
        return at >= len(self.launches) or int(self.launches[at]) >= limit


def _add(facts: Facts, tails: _Tails, places: dict[tuple[str, str | None, str | None], _Place], row: int) -> None:
    trace = facts.context.trace
    op = int(trace.links.op[row])
    outer = operator_around(facts, row)
    owner = _owner(facts, row)
    what = trace.name(outer) if outer >= 0 else _outside(facts, row)
    key = (what, facts.source(row), owner)
    place = places.get(key)
    if place is None:
        place = places[key] = _Place(what, row, owner, _advice(facts, tails, row, outer))
    place.calls.append(row)
    place.points.add(op if op >= 0 else row)
    gap = tails.idle_after(row)
    if gap is not None:
        place.gaps[gap[0]] = gap[1]
    place.ends_step &= outer < 0 and tails.is_last(row)


def _owner(facts: Facts, row: int) -> str | None:
    trace = facts.context.trace
    for up in trace.forest.ancestors(row):
        if is_communication_owner(trace.name(up)):
            return trace.name(up)
        if trace.kind[up] == RowKind.OPERATOR:
            return None
    return None


def _outside(facts: Facts, row: int) -> str:
    """Words for a call that no operator made: its name, and the Python function or annotation around it."""
    trace = facts.context.trace
    name = trace.name(row)
    for up in trace.forest.ancestors(row):
        line = source_line(trace.name(up)) if trace.kind[up] == RowKind.PYTHON else None
        if line is not None and line[2] == "synchronize":
            return "torch.cuda.synchronize()"
        if trace.kind[up] == RowKind.ANNOTATION and step_number(trace.name(up)) is None:
            return f"{name} in {short(trace.name(up), _LABEL_LENGTH)}"
    return name


def _advice(facts: Facts, tails: _Tails, row: int, outer: int) -> str:
    trace = facts.context.trace
    if outer < 0:
        return SYNC_ADVICE["explicit"]
    if trace.name(outer) in SYNC_SHAPES:
        return SYNC_ADVICE["shape"]
    op = int(trace.links.op[row])
    directions = {memcpy_direction(trace.name(gpu)) for gpu in tails.copies.get(op, [])}
    if "HtoD" in directions:
        return SYNC_ADVICE["upload"]
    return SYNC_ADVICE["read"] if "DtoH" in directions else SYNC_ADVICE["other"]


def _said(facts: Facts, row: int) -> str:
    trace = facts.context.trace
    name = trace.name(row)
    return name if trace.links.call[row] == Call.SYNCHRONIZE else f"{name} (a copy that is not asynchronous)"


def _finding(facts: Facts, places: list[_Place]) -> Finding:
    trace = facts.context.trace
    first = places[0]
    rows = [row for place in places for row in place.calls]
    idle_us = facts.per_step(sum(sum(place.gaps.values()) for place in places) / 1000)
    wait_us = facts.per_step(int(trace.duration[rows].sum()) / 1000)
    what = first.what if len(places) == 1 else f"{len(places)} more places"
    rule = "synchronization"
    if all(place.owner for place in places):
        rule = "synchronization_library"
        what = first.owner or what
    elif idle_us < LEAST_IDLE_US:
        rule = "synchronization_free"
    elif all(place.ends_step for place in places):
        rule = "synchronization_end"
    known = facts.once(pace)
    saving = None
    # Without steps start-up cannot be told from what repeats, and with an untrusted trace idle time means nothing.
    if rule in ("synchronization", "synchronization_end") and known is not None and steps_annotated(facts):
        saving = known.without_profiler(idle_us)
    found = facts.finding(
        rule,
        rows,
        saving_us=saving or None,
        source_row=first.source_row,
        count=sum(len(place.points) for place in places),
        what=what,
        often=often(facts, sum(len(place.points) for place in places)),
        calls=", ".join(sorted({_said(facts, row) for row in rows})),
        wait=time(wait_us),
        idle=time(idle_us),
        idles=f"the GPU idles {time(idle_us)} {per(facts)} after them" if idle_us else "no idle time follows",
        per=per(facts),
        advice=first.advice,
    )
    found.rule = "synchronization"
    if not saving and found.severity == "warning":
        found.severity = "note"
    return found
