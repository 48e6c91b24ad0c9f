"""The same snapshot at another pickle protocol, for viewers that read only some."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foretrace.errors import InputError
from foretrace.memory.reading.files import read_plain
from foretrace.memory.reading.pickle_operations import HIGHEST_PROTOCOL
from foretrace.memory.reading.pickles import Progress
from foretrace.trace.writer import refuse_taken, write_bytes

__all__ = ["convert"]


def convert(
    path: str | Path, target: str | Path, *, protocol: int = 4, force: bool = False, progress: Progress | None = None
) -> Path:
    """Write the data of a snapshot to ``target`` as a pickle of ``protocol``; returns the path written.

    Reads what `read_snapshot` reads (JSON too: lists stay lists), and like it runs nothing. The target is packed
    where its name ends in ``.gz``, and written whole or not at all. It holds every object in memory, which takes
    several times the file's size.

    Raises `InputError` for a protocol that is none, and where ``target`` exists (without ``force``) or cannot be
    written; `TraceReadError` where ``path`` is no snapshot.
    """
    if not 0 <= protocol <= HIGHEST_PROTOCOL:
        raise InputError(f"there is no pickle protocol {protocol}; choose 0 to {HIGHEST_PROTOCOL} (viewers read 4)")
    target = Path(target)
    refuse_taken(target, force=force)
    return write_bytes(target, _pieces(read_plain(path, progress=progress), protocol), force=force)


def _pieces(raw: Any, protocol: int) -> Iterator[bytes]:
    enabled = gc.isenabled()
    gc.disable()  # it would walk all of the data again and again, and find nothing
    try:
        yield pickle.dumps(raw, protocol)
    finally:
        if enabled:
            gc.enable()
