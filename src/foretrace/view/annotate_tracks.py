"""Events of tracks that are added to a trace: slices on lanes that nest, instants, counters, names.

Times are ns on the file's own clock; in the file they are µs with three decimals, so that none is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from heapq import heappop, heappush
from typing import Any

import msgspec
import numpy as np

from foretrace.knowledge.tracks import FIRST_PID, FIRST_TID, SORT_INDEX, TRACK_CATEGORY, TRACK_PROCESS
from foretrace.trace.table import Trace
from foretrace.view.overlaps import fitting_lanes
from foretrace.view.raw import RawFile

__all__ = ["Slice", "Tracks", "held"]

_encode = msgspec.json.Encoder(decimal_format="number").encode


@dataclass(frozen=True)
class Slice:
    """One stretch of a track; without duration it is an instant."""

    name: str
    start: int
    duration: int
    args: Mapping[str, Any] = field(default_factory=dict)


class Tracks:
    """Collects the events of one process that the file does not have; ``events`` hands them out encoded."""

    def __init__(self, trace: Trace, raw: RawFile) -> None:
        own = {mark.position for mark in raw.marks if mark.cat == TRACK_CATEGORY}
        # What an earlier annotation took is free again: it is replaced.
        others = np.array([category != TRACK_CATEGORY for category in trace.categories], dtype=np.bool_)
        lanes = [trace.lanes[number] for number in np.unique(trace.lane[others[trace.category_id]]).tolist()]
        pids = {lane.pid for lane in lanes} | {mark.pid for mark in raw.marks if mark.position not in own}
        tids = {lane.tid for lane in lanes} | {mark.tid for mark in raw.marks if mark.position not in own}
        self.pid = next(pid for pid in range(FIRST_PID, 0, -1) if pid not in pids)
        # Old importers know a thread by its number alone.
        self._free = (tid for tid in range(FIRST_TID, 0, -1) if tid not in tids and tid != self.pid)
        self._events: list[msgspec.Raw] = []
        self._threads = 0

    def slices(self, title: str, found: list[Slice]) -> None:
        """A thread of slices; those that overlap in part go to further threads of the same name."""
        ordered = sorted(found, key=lambda one: (one.start, -one.duration))
        spans = [one for one in ordered if one.duration > 0]
        lanes = fitting_lanes([one.start for one in spans], [one.start + one.duration for one in spans])
        tids: list[int] = []
        for one, lane in [*zip(spans, lanes, strict=True), *((one, 0) for one in ordered if one.duration <= 0)]:
            while lane >= len(tids):
                tids.append(self._thread(title if not tids else f"{title} ({len(tids) + 1})"))
            event = {"ph": "X", "name": one.name, "tid": tids[lane], "ts": _us(one.start), "dur": _us(one.duration)}
            if one.duration <= 0:
                event = {"ph": "i", "s": "t", "name": one.name, "tid": tids[lane], "ts": _us(one.start)}
            self._add({**event, "args": dict(one.args)})

    def counter(self, name: str, key: str, samples: list[tuple[int, float]]) -> None:
        """A counter of the process: the value from each moment (ns) on; values that repeat are left out."""
        last: float | None = None
        at = dict(samples)  # of several values of one moment the last one holds
        for ns in sorted(at):
            if at[ns] != last:
                last = at[ns]
                self._add({"ph": "C", "name": name, "ts": _us(ns), "args": {key: last}})

    def events(self) -> Iterator[msgspec.Raw]:
        """Everything, the names of the process first."""
        for name, args in (
            ("process_name", {"name": TRACK_PROCESS}),
            ("process_labels", {"labels": "added by foretrace"}),
            ("process_sort_index", {"sort_index": SORT_INDEX}),
        ):
            yield self._encoded({"ph": "M", "name": name, "tid": 0, "args": args})
        yield from self._events

    def _thread(self, title: str) -> int:
        tid = next(self._free)
        self._add({"ph": "M", "name": "thread_name", "tid": tid, "args": {"name": title}})
        self._add({"ph": "M", "name": "thread_sort_index", "tid": tid, "args": {"sort_index": self._threads}})
        self._threads += 1
        return tid

    def _add(self, event: dict[str, Any]) -> None:
        self._events.append(self._encoded(event))

    def _encoded(self, event: dict[str, Any]) -> msgspec.Raw:
        return msgspec.Raw(_encode({"cat": TRACK_CATEGORY, "pid": self.pid, **event}))


def _us(ns: int) -> Decimal:
    return Decimal(ns).scaleb(-3)


def held(spans: list[tuple[int, int, float]]) -> list[tuple[int, float]]:
    """Samples ``(ns, value)`` of values that hold for a stretch ``(start, end, value)`` each, 0 where none does.

    Where stretches overlap the one that began last counts until it ends, and then the one before it, if that goes on.
    """
    samples: list[tuple[int, float]] = []
    around: list[tuple[int, int, float]] = []  # open stretches, the last to begin first
    spans = sorted(spans)
    begun = 0
    for moment in sorted({edge for start, end, _ in spans for edge in (start, end)}):
        while begun < len(spans) and spans[begun][0] == moment:
            start, end, value = spans[begun]
            heappush(around, (-start, -end, value))
            begun += 1
        while around and -around[0][1] <= moment:
            heappop(around)
        value = around[0][2] if around else 0
        if not samples or samples[-1][1] != value:
            samples.append((moment, value))
    return samples
