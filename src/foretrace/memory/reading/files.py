"""A file becomes a `Snapshot`, whatever wrote it; a file that is none is told apart in one sentence."""

from __future__ import annotations

import stat
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import msgspec

from foretrace.errors import TraceReadError
from foretrace.knowledge import formats
from foretrace.knowledge.formats import GZIP_MAGIC, Foreign
from foretrace.knowledge.snapshots import (
    CALL_BEGINS,
    CALL_NAMES,
    CALL_OPERATIONS,
    CALLED,
    HOW_TO_RECORD,
    JSON_FOREIGN,
    MAGIC_FOREIGN,
    MOST_UNPACKED_BYTES,
    MOST_UNPACKED_TIMES,
    PICKLE_BEGINS,
    TEXT_FOREIGN,
)
from foretrace.memory.reading.building import build_snapshot
from foretrace.memory.reading.collecting import EntryCollector
from foretrace.memory.reading.entries import Entries
from foretrace.memory.reading.notes import shown
from foretrace.memory.reading.pickles import CONSUMED, PickleError, Progress, TakenAwayError, load_plain
from foretrace.memory.snapshot import Snapshot
from foretrace.trace.collection import without_collection

__all__ = [
    "document_snapshot",
    "file_bytes",
    "is_pickle",
    "parsed_json",
    "read_plain",
    "read_snapshot",
    "snapshot_from",
]

_BLANK = b"\0 \t\r\n\xef\xbb\xbf"
_JSON_SPACE = b"\xef\xbb\xbf \t\r\n"
_PIECE = 1 << 22
_HEAD = 1 << 16


def read_snapshot(path: str | Path, *, progress: Progress | None = None) -> Snapshot:
    """The allocator snapshot in a file, or on standard input for ``-``.

    Reads the pickles of ``torch.cuda.memory._dump_snapshot`` of any protocol and every torch since 2.0, lists of
    ``torch.cuda.memory_snapshot()``, pickled or as JSON, and JSON made of a snapshot; each also packed with gzip, told
    by content. Nothing in the file is run. ``progress`` is called with the bytes read and the bytes in all.

    A history is moved into columns while it is read: the peak of memory stays below four times the file's size.

    Raises `TraceReadError`, one sentence, where the file is missing, broken, hostile, or something else.
    """
    repairs: list[str] = []
    return snapshot_from(file_bytes(path, repairs), str(path), repairs=repairs, progress=progress)


def snapshot_from(
    data: bytes, name: str, *, repairs: list[str] | None = None, progress: Progress | None = None
) -> Snapshot:
    """The snapshot in the bytes of a file called ``name``, unpacked; as `read_snapshot`."""
    repairs = [] if repairs is None else repairs
    with without_collection():
        if not is_pickle(data):
            return document_snapshot(_json(data, name), name, repairs)
        entries = Entries()
        try:
            raw = _load(data, name, EntryCollector(entries), progress)
            if not _all_there(raw, entries):
                raise TakenAwayError
        except TakenAwayError:
            # The file uses an entry twice, or has one where no history is: read as it stands, at its full weight.
            entries = Entries()
            raw = _load(data, name, None, progress)
        del data
        _refuse_other(raw, name)
        return build_snapshot(raw, name, entries, repairs)


def document_snapshot(document: object, name: str, repairs: list[str]) -> Snapshot:
    """The snapshot in what JSON holds; as `read_snapshot`."""
    _refuse_other(document, name)
    return build_snapshot(document, name, repairs=repairs)


def read_plain(path: str | Path, *, progress: Progress | None = None) -> Any:
    """The data in a snapshot file as Python objects, as ``pickle.load`` would give them; raises as `read_snapshot`."""
    name = str(path)
    data = file_bytes(path, [])
    with without_collection():
        raw = _load(data, name, None, progress) if is_pickle(data) else _json(data, name)
    _refuse_other(raw, name)
    return raw


