"""``load``: from a path to a ``Trace``, whatever shape the file is in."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import msgspec

from foretrace.trace.decode import build_trace, decode_fast
from foretrace.trace.encoding import is_utf8
from foretrace.trace.event import RawEvent
from foretrace.trace.refuse import refuse_events
from foretrace.trace.source import read_source
from foretrace.trace.table import Trace

__all__ = ["load", "parse"]


def load(path: str | Path) -> Trace:
    """Read a profiler trace.

    ``path`` is a Kineto JSON file, plain or gzip (told by content, not by name), or ``-`` for standard input.
    Damaged files are read as far as they go and the damage is named in ``Trace.repairs``.

    Raises ``TraceReadError`` with one sentence when nothing can be read: no such file, a directory, empty, binary,
    not JSON, JSON of another tool.
    """
    source = read_source(path)
    return parse(source.text, path=str(path), compressed=source.compressed, repairs=source.repairs)


def parse(text: bytes, *, path: str = "-", compressed: bool = False, repairs: list[str] | None = None) -> Trace:
    """Read the text of a trace; ``path`` names it in messages, ``repairs`` is what it took to get the text.

    Raises ``TraceReadError`` like ``load``.
    """
    # Millions of small records die together a moment later: collecting cycles among them only costs time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        events, meta, bare, mended = _decode(text, path)
        refuse_events(events, meta, text, path)
        format = "kineto array" if bare else "kineto"
        return build_trace(
            events,
            meta,
            path=path,
            format=f"{format}, gzip" if compressed else format,
            repairs=[*(repairs or []), *mended],
            text=None if mended else text,
        )
    finally:
        if enabled:
            gc.enable()


def _decode(text: bytes, path: str) -> tuple[list[RawEvent], dict[str, Any], bool, list[str]]:
    try:
        # The typed decoder does not look into `args`; bytes that are no UTF-8 would surface much later.
        if is_utf8(text):
            return (*decode_fast(text), [])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    from foretrace.trace.repair import decode_damaged

    return decode_damaged(text, path)
