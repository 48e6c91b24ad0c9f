"""Trace files: their names, writing them whole, and looking at what was written.

Nothing is ever lost here: a name foretrace chooses gets the next free number, a name the user chose is
refused before the recording starts when it is taken, and a recording that is empty or incomplete never
replaces a file, not even with ``force``.
"""

from __future__ import annotations

import gzip
import json
import mmap
import os
import re
import secrets
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foretrace.errors import CaptureError, InputError
from foretrace.knowledge.kineto import Call, RowKind, call_kind, row_kind, step_number
from foretrace.model.sidefile import side_path, snapshot_path
from foretrace.model.whole import special_file
from foretrace.trace.writer import refuse_taken

__all__ = ["SUFFIX", "Rows", "count_rows", "free_name", "target", "write_trace"]

SUFFIX = ".trace.json.gz"

_TAIL = 16 * 1024  # holds the longest path a system allows, and the few fields after it

# The start of a complete event as Kineto writes it; works on a file whose other strings are broken, too.
_EVENT = re.compile(rb'"ph":\s*"X",\s*"cat":\s*"([^"]*)",\s*"name":\s*"([^"\\]{0,80})')


@dataclass(frozen=True)
class Rows:
    """What a trace holds, by kind of row; enough to tell an empty trace from a full one."""

    operators: int = 0
    kernels: int = 0
    transfers: int = 0  # memcpy and memset rows
    launches: int = 0  # runtime and driver calls that enqueue kernels or graphs
    steps: int = 0  # ProfilerStep annotations on the host
    bytes: int = 0  # size of the file

    @property
    def empty(self) -> bool:
        """Whether nothing the program did was recorded."""
        return not (self.operators or self.kernels or self.transfers or self.launches)


def target(path: str | os.PathLike[str], *, force: bool = False) -> Path:
    """Turn what the user gave as a path into the file to write; its folder is made.

    ``traces/mlp`` becomes ``traces/mlp.trace.json.gz``, or with the next free number where that exists; ``.json`` and
    ``.gz`` are names to be kept (``.json``: not packed). Raises :class:`InputError` when a file so named exists
    (without ``force``), is a folder, or cannot be created.
    """
    path = Path(path)
    if path.suffix.lower() not in (".json", ".gz"):
        path = path.with_name(path.name + SUFFIX) if path.name else path / f"profile{SUFFIX}"
        path = path if force else free_name(path)
    refuse_taken(path, force=force)
    make_folder(path.parent)
    return path


