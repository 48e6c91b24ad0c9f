"""Text of a trace → columns, at the speed of a typed JSON decoder.

One pass decodes the events into records whose ``args`` stay raw; a second one reads the few ids the columns hold
(correlation, external id, stream, device, sequence number) from the rows that can have them. Timestamps are exact:
a float64 holds a decimal microsecond count to the nanosecond up to 2**43 µs; above that (absolute clocks of torch
2.2 and 2.3) the decimal text itself is read.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import numpy as np

from foretrace.knowledge.kineto import RowKind, row_kind
from foretrace.trace.table import Lane, Trace

__all__ = ["RawEvent", "build_trace", "decode_fast"]

# Largest µs count whose float64 neighbours are under 1 ns apart, so that rounding finds the written nanosecond.
_EXACT_US = float(2**43)
# A µs count past this is in the year 2255; nanoseconds since 1970 are far beyond it.
_LATEST_US = 9.0e15


class RawEvent(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``; what is absent keeps its default."""

    ph: str = ""
    cat: str | None = None
    name: str | None = ""
    pid: int | str | None = None
    tid: int | str | None = None
    ts: float | None = None
    dur: float | None = None
    id: int | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"")


class _ExactTimes(msgspec.Struct, gc=False):
    ts: Decimal | None = None
    dur: Decimal | None = None


class _Document(msgspec.Struct):
    events: list[RawEvent] = msgspec.field(name="traceEvents")


class _Envelope(msgspec.Struct):
    events: msgspec.Raw = msgspec.field(name="traceEvents")


class _Ids(msgspec.Struct, gc=False):
    """The ids inside ``args``; 2021 traces spell some of them in lower case."""

    correlation: int | None = None
    external: int | None = msgspec.field(name="External id", default=None)
    external_lower: int | None = msgspec.field(name="external id", default=None)
    stream: int | None = None
    device: int | None = None
    sequence: int | None = msgspec.field(name="Sequence number", default=None)


_document = msgspec.json.Decoder(_Document)
_event_list = msgspec.json.Decoder(list[RawEvent])
_exact_list = msgspec.json.Decoder(list[_ExactTimes])
_envelope = msgspec.json.Decoder(_Envelope)
_ids = msgspec.json.Decoder(_Ids)
_anything = msgspec.json.Decoder()


def decode_fast(text: bytes) -> tuple[list[RawEvent], dict[str, Any], bool]:
    """Decode well-formed trace text: (events, other top-level keys, whether it was a bare array).

    Raises ``msgspec.DecodeError`` when the text is not well-formed or not of this shape.
    """
    if text.lstrip()[:1] == b"[":
        return _event_list.decode(text), {}, True
    return _document.decode(text).events, _top_level(text), False


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
    """Turn decoded events into columns. ``text`` is consulted when timestamps need more than a float64."""
    odd: dict[str, int] = {}
    repairs = list(repairs)
    rows = [i for i, e in enumerate(events) if e.ph == "X" or (e.ph == "i" and e.cat == "cpu_instant_event")]
    rows += _paired(events, odd)
    picked = [events[i] for i in rows]

    start, duration, kept = _times(picked, rows, events, text, odd, repairs)
    if not kept.all():
        rows = [r for r, k in zip(rows, kept.tolist(), strict=True) if k]
        picked = [e for e, k in zip(picked, kept.tolist(), strict=True) if k]
        start, duration = start[kept], duration[kept]

    names, name_id = _intern([e.name or "" for e in picked])
    categories, category_id = _intern([e.cat or "" for e in picked])
    kinds_of_categories = np.array([row_kind(c) for c in categories] or [0], dtype=np.uint8)
    kind = kinds_of_categories[category_id] if picked else np.zeros(0, dtype=np.uint8)
    lane_keys, lane = _intern([(e.pid, e.tid) for e in picked])
    arguments: list[Any] = [e.args for e in picked]
    ids = _read_ids(arguments, kind)
    lane_of = {key: index for index, key in enumerate(lane_keys)}
    return Trace(
        path=path,
        format=format,
        meta=meta,
        total_events=len(events),
        repairs=repairs,
        names=names,
        name_id=name_id,
        categories=categories,
        category_id=category_id,
        lanes=[Lane(-1 if p is None else p, -1 if t is None else t) for p, t in lane_keys],
        lane=lane,
        kind=kind,
        start=start,
        duration=duration,
        event=np.array(rows, dtype=np.int64),
        arguments=arguments,
        flows=_backward_flows(events, lane_of),
        lane_names=_lane_names(events, lane_of),
        odd=odd,
        **ids,
    )


def _intern(values: list[Any]) -> tuple[list[Any], Any]:
    """Distinct values in order of appearance, and the position of each value among them (int32)."""
    table: dict[Any, int] = {}
    number = table.setdefault
    ids = [number(value, len(table)) for value in values]
    return list(table), np.array(ids, dtype=np.int32)


