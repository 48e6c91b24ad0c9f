"""A file about memory becomes the document that says what it means."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrace.errors import InputError
from foretrace.memory.accounts import Owner, busiest_stream, fragmentation, free, holes, totals
from foretrace.memory.allocator import simulate
from foretrace.memory.allocator.sizes import Settings
from foretrace.memory.beside import device_beside
from foretrace.memory.findings import Facts, find
from foretrace.memory.frames import own_lines, where
from foretrace.memory.history import flushes, history_info, peak, replayed
from foretrace.memory.pins import pins
from foretrace.memory.reading import read_any
from foretrace.memory.snapshot import DEFAULT_POOL, Segment, Snapshot, Stacks
from foretrace.model.memory import (
    DeviceTotals,
    HistoryInfo,
    Memory,
    MemoryBlock,
    MemorySegment,
    Source,
)
from foretrace.model.report import Health
from foretrace.model.words import count, listed, mebibytes, owner_of
from foretrace.trace.collection import without_collection

__all__ = ["examine", "examine_file"]

Progress = Callable[[int, int], None]


@without_collection()
def examine_file(
    path: str,
    *,
    device: int | None = None,
    request_bytes: int | None = None,
    stream: int | None = None,
    pool: tuple[int, int] | None = None,
    device_free_bytes: int | None = None,
    device_total_bytes: int | None = None,
    limit_bytes: int | None = None,
    progress: Progress | None = None,
) -> Memory:
    """Read a file (``-``: standard input) and say what it means: a snapshot, a summary, statistics, or a timeline.

    What the device has, and the process's limit, are taken from the side file of a recording where that lies beside the
    snapshot and they are not given.

    Raises `InputError` for a file that is none of them, and where something is asked that only a snapshot can answer.
    """
    read = read_any(path, device=device, progress=progress)
    asked = {
        "--request": request_bytes,
        "--stream": stream,
        "--pool": pool,
        "--device-free": device_free_bytes,
        "--device-total": device_total_bytes,
        "--limit": limit_bytes,
    }
    if isinstance(read, Memory):
        given = next((flag for flag, value in asked.items() if value is not None), None)
        if given is not None:
            raise InputError(
                f"{path} holds sums only; {given} needs a snapshot, in which every hole is recorded "
                "(torch.cuda.memory._dump_snapshot)"
            )
        return read
    beside = device_beside(path, _device(read, device))
    # All of it or nothing: what the user says and what was recorded need not be of the same moment.
    if beside is not None and device_free_bytes is None and device_total_bytes is None:
        device_free_bytes, device_total_bytes = beside.free_bytes, beside.total_bytes
    if beside is not None and limit_bytes is None and None not in (beside.memory_fraction, beside.total_bytes):
        limit_bytes = int((beside.memory_fraction or 0) * (beside.total_bytes or 0))
    return examine(
        read,
        device=device,
        request_bytes=request_bytes,
        stream=stream,
        pool=pool,
        device_free_bytes=device_free_bytes,
        device_total_bytes=device_total_bytes,
        limit_bytes=limit_bytes,
    )


def examine(
    snapshot: Snapshot,
    *,
    device: int | None = None,
    request_bytes: int | None = None,
    stream: int | None = None,
    pool: tuple[int, int] | None = None,
    device_free_bytes: int | None = None,
    device_total_bytes: int | None = None,
    limit_bytes: int | None = None,
) -> Memory:
    """What a snapshot says of one device (by default the one with most reserved), and whether a request would succeed.

    ``stream`` and ``pool``: from whose point of view free memory is counted; the busiest stream of the ordinary pool
    by default. ``device_free_bytes``, ``device_total_bytes``, ``limit_bytes``: what the snapshot does not hold, None
    where it is not known. Raises `InputError` for a device that is not in it, sizes of a device that cannot be, a
    request that is none, and a history whose sizes are beyond reason.
    """
    number = _device(snapshot, device)
    segments = [segment for segment in snapshot.segments if segment.device == number]
    owner: Owner = (busiest_stream(segments) if stream is None else stream, pool or DEFAULT_POOL)
    settings = Settings.read(snapshot.settings)
    _check_device(sum(segment.size for segment in segments), device_free_bytes, device_total_bytes)
    used = None if device_total_bytes is None or device_free_bytes is None else device_total_bytes - device_free_bytes
    sizes = totals(segments, device_used=used, device_total=device_total_bytes)
    unused = free(segments, settings.page_bytes)
    kinds = fragmentation(segments, owner)
    pinned = pins(segments, snapshot.stacks)
    done = replayed(snapshot, number)
    history = history_info(snapshot, number, done)
    facts = Facts(
        segments=segments,
        owner=owner,
        totals=sizes,
        free=unused,
        fragmentation=kinds,
        pins=pinned,
        history=history,
        flushes=flushes(snapshot, number),
        expandable=settings.expandable is True,
        split_limit_bytes=settings.max_split,
        divisions=any(settings.roundup),
    )
    blocks, rows = _drawn(segments, snapshot.stacks)
    return Memory(
        source=Source(
            path=snapshot.path,
            format="snapshot",
            device=number,
            settings=dict(snapshot.settings),
            repairs=list(snapshot.repairs),
        ),
        totals=sizes,
        free=unused,
        fragmentation=kinds,
        segments=rows,
        blocks=blocks,
        pinned_by=pinned,
        health=[*_health(snapshot, segments, history), *_owner(segments, owner)],
        devices=[_device_totals(snapshot, each) for each in snapshot.devices],
        findings=find(facts),
        request=None
        if request_bytes is None
        else simulate(
            snapshot,
            request_bytes,
            device=number,
            stream=owner[0],
            pool=owner[1],
            device_free_bytes=device_free_bytes,
            device_total_bytes=device_total_bytes,
            limit_bytes=limit_bytes,
        ),
        peak=peak(snapshot, number, done),
        history=history,
    )


def _check_device(reserved: int, free: int | None, total: int | None) -> None:
    """Raise `InputError` where what is said of the device cannot be, with what the process has reserved on it."""
    if total is not None and total < reserved:
        held = mebibytes(reserved)
        raise InputError(f"a device of {mebibytes(total)} cannot hold the {held} that are reserved on it")
    if free is not None and total is not None and free > total - reserved:
        held = mebibytes(reserved)
        raise InputError(
            f"a device of {mebibytes(total)} cannot have {mebibytes(free)} free with {held} reserved on it"
        )


def _device(snapshot: Snapshot, asked: int | None) -> int:
    there = snapshot.devices
    if asked is not None:
        if asked not in there:
            named = ", ".join(map(str, there)) or "none"
            raise InputError(f"{snapshot.path} holds nothing of device {asked}; it has: {named}")
        return asked
    reserved = dict.fromkeys(there, 0)
    for segment in snapshot.segments:
        reserved[segment.device] += segment.size
    return max(reserved, key=lambda device: (reserved[device], -device), default=0)


def _device_totals(snapshot: Snapshot, device: int) -> DeviceTotals:
    segments = [segment for segment in snapshot.segments if segment.device == device]
    blocks = [block for segment in segments for block in segment.blocks]
    return DeviceTotals(
        device=device,
        reserved_bytes=sum(segment.size for segment in segments),
        allocated_bytes=sum(block.size for block in blocks if block.state == "active"),
        segments=len(segments),
    )


def _drawn(segments: Sequence[Segment], stacks: Stacks) -> tuple[list[MemoryBlock], list[MemorySegment]]:
    """Blocks and segments of the document, by address; the stack of each origin is put into words once."""
    words: dict[int, tuple[list[str], str | None]] = {}
    blocks: list[MemoryBlock] = []
    rows: list[MemorySegment] = []
    for segment in sorted(segments, key=lambda one: one.address):
        open_blocks = holes(segment)
        rows.append(
            MemorySegment(
                address=segment.address,
                size=segment.size,
                stream=segment.stream,
                pool=list(segment.pool),
                kind="small" if segment.small else "large",
                expandable=segment.expandable,
                active_bytes=sum(block.size for block in segment.blocks if block.state != "free"),
                holes_bytes=sum(hole.size for hole in open_blocks),
                largest_hole_bytes=max((hole.size for hole in open_blocks), default=0),
                first_block=len(blocks),
                blocks=len(segment.blocks),
            )
        )
        for block in segment.blocks:
            if block.stack not in words:
                frames = stacks.frames(block.stack)
                words[block.stack] = own_lines(frames), where(frames)
            stack, origin = ([], None) if block.state == "free" else words[block.stack]
            blocks.append(
                MemoryBlock(
                    address=block.address,
                    size=block.size,
                    requested=block.requested,
                    state=block.state,
                    stack=stack,
                    where=origin,
                )
            )
    return blocks, rows


def _health(snapshot: Snapshot, segments: Sequence[Segment], history: HistoryInfo | None) -> list[Health]:
    """What does not add up, and what was not recorded."""
    checks = [Health(check="adds_up", state="bad", detail=doubt) for doubt in snapshot.doubts]
    if not checks:
        sizes = count(len(segments), "segment")
        checks.append(
            Health(check="adds_up", state="ok", detail=f"the blocks of {sizes} lie side by side and fill them")
        )
    if history is None:
        checks.append(
            Health(
                check="history",
                state="suspect",
                detail="no history: the peak, and where live blocks come from, are unknown; call "
                "torch.cuda.memory._record_memory_history() before the model is made (foretrace run … --memory does)",
            )
        )
        return checks
    checks.append(_stacks(history))
    if history.truncated:
        checks.append(
            Health(
                check="history",
                state="suspect",
                detail=f"the history is truncated: only its last {count(history.entries, 'entry', 'entries')} are kept "
                "(max_entries of _record_memory_history); an earlier peak is not in it",
            )
        )
    return checks


def _owner(segments: Sequence[Segment], owner: Owner) -> list[Health]:
    """Says so where the stream and pool that are asked about hold nothing: a new stream, or a mistaken number."""
    if not segments or any((segment.stream, segment.pool) == owner for segment in segments):
        return []
    there = sorted({owner_of(segment.stream, segment.pool) for segment in segments})
    detail = f"{owner_of(*owner)} holds nothing in this snapshot; what holds something: {listed(there)}"
    return [Health(check="owner", state="suspect", detail=detail)]


def _stacks(history: HistoryInfo) -> Health:
    known, live = history.live_blocks_with_stack, history.live_blocks
    if known == live:
        return Health(check="stacks", state="ok", detail=f"stacks on all {live} live blocks", count=live)
    return Health(
        check="stacks",
        state="suspect",
        detail=f"stacks on {known} of {count(live, 'live block')}: the others were allocated before recording began, "
        "or by threads without Python, such as autograd's",
        count=known,
    )
