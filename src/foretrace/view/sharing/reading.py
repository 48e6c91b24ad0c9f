"""The text of a file piece by piece: inflated by content, whatever its encoding, and written back packed alike."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, TextIO, cast

from foretrace.knowledge.formats import GZIP_MAGIC
from foretrace.trace.encoding import wide_encoding

__all__ = ["UnreadableError", "is_packed", "opened_text", "writing_text"]

# As many layers of gzip as the reader of traces takes off.
_LAYERS = 4
# What is no UTF-8 goes through as it is, byte for byte.
_ERRORS = "surrogateescape"


class UnreadableError(Exception):
    """Why a file's text cannot be had, as the end of a sentence."""


def is_packed(path: Path) -> bool:
    """Whether the file is gzip by content."""
    with path.open("rb") as file:
        return file.read(2) == GZIP_MAGIC


@contextmanager
def opened_text(path: Path) -> Iterator[TextIO]:
    """The file's text, read as it is asked for. Raises `UnreadableError`, also while it is read."""
    try:
        with ExitStack() as stack:
            file: IO[bytes] = stack.enter_context(path.open("rb"))
            for _ in range(_LAYERS):
                if not _starts_with_gzip(file):
                    break
                file = stack.enter_context(io.BufferedReader(cast(Any, _inflating(file))))
            head = cast(Any, file).peek(64)[:64]
            wide = wide_encoding(head)
            if head.startswith(codecs.BOM_UTF8):
                file.read(len(codecs.BOM_UTF8))
            encoding, errors = (wide, "replace") if wide else ("utf-8", _ERRORS)
            # newline="": line ends stay as they are.
            text = io.TextIOWrapper(cast(Any, file), encoding=encoding, errors=errors, newline="")
            yield text
            text.detach()
    except EOFError:
        raise UnreadableError("its gzip stream is cut off") from None
    except (zlib.error, gzip.BadGzipFile):
        raise UnreadableError("its gzip stream is damaged") from None
    except OSError as error:
        raise UnreadableError(error.strerror or str(error)) from None


@contextmanager
def writing_text(path: Path, *, packed: bool) -> Iterator[TextIO]:
    """A new file for the text, packed or not; the same text gives the same bytes (no time, no name in it)."""
    with ExitStack() as stack:
        file: Any = stack.enter_context(path.open("xb"))
        if packed:
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0))
        text = io.TextIOWrapper(file, encoding="utf-8", errors=_ERRORS, newline="")
        yield text
        text.flush()
        text.detach()


def _starts_with_gzip(file: IO[bytes]) -> bool:
    return bytes(cast(Any, file).peek(2)[:2]) == GZIP_MAGIC


def _inflating(file: IO[bytes]) -> Any:
    library: Any
    try:
        from isal import igzip as library
    except ImportError:  # platforms without an isal wheel
        library = gzip
    return library.GzipFile(fileobj=file)
