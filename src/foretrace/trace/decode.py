"""Text of a trace → columns, at the speed of a typed JSON decoder.

One pass decodes the events into records whose ``args`` stay raw; a second one reads the few ids the columns hold
(correlation, external id, stream, device, sequence number) from the rows that can have them. Timestamps are exact:
a float64 holds a decimal microsecond count to the nanosecond up to 2**43 µs; above that (absolute clocks of torch
2.2 and 2.3) the decimal text itself is read.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Iterable
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from foretrace.knowledge.kineto import RowKind, row_kind
from foretrace.trace.event import RawEvent
from foretrace.trace.ids import link_ids
from foretrace.trace.table import Lane, Trace

__all__ = ["RawEvent", "build_trace", "decode_fast", "event_decoder", "event_list_decoder", "exact_times"]

# Above this many bytes a second scan of the text is worth avoiding.
_LARGE = 1 << 20
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')

# Largest µs count whose float64 neighbours are under 1 ns apart, so that rounding finds the written nanosecond.
_EXACT_US = float(2**43)
# A µs count past this is in the year 2255; nanoseconds since 1970 are far beyond it.
_LATEST_US = 9.0e15


class _ExactTimes(msgspec.Struct, gc=False):
    ts: Decimal | None = None
    dur: Decimal | None = None


class _Document(msgspec.Struct):
    events: list[RawEvent] = msgspec.field(name="traceEvents")


class _Envelope(msgspec.Struct):
    events: msgspec.Raw = msgspec.field(name="traceEvents")


_document = msgspec.json.Decoder(_Document)
event_decoder = msgspec.json.Decoder(RawEvent)
event_list_decoder = msgspec.json.Decoder(list[RawEvent])
_exact_list = msgspec.json.Decoder(list[_ExactTimes])
_envelope = msgspec.json.Decoder(_Envelope)
_anything = msgspec.json.Decoder()


def decode_fast(text: bytes) -> tuple[list[RawEvent], dict[str, Any], bool]:
    """Decode well-formed trace text: (events, other top-level keys, whether it was a bare array).

    Raises ``msgspec.DecodeError`` when the text is not well-formed or not of this shape.
    """
    if text[: 1 << 12].lstrip()[:1] == b"[":
        return event_list_decoder.decode(text), {}, True
    if len(text) > _LARGE and (outline := _outline(text)):
        begin, end, meta = outline
        try:
            return event_list_decoder.decode(memoryview(text)[begin:end]), meta, False
        except msgspec.DecodeError:
            pass  # the outline was a guess
    return _document.decode(text).events, _top_level(text), False


def _outline(text: bytes) -> tuple[int, int, dict[str, Any]] | None:
    """Where the list of events begins and ends, and the keys around it, without reading the events.

    Saves one scan of a large file. The list ends at the first bracket behind which all the rest is the remainder of
    one JSON object; None where the end is not within the last bytes of the file.
    """
    key = _EVENTS_KEY.search(text, 0, _LARGE)
    if not key:
        return None
    window = max(len(text) - _LARGE // 4, key.end())
    at = text.find(b"]", window)
    while at >= 0:
        after = at + 1
        while text[after : after + 1].isspace():
            after += 1
        # What follows the list is a comma and a key, or the brace that closes the document.
        if text[after : after + 1] in (b",", b"}"):
            try:
                meta = _anything.decode(text[: key.start()] + b'"traceEvents": null' + text[after:])
            except (msgspec.DecodeError, UnicodeDecodeError):
                pass
            else:
                if isinstance(meta, dict) and meta.pop("traceEvents", 0) is None:
                    return key.end() - 1, at + 1, meta
        at = text.find(b"]", at + 1)
    return None


def exact_times(events: list[RawEvent], text: bytes) -> None:
    """Replace starts that a float64 rounds by the ``Decimal`` in the text, a JSON list of just these events."""
    ts = np.array([e.ts for e in events if e.ts is not None], dtype=np.float64)
    if float(np.abs(ts).max(initial=0.0)) < _EXACT_US or _whole_microseconds(ts):
        return
    for event, exact in zip(events, _exact_list.decode(text), strict=True):
        if event.ts is not None:
            event.ts = exact.ts  # type: ignore[assignment]  # read by `_exact_starts` alone


def _top_level(text: bytes) -> dict[str, Any]:
    """The keys beside ``traceEvents``, without decoding the events again."""
    raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    meta: dict[str, Any] = {}
    for key, value in raw.items():
        if key != "traceEvents":
            try:
                meta[key] = _anything.decode(value)
            except msgspec.DecodeError:
                meta[key] = None
    return meta


def build_trace(
    events: list[RawEvent],
    meta: dict[str, Any],
    *,
    path: str,
    format: str,
    repairs: list[str],
    text: bytes | None = None,
) -> Trace:
    """Turn decoded events into columns.

    ``text`` is the healthy document, consulted when timestamps need more than a float64; None where the events
    carry exact times already. The events are used up: the list is empty afterwards.
    """
    odd: dict[str, int] = {}
    repairs = list(repairs)
    total = len(events)
    phases, phase_id = _intern(map(attrgetter("ph"), events), total)
    all_categories, all_category_id = _intern(map(attrgetter("cat"), events), total)

    def having(phase: str) -> Any:
        return phase_id == phases.index(phase) if phase in phases else np.zeros(total, dtype=np.bool_)

    instants = np.array([c == _ALLOCATOR for c in all_categories] or [False])[all_category_id]
    timed = np.flatnonzero(having("X") | (having("i") & instants))
    if "B" in phases or "E" in phases:
        timed = np.concatenate((timed, np.array(_paired(events, odd), dtype=np.int64)))
    rows: list[int] = timed.tolist()
    picked = [events[i] for i in rows]

    start, duration, kept = _times(picked, rows, events, text, odd, repairs)
    if not kept.all():
        picked = [e for e, k in zip(picked, kept.tolist(), strict=True) if k]
        timed, start, duration = timed[kept], start[kept], duration[kept]

    count = len(picked)
    names, name_id = _intern(map(attrgetter("name"), picked), count)
    category_id = all_category_id[timed]
    kinds_of_categories = np.array([row_kind(c) for c in all_categories] or [RowKind.OTHER], dtype=np.uint8)
    kind = kinds_of_categories[category_id] if count else np.zeros(0, dtype=np.uint8)
    lane_keys, lane = _intern(map(attrgetter("pid", "tid"), picked), count)
    lane_of = {key: index for index, key in enumerate(lane_keys)}
    arguments: list[Any] = list(map(attrgetter("args"), picked))
    flow_categories = np.array([c in _BACKWARD_FLOWS for c in all_categories] or [False])
    flows = _backward_flows([events[i] for i in np.flatnonzero(flow_categories[all_category_id])], lane_of)
    lane_names = _lane_names([events[i] for i in np.flatnonzero(having("M"))], lane_of)
    # Free the records before the ids of all rows are read: together they would be the peak of memory.
    picked.clear()
    events.clear()
    return Trace(
        path=path,
        format=format,
        meta=meta,
        total_events=total,
        repairs=repairs,
        names=[name or "" for name in names],
        name_id=name_id,
        categories=[category or "" for category in all_categories],
        category_id=category_id,
        lanes=[Lane(-1 if p is None else p, -1 if t is None else t) for p, t in lane_keys],
        lane=lane,
        kind=kind,
        start=start,
        duration=duration,
        event=timed.astype(np.int64),
        arguments=arguments,
        flows=flows,
        lane_names=lane_names,
        odd=odd,
        **link_ids(arguments, kind, odd),
    )


def _intern(values: Iterable[Any], count: int) -> tuple[list[Any], Any]:
    """Distinct values in order of appearance, and the position of each value among them (int32)."""
    table: defaultdict[Any, int] = defaultdict(itertools.count().__next__)
    ids = np.fromiter(map(table.__getitem__, values), dtype=np.int32, count=count)
    return list(table), ids


def _times(
    picked: list[RawEvent],
    rows: list[int],
    events: list[RawEvent],
    text: bytes | None,
    odd: dict[str, int],
    repairs: list[str],
) -> tuple[Any, Any, Any]:
    """Start and duration in ns (int64), and the mask of rows whose times can be used at all."""
    ts = _floats(picked, "ts")
    dur = _floats(picked, "dur")
    endless = np.isnan(dur)
    dur[endless] = 0.0
    if endless.any():
        # Allocator instants have no duration by nature; work without one is kept and counted.
        unknown = sum(picked[i].ph != "i" for i in np.flatnonzero(endless))
        if unknown:
            odd["without duration"] = unknown
    kept = np.isfinite(ts) & np.isfinite(dur)
    if not kept.all():
        odd["without time"] = int((~kept).sum())
    negative = kept & (dur < 0)
    if negative.any():
        odd["negative duration"] = int(negative.sum())
        dur[negative] = 0.0
    ts[~kept] = 0.0
    dur[~kept] = 0.0
    largest = float(np.abs(ts).max(initial=0.0))
    if largest > _LATEST_US:
        # Only nanoseconds can be this large; reading them as microseconds would overflow and mean nothing.
        odd["nanoseconds as microseconds"] = int((np.abs(ts) > _LATEST_US).sum())
        repairs.append("timestamps are nanoseconds although the format says microseconds; read as nanoseconds")
        ceiling = float(2**62)
        sane = np.abs(ts) < ceiling
        kept &= sane
        exact = [int(e.ts) if e.ts is not None and abs(e.ts) < ceiling else 0 for e in picked]
        return np.array(exact, dtype=np.int64), np.rint(np.minimum(dur, ceiling)).astype(np.int64), kept
    too_long = dur > _LATEST_US
    if too_long.any():
        odd["duration beyond reason"] = int(too_long.sum())
        kept &= ~too_long
        dur[too_long] = 0.0
    duration = np.rint(dur * 1000.0).astype(np.int64)
    if largest < _EXACT_US:
        return np.rint(ts * 1000.0).astype(np.int64), duration, kept
    start = ts.astype(np.int64) * 1000
    if not _whole_microseconds(ts):
        start = _exact_starts(events, rows, text)
        start[~kept] = 0
    return start, duration, kept


def _floats(picked: list[RawEvent], name: str) -> Any:
    """One field of all events as float64, NaN where it is missing."""
    try:
        return np.fromiter(map(attrgetter(name), picked), dtype=np.float64, count=len(picked))
    except TypeError:
        values = [getattr(event, name) for event in picked]
        return np.array([float("nan") if v is None else v for v in values], dtype=np.float64)


def _whole_microseconds(ts: Any) -> bool:
    """Whether large times are whole microseconds, as torch before 2.2 wrote them.

    A float64 near 1.7e15 keeps quarters, so a quarter of all fractions look whole; that all of many do is no chance.
    """
    return len(ts) >= 64 and float(np.abs(ts).max()) < 2.0**51 and bool((np.floor(ts) == ts).all())


def _exact_starts(events: list[RawEvent], rows: list[int], text: bytes | None) -> Any:
    """Starts from the decimal text, int64 ns: of a healthy file, or as ``exact_times`` left them."""
    zero = Decimal(0)
    starts: list[Any]
    if text is None:
        starts = [events[i].ts or zero for i in rows]
    else:
        raw: bytes | msgspec.Raw = text if text.lstrip()[:1] == b"[" else _envelope.decode(text).events
        exact = _exact_list.decode(raw)
        starts = [exact[i].ts or zero for i in rows]
    thousand = Decimal(1000)
    ceiling = Decimal(_LATEST_US)
    return np.array(
        [int((Decimal(t) * thousand).to_integral_value()) if abs(t) < ceiling else 0 for t in starts],
        dtype=np.int64,
    )


def _paired(events: list[RawEvent], odd: dict[str, int]) -> list[int]:
    """Fold begin/end pairs (``B``/``E``) into their begin event; returns the positions of the begins."""
    open_by_lane: dict[tuple[Any, Any], list[int]] = {}
    folded: list[int] = []
    unmatched = 0
    for i, e in enumerate(events):
        if e.ph == "B":
            open_by_lane.setdefault((e.pid, e.tid), []).append(i)
        elif e.ph == "E":
            stack = open_by_lane.get((e.pid, e.tid))
            if not stack:
                unmatched += 1
                continue
            begin = stack.pop()
            first = events[begin]
            if first.ts is not None and e.ts is not None:
                first.dur = e.ts - first.ts
            folded.append(begin)
    unmatched += sum(len(stack) for stack in open_by_lane.values())
    if unmatched:
        odd["begin or end without partner"] = unmatched
    return folded


_ALLOCATOR = "cpu_instant_event"
_BACKWARD_FLOWS = frozenset({"fwdbwd", "forward_backward"})


def _backward_flows(
    events: list[RawEvent], lane_of: dict[tuple[Any, Any], int]
) -> list[tuple[str, int, bool, int, int]]:
    flows = []
    for e in events:
        if e.ph in ("s", "f") and isinstance(e.id, int) and e.ts is not None:
            lane = lane_of.get((e.pid, e.tid), -1)
            flows.append((e.cat or "", e.id, e.ph == "s", lane, round(e.ts * 1000)))
    return flows


def _lane_names(events: list[RawEvent], lane_of: dict[tuple[Any, Any], int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for e in events:
        if e.name == "thread_name" and e.args:
            lane = lane_of.get((e.pid, e.tid))
            if lane is None:
                continue
            try:
                args = _anything.decode(e.args)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue
            if isinstance(args, dict) and isinstance(args.get("name"), str):
                names[lane] = args["name"]
    return names
