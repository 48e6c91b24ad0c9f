"""The three standard streams, which may be closed, full, or unable to show every character."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import NoReturn

from foretrace.errors import InputError

__all__ = ["apart", "is_output_failure", "prepare", "say", "silence_output", "standard_input", "to_stdout"]

# What the system says where a stream takes no more: no space (or quota, or size limit) left, a fault of the
# device, a stream that was opened for reading only.
_OUTPUT_FAILURES = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}


class _Closed(io.TextIOBase):
    """Stands where Python has ``None``: standard output was closed by whoever started this process."""

    def write(self, _: str) -> NoReturn:
        raise InputError("standard output is closed; send it to a file or a pipe, or to /dev/null")


def prepare() -> None:
    """Give every command streams it can write to.

    With standard error closed, messages go nowhere: ``print(file=None)`` would put them among the results.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123  (it is used as long as the process lives)
    if sys.stdout is None:
        sys.stdout = _Closed()
    elif isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # what the locale's encoding lacks becomes "?"


def apart(wanted: bool) -> contextlib.AbstractContextManager[object]:
    """What a user's code prints inside goes to standard error where that is ``wanted``.

    Standard output is then for one document, and a line in it would break that.
    """
    return contextlib.redirect_stdout(sys.stderr) if wanted else contextlib.nullcontext()


def say(sentence: str) -> None:
    """Print one sentence on standard error, without what a terminal would obey; a full stream is no reason to fail."""
    from foretrace.report.text import clean

    try:
        print(f"foretrace: {clean(sentence)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _to_nowhere(sys.stderr)


def standard_input() -> io.TextIOBase:
    """Standard input; raises :class:`InputError` when it is closed."""
    if sys.stdin is None:
        raise InputError("standard input is closed; pipe something into it, or name a file")
    return sys.stdin  # type: ignore[return-value]  # typeshed calls it TextIO


def to_stdout(content: bytes) -> None:
    """UTF-8 whatever the locale says; through the text layer where there is no other (tests, notebooks)."""
    sys.stdout.flush()
    buffer = getattr(sys.stdout, "buffer", None)
    encoding = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "")
    if buffer is None:
        sys.stdout.write(content.decode())
    elif encoding == "utf8" or not sys.stdout.isatty():
        buffer.write(content)
    else:
        # A terminal of another encoding: what it cannot show becomes "?".
        buffer.write(content.decode().encode(encoding, "replace"))
    sys.stdout.flush()


def is_output_failure(error: OSError) -> bool:
    """Whether it was most likely standard output that failed: writing to a file names the file."""
    return error.filename is None and error.errno in _OUTPUT_FAILURES


def silence_output() -> None:
    """Send the rest of standard output nowhere; Python would complain again when it flushes at exit."""
    _to_nowhere(sys.stdout)


def _to_nowhere(stream: object) -> None:
    try:
        number = stream.fileno()  # type: ignore[attr-defined]
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, number)
        os.close(nowhere)
    except (OSError, ValueError, AttributeError):  # a stream without a file: a test's, a notebook's
        return
