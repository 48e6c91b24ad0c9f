"""The tables of the page of ``foretrace memory``: what pins holes, segments, and what was held at the peak."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.memory import Memory
from foretrace.model.words import owner_of
from foretrace.report.html.tables import Column, Table

__all__ = ["alive", "pins", "segments"]

_MIB = 1 << 20


def _sizes(key: str, title: str, values: Sequence[int | None], *, help: str = "") -> Column:
    """A column of sizes (bytes) in MiB, so that numbers compare and filters have one unit."""
    return Column(
        key,
        title,
        "number",
        [None if value is None else float(value) for value in values],
        unit="MiB",
        divisor=float(_MIB),
        help=help,
    )


def pins(memory: Memory) -> Table | None:
    """Live blocks in segments with holes, by who allocated them; None where nothing pins a hole."""
    rows = memory.pinned_by
    if not rows:
        return None
    return Table(
        id="pins",
        title="Who holds the holes open",
        rows=len(rows),
        picks="pin",
        columns=[
            Column("where", "allocated at", "name", [pin.where for pin in rows]),
            Column("blocks", "blocks", "count", [pin.blocks for pin in rows], help="live, in segments with holes"),
            _sizes("bytes", "held", [pin.bytes for pin in rows]),
            Column("segments", "segments", "count", [pin.segments for pin in rows]),
            _sizes("holes", "holes there", [pin.holes_bytes for pin in rows], help="in the segments they lie in"),
            _sizes(
                "alone",
                "alone there",
                [pin.only_here_bytes for pin in rows],
                help="holes of segments that nobody else pins: they close once these are freed",
            ),
            Column("stack", "called from", "name", [" ← ".join(pin.stack[1:]) or None for pin in rows]),
        ],
        remarks=[
            "Live blocks in segments with holes. Alone there: holes that close once these blocks are freed and nothing "
            "else; look at it first. Holes count for every line that lies in their segment, so that they do not add up."
        ],
    )


def segments(memory: Memory) -> Table | None:
    """Every segment; None without any."""
    rows = sorted(memory.segments, key=lambda s: (-s.holes_bytes, s.active_bytes == 0, -s.size, s.address))
    if not rows:
        return None
    place = {segment.address: at for at, segment in enumerate(memory.segments)}
    return Table(
        id="segments",
        title="Segments",
        rows=len(rows),
        picks="segment",
        columns=[
            Column("address", "address", "name", [f"{one.address:#x}" for one in rows]),
            _sizes("size", "size", [one.size for one in rows]),
            Column("held", "held", "percent", [one.active_bytes / one.size if one.size else None for one in rows], "%"),
            _sizes("holes", "holes", [one.holes_bytes for one in rows]),
            _sizes("largest", "largest hole", [one.largest_hole_bytes for one in rows]),
            Column("blocks", "blocks", "count", [one.blocks for one in rows]),
            Column("kind", "kind", "text", [f"{one.kind}, expandable" if one.expandable else one.kind for one in rows]),
            Column("owner", "whose", "text", [owner_of(one.stream, one.pool) for one in rows]),
            Column(
                "place", "by address", "count", [place[one.address] for one in rows], help="place in order of address"
            ),
        ],
        remarks=["Those with the most free memory in holes first. Held: the share that is active or pending."],
    )


def alive(memory: Memory) -> Table | None:
    """What was held at the peak, by who allocated it; None where that is not known."""
    peak = memory.peak
    if peak is None or not peak.alive:
        return None
    rows = peak.alive
    whole = peak.requested_bytes
    return Table(
        id="alive",
        title="What was held at the peak",
        rows=len(rows),
        picks="where",
        columns=[
            Column("where", "held then, allocated at", "name", [one.where for one in rows]),
            Column("blocks", "blocks", "count", [one.blocks for one in rows]),
            _sizes("bytes", "asked for", [one.bytes for one in rows]),
            Column("share", "of the peak", "percent", [one.bytes / whole if whole else None for one in rows], "%"),
            Column("during", "during", "name", [one.annotation for one in rows]),
            Column("module", "module", "name", [one.module if one.module != one.where else None for one in rows]),
            Column("stack", "called from", "name", [" ← ".join(one.stack[1:]) or None for one in rows]),
        ],
    )