def make_folder(folder: Path) -> None:
    """Create a folder with its parents; raises :class:`InputError` when that is impossible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create the folder {folder}: {error.strerror or error}") from error
    if not os.access(folder, os.W_OK):
        raise InputError(f"cannot write into the folder {folder}: permission denied")


def free_name(path: Path) -> Path:
    """Return ``path``, or the first of ``x.2.trace.json.gz``, ``x.3.trace.json.gz``, … that is not taken.

    Nor may what lies beside a trace be taken: its side file and its memory snapshot.
    """
    number, candidate = 1, path
    while candidate.exists() or side_path(candidate).exists() or snapshot_path(candidate).exists():
        number += 1
        candidate = _numbered(path, number)
    return candidate


def _numbered(path: Path, number: int) -> Path:
    for suffix in (SUFFIX, ".trace.json", ".json.gz", ".json", ".gz"):
        if path.name.lower().endswith(suffix):
            stem = path.name[: -len(suffix)]
            return path.with_name(f"{stem}.{number}{path.name[-len(suffix) :]}")
    return path.with_name(f"{path.name}.{number}")


def write_trace(export: Callable[[Path], None], path: Path, *, accept: Callable[[Rows], bool]) -> tuple[Path, Rows]:
    """Let ``export`` write plain JSON to a temporary name, look at it, pack it and move it to ``path``.

    ``accept(rows)`` says whether an existing file may be replaced; if not, and for what is no regular file, the next
    free number is used.
    What it raises passes through, and nothing is kept. Returns where the trace lies and what it holds. Raises
    :class:`CaptureError` when no file, or an empty one, was written, and when the disk refuses it.
    """
    make_folder(path.parent)
    plain = path.with_name(f".foretrace-{secrets.token_hex(8)}.json")  # the profiler packs by itself if it sees .gz
    packed = plain.with_suffix(".tmp")
    try:
        try:
            export(plain)
        except (OSError, RuntimeError) as error:
            raise CaptureError(f"the profiler could not export its trace to {path.parent}: {error}") from error
        if not plain.exists() or plain.stat().st_size == 0:
            raise CaptureError(
                f"the profiler reported no error and yet wrote no trace to {path.parent}; "
                "check the free space and the permissions there"
            )
        rows = count_rows(plain)
        replace = accept(rows) and special_file(path) is None
        if path.exists() and not replace:
            path = free_name(path)
        _rename_inside(plain, path.name)
        if path.suffix.lower() == ".gz":
            _pack(plain, packed)
        else:
            plain.replace(packed)
        size = packed.stat().st_size
        # Another process was faster while this one packed.
        if path.exists() and not (replace and special_file(path) is None):
            path = free_name(path)
        packed.replace(path)
    except OSError as error:
        raise CaptureError(f"the trace could not be written to {path}: {error.strerror or error}") from error
    finally:
        # Under this name and longer ones: the profiler has temporary files of its own, which it leaves when it fails.
        for left in path.parent.glob(f"{plain.stem}*"):
            left.unlink(missing_ok=True)
    written = path.stat().st_size
    if written != size:
        raise CaptureError(f"{path} should hold {size} bytes and holds {written}; is the disk full?")
    return path, Rows(**{**rows.__dict__, "bytes": written})


def _rename_inside(plain: Path, name: str) -> None:
    """Put the file's lasting name where the profiler noted the path it wrote to, at the end of the JSON text.

    Without folders: those of this machine are nobody's business. A text without such a note is left alone.
    """
    with plain.open("r+b") as file:
        start = max(0, plain.stat().st_size - _TAIL)
        file.seek(start)
        tail = file.read()
        # The folder's name may be anything; the temporary name is ours, and plain.
        note = re.search(rb'("traceName":\s*)"[^\n]*' + re.escape(os.fsencode(plain.name)) + b'"', tail)
        if note is None:
            return
        shown = json.dumps(os.fsencode(name).decode("utf-8", "replace"), ensure_ascii=False).encode()
        file.seek(start + note.start())
        file.write(note.group(1) + shown + tail[note.end() :])
        file.truncate()


def _pack(source: Path, packed: Path) -> None:
    opener: Any = gzip.open
    try:
        from isal import igzip
    except ImportError:
        pass
    else:
        opener = igzip.open  # several times as fast, files slightly larger
    with source.open("rb") as plain, opener(packed, "wb") as out:
        shutil.copyfileobj(plain, out, 1 << 20)


def count_rows(path: Path) -> Rows:
    """Count the rows of a plain JSON trace by kind, without decoding it: a damaged file counts too."""
    if path.stat().st_size == 0:
        return Rows()
    seen: Counter[tuple[bytes, bytes]] = Counter()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        for category, name in _EVENT.findall(text):
            seen[category, name] += 1
    operators = kernels = transfers = launches = steps = 0
    for (category, name), count in seen.items():
        kind = row_kind(category.decode("utf-8", "replace"))
        if kind is RowKind.OPERATOR:
            operators += count
        elif kind is RowKind.KERNEL:
            kernels += count
        elif kind in (RowKind.MEMCPY, RowKind.MEMSET):
            transfers += count
        elif kind is RowKind.ANNOTATION and step_number(name.decode("utf-8", "replace")) is not None:
            steps += count
        elif kind is RowKind.CALL:
            call = call_kind(name.decode("utf-8", "replace"))
            launches += count if call in (Call.LAUNCH_KERNEL, Call.LAUNCH_GRAPH) else 0
    return Rows(operators, kernels, transfers, launches, steps, path.stat().st_size)
