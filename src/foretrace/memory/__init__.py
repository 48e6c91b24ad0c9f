"""The allocator's memory: snapshots and what torch prints about them, read and explained. Needs no torch.

::

    from foretrace.memory import examine_file, read_snapshot

    memory = examine_file("snapshot.pickle", request_bytes=200 << 20)   # a foretrace.model.memory.Memory: plain data
    memory.fragmentation.hard_bytes, memory.request.succeeds, memory.pinned_by

    snapshot = read_snapshot("snapshot.pickle")   # the segments, blocks and histories themselves
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.memory.examining import examine, examine_file
    from foretrace.memory.oom.explain import explain_text
    from foretrace.memory.reading.files import read_snapshot

__all__ = ["examine", "examine_file", "explain_text", "read_snapshot"]

_HOME = {
    "examine": "foretrace.memory.examining",
    "examine_file": "foretrace.memory.examining",
    "explain_text": "foretrace.memory.oom.explain",
    "read_snapshot": "foretrace.memory.reading.files",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foretrace.memory' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
