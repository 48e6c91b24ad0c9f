"""A trace that is about to be seen elsewhere: opened once, looked at cheaply, read from then on as it was."""

from __future__ import annotations

import os
import shlex
import stat
import threading
from pathlib import Path
from typing import BinaryIO

from foretrace.errors import InputError, TraceReadError
from foretrace.knowledge.formats import DEFLATE_RATIO, GZIP_MAGIC
from foretrace.knowledge.perfetto import ACCELERATOR, UI_TEXT_LIMIT
from foretrace.model.words import bytes_of
from foretrace.trace.inflate import DAMAGED, inflated_head, inflated_size
from foretrace.trace.refuse import directory_error, refuse_binary, refuse_text

__all__ = ["OpenTrace", "refuse_large", "text_size"]

# A trace says what it is within this many bytes; one that does not is read whole before it is served.
_HEAD = 1 << 20
# Counting ends here: whether it is 10 or 1000 times too large does not matter.
_COUNTED = 10


class OpenTrace:
    """A trace file, open for reading from several threads; ``close`` or ``with`` ends it.

    Attributes:
        path: as it was given.
        size: bytes of the file.
        packed: whether it is gzip, told by content.

    Raises `TraceReadError` for what is missing, a folder, not to be read, empty, or no trace.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = _open(self.path)
        self._lock = threading.Lock()
        try:
            self._seen = _look(self._file)
            self.size, _ = self._seen
            self.packed = _check(self._file, self.path)
        except BaseException:
            self._file.close()
            raise

    @property
    def name_bytes(self) -> bytes:
        """The last part of its name; bytes, because a name on disk need not be text."""
        return os.fsencode(self.path.name)

    @property
    def content_type(self) -> str:
        """Its media type. A packed file is that by itself: the UI unpacks it, not the browser."""
        return "application/gzip" if self.packed else "application/json"

    def read(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset`` on; none where the file is shorter now or can no longer be read."""
        with self._lock:
            try:
                self._file.seek(offset)
                return self._file.read(size)
            except OSError:
                return b""

    def changed(self) -> str:
        """What happened to the file since it was opened, as a sentence; empty while it is as it was.

        A file that was replaced or removed is still there for whoever has it open; one that was written to is not.
        """
        try:
            size, _ = now = _look(self._file)
        except OSError as error:
            return f"{self.path} cannot be read any more: {error.strerror or error}"
        if now == self._seen:
            return ""
        how = "" if size == self.size else f" ({self.size} bytes when it was opened, {size} now)"
        return f"{self.path} changed while it was served{how}; wait until it is written, then run this again"

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._file.close()

    def __enter__(self) -> OpenTrace:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _look(file: BinaryIO) -> tuple[int, int]:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def _open(path: Path) -> BinaryIO:
    try:
        # Looked at before it is opened: opening a pipe would wait for somebody to write into it.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise directory_error(str(path))
        if not stat.S_ISREG(mode):
            raise TraceReadError(f"{path} is no regular file; save what it gives to one and name that")
        return path.open("rb", buffering=0)
    except FileNotFoundError:
        raise TraceReadError(f"{path}: no such file; check the path") from None
    except PermissionError:
        raise TraceReadError(f"{path} may not be read by this user; check its permissions") from None
    except OSError as error:
        raise TraceReadError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise TraceReadError(f"{str(path)!r} is no valid file name") from None


def _check(file: BinaryIO, path: Path) -> bool:
    """Whether it is packed; raises `TraceReadError` where it is no trace that a viewer could show."""
    name = str(path)
    head = file.read(_HEAD) or b""
    if not head:
        raise TraceReadError(f"{name} is empty; the recording was never written or the copy failed")
    packed = head[:2] == GZIP_MAGIC
    if packed:
        file.seek(0)
        text, wrong = inflated_head(file.read, _HEAD)
        if wrong == DAMAGED:
            raise TraceReadError(f"{name} is a damaged gzip file; copy it again")
        if text[:2] == GZIP_MAGIC:
            raise TraceReadError(f"{name} was compressed twice, which the Perfetto UI cannot read; gunzip it once")
    else:
        text = head
    refuse_binary(text[: 1 << 16], name)
    start = text.lstrip(b"\xef\xbb\xbf \t\r\n")
    if start and start[:1] not in (b"{", b"["):
        raise refuse_text(text, name)
    # Which of the two it is decides what tells a trace from other JSON.
    if (b'"ph"' if start[:1] == b"[" else b'"traceEvents"') not in start:
        from foretrace.trace.load import load

        load(path)  # raises where it is none
    return packed


def text_size(trace: OpenTrace, *, limit: int = UI_TEXT_LIMIT) -> int | None:
    """Bytes of the text of a trace, unpacked; None where it is packed and cannot reach ``limit``.

    A packed file that may be too large is unpacked to count. Counting stops at ten times the limit. Where the file is
    cut off, what is there is counted.
    """
    if not trace.packed:
        return trace.size
    if trace.size * DEFLATE_RATIO <= limit:
        return None
    offset = 0

    def read(size: int) -> bytes:
        nonlocal offset
        piece = trace.read(offset, size)
        offset += len(piece)
        return piece

    return inflated_size(read, _COUNTED * limit)


def refuse_large(trace: OpenTrace, *, limit: int = UI_TEXT_LIMIT) -> None:
    """Raise `InputError` where the text is larger than the UI can take, with the ways around it."""
    size = text_size(trace, limit=limit)
    if size is None or size <= limit:
        return
    name = shlex.quote(str(trace.path))
    more = "more than " if size > _COUNTED * limit and trace.packed else ""
    raise InputError(
        f"{trace.path} is {more}{bytes_of(size)} of text, more than the Perfetto UI takes in a browser (about "
        f"{bytes_of(limit)}); cut it with `foretrace slim {name} -o SMALLER`, load it with `{ACCELERATOR} {name}` and "
        "open the UI, or try all the same with --force"
    )
