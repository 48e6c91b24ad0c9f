"""Bytes of a file or of standard input, decompressed by content."""

from __future__ import annotations

import sys
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from foretrace.errors import TraceReadError

__all__ = ["Source", "read_source"]

_GZIP = b"\x1f\x8b"


@dataclass
class Source:
    """The text of a trace and what had to be done to get it."""

    text: bytes
    compressed: bool
    repairs: list[str] = field(default_factory=list)


def read_source(path: str | Path) -> Source:
    """Read a path or ``-`` (standard input); raises ``TraceReadError`` with one sentence."""
    data = _read_bytes(path)
    if data[:2] != _GZIP:
        return Source(data, compressed=False)
    try:
        from isal import igzip

        return Source(igzip.decompress(data), compressed=True)
    except Exception:
        text = _inflate_what_is_there(data)
        return Source(
            text, True, ["the gzip stream is damaged or cut off; everything before the damage was read"]
        )


def _read_bytes(path: str | Path) -> bytes:
    if str(path) == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(path).read_bytes()
    except FileNotFoundError:
        raise TraceReadError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise TraceReadError(f"{path} is a directory; name one trace file in it") from None
    except OSError as error:
        raise TraceReadError(f"{path} cannot be read: {error.strerror}") from None


def _inflate_what_is_there(data: bytes) -> bytes:
    inflater = zlib.decompressobj(wbits=31)
    parts: list[bytes] = []
    view = memoryview(data)
    for at in range(0, len(data), 1 << 16):
        try:
            parts.append(inflater.decompress(view[at : at + (1 << 16)]))
        except zlib.error:
            break
    return b"".join(parts)
