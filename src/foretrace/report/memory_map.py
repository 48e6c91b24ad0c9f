"""Segments drawn in characters: one bar for all, and a map with a row a segment."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.model.memory import Memory, MemoryBlock, MemorySegment
from foretrace.model.words import mebibytes, owner_of, share_of
from foretrace.report.text import Line, Span, line
from foretrace.report.view import View

__all__ = ["bar", "map_lines"]

# By state, for a whole segment's free memory another sign than for a hole.
_ACTIVE, _ROUNDING, _PENDING, _HOLE, _WHOLE, _OTHERS = "█", "▓", "▒", "░", "·", "▪"
_ROWS = 24
_LEAST = 8  # cells a segment is drawn in at least
_NARROW = 70  # below it a row has no room for the address and whose it is


def bar(memory: Memory, width: int) -> list[Line]:
    """The sizes in one line, each as long as it is, and what the signs mean; up to the device's where that is known.

    Every part that is there gets a cell at least. Nothing where a part of what is reserved is not known.
    """
    totals, free = memory.totals, memory.free
    known = (totals.allocated_bytes, totals.active_bytes, free.holes_bytes, free.whole_segments_bytes)
    allocated, active, holes, whole = known
    if allocated is None or active is None or holes is None or whole is None:
        return []
    rounding = memory.fragmentation.rounding_bytes or 0
    parts = [
        (_ACTIVE, "allocated" if memory.fragmentation.rounding_bytes is None else "requested", allocated - rounding),
        (_ROUNDING, "rounding", rounding),
        (_PENDING, "pending", active - allocated), (_HOLE, "holes", holes), (_WHOLE, "whole segments", whole),
    ]  # fmt: skip
    if totals.device_used_bytes is not None:
        parts.append((_OTHERS, "the device's others", max(0, totals.device_used_bytes - (totals.reserved_bytes or 0))))
    cells = _cells([size for _, _, size in parts], width)
    drawn = [(sign, name, many) for (sign, name, _), many in zip(parts, cells, strict=True) if many]
    if not drawn:
        return []
    legend = "  ".join(f"{sign} {name}" for sign, name, _ in drawn)
    return [line("  ", *(Span(sign * many) for sign, _, many in drawn)), line("  ", Span(legend, "dim"))]


def _cells(sizes: Sequence[int], width: int) -> list[int]:
    """Cells by size that add up to the width; one at least for what is there."""
    whole = sum(sizes)
    if whole <= 0:
        return [0] * len(sizes)
    cells = [max(1, round(size / whole * width)) if size > 0 else 0 for size in sizes]
    largest = max(range(len(cells)), key=lambda i: cells[i])
    cells[largest] += width - sum(cells)
    return cells


def map_lines(memory: Memory, view: View) -> list[Line]:
    """A row a segment, those with the most free memory in holes first; all of them with ``--all``."""
    head = line(
        Span("MAP", "section"),
        Span(
            f"  {_ACTIVE} held  {_PENDING} pending  {_HOLE} hole  {_WHOLE} free segment; a row each, most holes first",
            "dim",
        ),
    )
    if not memory.segments:
        return [head, line("  There are no segments to draw: only a snapshot holds them.")]
    ordered = sorted(memory.segments, key=lambda s: (-s.holes_bytes, s.active_bytes == 0, -s.size, s.address))
    shown = ordered[: view.rows(_ROWS)]
    labels = [("address", "size", "held", "segment"), *map(_label, shown)]
    if view.width < _NARROW:
        labels = [("", size, held, "") for _, size, held, _ in labels]
    widths = [max(len(label[i]) for label in labels) for i in range(len(labels[0]))]
    room = max(_LEAST, view.width - sum(widths) - 3 - 4)
    lines = [head, line(Span("  " + _row(labels[0], widths), "head"))]
    for segment, label in zip(shown, labels[1:], strict=True):
        blocks = memory.blocks[segment.first_block : segment.first_block + segment.blocks]
        lines.append(line("  ", _row(label, widths), "  ", _drawn(segment, blocks, room)))
    left = len(ordered) - len(shown)
    return [*lines, line(Span(f"  + {left} more (--all, or --top N)", "dim"))] if left else lines


def _label(segment: MemorySegment) -> tuple[str, str, str, str]:
    """Address, size, the share held, and whose it is: stream and private pool where they are not the usual ones."""
    words: list[str] = [segment.kind]
    if segment.expandable:
        words.append("expandable")
    if segment.stream != 0 or segment.pool != [0, 0]:
        words.append(owner_of(segment.stream, segment.pool))
    held = share_of(segment.active_bytes / segment.size) if segment.size else ""
    return f"{segment.address:#x}", mebibytes(segment.size), held, ", ".join(words)


def _row(label: tuple[str, str, str, str], widths: Sequence[int]) -> str:
    address, size, held, kind = label
    text = f"{address:<{widths[0]}} {size:>{widths[1]}} {held:>{widths[2]}} {kind:<{widths[3]}}"
    return text if address else text.strip()


def _drawn(segment: MemorySegment, blocks: Sequence[MemoryBlock], width: int) -> str:
    """The segment in ``width`` cells; a cell shows what most of its bytes are, and a live block is never hidden."""
    if segment.active_bytes == 0:
        return _WHOLE * width
    signs = {"active": _ACTIVE, "pending": _PENDING, "free": _HOLE}
    cells = [_HOLE] * width
    weight = [0.0] * width
    scale = width / segment.size
    for block in blocks:
        start = (block.address - segment.address) * scale
        end = start + block.size * scale
        for cell in range(int(start), min(width, int(end) + 1)):
            covered = min(end, cell + 1) - max(start, cell)
            # Live memory wins a tie and shows even where it is a sliver of its cell.
            if block.state != "free" and covered > 0 and (cells[cell] == _HOLE or covered > weight[cell]):
                cells[cell], weight[cell] = signs[block.state], covered
    return "".join(cells)
