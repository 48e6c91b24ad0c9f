"""The memory of each step: what was in use when, at the peak by which operators, and what the steps allocated.

Everything here comes from the profiler's allocator rows. What was in use before the first of them is known as a
total only; which operators hold it is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.context import Context
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.intermediates import Avoidable, avoidable, summed
from foretrace.analysis.memory_rows import Ledger, Place, ledgers, places
from foretrace.knowledge.allocator_rows import CPU
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.model.trace_memory import Allocating, DeviceMemory, StepMemory, TraceMemory
from foretrace.trace.steps import StepSpan, step_of_rows

__all__ = ["trace_memory"]

Int64 = NDArray[np.int64]
_MODULES = 3


def trace_memory(facts: Facts) -> TraceMemory | None:
    """The allocators of the trace by device and step; None where it holds no allocator rows."""
    context = facts.context
    found = ledgers(context.trace)
    if not found:
        return None
    several = len({ledger.pid for ledger in found}) > 1
    books = [_Book(context, ledger) for ledger in found]
    owned = avoidable(facts, [(book.ledger, book.places) for book in books])
    return TraceMemory(devices=[_device(book, owned, several) for book in books])


@dataclass(eq=False)
class _Book:
    """A ledger with the places of its allocations."""

    context: Context
    ledger: Ledger
    _known: dict[int, tuple[str | None, str | None, str | None, str | None]] = field(default_factory=dict)

    @cached_property
    def places(self) -> list[Place]:
        """The place of every row."""
        return places(self.context.trace, self.ledger.rows)

    @cached_property
    def step(self) -> Int64:
        """The step of every row."""
        return step_of_rows(self.context.trace, self.ledger.rows)

    def described(self, position: int) -> tuple[str | None, str | None, str | None, str | None]:
        """Operator, the one around it, phase and module of a row."""
        known = self._known.get(position)
        if known is not None:
            return known
        trace = self.context.trace
        place = self.places[position]
        op = trace.name(place.op) if place.op >= 0 else None
        within = trace.name(place.within) if place.within >= 0 else None
        if within == op:  # an overload of it, or itself
            within = None
        phase = module = None
        if place.host >= 0:
            phase, module = self.context.attribution.place(
                place.host, step=int(self.step[position]), at=int(self.ledger.start[position])
            )
        known = self._known[position] = op, within, phase, module
        return known

    def by_operator(self, positions: Iterable[int]) -> list[Allocating]:
        """Allocations by operator and phase, most bytes first: all of them, so that their sum is the total."""
        bytes_of: Counter[tuple[str | None, str | None, str | None]] = Counter()
        count: Counter[tuple[str | None, str | None, str | None]] = Counter()
        modules: dict[tuple[str | None, str | None, str | None], Counter[str]] = {}
        moved = self.ledger.moved
        for position in positions:
            op, within, phase, module = self.described(position)
            key = op, within, phase
            bytes_of[key] += int(moved[position])
            count[key] += 1
            if module is not None:
                modules.setdefault(key, Counter())[module] += int(moved[position])
        ranked = sorted(bytes_of.items(), key=lambda item: (-item[1], tuple(part or "" for part in item[0])))
        return [
            Allocating(
                op=key[0],
                within=key[1],
                phase=key[2],
                modules=[name for name, _ in modules.get(key, Counter[str]()).most_common(_MODULES)],
                allocations=count[key],
                bytes=total,
            )
            for key, total in ranked
        ]


def _device(book: _Book, owned: Avoidable, several: bool) -> DeviceMemory:
    ledger, context = book.ledger, book.context
    missing = {}
    if ledger.unread:
        missing["rows"] = f"{ledger.unread} allocator rows of the trace say no size, address or device"
    if ledger.allocated is None:
        missing["peak_bytes"] = "the rows do not say how much was allocated in all (torch before 1.10)"
    if ledger.jumps:
        missing["alive_at_peak"] = (
            f"the total jumps at {ledger.jumps} rows: others between them were not recorded, so what operators "
            "hold is incomplete"
        )
    if ledger.device == CPU:
        missing["start_bytes"] = "of the CPU, torch counts only what was allocated since the profiler began"
    spans = [span for span in context.steps if not several or span.row < 0 or span.pid == ledger.pid]
    return DeviceMemory(
        device=ledger.device,
        process=ledger.pid if several else None,
        rows=len(ledger.rows),
        steps=[_step(book, span, owned) for span in spans],
        missing=missing,
    )


def _step(book: _Book, span: StepSpan, owned: Avoidable) -> StepMemory:
    ledger, trace = book.ledger, book.context.trace
    low, high = 0, len(ledger.rows)
    if span.row >= 0:
        low, high = (int(at) for at in np.searchsorted(ledger.start, [span.start, span.end], side="left"))
    missing: dict[str, str] = {}
    moved = ledger.moved[low:high]
    born = low + np.flatnonzero(moved > 0)
    start, end = ledger.level(low), ledger.level(high)
    peak = peak_at = None
    if start is not None and ledger.allocated is not None:
        peak = start
        if high > low:
            highest = low + int(np.argmax(ledger.allocated[low:high]))
            if ledger.allocated[highest] > start:
                peak, peak_at = int(ledger.allocated[highest]), highest
        if peak_at is None:
            missing["peak_event"] = "the step began at its peak"
    else:
        missing["peak_bytes"] = "the allocator rows do not say how much was allocated in all"
    grown, why = _grown(book, span, low, high)
    if why is not None:
        missing["reserved_grown_bytes"] = why
    # Right before the step where it began at its peak.
    alive = ledger.alive(low - 1 if peak_at is None else peak_at)
    op, within, _, _ = (None,) * 4 if peak_at is None else book.described(peak_at)
    found = summed(owned, ledger, span.index, low, high)
    if isinstance(found, str):
        missing["intermediates"] = found
    return StepMemory(
        step=span.index,
        label=span.label,
        start_bytes=start,
        end_bytes=end,
        peak_bytes=peak,
        peak_event=None if peak_at is None else int(trace.event[ledger.rows[peak_at]]),
        peak_start_us=None if peak_at is None else trace.start_us(int(ledger.rows[peak_at])),
        peak_op=op,
        peak_within=within,
        allocations=len(born),
        allocated_bytes=int(moved[moved > 0].sum()),
        frees=int((moved < 0).sum()),
        freed_bytes=-int(moved[moved < 0].sum()),
        reserved_bytes=_reserved_after(ledger, high),
        reserved_grown_bytes=grown,
        largest=book.by_operator(born.tolist()),
        alive_at_peak=[] if peak is None else book.by_operator(alive.tolist()),
        held_before_bytes=None if peak is None or ledger.jumps else peak - int(ledger.moved[alive].sum()),
        intermediates=None if isinstance(found, str) else found,
        missing=missing,
    )


def _reserved_after(ledger: Ledger, high: int) -> int | None:
    """Bytes reserved when a step ended; before the first row it is not known."""
    return None if ledger.reserved is None or high == 0 else int(ledger.reserved[high - 1])


def _grown(book: _Book, span: StepSpan, low: int, high: int) -> tuple[int | None, str | None]:
    """What the allocator took from the device between two rows of a step, and why that is not known, if so."""
    ledger = book.ledger
    if ledger.reserved is None:
        return None, "this allocator reserves nothing ahead" if ledger.device == CPU else "the rows do not say it"
    first = max(low, 1)
    grown = int(np.maximum(np.diff(ledger.reserved[first - 1 : high]), 0).sum()) if high > first else 0
    if low == 0 and high > 0 and not _took_nothing(book.context, span, int(ledger.start[0])):
        return None, "the recording does not say what was reserved before its first allocator row"
    return grown, None


def _took_nothing(context: Context, span: StepSpan, until: int) -> bool:
    """Whether the API calls show that nothing came from the device between a step's start and a time (ns)."""
    trace = context.trace
    calls = trace.rows(RowKind.CALL)
    if not len(calls):
        return False
    early = calls[(trace.start[calls] >= span.start) & (trace.start[calls] <= until)]
    return not bool((trace.links.call[early] == Call.ALLOCATE).any())
