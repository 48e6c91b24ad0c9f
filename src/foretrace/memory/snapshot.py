"""What an allocator snapshot holds, however it was written: segments cut into blocks, and the history that led there.

A *segment* is memory the allocator got from the device in one piece (`cudaMalloc`, or a run of mapped pages of an
expandable segment); *blocks* are what it cut it into, side by side from the segment's start to its end. Sizes and
addresses are bytes. A stack is a number into `Stacks`, so that a million events share what they have in common.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

__all__ = [
    "ACTIONS",
    "DEFAULT_POOL",
    "NO_STACK",
    "Annotation",
    "Block",
    "Frame",
    "History",
    "Segment",
    "Snapshot",
    "Stacks",
    "State",
]

# active: the program holds it. pending: freed, but another stream may still use it (versions call this
# active_pending_free or active_awaiting_free). free: nobody's.
State = Literal["active", "pending", "free"]
# The pool of ordinary tensors; CUDA graphs and `torch.cuda.MemPool` have others.
DEFAULT_POOL: Final = (0, 0)
NO_STACK: Final = -1

# What the entries of a history do, by their number in `History.action`.
ACTIONS: Final = (
    "alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
    "snapshot", "oom", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Frame:
    """One place in a stack: a function, its file and its line (0: not known)."""

    name: str
    filename: str
    line: int


class Stacks:
    """Every distinct stack once, innermost frame first; a stack's number is its position here."""

    __slots__ = ("_known", "stacks")

    def __init__(self) -> None:
        self.stacks: list[tuple[Frame, ...]] = []
        self._known: dict[tuple[Frame, ...], int] = {}

    def number(self, frames: Iterable[Frame]) -> int:
        """The number of this stack; `NO_STACK` for one without frames."""
        stack = tuple(frames)
        if not stack:
            return NO_STACK
        known = self._known.get(stack)
        if known is None:
            known = self._known[stack] = len(self.stacks)
            self.stacks.append(stack)
        return known

    def frames(self, number: int) -> tuple[Frame, ...]:
        """The frames of a stack, innermost first; none for `NO_STACK`."""
        return () if number == NO_STACK else self.stacks[number]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a segment. ``requested``: what was asked for; None where it was not recorded, or nobody asks."""

    address: int
    size: int
    state: State
    requested: int | None = None
    stack: int = NO_STACK

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.size


@dataclass(frozen=True, slots=True)
class Segment:
    """Memory from the device in one piece, and the blocks it was cut into, by address."""

    device: int
    address: int
    size: int
    stream: int
    small: bool  # of the pool for requests up to 1 MiB
    blocks: tuple[Block, ...]
    pool: tuple[int, int] = DEFAULT_POOL
    expandable: bool = False
    stack: int = NO_STACK

    @property
    def free(self) -> bool:
        """Whether nobody holds any of it, so that the allocator can give it back."""
        return all(block.state == "free" for block in self.blocks)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What the allocator did on one device, oldest first, as columns of equal length.

    ``action``: numbers into `ACTIONS`. ``address``, ``size``: of the block, as it was asked for, or of the segment; of
    an ``oom`` what the device had free, and what was asked for. ``time_us``: since the epoch, 0 where versions before
    2.1 recorded none. ``metadata``: numbers into ``texts``, -1 for none.
    """

    device: int
    action: npt.NDArray[np.uint8]
    address: npt.NDArray[np.uint64]
    size: npt.NDArray[np.int64]
    stream: npt.NDArray[np.int64]
    time_us: npt.NDArray[np.int64]
    stack: npt.NDArray[np.int32]
    metadata: npt.NDArray[np.int32]
    texts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.action)


@dataclass(frozen=True, slots=True)
class Annotation:
    """A named range of time (a profiler annotation, an optimizer step); ``end_us`` None: not over at the snapshot."""

    name: str
    device: int | None
    start_us: int
    end_us: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A snapshot as it was read. ``settings``: the allocator's, as recorded; empty where they were not.

    ``repairs`` says in sentences what was set right while reading (another spelling of a state, a field of an older
    version), ``doubts`` what does not add up and was left as it is.
    """

    path: str
    segments: tuple[Segment, ...]
    histories: Sequence[History] = ()
    stacks: Stacks = field(default_factory=Stacks)
    settings: dict[str, object] = field(default_factory=dict)
    annotations: tuple[Annotation, ...] = ()
    repairs: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def devices(self) -> tuple[int, ...]:
        """The devices of which anything is recorded, by number."""
        return tuple(sorted({s.device for s in self.segments} | {h.device for h in self.histories if len(h)}))

    def history(self, device: int) -> History | None:
        """The history of a device; None where nothing was recorded."""
        return next((history for history in self.histories if history.device == device and len(history)), None)
