"""``memory``: an allocator's memory in short, and whether a request would succeed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from foretrace.integrations.mcp.answers import Alarm, Answer, Paged, alarms_of, paged, short
from foretrace.integrations.mcp.arguments import Number
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, Piece, piece
from foretrace.knowledge.agents import MOST_TEXT
from foretrace.memory.pools import pool_of
from foretrace.model.memory import Alive, Memory, MemoryFinding, Pin
from foretrace.model.sidefile import side_path, traces_of_snapshot

__all__ = ["MemoryAnswer", "MemorySizes", "memory", "read_memory", "sizes_of"]

_STACK_LINES = 4
# Bytes of rows, beside the accounts that every answer holds.
_ROOM = 1_800


class MemorySizes(Answer):
    """How the sizes nest: requested <= allocated <= active <= reserved; reserved = active + whole segments + holes."""

    requested_bytes: int | None
    allocated_bytes: int | None
    active_bytes: int | None
    reserved_bytes: int | None
    device_used_bytes: int | None
    device_total_bytes: int | None
    holes_bytes: int | None
    largest_hole_bytes: int | None
    whole_free_segments_bytes: int | None
    releasable_bytes: int | None
    hard_fragmentation_bytes: int | None
    soft_fragmentation_bytes: int | None
    other_streams_bytes: int | None


class RequestVerdict(Answer):
    """Whether an allocation would succeed now."""

    request_bytes: int
    rounded_bytes: int
    succeeds: bool | None = Field(description="null: what the device has free decides, and it is not known")
    source: str = Field(description="where the bytes would come from")
    because: str
    stream: int
    pool: str
    segment_bytes: int | None
    released_bytes: int | None
    device_free_bytes: int | None


class MemoryFindingRow(Answer):
    """One thing worth knowing."""

    rule: str
    severity: str
    title: str
    explanation: str
    suggestion: str | None
    bytes: int | None


class PinRow(Answer):
    """Live blocks of one origin that keep holes from being joined."""

    where: str
    stack: list[str]
    blocks: int
    bytes: int
    holes_bytes: int
    only_here_bytes: int = Field(description="in segments nobody else pins: given back once these blocks are freed")


class AliveRow(Answer):
    """Memory of one origin that was held at the peak."""

    where: str
    stack: list[str]
    bytes: int
    blocks: int | None
    annotation: str | None
    module: str | None


class PeakFacts(Answer):
    """The most that was held at once, as far back as the history goes."""

    requested_bytes: int
    complete: bool
    during: str | None
    unexplained_bytes: int
    reached_by: str | None
    reached_with_bytes: int | None
    origins: int


class MemoryAnswer(Paged):
    """One device's memory; ``rows`` are the pins (section pins), what was alive at the peak, or the findings."""

    path: str
    device: int | None
    devices: list[int]
    settings: dict[str, str]
    sizes: MemorySizes
    request: RequestVerdict | None
    alarms: list[Alarm]
    peak: PeakFacts | None
    section: Literal["findings", "pins", "peak"]
    sections: dict[str, int] = Field(description="rows of each section")
    findings: list[MemoryFindingRow]
    pins: list[PinRow]
    alive: list[AliveRow]


