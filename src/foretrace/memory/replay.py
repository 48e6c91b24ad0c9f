"""The allocator's history replayed: every allocation with its beginning and its end, and what was held in between.

An allocation is held from its ``alloc`` entry to its ``free_completed``: between the request to free and its
completion another stream may still use it. Sizes are those the program asked for, as the history records them.

The history may begin long after the program did. It is therefore held against the final state: memory that is freed
without an ``alloc`` entry, and live blocks that no entry speaks of, were there before the first entry. So what was
held at any moment within the history is exact, provided nothing was left out in its midst.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from foretrace.errors import InputError
from foretrace.knowledge.memory_texts import HISTORY_TOO_LARGE, MOST_BYTES
from foretrace.memory.snapshot import ACTIONS, NO_STACK, Block, History

__all__ = ["NUMBER", "Ints", "Replay", "entries_of", "replay"]

Ints = npt.NDArray[np.int64]

# The number of an action in `History.action`.
NUMBER: Final = {action: number for number, action in enumerate(ACTIONS)}


@dataclass(frozen=True, slots=True, eq=False)
class Replay:
    """Every allocation a history knows of, as columns, and what was held after each entry.

    ``began``: the entry of its ``alloc``, -1 where it was there before the first. ``ended``: the entry that gave it
    back, `len(history)` where it was held at the end. ``held``: bytes before the first entry, then after each.
    ``lost``: entries that contradict the one before them (an address given out twice, freed twice): what lay between
    was not recorded, and an address given out again is taken as held until then. ``later``: blocks whose last entry
    contradicts the final state, as they were given out or freed after the history ended. ``live_with_stack``: live
    blocks whose stack is known, from the final state or from their entry.
    """

    began: Ints
    ended: Ints
    size: Ints
    stack: Ints
    held: Ints
    lost: int
    later: int
    live_with_stack: int

    def alive(self, place: int) -> npt.NDArray[np.bool_]:
        """Which allocations were held at a place of ``held``."""
        return (self.began < place) & (self.ended >= place)


def entries_of(history: History, *actions: str) -> npt.NDArray[np.bool_]:
    """Which entries are one of these actions."""
    return np.isin(history.action, [NUMBER[action] for action in actions])


def replay(history: History, live: Sequence[Block], path: str) -> Replay:
    """The history as allocations with a beginning and an end; ``live``: the blocks held in the final state;
    ``path``: whose it is, for the error.

    A live block that no entry speaks of was there before the history and counts with what was asked for, or with its
    size where that is not recorded. Raises `InputError` where sizes are negative or add up beyond reason.
    """
    length = len(history)
    frees = "free_completed"
    if not entries_of(history, frees).any():
        frees = "free_requested"  # `skip_actions` can leave either out
    entries = np.flatnonzero(entries_of(history, "alloc", frees))
    # By address, and within it in order: each alloc is followed by its free.
    entries = entries[np.argsort(history.address[entries], kind="stable")]
    address, size = history.address[entries], history.size[entries]
    given = history.action[entries] == NUMBER["alloc"]
    same = address[1:] == address[:-1]
    goes_on = np.append(same, False)
    first = np.insert(~same, 0, True) if len(entries) else goes_on[:0]
    ends = np.full(len(entries), length, dtype=np.int64)
    ends[:-1][same] = entries[1:][same]
    before = first & ~given
    lost = int((same & (given[1:] == given[:-1])).sum())

    blocks = np.array([block.address for block in live], dtype=np.uint64)
    asked = np.array([block.size if block.requested is None else block.requested for block in live], dtype=np.int64)
    stacks = np.array([block.stack for block in live], dtype=np.int64)
    last = np.searchsorted(address, blocks, side="right") - 1
    known = last >= 0
    known[known] = address[last[known]] == blocks[known]
    held = known.copy()
    held[known] = given[last[known]]

    stack = history.stack[entries].astype(np.int64)
    # Some versions record the stack with the block only.
    bare = held.copy()
    bare[held] = stack[last[held]] == NO_STACK
    named = int((held & ~bare & (stacks == NO_STACK)).sum())
    stack[last[bare]] = stacks[bare]

    old = ~known
    began = np.concatenate([entries[given], np.full(int(before.sum()) + int(old.sum()), -1)]).astype(np.int64)
    ended = np.concatenate([ends[given], entries[before], np.full(int(old.sum()), length)]).astype(np.int64)
    sizes = np.concatenate([size[given], size[before], asked[old]]).astype(np.int64)
    # Where it was freed is not where it came from.
    origin = np.concatenate([stack[given], np.full(int(before.sum()), NO_STACK), stacks[old]]).astype(np.int64)
    if len(sizes) and (sizes.min() < 0 or sizes.sum(dtype=np.float64) > MOST_BYTES):
        raise InputError(HISTORY_TOO_LARGE.format(path=path))
    change = np.zeros(length + 2, dtype=np.int64)
    np.add.at(change, began + 1, sizes)
    np.subtract.at(change, ended + 1, sizes)
    return Replay(
        began=began,
        ended=ended,
        size=sizes,
        stack=origin,
        held=np.cumsum(change)[:-1],
        lost=lost,
        later=int((known & ~held).sum()) + int((given & ~goes_on).sum()) - int(held.sum()),
        live_with_stack=int((stacks != NO_STACK).sum()) + named,
    )
