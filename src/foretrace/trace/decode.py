"""Well-formed trace text → events, at the speed of a typed JSON decoder; ``args`` stay raw.

Timestamps are exact: a float64 holds a decimal microsecond count to the nanosecond up to 2**43 µs; above that
(absolute clocks of torch 2.2 and 2.3) the decimal text itself is read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from foretrace.trace.columns import exact_times
from foretrace.trace.event import RawEvent

__all__ = ["decode_fast", "event_decoder", "event_list_decoder"]


event_decoder = msgspec.json.Decoder(RawEvent)
event_list_decoder = msgspec.json.Decoder(list[RawEvent])
_top_level = msgspec.json.Decoder(dict[str, msgspec.Raw])
_anything = msgspec.json.Decoder()


def decode_fast(text: bytes) -> tuple[list[RawEvent], dict[str, Any], bool]:
    """Decode well-formed trace text: (events, other top-level keys, whether it was a bare array).

    Raises ``msgspec.DecodeError`` when the text is not well-formed or not of this shape.
    """
    if text[: 1 << 12].lstrip()[:1] == b"[":
        events = event_list_decoder.decode(text)
        exact_times(events, text)
        return events, {}, True
    keys = _top_level.decode(text)
    listed = keys.pop("traceEvents", msgspec.Raw(b"null"))
    events = event_list_decoder.decode(listed)
    exact_times(events, listed)
    meta: dict[str, Any] = {}
    for key, value in keys.items():
        try:
            meta[key] = _anything.decode(value)
        except msgspec.DecodeError:
            meta[key] = None
    return events, meta, False
