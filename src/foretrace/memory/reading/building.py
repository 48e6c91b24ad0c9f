"""Raw data becomes a `Snapshot`: every field looked at, older layouts filled in, what does not add up said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from foretrace.errors import TraceReadError
from foretrace.knowledge.snapshots import (
    BLOCK_STATES,
    LEGACY_HISTORY,
    LEGACY_REQUESTED,
    SEGMENT_KINDS,
    STAGE_END,
    STAGE_START,
)
from foretrace.memory.reading.entries import Entries
from foretrace.memory.reading.pickles import CONSUMED
from foretrace.memory.snapshot import DEFAULT_POOL, NO_STACK, Annotation, Block, Segment, Snapshot

__all__ = ["build_snapshot", "shown"]

_ADDRESSES = 1 << 64
# No GPU has a pebibyte; a larger size is damage.
_LARGEST = 1 << 50


class _Notes:
    """Sentences about many things of one kind: how many there are, and the first of them."""

    def __init__(self) -> None:
        self._seen: dict[str, list[Any]] = {}

    def add(self, sentence: str, first: str) -> None:
        """``sentence``: with ``{n}`` for how many."""
        self._seen.setdefault(sentence, [0, first])[0] += 1

    def sentences(self) -> tuple[str, ...]:
        """One for each kind."""
        return tuple(f"{text.format(n=count)} (first: {first})" for text, (count, first) in self._seen.items())


def build_snapshot(raw: object, path: str, entries: Entries | None = None, repairs: Iterable[str] = ()) -> Snapshot:
    """The snapshot in ``raw``: what `_dump_snapshot` pickles, or the list that `torch.cuda.memory_snapshot` returns.

    ``entries``: the histories' entries where they were taken away while reading, device after device.

    Raises `TraceReadError` with one sentence where ``raw`` is no snapshot, a field is missing that no version lacks,
    or blocks overlap. What merely does not add up goes to the snapshot's ``doubts``.
    """
    try:
        return _Builder(path, entries or Entries()).build(raw, tuple(repairs))
    except TraceReadError as error:
        text = str(error)
        raise TraceReadError(text if text.startswith(path) else f"{path} {text}") from None


class _Builder:
    def __init__(self, path: str, entries: Entries) -> None:
        self.path = path
        self.entries = entries
        self.repairs = _Notes()
        self.doubts = _Notes()
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
        histories = tuple(history for history in self.entries.histories(lengths) if len(history))
        for action in sorted(self.entries.unknown):
            self.doubts.add("{n} unknown action in the history, read as other", repr(action))
        smallest = min(self.entries.columns["size"], default=0)
        if smallest < 0:
            self.doubts.add("the history holds negative sizes", str(smallest))
        annotations = self._annotations(document.get("external_annotations"))
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
            f"{count} of {len(self.entries)} entries of the history record no {field}, read as 0"
            for field, count in self.entries.lacking.items()
        ]

    def _segment(self, row: object, number: int) -> Segment:
        where = f"segment {number}"
        if not isinstance(row, dict):
            raise _bad(f"is a broken snapshot: {where} is no record of fields; copy or record it again")
        address = self._address(row, "address", where)
        where = f"segment {number} at 0x{address:x}"
        size = self._size(row, "total_size", where)
        kind = row.get("segment_type")
        if kind not in ("small", "large"):
            raise _bad(
                _missing("segment_type", where)
                if kind is None
                else f"has a segment_type of {shown(kind)} in {where}; small and large are known"
            )
        blocks = self._blocks(row, address, size, where)
        self._sums(row, blocks, where)
        return Segment(
            device=self._integer(row, "device", where, 0),
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
            block = self._block(item, at, f"block {number} of {where}")
            at = block.end
            blocks.append(block)
        if any(one.address > two.address for one, two in pairwise(blocks)):
            self.repairs.add("the blocks of {n} segments were not in the order of their addresses", where)
            blocks.sort(key=lambda block: block.address)
        at = address
        for block in blocks:
            if block.address < at:
                raise _bad(
                    f"is a broken snapshot: in {where} the block at 0x{block.address:x} begins "
                    f"{at - block.address} bytes before what lies in front of it ends; record it again"
                )
            if block.address > at:
                self.doubts.add("{n} gaps between blocks of a segment", f"{block.address - at} bytes in {where}")
            at = block.end
        if at > address + size:
            raise _bad(
                f"is a broken snapshot: the blocks of {where} reach {at - address - size} bytes past its end; "
                "record it again"
            )
        held = sum(block.size for block in blocks)
        if held != size:
            self.doubts.add("the blocks of {n} segments do not add up to its size", f"{held} of {size} bytes, {where}")
        return tuple(blocks)

    def _block(self, raw: object, expected: int, where: str) -> Block:
        if not isinstance(raw, dict):
            raise _bad(f"is a broken snapshot: {where} is no record of fields; copy or record it again")
        if raw.get("address") is None:
            address = expected
            self.repairs.add("{n} blocks record no address, worked out from the sizes before them", where)
        else:
            address = self._address(raw, "address", where)
        size = self._size(raw, "size", where)
        said = raw.get("state")
        state = BLOCK_STATES.get(said) if isinstance(said, str) else None
        if state is None:
            raise _bad(
                _missing("state", where)
                if said is None
                else f"has the state {shown(said)} in {where}, and {', '.join(BLOCK_STATES)} are known"
            )
        requested, frames = self._requested(raw, where), raw.get("frames")
        if frames is None and raw.get(LEGACY_HISTORY):
            frames = _legacy(raw).get("frames")
        if size == 0:
            self.doubts.add("{n} blocks of no size", where)
        if state == "free":
            requested = None
        elif requested is not None and requested > size:
            self.doubts.add("{n} blocks are smaller than what was requested", f"{requested} in {size} bytes, {where}")
        return Block(address, size, state, requested, self._stack(frames))

    def _requested(self, raw: dict[Any, Any], where: str) -> int | None:
        if raw.get("requested_size") is not None:
            return self._size(raw, "requested_size", where)
        if raw.get(LEGACY_HISTORY):
            entry = _legacy(raw)
            if entry.get(LEGACY_REQUESTED) is not None:
                self.repairs.add("{n} blocks say what was requested in their history, as before torch 2.1", where)
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
                    f"the {field} of {{n}} segments is not that of their blocks", f"{shown(said)}, not {found}, {where}"
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

    def _annotations(self, raw: object) -> tuple[Annotation, ...]:
        """Ranges of the starts and ends; the last that was opened under a name is the first to be closed."""
        opened: dict[tuple[str, int | None], list[int]] = {}
        ranges: list[Annotation] = []
        for event in raw if isinstance(raw, list | tuple) else ():
            time = event.get("time_us") if isinstance(event, dict) else None
            if not isinstance(event, dict) or not isinstance(time, int):
                self.doubts.add("{n} annotations have no time and are left out", shown(event))
                continue
            device = event.get("device")
            key = (_text(event.get("name")), device if isinstance(device, int) else None)
            stage = event.get("stage")
            if stage == STAGE_START:
                opened.setdefault(key, []).append(time)
            elif stage != STAGE_END:
                self.doubts.add("{n} annotations neither start nor end and are left out", f"{key[0]:.60}")
            elif opened.get(key):
                ranges.append(Annotation(*key, opened[key].pop(), time))
            else:
                self.doubts.add("{n} annotations end without a start and are left out", f"{key[0]:.60}")
        ranges += [Annotation(*key, start, None) for key, starts in opened.items() for start in starts]
        return tuple(sorted(ranges, key=lambda one: (one.start_us, one.name)))

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
        if isinstance(raw, list | tuple) and len(raw) == 2 and all(isinstance(part, int) for part in raw):
            return (raw[0], raw[1])
        raise _bad(f"has a segment_pool_id of {shown(raw)} in {where}; it is two numbers")

    def _integer(self, row: dict[Any, Any], field: str, where: str, missing: int) -> int:
        value = row.get(field)
        if value is None:
            self.repairs.add(f"{{n}} segments record no {field}, read as {missing}", where)
            return missing
        if not isinstance(value, int) or not -(1 << 63) <= value < _ADDRESSES:
            raise _bad(_no_number(field, value, where))
        return value

    def _size(self, row: dict[Any, Any], field: str, where: str) -> int:
        value = row.get(field)
        if value is None:
            raise _bad(_missing(field, where))
        if not isinstance(value, int):
            raise _bad(_no_number(field, value, where))
        if not 0 <= value <= _LARGEST:
            raise _bad(f"is a broken snapshot: {where} has a {field} of {shown(value)} bytes; record it again")
        return value

    def _address(self, row: dict[Any, Any], field: str, where: str) -> int:
        value = row.get(field)
        if value is None:
            raise _bad(_missing(field, where))
        if not isinstance(value, int) or not -(1 << 63) <= value < _ADDRESSES:
            raise _bad(_no_number(field, value, where))
        return value % _ADDRESSES


def _legacy(block: dict[Any, Any]) -> dict[Any, Any]:
    history = block[LEGACY_HISTORY]
    first = history[0] if isinstance(history, list | tuple) else None
    return first if isinstance(first, dict) else {}


def shown(value: object) -> str:
    """A value of a file in a sentence: short, printable, and without walking what may be nested without end."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int) and value.bit_length() > 80:
        return f"{'minus ' if value < 0 else ''}more than 2**{value.bit_length() - 1}"
    return repr(value) if isinstance(value, int | float | None) else f"a {type(value).__name__}"


def _text(value: object) -> str:
    return value if isinstance(value, str) else shown(value)


def _settings(raw: object) -> dict[str, object]:
    """The allocator's settings: plain values, and dicts and lists of such."""
    return {_text(key): _setting(value) for key, value in raw.items()} if isinstance(raw, dict) else {}


def _setting(value: object, *, inner: bool = False) -> object:
    if isinstance(value, dict) and not inner:
        return {_text(key): _setting(item, inner=True) for key, item in value.items()}
    if isinstance(value, list | tuple) and not inner:
        return [_setting(item, inner=True) for item in value]
    return value if isinstance(value, str | int | float | None) else shown(value)


def _missing(field: str, where: str) -> str:
    return f"is a broken snapshot: {where} has no {field}, which every version of torch records; record it again"


def _no_number(field: str, value: object, where: str) -> str:
    return (
        f"is a broken snapshot: the {field} of {where} is no number that fits ({type(value).__name__}); record it again"
    )


def _bad(what: str) -> TraceReadError:
    return TraceReadError(what)
