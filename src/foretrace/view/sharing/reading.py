"""The text of a file piece by piece: inflated by content, whatever its encoding, and written back packed alike."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from foretrace.trace import inflate
from foretrace.trace.encoding import wide_encoding
from foretrace.trace.inflate import CUT_OFF, DAMAGED, unpacked

__all__ = ["UnreadableError", "is_packed", "opened_text", "writing_text"]

# What is no UTF-8 goes through as it is, byte for byte.
_ERRORS = "surrogateescape"


class UnreadableError(Exception):
    """Why a file's text cannot be had, as the end of a sentence."""


def is_packed(path: Path) -> bool:
    """Whether the file is gzip by content."""
    with path.open("rb") as file:
        return inflate.is_packed(file)


@contextmanager
def opened_text(path: Path) -> Iterator[TextIO]:
    """The file's text, read as it is asked for. Raises `UnreadableError`, also while it is read."""
    try:
        with ExitStack() as stack:
            file = stack.enter_context(unpacked(stack.enter_context(path.open("rb"))))
            head = file.peek(64)[:64]
            wide = wide_encoding(head)
            if head.startswith(codecs.BOM_UTF8):
                file.read(len(codecs.BOM_UTF8))
            encoding, errors = (wide, "replace") if wide else ("utf-8", _ERRORS)
            # newline="": line ends stay as they are.
            text = io.TextIOWrapper(file, encoding=encoding, errors=errors, newline="")
            yield text
            text.detach()
    except EOFError:
        raise UnreadableError(CUT_OFF) from None
    except (zlib.error, gzip.BadGzipFile):
        raise UnreadableError(DAMAGED) from None
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