def _load(data: bytes, name: str, collector: EntryCollector | None, progress: Progress | None) -> Any:
    try:
        return load_plain(data, collector=collector, progress=progress)
    except PickleError as error:
        raise TraceReadError(f"{name} {error}") from None
    except TraceReadError as error:
        raise TraceReadError(f"{name} {error}") from None


def _all_there(raw: object, entries: Entries) -> bool:
    """Whether what was taken away is what the histories hold, in their order."""
    traces = raw.get("device_traces") if isinstance(raw, dict) else None
    if not isinstance(traces, list | tuple):
        return len(entries) == 0
    held = sum(trace.count(CONSUMED) for trace in traces if isinstance(trace, list))
    return held == len(entries) == sum(len(trace) for trace in traces if isinstance(trace, list | tuple))


def file_bytes(path: str | Path, repairs: list[str]) -> bytes:
    """The bytes of a file or of standard input (``-``), unpacked; ``repairs`` gains what had to be set right."""
    name = str(path)
    data = _read(path)
    if not data:
        raise TraceReadError(f"{name} is empty; the snapshot was never written or the copy failed")
    if data[:2] == GZIP_MAGIC:
        data = _inflate(data, name, repairs)
    if not data[:4096].strip(_BLANK) and not data.strip(_BLANK):
        raise TraceReadError(f"{name} holds nothing but white space or zero bytes; {HOW_TO_RECORD}")
    for magic, foreign in MAGIC_FOREIGN:
        if data.startswith(magic):
            raise _no(name, foreign)
    return data


