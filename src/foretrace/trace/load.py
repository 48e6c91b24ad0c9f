"""``load``: from a path to a ``Trace``, whatever shape the file is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from foretrace.trace.collection import without_collection
from foretrace.trace.columns import Columns
from foretrace.trace.decode import decode_fast
from foretrace.trace.encoding import is_utf8
from foretrace.trace.event import RawEvent
from foretrace.trace.refuse import refuse_events
from foretrace.trace.source import read_source
from foretrace.trace.stream import stream_events
from foretrace.trace.table import Trace

__all__ = ["load", "parse"]


def load(path: str | Path) -> Trace:
    """Read a profiler trace.

    Large healthy files are read piece by piece (``stream.py``), everything else at once; the result is the same.
    ``path`` is a Kineto JSON file, plain or gzip (told by content, not by name), or ``-`` for standard input.
    Damaged files are read as far as they go and the damage is named in ``Trace.repairs``.

    Raises ``TraceReadError`` with one sentence when nothing can be read: no such file, a directory, empty, binary,
    not JSON, JSON of another tool.
    """
    with without_collection():
        streamed = stream_events(path)
        if streamed:
            columns, meta, bare, compressed = streamed
            return columns.trace(meta, path=str(path), format=_format(bare, compressed), repairs=[])
    source = read_source(path)
    return parse(source.text, path=str(path), compressed=source.compressed, repairs=source.repairs)


def parse(text: bytes, *, path: str = "-", compressed: bool = False, repairs: list[str] | None = None) -> Trace:
    """Read the text of a trace; ``path`` names it in messages, ``repairs`` is what it took to get the text.

    Raises ``TraceReadError`` like ``load``.
    """
    with without_collection():
        events, meta, bare, mended = _decode(text, path)
        refuse_events(events, meta, text, path)
        columns = Columns()
        columns.add(events)
        events.clear()  # millions of records; what follows needs the memory
        return columns.trace(meta, path=path, format=_format(bare, compressed), repairs=[*(repairs or []), *mended])


def _format(bare: bool, compressed: bool) -> str:
    return ("kineto array" if bare else "kineto") + (", gzip" if compressed else "")


def _decode(text: bytes, path: str) -> tuple[list[RawEvent], dict[str, Any], bool, list[str]]:
    try:
        # The typed decoder does not look into `args`; bytes that are no UTF-8 would surface much later.
        if is_utf8(text):
            return decode_fast(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    from foretrace.trace.repair import decode_damaged

    return decode_damaged(text, path)
