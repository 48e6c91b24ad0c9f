"""Saying no: what a file that cannot be read is, in one sentence with what to do instead."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from foretrace.errors import TraceReadError
from foretrace.knowledge import formats
from foretrace.knowledge.formats import Foreign
from foretrace.knowledge.kineto import RowKind, row_kind
from foretrace.trace.encoding import wide_encoding

if TYPE_CHECKING:
    from foretrace.trace.event import RawEvent

__all__ = ["directory_error", "refuse_binary", "refuse_events", "refuse_json", "refuse_text"]


def directory_error(path: str) -> TraceReadError:
    """The error for a directory, with how many trace files lie in it."""
    try:
        with os.scandir(path) as entries:
            names = [e.name for e in entries if e.is_file() and e.name.lower().endswith(formats.TRACE_SUFFIXES)]
    except OSError:
        names = []
    if not names:
        return TraceReadError(f"{path} is a directory and holds no trace file; name one trace (JSON, plain or gzip)")
    some = "one trace file" if len(names) == 1 else f"{len(names)} trace files"
    return TraceReadError(f"{path} is a directory with {some}; name one of them, such as {min(names)}")


def refuse_binary(data: bytes, path: str) -> None:
    """Raise if the bytes are no text; ``data`` may be the beginning of the file."""
    foreign = _binary(data, path)
    if foreign:
        raise _no(path, foreign)


def _binary(data: bytes, path: str) -> Foreign | None:
    for offset, magic, foreign in formats.MAGIC:
        if data[offset : offset + len(magic)] == magic:
            return foreign
    if formats.PICKLE.match(data):
        head = data[: 1 << 16]
        return formats.PICKLE_SNAPSHOT if b"segments" in head else formats.PICKLE_OTHER
    if formats.TENSORBOARD_MARK in data[:64]:
        return formats.TENSORBOARD
    if _is_text(data):
        return None
    lower = path.lower()
    for extension, foreign in formats.EXTENSIONS:
        if lower.endswith(extension):
            return foreign
    return formats.PROTOBUF if data[:1] == formats.PROTOBUF_MARK else formats.BINARY


def _is_text(data: bytes) -> bool:
    """Whether the beginning looks like text; damaged text holds some control bytes, a binary is full of them."""
    sample = data[:4096]
    if wide_encoding(sample):
        return True
    stripped = sample.strip(b"\0 \t\r\n\xef\xbb\xbf")
    if stripped[:1] in (b"{", b"[") and b'"' in stripped[:256]:
        return True
    odd = sum(byte < 9 or 13 < byte < 32 or byte == 127 for byte in sample)
    high = sum(byte > 127 for byte in sample)
    try:
        sample[: len(sample) - 3].decode("utf-8")
    except UnicodeDecodeError:
        odd += high
    return odd <= len(sample) // 20


def refuse_text(text: bytes, path: str) -> TraceReadError:
    """The error for text that holds neither JSON nor events."""
    head = text[: 1 << 14].lstrip(b"\xef\xbb\xbf\0 \t\r\n")
    for pattern, foreign in formats.TEXTS:
        if pattern.match(head):
            return _no(path, foreign)
    return TraceReadError(f"{path} is not JSON; name a profiler trace (Kineto JSON, plain or gzip)")


def refuse_json(document: Any, path: str) -> TraceReadError:
    """The error for well-formed JSON that is no trace; ``document`` may hold raw values."""
    if isinstance(document, dict):
        for keys, foreign in formats.JSON_OBJECTS:
            if keys <= document.keys():
                return _no(path, foreign)
        if "traceEvents" in document:
            return TraceReadError(f"{path}: traceEvents is no list of events; export the trace again")
        some = ", ".join(sorted(map(repr, document))[:4])
        held = f"its keys are {some}" if some else "it is an empty object"
        return TraceReadError(f"{path} is JSON but no trace: it has no traceEvents list ({held})")
    if isinstance(document, list):
        first = document[0] if document else None
        if isinstance(first, dict) and first.keys() >= formats.HATCHET_KEYS:
            return _no(path, formats.HATCHET)
        what = "an empty list" if not document else "a list without trace events"
        return TraceReadError(f"{path} is JSON but no trace: it is {what}; name a file with traceEvents")
    return TraceReadError(f"{path} is JSON but no trace: it is a single value; name a file with traceEvents")


def refuse_events(events: list[RawEvent], meta: dict[str, Any], text: bytes, path: str) -> None:
    """Raise if the events are none that PyTorch's profiler writes.

    A recording of the profiler that is merely empty passes: the health checks say so loudly.
    """
    if meta.keys() & formats.KINETO_KEYS or _known(event.cat for event in events):
        return
    if events and any(event.ph for event in events):
        raise _no(path, formats.CHROME)
    try:
        document = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = meta
    for keys, foreign in formats.JSON_OBJECTS:
        if isinstance(document, dict) and keys <= document.keys():
            raise _no(path, foreign)
    if events:
        raise refuse_json(document, path)
    raise TraceReadError(
        f"{path} holds no events: the profiler recorded nothing, or the file was written before it stopped; "
        "record again and let the schedule reach its active steps"
    )


def _known(categories: Iterable[str | None]) -> bool:
    seen: set[str | None] = set()
    for category in categories:
        if category not in seen:
            if row_kind(category) != RowKind.OTHER:
                return True
            seen.add(category)
    return False


def _no(path: str, foreign: Foreign) -> TraceReadError:
    return TraceReadError(f"{path} is {foreign.what}; {foreign.advice}")
