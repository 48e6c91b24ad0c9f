"""A device's memory as text: one screen, and the map of its segments on request."""

from __future__ import annotations

from pathlib import PurePath

from foretrace.knowledge.fragmentation import LEAST_BYTES
from foretrace.model.memory import Alive, Memory, MemoryFinding, Peak, Pin, Request
from foretrace.model.words import UNKNOWN, count, mebibytes, number, owner_of, share_of, time
from foretrace.report.ink import finished
from foretrace.report.memory_map import bar, map_lines
from foretrace.report.table import Column, table
from foretrace.report.text import Line, Span, cut, line
from foretrace.report.trust import paragraph
from foretrace.report.view import View

__all__ = ["peak_facts", "render_memory", "size_rows", "title"]

_MIB = 1 << 20
_PINS = 5
_ALIVE = 6
_FINDINGS = 4
_MARKS = {"warning": Span("!", "suspect"), "note": Span("•"), "info": Span("·", "dim")}
_FORMATS = {
    "snapshot": "allocator snapshot",
    "timeline": "memory timeline",
    "summary": "memory_summary",
    "stats": "memory_stats",
}


def render_memory(memory: Memory, view: View | None = None, *, segments: bool = False) -> str:
    """The memory as text that ends in a newline; ``segments``: the map of the segments below the sizes, and no more.

    ``view`` defaults to plain text, 100 columns wide.
    """
    view = view or View()
    content = [*title(memory, view), *_alarms(memory, view)]
    if memory.request is not None:
        content += [[], *_request(memory.request, view)]
    parts = [[*_sizes(memory, view), *_free(memory, view)]]
    if not segments or view.everything:
        parts += [_pins(memory, view), _peak(memory, view), _findings(memory, view), _unknown(memory, view)]
    if segments or view.everything:
        parts.append(map_lines(memory, view))
    for part in parts:
        content += [[], *part] if part else []
    return finished(content, view)


def title(memory: Memory, view: View) -> list[Line]:
    """The file's name, then what it holds."""
    source = memory.source
    name = PurePath(source.path).name if source.path != "-" else "standard input"
    facts = [_FORMATS[source.format]]
    if source.device is not None:
        facts.append(f"device {source.device}")
    if memory.segments:
        facts += [count(len(memory.segments), "segment"), count(len(memory.blocks), "block")]
    if memory.history is not None:
        facts.append(_history(memory))
    if source.resolution_bytes > 1:
        facts.append(f"sizes rounded down to {mebibytes(source.resolution_bytes)} by torch")
    lines = [line(Span("foretrace memory", "dim"), "  ", Span(cut(name, view.width - 18, "middle"), "title"))]
    lines += paragraph(" · ".join(facts), view.width, indent=0)
    others = [one for one in memory.devices if one.device != source.device]
    if others:
        named = [f"device {one.device} {mebibytes(one.reserved_bytes)}" for one in others]
        lines += paragraph(f"also in the file: {', '.join(named)} (--device N)", view.width, indent=0, style="dim")
    return lines


def _history(memory: Memory) -> str:
    history = memory.history
    assert history is not None
    span = "" if history.span_us is None else f" over {time(history.span_us)}"
    return f"history of {count(history.entries, 'entry', 'entries')}{span}"


def _alarms(memory: Memory, view: View) -> list[Line]:
    lines: list[Line] = []
    for check in memory.health:
        if check.state == "bad":
            lines += paragraph(check.detail, view.width, lead=Span("DO NOT TRUST  ", "bad"), indent=0)
    return lines


def _request(request: Request, view: View) -> list[Line]:
    answer = {True: Span("yes", "good"), False: Span("NO", "bad"), None: Span("the device decides", "suspect")}
    head = line(
        Span("REQUEST", "section"),
        f"  {mebibytes(request.bytes)} on {owner_of(request.stream, request.pool)}: ",
        answer[request.succeeds],
    )
    return [head, *paragraph(request.because, view.width)]


