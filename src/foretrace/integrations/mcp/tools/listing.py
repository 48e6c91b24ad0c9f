"""``list_files``: what below the root foretrace can read, told by content."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field

from foretrace.integrations.mcp.answers import Answer, Paged, paged, short
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, piece
from foretrace.knowledge.agents import MOST_FILES_SEEN
from foretrace.report.text import clean
from foretrace.trace.kinds import look

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
_KINDS: dict[str, Kind] = {kind: kind for kind in get_args(Kind)}


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
    """What a file is, by its name and its first bytes; None for what no tool reads."""
    found = look(path).kind
    return None if found is None else _KINDS.get(found)