def _times(
    picked: list[RawEvent],
    rows: list[int],
    events: list[RawEvent],
    text: bytes | None,
    odd: dict[str, int],
    repairs: list[str],
) -> tuple[Any, Any, Any]:
    """Start and duration in ns (int64), and the mask of rows whose times can be used at all."""
    nan = float("nan")
    ts = np.array([nan if e.ts is None else e.ts for e in picked], dtype=np.float64)
    dur = np.array([0.0 if e.dur is None else e.dur for e in picked], dtype=np.float64)
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
        repairs.append(
            "timestamps are nanoseconds although the format says microseconds; read as nanoseconds"
        )
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
    whole = np.floor(ts) == ts
    start = ts.astype(np.int64) * 1000
    if not whole.all():
        exact_ns = _exact_starts(events, rows, text)
        start = np.rint(ts * 1000.0).astype(np.int64) if exact_ns is None else exact_ns
        start[~kept] = 0
    return start, duration, kept


def _exact_starts(events: list[RawEvent], rows: list[int], text: bytes | None) -> Any:
    """Starts from the decimal text, int64 ns; None where the text does not decode to the same events."""
    if text is None:
        return None
    try:
        raw: bytes | msgspec.Raw = text if text.lstrip()[:1] == b"[" else _envelope.decode(text).events
        exact = _exact_list.decode(raw)
    except msgspec.DecodeError:
        return None
    if len(exact) != len(events):
        return None
    thousand = Decimal(1000)
    zero = Decimal(0)
    return np.array(
        [int(((exact[i].ts or zero) * thousand).to_integral_value()) for i in rows], dtype=np.int64
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


def _read_ids(arguments: list[Any], kind: Any) -> dict[str, Any]:
    """Columns of the ids inside ``args``, for the rows that can have them."""
    n = len(arguments)
    columns = {
        "correlation": np.zeros(n, dtype=np.int64),
        "external": np.zeros(n, dtype=np.int64),
        "stream": np.full(n, -1, dtype=np.int32),
        "device": np.full(n, -1, dtype=np.int32),
        "sequence": np.full(n, -1, dtype=np.int64),
    }
    wanted = (
        RowKind.KERNEL,
        RowKind.MEMCPY,
        RowKind.MEMSET,
        RowKind.CALL,
        RowKind.OPERATOR,
        RowKind.SYNC,
        RowKind.GPU_ANNOTATION,
        RowKind.ANNOTATION,
    )
    rows = np.flatnonzero(np.isin(kind, wanted)).tolist()
    decode = _ids.decode
    missing = _Ids()
    found: list[_Ids] = []
    for row in rows:
        raw = arguments[row]
        try:
            found.append(decode(raw) if raw else missing)
        except msgspec.DecodeError:
            found.append(_lenient_ids(raw))
    columns["correlation"][rows] = _int64([f.correlation or 0 for f in found])
    columns["external"][rows] = _int64([f.external or f.external_lower or 0 for f in found])
    columns["stream"][rows] = _clamped([-1 if f.stream is None else f.stream for f in found])
    columns["device"][rows] = _clamped([-1 if f.device is None else f.device for f in found])
    columns["sequence"][rows] = _int64([-1 if f.sequence is None else f.sequence for f in found])
    return columns


def _int64(values: list[int]) -> Any:
    """Values as int64; ids beyond 64 bits (unsigned hashes) keep their low 63 bits, so equal ids stay equal."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([v & 0x7FFF_FFFF_FFFF_FFFF for v in values], dtype=np.int64)


def _clamped(values: list[int]) -> Any:
    """Values as int32; what does not fit (an invalid device of 2**32 - 1) is none."""
    return np.array([v if -1 <= v < 2**31 else -1 for v in values], dtype=np.int32)


def _lenient_ids(raw: Any) -> _Ids:
    """Ids from ``args`` that are oddly typed (numbers in strings) or broken."""
    try:
        args = _anything.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _Ids()
    if not isinstance(args, dict):
        return _Ids()

    def number(*keys: str) -> int | None:
        for key in keys:
            value = args.get(key)
            if isinstance(value, bool) or value is None:
                continue
            if isinstance(value, int):
                return value
            try:
                return int(float(value)) if isinstance(value, (float, str)) else None
            except (ValueError, OverflowError):
                continue
        return None

    return _Ids(
        correlation=number("correlation"),
        external=number("External id", "external id"),
        stream=number("stream"),
        device=number("device"),
        sequence=number("Sequence number"),
    )


_BACKWARD_FLOWS = frozenset({"fwdbwd", "forward_backward"})


def _backward_flows(
    events: list[RawEvent], lane_of: dict[tuple[Any, Any], int]
) -> list[tuple[str, int, bool, int, int]]:
    flows = []
    for e in events:
        if e.cat in _BACKWARD_FLOWS and e.ph in ("s", "f") and isinstance(e.id, int) and e.ts is not None:
            lane = lane_of.get((e.pid, e.tid), -1)
            flows.append((e.cat or "", e.id, e.ph == "s", lane, round(e.ts * 1000)))
    return flows


def _lane_names(events: list[RawEvent], lane_of: dict[tuple[Any, Any], int]) -> dict[int, str]:
    names: dict[int, str] = {}
    for e in events:
        if e.ph == "M" and e.name == "thread_name" and e.args:
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
