"""Bytes of a file or of standard input, decompressed by content."""

from __future__ import annotations

import stat
import sys
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from foretrace.errors import TraceReadError
from foretrace.knowledge.formats import GZIP_LAYERS, GZIP_MAGIC
from foretrace.trace.refuse import directory_error, refuse_binary, refuse_text

__all__ = ["Source", "read_source"]

_BLANK = b"\0 \t\r\n"
# A trace opens its JSON within this many bytes, whatever stands in front of it.
_HEAD = 1 << 20


@dataclass
class Source:
    """The text of a trace and what had to be done to get it."""

    text: bytes
    compressed: bool
    repairs: list[str] = field(default_factory=list)


def read_source(path: str | Path) -> Source:
    """Read a path or ``-`` (standard input).

    gzip is told by content: a wrong name, several members, several layers, a cut or padded stream are all read.
    Raises ``TraceReadError`` with one sentence for what is missing, empty, unreadable or binary.
    """
    name = str(path)
    text = _read_bytes(path)
    if not text:
        raise TraceReadError(f"{name} is empty; the recording was never written or the copy failed")
    repairs: list[str] = []
    layers = 0
    while text[:2] == GZIP_MAGIC and layers < GZIP_LAYERS:
        _refuse_bomb(text, name)
        text = _gunzip(text, repairs)
        layers += 1
    if layers > 1:
        repairs.append(f"the file was compressed {layers} times over")
    if not text[:4096].strip(_BLANK) and not text.strip(_BLANK):
        what = "holds a gzip stream without content" if layers else "holds nothing but white space or zero bytes"
        raise TraceReadError(f"{name} {what}; the recording was never written or the copy failed")
    refuse_binary(text[: 1 << 16], name)
    return Source(text, layers > 0, repairs)


def _read_bytes(path: str | Path) -> bytes:
    name = str(path)
    try:
        if name != "-" and stat.S_ISCHR(Path(path).stat().st_mode):
            raise TraceReadError(f"{name} is a device, which may never end; name a file, or - for standard input")
        return sys.stdin.buffer.read() if name == "-" else Path(path).read_bytes()
    except FileNotFoundError:
        raise TraceReadError(f"{name}: no such file; check the path") from None
    except IsADirectoryError:
        raise directory_error(name) from None
    except PermissionError:
        if Path(path).is_dir():  # what Windows says about a directory
            raise directory_error(name) from None
        raise TraceReadError(f"{name} may not be read by this user; check its permissions") from None
    except OSError as error:
        raise TraceReadError(f"{name} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise TraceReadError(f"{name!r} is no valid file name") from None


def _gunzip(data: bytes, repairs: list[str]) -> bytes:
    """All members of a gzip file; falls back to what can be inflated and says so."""
    inflate: Callable[[bytes], bytes]
    try:
        from isal.igzip import decompress as inflate
    except ImportError:  # platforms without an isal wheel
        from gzip import decompress as inflate
    try:
        return inflate(data)
    except Exception:  # the libraries raise different errors for the same damage
        return _inflate_what_is_there(data, repairs)


def _refuse_bomb(data: bytes, name: str) -> None:
    """Raise where the first megabyte that inflates cannot begin a trace: the rest may be a thousand times larger."""
    head = b""
    rest = data
    while rest[:2] == GZIP_MAGIC and len(head) < _HEAD:
        inflater = zlib.decompressobj(wbits=31)
        try:
            head += inflater.decompress(rest, _HEAD - len(head))
        except zlib.error:
            return  # what can be saved of it is found out later
        if not inflater.eof:
            break
        rest = inflater.unused_data
    if len(head) < _HEAD or head[:2] == GZIP_MAGIC or b"{" in head or b"[" in head:
        return
    if not head.strip(_BLANK):
        what = "inflates to white space or zero bytes"
        raise TraceReadError(f"{name} {what}; the recording was never written or the copy failed")
    refuse_binary(head[: 1 << 16], name)
    raise refuse_text(head, name)


def _inflate_what_is_there(data: bytes, repairs: list[str]) -> bytes:
    parts: list[bytes] = []
    rest = memoryview(data)
    while rest[:2] == GZIP_MAGIC:
        used, state = _inflate_member(rest, parts)
        if state != "whole":
            repairs.append(f"the gzip stream is {state}; everything before that point was read")
            return b"".join(parts)
        rest = rest[used:]
        while rest and rest[0] == 0:  # tapes and block devices pad with zeros, which is allowed
            rest = rest[1:]
    if rest:
        repairs.append(f"{len(rest)} bytes after the end of the gzip stream were ignored")
    return b"".join(parts)


def _inflate_member(data: memoryview, parts: list[bytes]) -> tuple[int, str]:
    """Append what inflates of one member; how many bytes it took and ``whole``, ``cut off`` or ``damaged``.

    A damaged piece is read again in ever smaller ones, so that nothing in front of the damage is lost.
    """
    inflater = zlib.decompressobj(wbits=31)
    at, size = 0, 1 << 16
    while at < len(data):
        before = inflater.copy()
        piece = data[at : at + size]
        try:
            parts.append(inflater.decompress(piece))
        except zlib.error:
            if size == 1:
                return at, "damaged"
            inflater, size = before, size // 16
            continue
        if inflater.eof:
            return at + len(piece) - len(inflater.unused_data), "whole"
        at += size
    return at, "cut off"
