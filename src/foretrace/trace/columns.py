"""Events → columns, batch by batch, so that no more than one batch of records need be alive."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from foretrace.knowledge.formats import NANOSECONDS
from foretrace.knowledge.kineto import RowKind, row_kind
from foretrace.trace.event import RawEvent
from foretrace.trace.ids import read_args
from foretrace.trace.table import Lane, Trace

__all__ = ["Columns", "exact_times"]

# Largest µs count whose float64 neighbours are under 1 ns apart, so that rounding finds the written nanosecond.
_EXACT_US = float(2**43)
# A µs count past this is in the year 2255; nanoseconds since 1970 are far beyond it.
_LATEST_US = 9.0e15
# Nanoseconds past this do not fit into int64.
_CEILING = float(2**62)

_ALLOCATOR = "cpu_instant_event"
_BACKWARD_FLOWS = ("fwdbwd", "forward_backward")


def _whole_microseconds(ts: Any) -> bool:
    """Whether large times (float64 µs) are whole microseconds, as torch before 2.2 wrote them.

    A float64 near 1.7e15 keeps quarters, so a quarter of all fractions look whole; that all of many do is no chance.
    """
    return len(ts) >= 64 and float(np.abs(ts).max()) < 2.0**51 and bool((np.floor(ts) == ts).all())


class _Table(defaultdict[Any, int]):
    """Distinct values in order of appearance; ``ids`` gives the position of each of many values (int32)."""

    def __init__(self) -> None:
        super().__init__(itertools.count().__next__)

    def ids(self, values: Iterable[Any], count: int) -> Any:
        return np.fromiter(map(self.__getitem__, values), dtype=np.int32, count=count)

    def used(self, ids: Any) -> tuple[list[Any], Any]:
        """The values that ``ids`` points at, and ids that point into this list."""
        present = np.bincount(ids, minlength=len(self)) > 0
        if present.all():
            return list(self), ids
        return list(itertools.compress(self, present.tolist())), (np.cumsum(present) - 1)[ids].astype(np.int32)


class _Lanes(_Table):
    """(pid, tid) pairs; those of integers are looked up all at once, since making a tuple an event is slow."""

    def __init__(self) -> None:
        super().__init__()
        self._codes = np.zeros(0, dtype=np.int64)  # of the known pairs, sorted
        self._places = np.zeros(0, dtype=np.int32)

    def of(self, events: list[RawEvent]) -> Any:
        """The position of each event's pair, int32."""
        count = len(events)
        pairs = attrgetter("pid", "tid")
        try:
            pid = np.fromiter(map(attrgetter("pid"), events), dtype=np.int64, count=count)
            tid = np.fromiter(map(attrgetter("tid"), events), dtype=np.int64, count=count)
        except (TypeError, ValueError, OverflowError):  # a name such as "Spans"
            return self.ids(map(pairs, events), count)
        if not count or max(abs(pid).max(), abs(tid).max()) >= 2**31:
            return self.ids(map(pairs, events), count)
        code = (pid << 32) + tid
        if len(self._codes):
            place = np.minimum(np.searchsorted(self._codes, code), len(self._codes) - 1)
            if (self._codes[place] == code).all():
                return self._places[place]
        ids = self.ids(map(pairs, events), count)
        known, first = np.unique(code, return_index=True)
        codes = np.concatenate((self._codes, known))
        self._codes, order = np.unique(codes, return_index=True)
        self._places = np.concatenate((self._places, ids[first]))[order]
        return ids