def memory(
    library: Library,
    path: Annotated[str, Field(description="A snapshot, summary, counters or timeline, by its path.", max_length=4096)],
    section: Annotated[
        Literal["findings", "pins", "peak"],
        Field(description="Which rows: findings; pins, the lines that pin holes; peak, what was alive at the peak."),
    ] = "findings",
    request_bytes: Annotated[
        int | None, Field(description="Would an allocation of this size succeed now?", ge=1, le=2**62)
    ] = None,
    device: Annotated[Number | None, Field(description="The device; the one with most reserved by default.")] = None,
    stream: Annotated[Number | None, Field(description="The stream of the request; the busiest by default.")] = None,
    pool: Annotated[
        str | None, Field(description="The pool of the request; '0.0' is that of ordinary tensors.", max_length=40)
    ] = None,
    device_free_bytes: Annotated[Number | None, Field(description="What the device has free (nvidia-smi).")] = None,
    device_total_bytes: Annotated[Number | None, Field(description="The device's memory.")] = None,
    limit_bytes: Annotated[
        Number | None, Field(description="The process's limit (set_per_process_memory_fraction).")
    ] = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> MemoryAnswer:
    """Say what a file about memory means."""
    document = read_memory(
        library,
        path,
        request_bytes=request_bytes,
        device=device,
        stream=stream,
        pool=None if pool is None else pool_of(pool),
        device_free_bytes=device_free_bytes,
        device_total_bytes=device_total_bytes,
        limit_bytes=limit_bytes,
    )
    alive = document.peak.alive if document.peak is not None else []
    findings = piece(
        document.findings, lambda _, one: _finding(one), limit=limit, offset=offset, room=None if limit else _ROOM
    )
    pins = piece(
        document.pinned_by, lambda _, one: _pin(one), limit=limit, offset=offset, room=None if limit else _ROOM
    )
    held = piece(alive, lambda _, one: _alive(one), limit=limit, offset=offset, room=None if limit else _ROOM)
    parts: dict[str, Piece[Any]] = {"findings": findings, "pins": pins, "peak": held}
    return MemoryAnswer(
        path=document.source.path,
        device=document.source.device,
        devices=[one.device for one in document.devices],
        settings={short(key, 60): short(str(value), 100) for key, value in list(document.source.settings.items())[:20]},
        sizes=sizes_of(document),
        request=_request(document),
        alarms=alarms_of(document.health),
        peak=_peak(document),
        section=section,
        sections={"findings": len(document.findings), "pins": len(document.pinned_by), "peak": len(alive)},
        findings=findings.rows if section == "findings" else [],
        pins=pins.rows if section == "pins" else [],
        alive=held.rows if section == "peak" else [],
        **paged(parts[section]),
    )


def read_memory(
    library: Library,
    path: str,
    *,
    request_bytes: int | None = None,
    device: int | None = None,
    stream: int | None = None,
    pool: tuple[int, int] | None = None,
    device_free_bytes: int | None = None,
    device_total_bytes: int | None = None,
    limit_bytes: int | None = None,
) -> Memory:
    """The document of a file about memory, kept for the next call that asks the same."""
    from foretrace.memory.examining import examine_file

    name = library.root.file(path)
    sides = [side_path(trace).as_posix() for trace in traces_of_snapshot(name)]
    for side in sides:
        library.root.beside(side)
    asked = (request_bytes, device, stream, pool, device_free_bytes, device_total_bytes, limit_bytes)

    def read() -> tuple[Memory, int]:
        document = examine_file(
            name,
            device=device,
            request_bytes=request_bytes,
            stream=stream,
            pool=pool,
            device_free_bytes=device_free_bytes,
            device_total_bytes=device_total_bytes,
            limit_bytes=limit_bytes,
        )
        return document, 100_000 + 600 * len(document.blocks) + 400 * len(document.segments)

    return library.keep(("memory", name, asked), [name, *sides], read)


def sizes_of(document: Memory) -> MemorySizes:
    """The accounts of a document in one object."""
    totals, free, parts = document.totals, document.free, document.fragmentation
    return MemorySizes(
        requested_bytes=totals.requested_bytes,
        allocated_bytes=totals.allocated_bytes,
        active_bytes=totals.active_bytes,
        reserved_bytes=totals.reserved_bytes,
        device_used_bytes=totals.device_used_bytes,
        device_total_bytes=totals.device_total_bytes,
        holes_bytes=free.holes_bytes,
        largest_hole_bytes=free.largest_hole_bytes,
        whole_free_segments_bytes=free.whole_segments_bytes,
        releasable_bytes=free.releasable_bytes,
        hard_fragmentation_bytes=parts.hard_bytes,
        soft_fragmentation_bytes=parts.soft_bytes,
        other_streams_bytes=parts.stream_bytes,
    )


def _request(document: Memory) -> RequestVerdict | None:
    one = document.request
    if one is None:
        return None
    return RequestVerdict(
        request_bytes=one.bytes,
        rounded_bytes=one.rounded_bytes,
        succeeds=one.succeeds,
        source=one.from_,
        because=short(one.because, 800),
        stream=one.stream,
        pool=".".join(map(str, one.pool)),
        segment_bytes=one.segment_bytes,
        released_bytes=one.released_bytes,
        device_free_bytes=one.device_free_bytes,
    )


def _peak(document: Memory) -> PeakFacts | None:
    one = document.peak
    if one is None:
        return None
    return PeakFacts(
        requested_bytes=one.requested_bytes,
        complete=one.complete,
        during=_said(one.during),
        unexplained_bytes=one.unexplained_bytes,
        reached_by=_said(one.reached_by),
        reached_with_bytes=one.reached_with_bytes,
        origins=len(one.alive),
    )


def _finding(one: MemoryFinding) -> MemoryFindingRow:
    return MemoryFindingRow(
        rule=one.rule,
        severity=one.severity,
        title=short(one.title, 300),
        explanation=short(one.explanation, MOST_TEXT),
        suggestion=None if one.suggestion is None else short(one.suggestion, 1_000),
        bytes=one.bytes,
    )


def _pin(one: Pin) -> PinRow:
    return PinRow(
        where=short(one.where, 240),
        stack=_stack(one.stack),
        blocks=one.blocks,
        bytes=one.bytes,
        holes_bytes=one.holes_bytes,
        only_here_bytes=one.only_here_bytes,
    )


def _alive(one: Alive) -> AliveRow:
    return AliveRow(
        where=short(one.where, 240),
        stack=_stack(one.stack),
        bytes=one.bytes,
        blocks=one.blocks,
        annotation=_said(one.annotation),
        module=_said(one.module),
    )


def _stack(frames: list[str]) -> list[str]:
    return [short(frame, 240) for frame in frames[:_STACK_LINES]]


def _said(text: str | None) -> str | None:
    return None if text is None else short(text, 240)
