"""What the simulated allocator does, entry by entry, as the history of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foretrace.memory.snapshot import ACTIONS, History

__all__ = ["Event", "history_of"]


class Event(NamedTuple):
    """One entry of a history; its fields are columns of `History`."""

    action: str
    address: int
    size: int
    stream: int
    time_us: int
    stack: int


def history_of(events: Sequence[Event], device: int) -> History:
    """The history of one device that these entries make, oldest first."""
    return History(
        device=device,
        action=np.array([ACTIONS.index(event.action) for event in events], dtype=np.uint8),
        address=np.array([event.address for event in events], dtype=np.uint64),
        size=np.array([event.size for event in events], dtype=np.int64),
        stream=np.array([event.stream for event in events], dtype=np.int64),
        time_us=np.array([event.time_us for event in events], dtype=np.int64),
        stack=np.array([event.stack for event in events], dtype=np.int32),
        metadata=np.full(len(events), -1, dtype=np.int32),
    )