class Columns:
    """Collects batches of events with ``add``; ``trace`` puts the columns together."""

    def __init__(self) -> None:
        self.total = 0
        self.odd: dict[str, int] = {}
        self._phases = _Table()
        self._names = _Table()
        self._categories = _Table()
        self._lanes = _Lanes()
        self._arguments: list[Any] = []
        self._parts: defaultdict[str, list[Any]] = defaultdict(list)
        self._halves: list[tuple[int, RawEvent]] = []  # begin and end events
        self._flows: list[RawEvent] = []
        self._metadata: list[RawEvent] = []
        for phase in ("X", "i", "B", "E", "M", "s", "f"):
            _ = self._phases[phase]
        for category in (_ALLOCATOR, *_BACKWARD_FLOWS):
            _ = self._categories[category]

    def add(self, events: list[RawEvent], text: Any = None) -> None:
        """Take over the next events of the file.

        ``text``, a JSON list of just these events, is consulted where times need more than a float64.
        """
        count = len(events)
        phase = self._phases.ids(map(attrgetter("ph"), events), count)
        category = self._categories.ids(map(attrgetter("cat"), events), count)
        complete, instant, begin, end, metadata, source, sink = range(7)
        timed = np.flatnonzero((phase == complete) | ((phase == instant) & (category == 0)))
        picked = [events[i] for i in timed.tolist()]
        ts = _floats(picked, "ts")
        if text is not None and _rounded(ts):
            set_exact_times(events, text)
        self._append(timed + self.total, picked, ts, category[timed])
        if len(timed) < count:
            for i in np.flatnonzero((phase == begin) | (phase == end)).tolist():
                self._halves.append((self.total + i, events[i]))
            arrows = ((phase == source) | (phase == sink)) & ((category == 1) | (category == 2))
            self._flows += [events[i] for i in np.flatnonzero(arrows).tolist()]
            self._metadata += [events[i] for i in np.flatnonzero(phase == metadata).tolist()]
        self.total += count

    def known(self) -> bool:
        """Whether an event so far has a category that PyTorch's profiler writes."""
        return any(row_kind(category) != RowKind.OTHER for category in list(self._categories)[3:])

    def trace(self, meta: dict[str, Any], *, path: str, format: str, repairs: list[str]) -> Trace:
        """The columns of all events added."""
        repairs = list(repairs)
        self._pair()
        part = {name: np.concatenate(arrays) for name, arrays in self._parts.items()}
        start, duration, kept = self._times(part["start"], part["ts"], part["dur"], repairs)
        arguments = self._arguments
        if not kept.all():
            arguments = list(itertools.compress(arguments, kept.tolist()))
            start, duration = start[kept], duration[kept]
            part = {name: array[kept] for name, array in part.items()}
        names, name_id = self._names.used(part["name"])
        categories, category_id = self._categories.used(part["category"])
        kinds = [row_kind(category) for category in categories] or [RowKind.OTHER]
        kind = np.array(kinds, dtype=np.uint8)[category_id]
        lanes, lane = self._lanes.used(part["lane"])
        lane_of = {key: number for number, key in enumerate(lanes)}
        return Trace(
            path=path,
            format=format,
            meta=meta,
            total_events=self.total,
            repairs=repairs,
            names=[name or "" for name in names],
            name_id=name_id,
            categories=[category or "" for category in categories],
            category_id=category_id,
            lanes=[Lane(-1 if pid is None else pid, -1 if tid is None else tid) for pid, tid in lanes],
            lane=lane,
            kind=kind,
            start=start,
            duration=duration,
            event=part["event"].astype(np.int64),
            arguments=arguments,
            flows=self._backward_flows(lane_of),
            lane_names=self._lane_names(lane_of),
            odd=self.odd,
        )

    def _append(self, positions: Any, picked: list[RawEvent], ts: Any, category: Any) -> None:
        count = len(picked)
        parts = self._parts
        dur = _floats(picked, "dur")
        unknown = np.isnan(dur)
        if unknown.any():
            # Allocator instants have no duration by nature; work without one is kept and counted.
            self._count("without duration", sum(picked[i].ph != "i" for i in np.flatnonzero(unknown)))
            dur[unknown] = 0.0
        parts["event"].append(positions)
        parts["ts"].append(ts)
        parts["dur"].append(dur)
        parts["start"].append(_nanoseconds(picked, ts))
        parts["category"].append(category)
        parts["name"].append(self._names.ids(map(attrgetter("name"), picked), count))
        parts["lane"].append(self._lanes.of(picked))
        self._arguments += map(attrgetter("args"), picked)

    def _count(self, why: str, count: int) -> None:
        if count:
            self.odd[why] = self.odd.get(why, 0) + count

    def _pair(self) -> None:
        """Fold begin/end pairs (``B``/``E``) into rows; the rows stand behind all others."""
        if not self._halves and self._parts:
            return
        open_by_lane: defaultdict[tuple[Any, Any], list[tuple[int, RawEvent]]] = defaultdict(list)
        folded: list[tuple[int, RawEvent]] = []
        unmatched = 0
        for position, event in self._halves:
            stack = open_by_lane[event.pid, event.tid]
            if event.ph == "B":
                stack.append((position, event))
            elif stack:
                begin, first = stack.pop()
                if first.ts is not None and event.ts is not None:
                    # Decimals where the text was looked at, and one half alone may have been mended.
                    first.dur = float(Decimal(event.ts) - Decimal(first.ts))
                folded.append((begin, first))
            else:
                unmatched += 1
        self._count("begin or end without partner", unmatched + sum(map(len, open_by_lane.values())))
        events = [event for _, event in folded]
        category = self._categories.ids((event.cat for event in events), len(events))
        positions = np.array([position for position, _ in folded], dtype=np.int64)
        self._append(positions, events, _floats(events, "ts"), category)

    def _times(self, start: Any, ts: Any, dur: Any, repairs: list[str]) -> tuple[Any, Any, Any]:
        """Start and duration in ns (int64), and the mask of rows whose times can be used at all."""
        kept = np.isfinite(ts) & np.isfinite(dur)
        self._count("without time", int((~kept).sum()))
        ts, dur = np.where(kept, ts, 0.0), np.where(kept, dur, 0.0)
        self._count("negative duration", int((dur < 0).sum()))
        dur = np.maximum(dur, 0.0)
        beyond = np.abs(ts) > _LATEST_US
        if beyond.any():
            # Only nanoseconds can be this large; reading them as microseconds would overflow and mean nothing.
            self._count(NANOSECONDS, int(beyond.sum()))
            repairs.append("timestamps are nanoseconds although the format says microseconds; read as nanoseconds")
            kept &= (np.abs(ts) < _CEILING) & (dur < _CEILING)
            return np.where(kept, ts, 0.0).astype(np.int64), np.rint(np.where(kept, dur, 0.0)).astype(np.int64), kept
        too_long = dur > _LATEST_US
        self._count("duration beyond reason", int(too_long.sum()))
        kept &= ~too_long
        return start, np.rint(np.where(kept, dur, 0.0) * 1000.0).astype(np.int64), kept

    def _backward_flows(self, lane_of: dict[Any, int]) -> list[tuple[str, int, bool, int, int]]:
        return [
            (e.cat or "", e.id, e.ph == "s", lane_of.get((e.pid, e.tid), -1), round(e.ts * 1000))
            for e in self._flows
            if isinstance(e.id, int) and e.ts is not None
        ]

    def _lane_names(self, lane_of: dict[Any, int]) -> dict[int, str]:
        names: dict[int, str] = {}
        for event in self._metadata:
            lane = lane_of.get((event.pid, event.tid))
            if event.name == "thread_name" and event.args and lane is not None:
                name = (read_args(event.args) or {}).get("name")
                if isinstance(name, str):
                    names[lane] = name
        return names


