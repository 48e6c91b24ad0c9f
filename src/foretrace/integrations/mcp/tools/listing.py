"""``list_files``: what below the root foretrace can read, told by content."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from foretrace.integrations.mcp.answers import Answer, Paged, paged, short
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, piece
from foretrace.knowledge import formats
from foretrace.knowledge.agents import MOST_FILES_SEEN
from foretrace.knowledge.memory_texts import COUNTED, SUMMARY_HEAD
from foretrace.model import report, sidefile
from foretrace.report.text import clean

__all__ = ["MEMORY_KINDS", "FileRow", "Files", "kind_of", "list_files"]

Kind = Literal[
    "trace",
    "report",
    "snapshot",
    "memory_timeline",
    "memory_summary",
    "memory_counters",
    "side_file",
    "expectations",
]

# Kinds that the tool memory reads.
MEMORY_KINDS = ("snapshot", "memory_timeline", "memory_summary", "memory_counters")
_JSON = (".json", ".json.gz", ".trace", ".trace.gz", ".gz")
_PICKLES = (".pickle", ".pkl", ".pickle.gz", ".pkl.gz")
_TEXTS = (".txt", ".log")
_HEAD_BYTES = 1 << 16


class FileRow(Answer):
    """One file."""

    path: str = Field(description="what the other tools take")
    kind: Kind
    size_bytes: int


class Files(Paged):
    """The files of a folder and the folders below it, by path."""

    folder: str
    files: list[FileRow]
    complete: bool = Field(description="false: the folder holds more entries than were looked at; name a folder in it")


def list_files(
    library: Library,
    folder: Annotated[str, Field(description="A folder below the root; '.' is the root.", max_length=4096)] = ".",
    kind: Annotated[Kind | None, Field(description="Only files of this kind.")] = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> Files:
    """List what of a folder can be read."""
    root = library.root
    start = root.directory(folder)
    found: list[FileRow] = []
    complete = True
    for seen, path in enumerate(_files(start)):
        if seen >= MOST_FILES_SEEN:
            complete = False
            break
        kind_here = kind_of(path)
        if kind_here is None or kind not in (None, kind_here):
            continue
        name = path.relative_to(root.folder).as_posix()
        stamp = root.stamp(name)
        # A name that had to be spelled out could not be given back.
        if name == clean(name) and stamp is not None:
            found.append(FileRow(path=name, kind=kind_here, size_bytes=stamp.size))
    cut = piece(found, lambda _, row: row, limit=limit, offset=offset)
    below = start.relative_to(root.folder).as_posix()
    return Files(folder=short(below, 400), files=cut.rows, complete=complete, **paged(cut))


def _files(start: Path) -> Iterator[Path]:
    """Regular files, folders one after the other; hidden ones and links are left out."""
    for folder, below, names in os.walk(start, followlinks=False):
        below[:] = sorted(name for name in below if not name.startswith("."))
        for name in sorted(names):
            path = Path(folder, name)
            if not name.startswith(".") and path.is_file() and not path.is_symlink():
                yield path


def kind_of(path: Path) -> Kind | None:
    """What a file is, by its name and its first bytes; None for what foretrace does not read."""
    name = path.name.lower()
    if name.endswith(".toml"):
        return "expectations" if b"=" in _head(path) and name != "pyproject.toml" else None
    if name.endswith(_PICKLES):
        return "snapshot" if formats.PICKLE.match(_head(path)) and b"segments" in _head(path) else None
    if name.endswith(_JSON):
        return _kind_of_json(_head(path))
    if name.endswith(_TEXTS):
        return "memory_summary" if SUMMARY_HEAD.search(_head(path).decode("utf-8", "replace")) else None
    return None


def _kind_of_json(head: bytes) -> Kind | None:
    if f'"{report.SCHEMA}"'.encode() in head[:400]:
        return "report"
    if f'"{sidefile.SCHEMA}"'.encode() in head[:4000]:
        return "side_file"
    if head.lstrip().startswith(b"[["):
        return "memory_timeline"
    if f'"{COUNTED}'.encode() in head:
        return "memory_counters"
    if b'"segments"' in head and b'"total_size"' in head:
        return "snapshot"
    keys = (b'"traceEvents"', *(f'"{key}"'.encode() for key in sorted(formats.KINETO_KEYS)))
    if any(key in head for key in keys) or (head.lstrip().startswith(b"[") and b'"ph"' in head):
        return "trace"
    return None


def _head(path: Path) -> bytes:
    """The first bytes of a file, unpacked; empty where it cannot be read."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return b""
    if head.startswith(formats.GZIP_MAGIC):
        try:
            return zlib.decompressobj(wbits=31).decompress(head, _HEAD_BYTES)
        except zlib.error:
            return b""
    return head