def size_rows(memory: Memory) -> list[tuple[str, int | None, str]]:
    """The sizes and what stands between them: a name, bytes, and what it counts; those with nothing to say left out."""
    totals, free = memory.totals, memory.free
    rows: list[tuple[str, int | None, str]] = [
        ("requested", totals.requested_bytes, "what the program asked for"),
        ("+ rounding", memory.fragmentation.rounding_bytes, "blocks are larger than what was asked for"),
        ("= allocated", totals.allocated_bytes, "the program's tensors"),
        ("+ pending", memory.fragmentation.pending_bytes, "freed, but another stream may still use it"),
        ("= active", totals.active_bytes, "cannot be given to anybody"),
        ("+ holes", free.holes_bytes, _holes(memory)),
        ("+ whole segments", free.whole_segments_bytes, _whole(memory)),
        ("= reserved", totals.reserved_bytes, "what the allocator holds of the device"),
        ("device used", totals.device_used_bytes, "with contexts, other libraries and processes"),
        ("device total", totals.device_total_bytes, ""),
    ]
    if all(size is None for _, size, _ in rows):
        return []
    always = ("requested", "= allocated", "= reserved")
    return [row for row in rows if row[1] is not None or row[0] in always]


def _sizes(memory: Memory, view: View) -> list[Line]:
    reserved = memory.totals.reserved_bytes
    body = [
        (name, _mib(size), _part(size, reserved) if name[0] in "+=r" else UNKNOWN, what)
        for name, size, what in size_rows(memory)
    ]
    columns = [
        Column("", left=True, keep=9),
        Column("MiB", keep=9),
        Column("of reserved", keep=6),
        Column("", left=True, least=10, style="dim", keep=4),
    ]
    if not body:
        return []
    head: list[Line] = [[Span("SIZES", "section")]]
    return [*head, *bar(memory, view.width - 2), *table(columns, body, view.width)]


def _part(size: int | None, whole: int | None) -> str:
    return UNKNOWN if size is None or not whole else share_of(size / whole)


def _holes(memory: Memory) -> str:
    free = memory.free
    if not free.holes_bytes or free.largest_hole_bytes is None:
        return "free, between live blocks"
    many = "holes" if free.holes is None else count(free.holes, "hole")
    return f"free, in {many} between live blocks; largest {mebibytes(free.largest_hole_bytes)}"


def _whole(memory: Memory) -> str:
    free = memory.free
    if not free.whole_segments_bytes or free.whole_segments is None:
        return "free, in segments nobody uses"
    largest = mebibytes(free.largest_whole_segment_bytes)
    return f"free, in {count(free.whole_segments, 'segment')} nobody uses; largest {largest}"


def _free(memory: Memory, view: View) -> list[Line]:
    kinds = memory.fragmentation
    parts = [
        (kinds.hard_bytes, "hard (between live blocks)"),
        (kinds.soft_bytes, "soft (whole segments, can be given back)"),
        (kinds.stream_bytes, "of other streams or pools"),
    ]
    known = [f"{mebibytes(size)} {what}" for size, what in parts if size is not None]
    pages = (memory.free.releasable_bytes or 0) - (memory.free.whole_segments_bytes or 0)
    if pages > 0:
        known.append(f"of the holes, {mebibytes(pages)} are whole pages and can be given back")
    return paragraph("; ".join(known), view.width, lead=Span("fragmentation: ", "head")) if known else []


def _mib(size: int | None, factor: int = _MIB) -> str:
    """One decimal, so that columns line up; what is there never shows as nothing."""
    if size is None:
        return UNKNOWN
    return f"{size / factor:.1f}" if size == 0 or size >= factor // 20 else "<0.1"


def _pins(memory: Memory, view: View) -> list[Line]:
    if not memory.pinned_by:
        return []
    shown = memory.pinned_by[: view.rows(_PINS)]
    columns = [
        Column("allocated at", left=True, least=16, cut="middle", keep=9),
        Column("blocks", keep=6),
        Column("MiB", keep=7),
        Column("segments", keep=4),
        Column("holes there\nMiB", keep=5),
        Column("alone there\nMiB", keep=8),
    ]
    rows = [_pin_row(pin) for pin in shown]
    head = line(
        Span("PINNED BY", "section"),
        Span("  live blocks in segments with holes; alone: holes that close once these are freed", "dim"),
    )
    return [head, *table(columns, rows, view.width), *_more(len(memory.pinned_by) - len(shown))]


