"""What a page about one device's memory draws: the map of its segments, and what each finding rests on there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.memory.evidence import evidence
from foretrace.memory.mapping import MemoryMap, memory_map
from foretrace.model.memory import Memory

__all__ = ["DrawnMemory", "drawn_of_memory"]


@dataclass(eq=False)
class DrawnMemory:
    """A map, and for each finding the rows of the map that it rests on."""

    map: MemoryMap
    evidence: list[NDArray[np.uint32]]


def drawn_of_memory(memory: Memory) -> DrawnMemory | None:
    """The map of a device's memory with its evidence; ``None`` where `memory_map` finds nothing to draw."""
    drawn = memory_map(memory)
    return None if drawn is None else DrawnMemory(drawn, evidence(memory, drawn))