def _floats(picked: list[RawEvent], name: str) -> Any:
    """One field of all events as float64, NaN where it is missing."""
    try:
        return np.fromiter(map(attrgetter(name), picked), dtype=np.float64, count=len(picked))
    except TypeError:
        values = [getattr(event, name) for event in picked]
        return np.array([float("nan") if v is None else v for v in values], dtype=np.float64)


class _ExactTimes(msgspec.Struct, gc=False):
    ts: Decimal | None = None


_exact_list = msgspec.json.Decoder(list[_ExactTimes])


def _rounded(ts: Any) -> bool:
    """Whether float64 µs may have lost nanoseconds."""
    ts = ts[np.isfinite(ts)]
    return float(np.abs(ts).max(initial=0.0)) >= _EXACT_US and not _whole_microseconds(ts)


def exact_times(events: list[RawEvent], text: Any) -> None:
    """``set_exact_times`` where it is needed."""
    if _rounded(_floats(events, "ts")):
        set_exact_times(events, text)


def set_exact_times(events: list[RawEvent], text: Any) -> None:
    """Replace starts by the ``Decimal`` in the text, a JSON list of just these events."""
    try:
        exact = _exact_list.decode(text)
    except msgspec.DecodeError:
        return  # a time that is no number; those that are came as decimals already
    for event, times in zip(events, exact, strict=True):
        if event.ts is not None:
            event.ts = times.ts  # type: ignore[assignment]  # only `_nanoseconds` looks at it


def _nanoseconds(picked: list[RawEvent], ts: Any) -> Any:
    """Starts as int64 ns; what is no time, or beyond what µs can be, is 0."""
    sane = np.where(np.abs(ts) <= _LATEST_US, ts, 0.0)
    if float(np.abs(sane).max(initial=0.0)) < _EXACT_US:
        return np.rint(sane * 1000.0).astype(np.int64)
    if _whole_microseconds(sane):
        return sane.astype(np.int64) * 1000
    # Decimals, where `exact_times` read them from the text.
    thousand = Decimal(1000)
    exact = [
        int((Decimal(event.ts) * thousand).to_integral_value()) if usable and event.ts is not None else 0
        for event, usable in zip(picked, (sane != 0.0).tolist(), strict=True)
    ]
    return np.array(exact, dtype=np.int64)
