"""The verdict on a message, held against an allocator snapshot of the same process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.errors import InputError
from foretrace.knowledge import allocator
from foretrace.knowledge.out_of_memory import ACCOUNT_NOISE_BYTES, printed
from foretrace.memory.allocator.sizes import Settings, options_of
from foretrace.memory.oom.messages import Message
from foretrace.memory.oom.verdict import Judgement
from foretrace.model.oom import SnapshotCheck

if TYPE_CHECKING:
    from foretrace.memory.snapshot import Snapshot
    from foretrace.model.memory import Memory

__all__ = ["check", "conf_of", "examined", "fits", "unused"]

_PINS = 3


def examined(snapshot: Snapshot, message: Message, judgement: Judgement) -> Memory | None:
    """What the snapshot says of the message's device; None where it holds nothing of that device."""
    from foretrace.memory.examining import examine

    size, stream = _failed(snapshot, message)
    if size is None and judgement.requested is not None:
        size = judgement.requested.nominal
    try:
        return examine(
            snapshot,
            device=message.device,
            request_bytes=size,
            stream=stream,
            device_free_bytes=message.free.nominal if message.free is not None else None,
            limit_bytes=message.allowed.nominal if message.allowed is not None else None,
        )
    except InputError:
        if message.device is None and snapshot.devices:
            raise
        return None


def _failed(snapshot: Snapshot, message: Message) -> tuple[int | None, int | None]:
    """Size and stream of the request that failed: the last one in the history that the message's size can be of."""
    from foretrace.memory.snapshot import ACTIONS

    history = None if message.device is None else snapshot.history(message.device)
    if history is None or message.asked is None:
        return None, None
    failed = (history.action == ACTIONS.index("oom")).nonzero()[0].tolist()
    settings = Settings.read(snapshot.settings)
    for at in reversed(failed):
        size = int(history.size[at])
        if message.asked.low <= settings.segment_bytes(settings.rounded(size)) <= message.asked.high:
            return size, int(history.stream[at])
    return None, None


def conf_of(memory: Memory) -> dict[str, str]:
    """The allocator's options as the snapshot records them, in the words of its configuration string."""
    settings = memory.source.settings
    conf: dict[str, str] = {}
    for name, value in settings.items():
        if name.endswith(allocator.ALLOC_CONF) and isinstance(value, str):
            conf.update(options_of(value))
    if isinstance(expandable := settings.get("expandable_segments"), bool):
        conf["expandable_segments"] = str(expandable)
    split = settings.get("max_split_size")
    if isinstance(split, int) and split > 0 and "max_split_size_mb" not in conf:
        conf["max_split_size_mb"] = str(split // allocator.MIB)
    return conf


def check(memory: Memory, message: Message, judgement: Judgement) -> tuple[SnapshotCheck, bool]:
    """Whether the snapshot bears the verdict out; also whether its idle memory is other streams' or pools'."""
    moment = fits(memory, message)
    if moment is False:
        return _ignored(memory.source.path, _misfit(memory, message)), False
    said: list[str] = []
    other_pools = False
    agrees: bool | None = None
    kinds = memory.fragmentation
    if moment is None:
        said.append("The message does not say enough to tell whether the snapshot is of the same process and moment.")
    if kinds.hard_bytes is not None and kinds.soft_bytes is not None and kinds.stream_bytes is not None:
        own = kinds.hard_bytes + kinds.soft_bytes
        lacking = judgement.missing.nominal if judgement.missing is not None else None
        said.append(
            f"Cached and free in it: {printed(kinds.hard_bytes)} in holes between live blocks"
            + (f" (the largest {printed(memory.free.largest_hole_bytes)})" if memory.free.largest_hole_bytes else "")
            + f", {printed(kinds.soft_bytes)} in whole segments, "
            + f"{printed(kinds.stream_bytes)} of other streams and pools."
        )
        if memory.request is not None and memory.request.succeeds:
            said.append("The request would succeed in it: it is of a moment before or after the failure.")
        elif lacking is not None and judgement.verdict in ("fragmentation", "graph_pool", "full"):
            other_pools = own < lacking <= own + kinds.stream_bytes
            holed = judgement.verdict == "fragmentation" or judgement.case == "nearly_full"
            agrees = {
                "fragmentation": own >= lacking,
                "graph_pool": own < lacking <= own + kinds.stream_bytes,
                "full": own + kinds.stream_bytes < lacking,
            }["fragmentation" if holed else judgement.verdict]
            said.append(_finding(agrees, other_pools))
    if kinds.pending_bytes:
        said.append(f"{printed(kinds.pending_bytes)} were freed but waited for another stream.")
    if memory.request is not None:
        said.append(memory.request.because)
    return (
        SnapshotCheck(
            path=memory.source.path,
            agrees=agrees,
            because=said,
            pinned_by=[pin.where for pin in memory.pinned_by[:_PINS]],
            where=_where(memory, message),
        ),
        other_pools,
    )


def _finding(agrees: bool, other_pools: bool) -> str:
    if agrees:
        return "That bears the verdict out."
    if other_pools:
        return "What was lacking is idle there, but belongs to other streams or private pools, which never lend it."
    return "That does not fit the verdict: it may be of another moment."


def fits(memory: Memory, message: Message) -> bool | None:
    """Whether the snapshot can be of the message's process and moment; None where nothing is said to compare."""
    pairs = [
        (memory.totals.reserved_bytes, message.reserved, 0),
        # The message adds what is idle in private pools to what is allocated; a snapshot does not.
        (memory.totals.allocated_bytes, message.allocated, message.private.high if message.private else 0),
    ]
    compared = [
        said.low - idle - ACCOUNT_NOISE_BYTES <= size <= said.high + ACCOUNT_NOISE_BYTES
        for size, said, idle in pairs
        if size is not None and said is not None
    ]
    return all(compared) if compared else None


def unused(snapshot: Snapshot, message: Message) -> SnapshotCheck:
    """What is to be said of a snapshot that holds nothing of the message's device."""
    if not snapshot.devices:
        return _ignored(snapshot.path, "The snapshot holds no memory at all.")
    return _ignored(snapshot.path, f"The snapshot holds nothing of device {message.device}.")


def _ignored(path: str, why: str) -> SnapshotCheck:
    said = [why, "Nothing of it is used."]
    return SnapshotCheck(path=path, agrees=None, because=said, pinned_by=[], where=None)


def _misfit(memory: Memory, message: Message) -> str:
    told = []
    for what, size, said in (
        ("reserved", memory.totals.reserved_bytes, message.reserved),
        ("allocated", memory.totals.allocated_bytes, message.allocated),
    ):
        if size is not None and said is not None:
            told.append(f"{printed(size)} {what} in it, {printed(said.nominal)} when the request failed")
    return f"The snapshot is of another process or another moment: {'; '.join(told)}."


def _where(memory: Memory, message: Message) -> str | None:
    """The program's line of the request that failed, if the history has one of this size."""
    if memory.history is None or message.asked is None:
        return None
    settings = Settings.read(memory.source.settings)
    for failed in reversed(memory.history.out_of_memory):
        # Histories have what was asked of the allocator, messages what it asked of the device.
        asked = settings.segment_bytes(settings.rounded(failed.bytes))
        if message.asked.low <= asked <= message.asked.high and failed.stack:
            return failed.stack[0]
    return None