def _read(path: str | Path) -> bytes:
    name = str(path)
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        file = Path(path)
        if stat.S_ISCHR(file.stat().st_mode):
            raise TraceReadError(f"{name} is a device, which may never end; name a file, or - for standard input")
        if file.is_dir():
            raise TraceReadError(f"{name} is a directory; {HOW_TO_RECORD}")
        return file.read_bytes()
    except FileNotFoundError:
        raise TraceReadError(f"{name}: no such file; check the path") from None
    except PermissionError:
        raise TraceReadError(f"{name} may not be read by this user; check its permissions") from None
    except OSError as error:
        raise TraceReadError(f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise TraceReadError(f"{name!r} is no valid file name") from None


def _inflate(data: bytes, name: str, repairs: list[str]) -> bytes:
    """All members of a gzip file; its beginning has to be a snapshot's before the rest is unpacked.

    Raises `TraceReadError` where it is damaged, or unpacks to what no snapshot is packed into (`MOST_UNPACKED_TIMES`).
    """
    parts: list[bytes] = []
    size, most = 0, max(MOST_UNPACKED_BYTES, MOST_UNPACKED_TIMES * len(data))
    rest = memoryview(data)
    try:
        while rest[:2] == GZIP_MAGIC:
            inflater = zlib.decompressobj(wbits=31)
            at = 0
            while not inflater.eof and at < len(rest):
                pending: bytes | memoryview = rest[at : at + _PIECE]
                at += len(pending)
                while pending and not inflater.eof:
                    parts.append(inflater.decompress(pending, _PIECE))
                    size += len(parts[-1])
                    if size > most:
                        raise TraceReadError(
                            f"{name} unpacks to more than {MOST_UNPACKED_TIMES} times its size, as no snapshot does; "
                            "if it is one, unpack it with `gzip -dk` and name the result"
                        )
                    pending = inflater.unconsumed_tail
                    if len(parts) == 1:
                        _refuse_head(parts[0], name)
            if not inflater.eof:
                raise TraceReadError(f"{name} is a gzip file that is cut off; copy it again")
            rest = rest[at - len(inflater.unused_data) :]
    except zlib.error:
        raise TraceReadError(f"{name} is a damaged gzip file; copy it again") from None
    if bytes(rest[:_HEAD]).strip(b"\0"):
        repairs.append(f"{len(rest)} bytes after the end of the gzip stream were ignored")
    return b"".join(parts)


def _refuse_head(head: bytes, name: str) -> None:
    if head[:2] == GZIP_MAGIC:
        raise TraceReadError(f"{name} is packed with gzip more than once; unpack it first")
    if head and not is_pickle(head) and head.lstrip(_BLANK)[:1] not in (b"{", b"[", b"<"):
        raise _foreign_text(head, name)


def is_pickle(data: bytes) -> bool:
    """Whether the bytes begin as a pickle of any protocol does, or are an old one that calls something."""
    return PICKLE_BEGINS.match(data) is not None or (CALL_BEGINS.match(data) is not None and _calls(data))


def _calls(data: bytes) -> bool:
    """Whether the bytes are operations of a pickle up to its end, a call among them; nothing of it is run."""
    import pickletools

    found = False
    try:
        for operation, named, _ in pickletools.genops(data[:_HEAD]):
            found |= operation.name in CALL_OPERATIONS
            if operation.name in CALL_NAMES and not CALLED.fullmatch(str(named)):
                return False
    except (ValueError, IndexError, struct.error, OverflowError):
        return False
    return found


def parsed_json(data: bytes) -> Any:
    """What the bytes hold if they are JSON, a list or an object; raises `msgspec.DecodeError` where they are not."""
    text = data.lstrip(_JSON_SPACE)
    if text[:1] not in (b"{", b"["):
        raise msgspec.DecodeError("it begins with neither { nor [")
    try:
        return msgspec.json.decode(text)
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise msgspec.DecodeError(str(error)) from None


def _json(data: bytes, name: str) -> Any:
    text = data[:_HEAD].lstrip(_JSON_SPACE)
    if text[:1] not in (b"{", b"["):
        raise _foreign_text(data.lstrip(_JSON_SPACE), name)
    try:
        return parsed_json(data)
    except msgspec.DecodeError as error:
        raise TraceReadError(f"{name} is broken JSON ({str(error)[:100]}); copy or record it again") from None


def _foreign_text(data: bytes, name: str) -> TraceReadError:
    for mark, foreign in TEXT_FOREIGN:
        if mark in data[:_HEAD] or mark in data[-_HEAD:]:
            return _no(name, foreign)
    for offset, magic, foreign in formats.MAGIC:
        if data[offset : offset + len(magic)] == magic:
            return _no(name, Foreign(foreign.what, HOW_TO_RECORD))
    for pattern, foreign in formats.TEXTS:
        if pattern.match(data[:_HEAD].lstrip(_BLANK)):
            return _no(name, Foreign(foreign.what, HOW_TO_RECORD))
    return TraceReadError(f"{name} is neither a pickle nor JSON; {HOW_TO_RECORD}")


def _refuse_other(document: object, name: str) -> None:
    """Raise where well-formed data is no snapshot."""
    if isinstance(document, dict):
        if "segments" in document:
            return
        for keys, foreign in (*JSON_FOREIGN, *formats.JSON_OBJECTS):
            if keys <= document.keys():
                raise _no(
                    name, Foreign(foreign.what, foreign.advice if (keys, foreign) in JSON_FOREIGN else HOW_TO_RECORD)
                )
        some = ", ".join(sorted(shown(key) for key in list(document)[:4]))
        raise TraceReadError(
            f"{name} is no memory snapshot: it has no segments (but {some or 'nothing'}); {HOW_TO_RECORD}"
        )
    if isinstance(document, list):
        if not document or all(isinstance(row, dict) and "blocks" in row for row in document[:4]):
            return
        if all(isinstance(row, list | tuple) and len(row) == 4 for row in document[:4]):
            raise TraceReadError(f"{name} is a raw memory timeline of torch.profiler, not a snapshot; {HOW_TO_RECORD}")
        raise TraceReadError(f"{name} is no memory snapshot: it holds a list of other things; {HOW_TO_RECORD}")
    raise TraceReadError(
        f"{name} is no memory snapshot: what it holds is of type {type(document).__name__}; {HOW_TO_RECORD}"
    )


def _no(name: str, foreign: Foreign) -> TraceReadError:
    return TraceReadError(f"{name} is {foreign.what}; {foreign.advice}")
