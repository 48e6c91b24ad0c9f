"""The page of ``foretrace memory``: one device's memory with the map of its segments."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from foretrace.knowledge.fragmentation import LEAST_BYTES
from foretrace.memory.drawn import DrawnMemory
from foretrace.memory.mapping import LARGEST, STATES
from foretrace.model.memory import Memory
from foretrace.model.words import count, mebibytes, owner_of
from foretrace.report.html import memory_bars, memory_tables
from foretrace.report.html.page import Masthead, Page, Section, render, section
from foretrace.report.html.payload import data_block
from foretrace.report.html.tables import Table
from foretrace.report.html.trust import UNBROKEN, sentences
from foretrace.report.memory import peak_facts, title
from foretrace.report.text import clean

if TYPE_CHECKING:
    from markupsafe import Markup

__all__ = ["memory_page"]

_ANSWERS = {True: ("yes", "ok"), False: ("no", "bad"), None: ("the device decides", "suspect")}


def memory_page(memory: Memory, drawn: DrawnMemory | None) -> bytes:
    """One self-contained HTML file in UTF-8: sizes, findings, pins and the peak, and a map to zoom and search.

    ``drawn`` is the map of the same memory, ``None`` where there is none to draw.
    """
    tables = [
        table
        for table in (memory_tables.pins(memory), memory_tables.segments(memory), memory_tables.alive(memory))
        if table is not None
    ]
    by_id = {table.id: table for table in tables}
    sections: list[Section | None] = [
        _request(memory),
        _sizes(memory),
        _free(memory),
        _findings(memory, drawn),
        _map(memory, drawn),
        _table(by_id.get("pins"), "Pinned by: who holds the holes open"),
        _table(by_id.get("segments"), "Segments"),
        _peak(memory, by_id.get("alive")),
        _trust(memory),
    ]
    blocks = [] if drawn is None else [_map_block(memory, drawn)]
    blocks.append(data_block("data-tables", [table.data() for table in tables]))
    return render(Page(_masthead(memory), [one for one in sections if one is not None], blocks))


def _masthead(memory: Memory) -> Masthead:
    path = memory.source.path
    facts = sentences(title(memory, UNBROKEN)[1:])
    settings = [f"{name}={value}" for name, value in memory.source.settings.items() if _told(name, value)]
    if settings:
        facts.append(" · ".join(settings))
    alarms = [("DO NOT TRUST", check.detail) for check in memory.health if check.state == "bad"]
    facts += [f"? {check.detail}" for check in memory.health if check.state == "suspect"]
    alarms += [("REPAIRED", repair) for repair in memory.source.repairs]
    return Masthead("memory", PurePath(path).name if path != "-" else "standard input", facts, alarms)


def _told(name: str, value: Any) -> bool:
    """Whether a setting is worth a place in the head: what the user said; all of them stand in the last section."""
    return name.isupper() and value not in ("", None)


def _request(memory: Memory) -> Section | None:
    request = memory.request
    if request is None:
        return None
    words, state = _ANSWERS[request.succeeds]
    facts = [
        ("block it would get", request.rounded_bytes),
        ("asked of the device", request.segment_bytes),
        ("given back first", request.released_bytes),
        ("free on the device", request.device_free_bytes),
    ]
    return section(
        "request",
        "Request",
        "memory_request.html.j2",
        asked=f"{mebibytes(request.bytes)} on {owner_of(request.stream, request.pool)}",
        answer=words,
        state=state,
        request=request,
        facts=[(name, mebibytes(size)) for name, size in facts if size is not None],
        address=None if request.address is None else f"{request.address:#x}",
    )


def _sizes(memory: Memory) -> Section:
    return section(
        "sizes",
        "Sizes",
        "memory_sizes.html.j2",
        rows=memory_bars.sizes(memory),
        device=memory_bars.device_bar(memory),
        resolution=memory.source.resolution_bytes,
        may_be_given=memory.source.format == "snapshot",
    )


def _free(memory: Memory) -> Section | None:
    accounts = memory_bars.accounts(memory)
    free, kinds = memory.free, memory.fragmentation
    notes: list[str] = []
    pages = (free.releasable_bytes or 0) - (free.whole_segments_bytes or 0)
    if free.releasable_bytes is not None and free.whole_segments_bytes is not None and pages > 0:
        notes.append(f"Of the holes, {mebibytes(pages)} are whole pages and can be given back.")
    if kinds.sparse_blocks:
        notes.append(
            f"{count(kinds.sparse_blocks, 'live block')}, {mebibytes(kinds.sparse_bytes)} in all, "
            "each a small part of its segment, pin segments that are mostly free."
        )
    if kinds.pending_bytes:
        notes.append(f"{mebibytes(kinds.pending_bytes)} are freed but wait for another stream: not free yet.")
    if not accounts:
        return None
    return section("free", "Free memory and fragmentation", "memory_free.html.j2", accounts=accounts, notes=notes)


def _findings(memory: Memory, drawn: DrawnMemory | None) -> Section | None:
    if not memory.findings and memory.source.format != "snapshot":
        return None
    return section(
        "findings",
        "Findings",
        "memory_findings.html.j2",
        count=str(len(memory.findings)),
        findings=memory.findings,
        shows=[0] * len(memory.findings) if drawn is None else [len(rows) for rows in drawn.evidence],
        least=mebibytes(LEAST_BYTES),
    )


def _map(memory: Memory, drawn: DrawnMemory | None) -> Section:
    if drawn is None:
        why = "There are no segments to draw: only a snapshot (torch.cuda.memory._dump_snapshot) holds them."
        if memory.segments:
            why = f"A segment is larger than {mebibytes(LARGEST)}: the file cannot be right, and no map is drawn of it."
        elif memory.source.format == "snapshot":
            why = "There are no segments to draw: the allocator held nothing of this device."
        return section("map", "Map", "memory_map.html.j2", why=why)
    owners = {(segment.stream, tuple(segment.pool), segment.kind) for segment in drawn.map.segments}
    return section(
        "map",
        "Map",
        "memory_map.html.j2",
        needs=("d3", "lanes"),
        count=str(len(drawn.map.segments)),
        why="",
        segments=len(drawn.map.segments),
        blocks=len(drawn.map),
        groups=len(owners),
    )


def _table(table: Table | None, title: str) -> Section | None:
    if table is None:
        return None
    return section(
        table.id,
        title,
        "table_section.html.j2",
        needs=("tabulator", "tables"),
        count=str(table.rows),
        table=table,
    )


def _peak(memory: Memory, alive: Table | None) -> Section | None:
    peak, history = memory.peak, memory.history
    if peak is None and history is None:
        return None
    facts = [] if peak is None else peak_facts(peak) if peak.alive else peak_facts(peak)[:1]
    old = None if peak is None or not peak.alive or not peak.unexplained_bytes else mebibytes(peak.unexplained_bytes)
    return section(
        "peak",
        "Peak and history",
        "memory_peak.html.j2",
        needs=() if alive is None else ("tabulator", "tables"),
        facts=facts,
        old=old,
        history=history,
        table=alive,
    )


def _trust(memory: Memory) -> Section:
    raised = sum(check.state != "ok" for check in memory.health)
    return section(
        "trust",
        "How far to trust it",
        "memory_trust.html.j2",
        needs=("memory",),
        count=f"{raised} to read" if raised else "",
        checks=memory.health,
        source=memory.source,
        settings=[(name, _setting(value)) for name, value in memory.source.settings.items()],
    )


def _setting(value: Any) -> str:
    if isinstance(value, dict):
        said = [f"{key}: {each}" for key, each in value.items() if each not in (0, None, "")]
        return ", ".join(said) or "none"
    return "(empty)" if value == "" else str(value)


def _map_block(memory: Memory, made: DrawnMemory) -> Markup:
    drawn = made.map
    numbers: dict[str, list[int]] = {}
    for number, origin in enumerate(drawn.origins):
        numbers.setdefault(origin.where, []).append(number)
    alive = [] if memory.peak is None else memory.peak.alive
    document = {
        # The origins of each row of the tables of pins and of what was held at the peak.
        "lines": {
            "pin": [numbers.get(pin.where, []) for pin in memory.pinned_by],
            "where": [numbers.get(one.where, []) for one in alive],
        },
        "states": STATES,
        "origins": [
            {"where": clean(origin.where), "stack": [clean(line) for line in origin.stack]} for origin in drawn.origins
        ],
        # Addresses may need more than the 53 bits of JavaScript's numbers.
        "segments": [
            {
                "address": f"{segment.address:#x}",
                "owner": clean(owner_of(segment.stream, segment.pool)),
                "kind": segment.kind,
                "expandable": segment.expandable,
                "size": segment.size,
                "active": segment.active_bytes,
                "holes": segment.holes_bytes,
                "largest": segment.largest_hole_bytes,
                "first": segment.first_block,
                "blocks": segment.blocks,
            }
            for segment in drawn.segments
        ],
    }
    columns: dict[str, NDArray[Any]] = {
        "offset": drawn.offset,
        "size": drawn.size,
        "requested": drawn.requested,
        "state": drawn.state,
        "origin": drawn.origin,
        **{f"finding-{number}": rows for number, rows in enumerate(made.evidence, 1)},
    }
    return data_block("data-map", document, columns)
