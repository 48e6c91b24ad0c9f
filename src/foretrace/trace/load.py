"""``load``: from a path to a ``Trace``, whatever shape the file is in."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import msgspec

from foretrace.trace.decode import RawEvent, build_trace, decode_fast
from foretrace.trace.source import read_source
from foretrace.trace.table import Trace

__all__ = ["load"]


def load(path: str | Path) -> Trace:
    """Read a profiler trace.

    ``path`` is a Kineto JSON file, plain or gzip (told by content, not by name), or ``-`` for standard input.
    Damaged files are read as far as they go and the damage is named in ``Trace.repairs``.

    Raises ``TraceReadError`` with one sentence when nothing can be read: no such file, a directory, empty, binary,
    not JSON, JSON of another tool.
    """
    source = read_source(path)
    # Millions of small records die together a moment later: collecting cycles among them only costs time.
    enabled = gc.isenabled()
    gc.disable()
    try:
        events, meta, bare, repairs = _decode(source.text, str(path))
        format = "kineto array" if bare else "kineto"
        return build_trace(
            events,
            meta,
            path=str(path),
            format=f"{format}, gzip" if source.compressed else format,
            repairs=[*source.repairs, *repairs],
            text=source.text,
        )
    finally:
        if enabled:
            gc.enable()


def _decode(text: bytes, path: str) -> tuple[list[RawEvent], dict[str, Any], bool, list[str]]:
    try:
        return (*decode_fast(text), [])
    except (msgspec.DecodeError, UnicodeDecodeError):
        from foretrace.trace.repair import decode_damaged

        return decode_damaged(text, path)
