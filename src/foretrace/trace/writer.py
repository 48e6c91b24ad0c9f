"""A Chrome/Kineto trace on its way out: events and metadata become a file that every viewer reads.

The file is written whole or not at all (a temporary file in the same folder takes the name at the end), and one that
exists is never replaced unless that was asked for.
"""

from __future__ import annotations

import gzip
import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, cast

import msgspec

from foretrace.errors import InputError
from foretrace.model.whole import special_file

__all__ = ["encode_trace", "refuse_taken", "write_bytes", "write_trace"]

# Events are put into words so many at a time, so that a large trace is never in memory as text as well.
_BATCH = 4096
# zlib's own default: smaller files of higher levels are not worth their time.
_LEVEL = 6


def encode_trace(events: Iterable[Any], meta: Mapping[str, Any]) -> bytes:
    """The text of a trace: JSON in UTF-8, ``meta`` as top-level keys, then ``traceEvents``, one event a line.

    Each of ``events`` is a mapping of plain values, a Struct, or a ``msgspec.Raw`` that holds one event as it was
    read. Times are numbers in µs, as the format has them. The same input gives the same bytes.
    """
    return b"".join(_pieces(events, meta))


def write_trace(
    path: str | os.PathLike[str], events: Iterable[Any], meta: Mapping[str, Any], *, force: bool = False
) -> Path:
    """Write a trace to ``path``, packed with gzip where the name ends in ``.gz``; returns the path.

    ``events`` and ``meta`` as for `encode_trace`. Raises `InputError` when the file exists (without ``force``), is a
    folder, a device, a pipe or a socket (with or without it), or cannot be written; what is there is then as it was.
    """
    return write_bytes(path, _pieces(events, meta), force=force)


def write_bytes(path: str | os.PathLike[str], pieces: Iterable[bytes], *, force: bool = False) -> Path:
    """Write ``pieces`` to ``path`` like `write_trace`: whole or not at all, packed by name, refusing to replace.

    The packed file holds no time and no name, so that the same content gives the same bytes.
    """
    path = Path(path)
    refuse_taken(path, force=force)
    temporary = path.with_name(f".foretrace-{secrets.token_hex(8)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("xb") as file:
            if path.suffix.lower() == ".gz":
                with gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=file, mtime=0) as packed:
                    _write_all(cast(IO[bytes], packed), pieces)
            else:
                _write_all(file, pieces)
        _settle(temporary, path, force)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # it was never made, or has its lasting name
            temporary.unlink()
    return path


def refuse_taken(path: Path, *, force: bool) -> None:
    """Raise `InputError` where ``path`` is a folder, a device, a pipe or a socket, or without ``force`` a file."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; give the name of a file in it")
    special = special_file(path)
    if special is not None:
        raise InputError(f"{path} is {special}, no regular file, and is never replaced; give the name of a file")
    # A link that points nowhere is there as well, and would be replaced.
    if not force and (path.exists() or path.is_symlink()):
        raise InputError(f"{path} exists; choose another name, or replace it with --force (in Python force=True)")


def _pieces(events: Iterable[Any], meta: Mapping[str, Any]) -> Iterable[bytes]:
    if "traceEvents" in meta:
        raise ValueError("the events are given apart; meta holds the other top-level keys")
    encode = msgspec.json.Encoder().encode
    head = b"".join(encode(str(key)) + b": " + encode(value) + b",\n" for key, value in meta.items())
    yield b"{\n" + head + b'"traceEvents": [\n'
    batch: list[bytes] = []
    first = True
    for event in events:
        batch.append(encode(event))
        if len(batch) == _BATCH:
            yield (b"" if first else b",\n") + b",\n".join(batch)
            first = False
            batch.clear()
    if batch:
        yield (b"" if first else b",\n") + b",\n".join(batch)
    yield b"\n]}\n"


def _write_all(file: IO[bytes], pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        file.write(piece)


def _settle(temporary: Path, path: Path, force: bool) -> None:
    """Give the finished file its name; without ``force`` in a way that fails if the name was taken meanwhile."""
    if not force:
        # Without hard links in the file system, looking has to do.
        with suppress(OSError):
            os.link(temporary, path)
            return
    refuse_taken(path, force=force)
    temporary.replace(path)