def _pin_row(pin: Pin) -> tuple[str, ...]:
    return (
        pin.where, number(pin.blocks), _mib(pin.bytes), number(pin.segments), _mib(pin.holes_bytes),
        _mib(pin.only_here_bytes),
    )  # fmt: skip


def _more(left: int) -> list[Line]:
    return [line(Span(f"  + {left} more (--all)", "dim"))] if left > 0 else []


def _peak(memory: Memory, view: View) -> list[Line]:
    peak = memory.peak
    if peak is None:
        return []
    if not peak.alive:
        # Counters know how much it was, and nothing else.
        return [[Span("PEAK", "section"), Span(f"  {mebibytes(peak.requested_bytes)} asked for and held at once")]]
    head = [line(Span("PEAK", "section")), *paragraph("; ".join(peak_facts(peak)), view.width)]
    shown = peak.alive[: view.rows(_ALIVE)]
    unit, factor = ("MiB", _MIB) if peak.requested_bytes >= 10 * _MIB else ("KiB", 1 << 10)
    columns = [
        Column("held then, allocated at", left=True, least=16, cut="middle", keep=9),
        Column("blocks", keep=6),
        Column(unit, keep=8),
        Column("of the peak", keep=7),
        Column("during", left=True, least=8, keep=4),
        Column("module", left=True, least=8, keep=3),
    ]
    rows = [_alive_row(one, peak.requested_bytes, factor) for one in shown]
    if peak.unexplained_bytes:
        old = peak.unexplained_bytes
        rows.append(("from before the history", UNKNOWN, _mib(old, factor), _part(old, peak.requested_bytes), "", ""))
    return [*head, *table(columns, rows, view.width), *_more(len(peak.alive) - len(shown))]


def peak_facts(peak: Peak) -> list[str]:
    """How much it was, who reached it, when, and how far the history goes."""
    facts = [f"{mebibytes(peak.requested_bytes)} asked for and held at once"]
    if peak.reached_with_bytes is not None:
        at = "" if peak.reached_by is None else f" at {peak.reached_by}"
        facts.append(f"reached by {mebibytes(peak.reached_with_bytes)}{at}")
    if peak.ago_us is not None:
        facts.append(f"{time(peak.ago_us)} before the end of the history")
    if peak.during is not None:
        facts.append(f"during {peak.during}")
    if not peak.complete:
        facts.append("as far back as the history goes")
    return facts


def _alive_row(one: Alive, whole: int, factor: int) -> tuple[str, ...]:
    return (
        one.where,
        number(one.blocks),
        _mib(one.bytes, factor),
        _part(one.bytes, whole),
        one.annotation or "",
        "" if one.module is None or one.module == one.where else one.module,
    )


def _findings(memory: Memory, view: View) -> list[Line]:
    if not memory.findings:
        if memory.source.format != "snapshot":
            return []
        least = f"  none; kinds below {mebibytes(LEAST_BYTES)} or a tenth of what is reserved are not spoken of"
        return [[Span("FINDINGS", "section"), Span(least, "dim")]]
    shown = memory.findings[: view.rows(_FINDINGS)]
    lines: list[Line] = [[Span("FINDINGS", "section")]]
    for finding in shown:
        lines += _finding(finding, view)
    return lines + _more(len(memory.findings) - len(shown))


def _finding(finding: MemoryFinding, view: View) -> list[Line]:
    lines = paragraph(finding.title, view.width, lead=_lead(finding), style="head")
    lines += paragraph(finding.explanation, view.width, indent=4)
    if finding.suggestion:
        lines += paragraph(finding.suggestion, view.width, lead=Span("do: ", "good"), indent=4)
    return lines


def _lead(finding: MemoryFinding) -> Span:
    mark = _MARKS[finding.severity]
    return Span(f"{mark.text} ", mark.style)


def _unknown(memory: Memory, view: View) -> list[Line]:
    """What is doubtful or not known, and the reason."""
    lines: list[Line] = []
    for check in memory.health:
        if check.state == "suspect":
            lines += paragraph(check.detail, view.width, lead=Span("? ", "suspect"))
    for repair in memory.source.repairs:
        lines += paragraph(repair, view.width, lead=Span("· ", "dim"), style="dim")
    return [[Span("HOW FAR TO TRUST IT", "section")], *lines] if lines else []
