"""The same snapshot at another pickle protocol, for viewers that read only some."""

from __future__ import annotations

import gc
import io
import pickle
from pathlib import Path
from typing import Any, Final

from foretrace.errors import InputError
from foretrace.memory.reading.files import read_plain
from foretrace.memory.reading.pickle_operations import HIGHEST_PROTOCOL
from foretrace.memory.reading.pickles import Progress
from foretrace.trace.writer import refuse_taken, write_bytes

__all__ = ["convert"]

# Since which protocol a type has an operation of its own (pickletools).
_SINCE: Final[dict[type, int]] = {bytes: 3, set: 4, frozenset: 4, bytearray: 5}
_BINARY_SINCE: Final = 2
# Of 4300 decimal digits, sys.int_info.default_max_str_digits.
_MOST_BITS: Final = 14_000


def convert(
    path: str | Path, target: str | Path, *, protocol: int = 4, force: bool = False, progress: Progress | None = None
) -> Path:
    """Write the data of a snapshot to ``target`` as a pickle of ``protocol``; returns the path written.

    Reads what `read_snapshot` reads (JSON too: lists stay lists), and like it runs nothing. The target is packed
    where its name ends in ``.gz``, and written whole or not at all. It holds every object in memory, which takes
    several times the file's size.

    Raises `InputError` for a protocol that is none or cannot say what the file holds, and where ``target``
    exists (without ``force``) or cannot be written; `TraceReadError` where ``path`` is no snapshot.
    """
    if not 0 <= protocol <= HIGHEST_PROTOCOL:
        raise InputError(f"there is no pickle protocol {protocol}; choose 0 to {HIGHEST_PROTOCOL} (viewers read 4)")
    target = Path(target)
    refuse_taken(target, force=force)
    return write_bytes(target, [_dumped(read_plain(path, progress=progress), protocol, str(path))], force=force)


def _dumped(raw: Any, protocol: int, name: str) -> bytes:
    """The pickle; made before a file is, so that what cannot be written leaves none."""
    enabled = gc.isenabled()
    gc.disable()  # it would walk all of the data again and again, and find nothing
    try:
        file = io.BytesIO()
        _Plain(file, protocol, name).dump(raw)
        return file.getvalue()
    except RecursionError:
        raise InputError(
            f"{name} nests its data deeper than a pickle can be written; no snapshot of torch does"
        ) from None
    finally:
        if enabled:
            gc.enable()


class _Plain(pickle.Pickler):
    """A pickler that refuses what a protocol can only say by naming something to call, which foretrace never reads."""

    def __init__(self, file: io.BytesIO, protocol: int, name: str) -> None:
        super().__init__(file, protocol)
        self.protocol = protocol
        self.name = name
        self.refused = {kind: since for kind, since in _SINCE.items() if protocol < since}

    def persistent_id(self, item: Any) -> None:
        """Called with every object before it is written."""
        since = self.refused.get(type(item))
        if since is not None:
            raise InputError(
                f"{self.name} holds a {type(item).__name__}, which protocol {self.protocol} cannot say as data; "
                f"choose protocol {since} or above"
            )
        # Before protocol 2 numbers are written in decimal digits, of which Python reads so many.
        if type(item) is int and self.protocol < _BINARY_SINCE and item.bit_length() > _MOST_BITS:
            raise InputError(
                f"{self.name} holds an int of more than 2**{_MOST_BITS}, which protocol {self.protocol} cannot say; "
                f"choose protocol {_BINARY_SINCE} or above"
            )
