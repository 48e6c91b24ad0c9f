"""What a file is, by its name and its first bytes: a trace, what foretrace wrote, or a record of memory."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from foretrace.knowledge import formats
from foretrace.knowledge.formats import FileKind
from foretrace.knowledge.memory_texts import COUNTED, SUMMARY_HEAD
from foretrace.model import report, sidefile
from foretrace.trace.encoding import wide_encoding
from foretrace.trace.inflate import inflated_head

__all__ = ["Looked", "look", "plain_ending"]

_SEGMENTS = ('"segments"', '"total_size"')


@dataclass(frozen=True)
class Looked:
    """What a file is, None for what foretrace does not know; and why not all of its first bytes could be read."""

    kind: FileKind | None
    wrong: str | None = None


def look(path: Path) -> Looked:
    """Look at a file. Where it is damaged, what can be read of its beginning tells."""
    ending = plain_ending(path.name)
    name = path.name.lower()
    if not (ending in formats.LOOKED_AT or name.endswith(".gz")) or name == formats.PROJECT_FILE:
        return Looked(None)
    head, wrong = _head(path)
    return Looked(_kind(ending, head), wrong)


def plain_ending(name: str) -> str:
    """``json`` of ``x.json`` and of ``x.JSON.gz``; empty where there is none."""
    return name.lower().removesuffix(".gz").rpartition(".")[2] if "." in name.lower().removesuffix(".gz") else ""


def _kind(ending: str, head: bytes) -> FileKind | None:
    if ending in formats.PICKLES:
        return FileKind.SNAPSHOT if formats.PICKLE.match(head) and b"segments" in head else None
    text = _text(head)
    if ending == "toml":
        return FileKind.EXPECTATIONS if "=" in text else None
    if ending in formats.PLAIN_TEXTS:
        if SUMMARY_HEAD.search(text):
            return FileKind.MEMORY_SUMMARY
        return FileKind.TABLE if ending == "txt" and any(mark in text for mark in formats.TABLE_MARKS) else None
    if ending in formats.PAGES:
        return FileKind.PAGE if "foretrace" in text else None
    return _kind_of_json(text)


def _kind_of_json(text: str) -> FileKind | None:
    begun = formats.SCHEMA_FIRST.match(text)
    if begun:
        return _document(begun[1])
    if formats.TRACE_MARK.search(text):
        return FileKind.TRACE
    found = formats.SCHEMA_ANYWHERE.search(text)
    if found:
        return _document(found[1])
    if formats.TIMELINE_BEGIN.match(text):
        return FileKind.MEMORY_TIMELINE
    if f'"{COUNTED}' in text:
        return FileKind.MEMORY_COUNTERS
    if all(mark in text for mark in _SEGMENTS):
        return FileKind.SNAPSHOT
    return FileKind.TRACE if any(f'"{key}"' in text for key in formats.KINETO_KEYS) else None


def _document(schema: str) -> FileKind:
    return {report.SCHEMA: FileKind.REPORT, sidefile.SCHEMA: FileKind.SIDE_FILE}.get(schema, FileKind.DOCUMENT)


def _text(head: bytes) -> str:
    wide = wide_encoding(head)
    return head.decode(wide or "utf-8", "replace").lstrip("\ufeff")


def _head(path: Path) -> tuple[bytes, str | None]:
    """The first bytes of a file, unpacked, and what is wrong with them."""
    try:
        with path.open("rb") as file:
            head = file.read(len(formats.GZIP_MAGIC))
            file.seek(0)
            wrong = None
            if head == formats.GZIP_MAGIC:
                head, wrong = inflated_head(file.read, formats.HEAD_BYTES)
            else:
                head = file.read(formats.HEAD_BYTES)
    except OSError as error:
        return b"", error.strerror or str(error)
    layers = 1
    while head.startswith(formats.GZIP_MAGIC) and layers < formats.GZIP_LAYERS:
        whole = len(head) < formats.HEAD_BYTES
        head, inner = inflated_head(io.BytesIO(head).read, formats.HEAD_BYTES)
        wrong = wrong or (inner if whole else None)  # of what is longer only the beginning was looked at
        layers += 1
    return head, wrong
