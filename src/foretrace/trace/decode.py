"""Well-formed trace text → events, at the speed of a typed JSON decoder; ``args`` stay raw.

Timestamps are exact: a float64 holds a decimal microsecond count to the nanosecond up to 2**43 µs; above that
(absolute clocks of torch 2.2 and 2.3) the decimal text itself is read.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from foretrace.trace.columns import exact_times
from foretrace.trace.event import RawEvent

__all__ = ["SEVERAL_LISTS", "decode_fast", "event_list_decoder"]

SEVERAL_LISTS = "the document names traceEvents {n} times; the events of all lists were read"
_KEY = b'"traceEvents"'


event_list_decoder = msgspec.json.Decoder(list[RawEvent])
_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])
_anything = msgspec.json.Decoder()


def decode_fast(text: bytes) -> tuple[list[RawEvent], dict[str, Any], bool, list[str]]:
    """Decode well-formed trace text: (events, other top-level keys, whether it was a bare array, repairs in words).

    Raises ``msgspec.DecodeError`` when the text is not well-formed or not of this shape.
    """
    if text[: 1 << 12].lstrip()[:1] == b"[":
        events = event_list_decoder.decode(text)
        exact_times(events, text)
        return events, {}, True, []
    keys = _top_level.decode(text)
    listed = keys.pop("traceEvents", msgspec.Raw(b"null"))
    events = event_list_decoder.decode(listed)
    exact_times(events, listed)
    repairs: list[str] = []
    if text.count(_KEY) > 1:
        earlier = _earlier_lists(text, listed)
        if earlier:
            repairs.append(SEVERAL_LISTS.format(n=len(earlier) + 1))
            events = [event for part in (*earlier, events) for event in part]
    meta: dict[str, Any] = {}
    for key, value in keys.items():
        try:
            meta[key] = _anything.decode(value)
        except msgspec.DecodeError:
            meta[key] = None
    return events, meta, False, repairs


def _earlier_lists(text: bytes, last: msgspec.Raw) -> list[list[RawEvent]]:
    """The lists of events in front of ``last``, where the top level holds the key several times.

    Of equal keys the decoder keeps the last; what stands in front of it is, once closed, a document of its own.
    """
    found: list[list[RawEvent]] = []
    document = text
    while True:
        key = document.rfind(_KEY, 0, max(_address(last) - _address(document), 0))
        document = document[: max(key, 0)].rstrip(b" \t\r\n,") + b"}"
        try:
            keys = _top_level.decode(document)
        except msgspec.DecodeError:  # the key stood inside a value
            break
        if "traceEvents" not in keys:
            break
        last = keys["traceEvents"]
        if bytes(last)[:1] == b"[":
            events = event_list_decoder.decode(last)
            exact_times(events, last)
            found.insert(0, events)
    return found


def _address(buffer: bytes | msgspec.Raw) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)
