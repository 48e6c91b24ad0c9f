"""Raw data becomes a `Snapshot`: every field looked at, older layouts filled in, what does not add up said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from foretrace.errors import TraceReadError
from foretrace.knowledge.snapshots import (
    ADDRESSES,
    BLOCK_STATES,
    ENTRY_TIME,
    LARGEST_BYTES,
    LEGACY_HISTORY,
    LEGACY_REQUESTED,
    SEGMENT_KINDS,
)
from foretrace.memory.reading.annotations import annotations_of
from foretrace.memory.reading.entries import Entries
from foretrace.memory.reading.notes import Notes, is_whole, shown, text_of
from foretrace.memory.reading.pickles import CONSUMED
from foretrace.memory.snapshot import DEFAULT_POOL, NO_STACK, Block, Segment, Snapshot
from foretrace.model.words import count

__all__ = ["build_snapshot"]

_MOST_DEVICES = 1 << 16


def build_snapshot(raw: object, path: str, entries: Entries | None = None, repairs: Iterable[str] = ()) -> Snapshot:
    """The snapshot in ``raw``: what `_dump_snapshot` pickles, or the list that `torch.cuda.memory_snapshot` returns.

    ``entries``: the histories' entries where they were taken away while reading, device after device.

    Raises `TraceReadError` with one sentence where ``raw`` is no snapshot, a field is missing that no version lacks or
    is beyond reason, a segment has no blocks, or blocks overlap. What merely does not add up goes to the snapshot's
    ``doubts``.
    """
    try:
        return _Builder(path, entries or Entries()).build(raw, tuple(repairs))
    except TraceReadError as error:
        raise TraceReadError(f"{path} {error}") from None


class _Builder:
    def __init__(self, path: str, entries: Entries) -> None:
        self.path = path
        self.entries = entries
        self.repairs = Notes()
        self.doubts = Notes()
        # Lists of frames are often shared; those in `raw` live until the end, so that their ids stay theirs.
        self._stacks: dict[int, int] = {}

    def build(self, raw: object, repairs: tuple[str, ...]) -> Snapshot:
        """Everything, in the order in which a reader of sentences wants to hear of it."""
        document = {"segments": raw} if isinstance(raw, list) else raw
        if not isinstance(document, dict) or "segments" not in document:
            raise _bad("holds no memory snapshot: it has no segments")
        rows = document["segments"]
        if not isinstance(rows, list | tuple):
            raise _bad("holds no memory snapshot: its segments are no list")
        segments = [self._segment(row, number) for number, row in enumerate(rows)]
        segments.sort(key=lambda segment: (segment.device, segment.address))
        self._apart(segments)
        lengths = self._traces(document.get("device_traces"))
        self.entries.check(lengths, self.doubts)
        histories = tuple(history for history in self.entries.histories(lengths) if len(history))
        for action in sorted(self.entries.unknown):
            self.doubts.add("{n} unknown {n:action|actions} in the history, read as other", repr(action))
        annotations = annotations_of(document.get("external_annotations"), self.doubts)
        settings = document.get("allocator_settings")
        return Snapshot(
            path=self.path,
            segments=tuple(segments),
            histories=histories,
            stacks=self.entries.stacks,
            settings=_settings(settings),
            annotations=annotations,
            repairs=(*repairs, *self.repairs.sentences(), *self._lacking()),
            doubts=self.doubts.sentences(),
        )

    def _lacking(self) -> list[str]:
        return [
            f"{lack} of {count(len(self.entries), 'entry', 'entries')} of the history record no {field}"
            + ("" if field == ENTRY_TIME else ", read as 0")
            for field, lack in self.entries.lacking.items()
        ]

    def _segment(self, row: object, number: int) -> Segment:
        where = f"segment {number}"
        if not isinstance(row, dict):
            raise _bad(f"is a broken snapshot: {where} is no record of fields; copy or record it again")
        address = self._address(row, "address", where)
        where = f"segment {number} at 0x{address:x}"
        size = self._size(row, "total_size", where)
        if size == 0 or address + size > ADDRESSES:
            raise _bad(
                f"is a broken snapshot: {where} has a total_size of {size} bytes"
                f"{', which reaches past the last address' if size else ''}; record it again"
            )
        kind = row.get("segment_type")
        if kind not in ("small", "large"):
            raise _bad(
                _missing("segment_type", where)
                if kind is None
                else f"is a broken snapshot: the segment_type of {where} is {shown(kind)}, and small and "
                "large are known; record it again"
            )
        blocks = self._blocks(row, address, size, where)
        self._sums(row, blocks, where)
        return Segment(
            device=self._device(row, where),
            address=address,
            size=size,
            stream=self._integer(row, "stream", where, 0),
            small=SEGMENT_KINDS[kind],
            blocks=blocks,
            pool=self._pool(row.get("segment_pool_id"), where),
            expandable=bool(row.get("is_expandable", False)),
            stack=self._stack(row.get("frames")),
        )

    def _blocks(self, row: dict[Any, Any], address: int, size: int, where: str) -> tuple[Block, ...]:
        raw = row.get("blocks")
        if not isinstance(raw, list | tuple):
            raise _bad(_missing("blocks", where))
        blocks, at = [], address
        for number, item in enumerate(raw):
            block = self._block(item, at, number, where)
            at = block.end
            if block.size:
                blocks.append(block)
            else:
                self.repairs.add("{n} {n:block|blocks} of no size {n:was|were} left out", f"block {number} of {where}")
        if not blocks:
            # Free, in use, or cut off: nothing says which it was.
            raise _bad(
                f"is a broken snapshot: {where} holds no blocks, and the allocator has none without; record it again"
            )
        disorder = at = address
        for block in blocks:
            if block.address < disorder:
                self.repairs.add(
                    "the blocks of {n} {n:segment|segments} were not in the order of their addresses", where
                )
                blocks.sort(key=_by_address)
                break
            disorder = block.address
        held = 0
        for block in blocks:
            if block.address != at:
                if block.address < at:
                    raise _bad(
                        f"is a broken snapshot: in {where} the block at 0x{block.address:x} begins "
                        f"{at - block.address} bytes before what lies in front of it ends; record it again"
                    )
                self.doubts.add(
                    "{n} {n:gap|gaps} between blocks of a segment", f"{block.address - at} bytes in {where}"
                )
            at = block.address + block.size
            held += block.size
        if at > address + size:
            raise _bad(
                f"is a broken snapshot: the blocks of {where} reach {at - address - size} bytes past its end; "
                "record it again"
            )
        if held != size:
            self.doubts.add(
                "the blocks of {n} {n:segment do|segments do} not add up to {n:its|their} size",
                f"{held} of {size} bytes, {where}",
            )
        return tuple(blocks)

    def _block(self, raw: object, expected: int, number: int, segment: str) -> Block:
        if not isinstance(raw, dict):
            raise _bad(
                f"is a broken snapshot: block {number} of {segment} is no record of fields; copy or record it again"
            )
        # What is as it should be is most of a million: sentences are made for the rest.
        address, size, requested = raw.get("address"), raw.get("size"), raw.get("requested_size")
        said, frames = raw.get("state"), raw.get("frames")
        if not (
            type(address) is type(size) is type(requested) is int
            and 0 <= address < ADDRESSES
            and 0 < size <= LARGEST_BYTES
            and 0 <= requested <= size
        ):
            where = f"block {number} of {segment}"
            if address is None:
                address = expected
                self.repairs.add(
                    "{n} {n:block records|blocks record} no address, worked out from the sizes before "
                    "{n:it|them}", where,
                )  # fmt: skip
            else:
                address = self._address(raw, "address", where)
            size, requested = self._size(raw, "size", where), self._requested(raw, where)
            if said != "inactive" and requested is not None and requested > size:
                self.doubts.add(
                    "{n} {n:block is|blocks are} smaller than what was requested",
                    f"{requested} in {size} bytes, {where}",
                )
        state = BLOCK_STATES.get(said) if isinstance(said, str) else None
        if state is None:
            where = f"block {number} of {segment}"
            raise _bad(
                _missing("state", where)
                if said is None
                else f"is a broken snapshot: the state of {where} is {shown(said)}, and {', '.join(BLOCK_STATES)} are "
                "known; record it again"
            )
        if frames is None and raw.get(LEGACY_HISTORY):
            frames = _legacy(raw).get("frames")
        return Block(
            address, size, state, None if state == "free" else requested, self._stack(frames) if frames else NO_STACK
        )

    def _requested(self, raw: dict[Any, Any], where: str) -> int | None:
        if raw.get("requested_size") is not None:
            return self._size(raw, "requested_size", where)
        if raw.get(LEGACY_HISTORY):
            entry = _legacy(raw)
            if entry.get(LEGACY_REQUESTED) is not None:
                self.repairs.add(
                    "{n} {n:block says|blocks say} what was requested in {n:its|their} history, as before torch 2.1",
                    where,
                )
                return self._size(entry, LEGACY_REQUESTED, where)
        return None

    def _sums(self, row: dict[Any, Any], blocks: Sequence[Block], where: str) -> None:
        """What the segment says of itself against what its blocks say."""
        active = [block for block in blocks if block.state != "free"]
        sums = {
            "allocated_size": sum(block.size for block in active if block.state == "active"),
            "active_size": sum(block.size for block in active),
        }
        if all(block.requested is not None for block in active):
            sums["requested_size"] = sum(block.requested or 0 for block in active)
        for field, found in sums.items():
            said = row.get(field)
            if said is not None and said != found:
                self.doubts.add(
                    f"the {field} of {{n}} {{n:segment is not that of its|segments is not that of their}} blocks",
                    f"{shown(said)}, not {found}, {where}",
                )

    def _apart(self, segments: Sequence[Segment]) -> None:
        for one, two in pairwise(segments):
            if one.device == two.device and two.address < one.address + one.size:
                raise _bad(
                    f"is a broken snapshot: the segments at 0x{one.address:x} and 0x{two.address:x} of device "
                    f"{one.device} overlap; record it again"
                )

    def _traces(self, raw: object) -> list[int]:
        """How many entries each device has; adds those that were not taken away while reading."""
        if raw is None:
            return []
        if not isinstance(raw, list | tuple) or not all(isinstance(trace, list | tuple) for trace in raw):
            raise _bad("is a broken snapshot: its device_traces are no list of a list a device; record it again")
        for device, trace in enumerate(raw):
            for number, entry in enumerate(trace):
                if entry is CONSUMED:
                    continue
                if not isinstance(entry, dict) or entry.get("action") is None:
                    raise _bad(
                        f"is a broken snapshot: entry {number} of the history of device {device} has no action; copy "
                        "or record it again"
                    )
                self.entries.add(entry)
        return [len(trace) for trace in raw]

    def _stack(self, frames: object) -> int:
        if not frames:
            return NO_STACK
        number = self._stacks.get(id(frames))
        if number is None:
            number = self._stacks[id(frames)] = self.entries.stack(frames)
        return number

    def _pool(self, raw: object, where: str) -> tuple[int, int]:
        if raw is None:
            return DEFAULT_POOL
        if isinstance(raw, list | tuple) and len(raw) == 2 and all(map(is_whole, raw)):
            return (raw[0], raw[1])
        raise _bad(
            f"is a broken snapshot: the segment_pool_id of {where} is {shown(raw)}, not two numbers of 64 "
            "bits; record it again"
        )

    def _device(self, row: dict[Any, Any], where: str) -> int:
        device = self._integer(row, "device", where, 0)
        if not 0 <= device < _MOST_DEVICES:
            raise _bad(f"is a broken snapshot: {where} is of device {device}, which no machine has; record it again")
        return device

    def _integer(self, row: dict[Any, Any], field: str, where: str, missing: int) -> int:
        value = row.get(field)
        if value is None:
            self.repairs.add(f"{{n}} {{n:segment records|segments record}} no {field}, read as {missing}", where)
            return missing
        if not is_whole(value):
            raise _bad(_no_number(field, value, where))
        return value

    def _size(self, row: dict[Any, Any], field: str, where: str) -> int:
        value = row.get(field)
        if value is None:
            raise _bad(_missing(field, where))
        if type(value) is not int:
            raise _bad(_no_number(field, value, where))
        if not 0 <= value <= LARGEST_BYTES:
            raise _bad(f"is a broken snapshot: {where} has a {field} of {shown(value)} bytes; record it again")
        return value

    def _address(self, row: dict[Any, Any], field: str, where: str) -> int:
        value = row.get(field)
        if value is None:
            raise _bad(_missing(field, where))
        if not is_whole(value):
            raise _bad(_no_number(field, value, where))
        return value % ADDRESSES


def _by_address(block: Block) -> int:
    return block.address


def _legacy(block: dict[Any, Any]) -> dict[Any, Any]:
    history = block[LEGACY_HISTORY]
    first = history[0] if isinstance(history, list | tuple) else None
    return first if isinstance(first, dict) else {}


def _settings(raw: object) -> dict[str, object]:
    """The allocator's settings: plain values, and dicts and lists of such."""
    return {text_of(key): _setting(value) for key, value in raw.items()} if isinstance(raw, dict) else {}


def _setting(value: object, *, inner: bool = False) -> object:
    if isinstance(value, dict) and not inner:
        return {text_of(key): _setting(item, inner=True) for key, item in value.items()}
    if isinstance(value, list | tuple) and not inner:
        return [_setting(item, inner=True) for item in value]
    plain = isinstance(value, str | bool | float | None) or is_whole(value)
    return value if plain else shown(value)


def _missing(field: str, where: str) -> str:
    return f"is a broken snapshot: {where} has no {field}, which every version of torch records; record it again"


def _no_number(field: str, value: object, where: str) -> str:
    return (
        f"is a broken snapshot: the {field} of {where} is no number that fits ({type(value).__name__}); record it again"
    )


def _bad(what: str) -> TraceReadError:
    return TraceReadError(what)
