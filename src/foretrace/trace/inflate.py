"""Files that may be packed with gzip, told by content: their bytes as they are asked for, and how many there are."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Callable
from typing import IO, Any, BinaryIO, cast

from foretrace.knowledge.formats import GZIP_LAYERS, GZIP_MAGIC

__all__ = ["CUT_OFF", "DAMAGED", "inflated_head", "inflated_size", "is_packed", "opened", "unpacked"]

# What can be wrong with a file, as the end of a sentence.
CUT_OFF = "its gzip stream is cut off"
DAMAGED = "its gzip stream is damaged"

# A piece of this many bytes is at most 68 MB once it is inflated.
_PIECE = 1 << 16


def is_packed(file: BinaryIO) -> bool:
    """Whether the file is gzip; it then stands at its beginning."""
    file.seek(0)
    magic = file.read(2)
    file.seek(0)
    return magic == GZIP_MAGIC


def opened(file: IO[bytes]) -> Any:
    """The bytes of an open gzip file, inflated as they are read by the fastest library there is.

    Reading raises ``EOFError`` where the stream is cut off, and one of several errors where it is damaged.
    """
    library: Any
    try:
        from isal import igzip as library
    except ImportError:  # platforms without an isal wheel
        library = gzip
    return library.GzipFile(fileobj=file, mode="rb")


def unpacked(file: BinaryIO, layers: int = GZIP_LAYERS) -> io.BufferedReader:
    """The bytes of an open file, with up to so many layers of gzip taken off; reading raises as that of `opened`."""
    found = file if isinstance(file, io.BufferedReader) else io.BufferedReader(cast(Any, file))
    for _ in range(layers):
        if found.peek(2)[:2] != GZIP_MAGIC:
            break
        found = io.BufferedReader(opened(found))
    return found


def inflated_head(read: Callable[[int], bytes], size: int) -> tuple[bytes, str | None]:
    """The first bytes of what a gzip file holds in all its members, ``size`` at most, and what is wrong with them.

    No more is inflated than is asked for, and damage behind it is not seen. What is wrong is None, ``CUT_OFF`` or
    ``DAMAGED``; what comes before that is given all the same. ``read`` gives up to so many of the file's next bytes.
    """
    head = b""
    inflater = zlib.decompressobj(wbits=31)
    while len(head) < size:
        rest = read(_PIECE)
        if not rest:
            return head, None if inflater.eof else CUT_OFF
        while rest and len(head) < size:
            if inflater.eof:
                if rest[:2] not in (GZIP_MAGIC, GZIP_MAGIC[:1]):  # what stands behind a gzip stream is none
                    return head, None
                inflater = zlib.decompressobj(wbits=31)
            try:
                head += inflater.decompress(rest, size - len(head))
            except zlib.error:
                return head, DAMAGED
            rest = inflater.unused_data.lstrip(b"\0") if inflater.eof else b""
    return head, None


def inflated_size(read: Callable[[int], bytes], limit: int) -> int:
    """Bytes that a gzip file holds in all its members, counted without keeping them.

    What a file's last bytes say is the size modulo 4 GiB, and of its last member only. Counting ends above ``limit``;
    of a stream that is cut off or damaged, what comes before that is counted.

    Args:
        read: gives up to so many of the file's next bytes, none at its end.
        limit: bytes from which on it does not matter how many there are.
    """
    counted = 0
    inflater = _inflater()
    while counted <= limit and (rest := read(_PIECE)):
        while rest:
            if inflater.eof:
                inflater = _inflater()
            try:
                counted += len(inflater.decompress(rest))
            except Exception:  # the libraries raise different errors; what stands behind a gzip stream is none
                return counted
            # Tapes and block devices pad with zeros, which is allowed.
            rest = inflater.unused_data.lstrip(b"\0") if inflater.eof else b""
    return counted


def _inflater() -> Any:
    library: Any
    try:
        from isal import isal_zlib as library
    except ImportError:  # platforms without an isal wheel
        library = zlib
    return library.decompressobj(wbits=31)
