"""``slim``: a smaller copy of a trace: some of its steps, without its Python stacks, mended if it was damaged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.context import Context, has_stacks
from foretrace.analysis.health import health_to_keep
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind, module_name
from foretrace.knowledge.slimming import DROPPABLE, SLIM_KEY
from foretrace.knowledge.tracks import TRACK_CATEGORY
from foretrace.model.prediction import METADATA_KEY, is_predicted
from foretrace.model.slim import Slimmed, SlimNote, StepName, slim_note
from foretrace.model.words import time
from foretrace.trace import load
from foretrace.trace.steps import select_steps
from foretrace.trace.table import Trace
from foretrace.trace.writer import write_trace
from foretrace.view.beside import copy_side, refuse_target
from foretrace.view.overlaps import Moves, overlap_moves
from foretrace.view.raw import RawFile, open_raw
from foretrace.view.slim_events import ended, event_mask, shortener
from foretrace.view.slim_rows import Cut, Window, cut_to_range, cut_to_steps, dropped_kinds, named

__all__ = ["slim"]


def slim(
    source: str | Path,
    target: str | Path,
    *,
    steps: Sequence[int | str] | None = None,
    what: str = "a step is",
    span: tuple[int | None, int | None] | None = None,
    drop: Sequence[str] = ("stacks",),
    fix_overlaps: bool = False,
    force: bool = False,
) -> Slimmed:
    """Write a smaller copy of a trace, and copy its side file with it.

    Args:
        source: the trace; a damaged one is mended as the reader mends it.
        target: the copy, packed where its name ends in ``.gz``.
        steps: the steps to keep, by position (0 is the first) or label; None keeps all. A kernel belongs to the step
            whose launch is inside it.
        what: what names a step, for the error (see `select_steps`).
        span: a range ``(from, to)`` in ns since the first CPU or GPU row, instead of steps; None in it is open.
        drop: parts to leave out, of ``knowledge.slimming.DROPPABLE``.
        fix_overlaps: put rows that overlap another one of their lane without being inside it on a lane of their own.
        force: replace files that exist.

    Raises:
        TraceReadError: ``source`` cannot be read.
        InputError: a step or part that there is not, an empty range, a target that must not or cannot be written.
    """
    source, target = Path(source), Path(target)
    unknown = [part for part in drop if part not in DROPPABLE]
    if unknown:
        raise InputError(f"there is no part {unknown[0]!r} to leave out; choose from {', '.join(DROPPABLE)}")
    if steps is not None and span is not None:
        raise InputError("a trace is cut to steps or to a range, not to both; give one of them")
    refuse_target(source, target, force=force)
    trace = load(source)
    raw = open_raw(trace, own=TRACK_CATEGORY)
    cut, labels = _cut(trace, steps, what, span)
    cut.rows &= ~dropped_kinds(trace, drop)
    stays, kept, dropped = event_mask(trace, raw, cut, drop)
    note = _note(trace, cut, labels, drop)
    meta = _meta(trace, stays, note)
    moves = overlap_moves(trace, raw, cut.rows) if fix_overlaps else Moves()
    ends = set(trace.event[cut.ends].tolist())
    before, repairs = trace.total_events, trace.repairs
    parts = [step.label for step in note.cut_steps or []]
    del trace, cut  # what follows needs only the mask: a large file is read again, piece by piece
    write_trace(target, _events(raw, stays, ends, shortener(drop), moves), meta, force=force)
    side = copy_side(source, target, cut=bool(labels) or span is not None)
    return Slimmed(
        path=str(target),
        before_bytes=source.stat().st_size,
        after_bytes=target.stat().st_size,
        before_events=before,
        after_events=int(stays.sum()) + len(moves.names),
        kept=dict(kept),
        dropped=dict(dropped),
        steps=labels,
        repairs=list(repairs),
        moved=moves.count,
        side=None if side is None else str(side),
        cut_steps=parts,
    )


def _cut(
    trace: Trace, steps: Sequence[int | str] | None, what: str, span: tuple[int | None, int | None] | None
) -> tuple[Cut, list[str]]:
    if is_predicted(trace.meta) and (steps is not None or span is not None):
        raise InputError(f"{trace.path} is a predicted step, which is whole or nothing; leave out --step and --range")
    if steps is not None:
        chosen = select_steps(trace.steps, steps, what=what)
        if not chosen:
            raise InputError("no step was chosen; name one, or leave out --step to keep all")
        cut = cut_to_steps(trace, chosen)
        return cut, [trace.steps[index].label for index in chosen] if cut.windows else []
    if span is not None:
        low, high = span
        first = trace.origin
        last = int(trace.end.max()) + 1 if len(trace) else first
        window = Window(first if low is None else first + low, last if high is None else first + high)
        cut = cut_to_range(trace, window)
        if not cut.rows.any():
            raise InputError(f"nothing was recorded in that range; the trace is {time((last - first) / 1000)} long")
        return cut, []
    return Cut(np.ones(len(trace), dtype=np.bool_)), []


def _note(trace: Trace, cut: Cut, labels: list[str], drop: Sequence[str]) -> SlimNote:
    """What the copy says of the trace it was made of; what the trace says so itself, of another one, stays said."""
    note = slim_note(trace.meta) or SlimNote(dropped=[])
    note.dropped = sorted({*note.dropped, *_recorded(trace, drop)})
    known = note.cut_steps
    if note.range_us is not None and known is None:  # a range of which nothing else is known
        known = [named(span) for span in trace.steps]
    if cut.windows:
        kept = [*trace.steps, *trace.marks]
        marks = {*cut.ends, *(mark.row for mark in trace.marks)}
        note.marks = [named(span) for span in kept if span.row in marks and cut.rows[span.row]]
        steps = [named(span) for span in trace.steps if cut.rows[span.row] and span.row not in marks]
        known = [step for step in known or [] if step in steps or not steps]
    if labels:
        note.steps = labels
    elif cut.windows:
        window = cut.windows[0]
        note.range_us = ((window.start - trace.origin) / 1000, (window.end - trace.origin) / 1000)
    parts: list[StepName] = [*(known or []), *cut.parts]
    note.cut_steps = list(dict.fromkeys(parts)) if note.range_us is not None else None
    note.repairs = list(dict.fromkeys([*note.repairs, *trace.repairs]))
    if note.cut:
        there = {"gpu": bool(len(trace.gpu_rows)), "calls": bool(len(trace.rows(RowKind.CALL)))}
        note.recorded = sorted({*note.recorded, *(what for what, found in there.items() if found)})
    note.health = health_to_keep(trace)
    return note


def _recorded(trace: Trace, drop: Sequence[str]) -> set[str]:
    """The parts to leave out that are there: what was not recorded is not said to be left out."""
    parts = set(drop)
    if "args" in parts:
        parts.add("shapes")
    there = {
        "stacks": has_stacks(trace),
        "modules": any(module_name(name) is not None for name in trace.names),
        "shapes": Context(trace=trace).has_shapes,
        "memory": bool(np.any(trace.kind == RowKind.MEMORY)),
    }
    return {part for part in parts if there.get(part, True)}


def _meta(trace: Trace, stays: NDArray[np.bool_], note: SlimNote) -> dict[str, Any]:
    """The top-level keys of the copy: those of the file, and what it was cut to."""
    meta = {str(key): value for key, value in trace.meta.items() if key != "traceEvents"}
    meta[SLIM_KEY] = msgspec.to_builtins(note)
    prediction = meta.get(METADATA_KEY)
    if is_predicted(meta) and isinstance(prediction, dict) and isinstance(prediction.get("rows"), list):
        # A prediction names its rows by their place among the events, which is another one now.
        place = np.cumsum(stays) - 1
        rows = [_moved(row, place) for row in prediction["rows"]]
        meta[METADATA_KEY] = {**prediction, "rows": rows}
    return meta


def _moved(row: Any, place: NDArray[np.int64]) -> Any:
    at = row.get("event") if isinstance(row, dict) else None
    return {**row, "event": int(place[at])} if isinstance(at, int) and 0 <= at < len(place) else row


def _events(
    raw: RawFile,
    stays: NDArray[np.bool_],
    ends: set[int],
    shorten: Callable[[msgspec.Raw], msgspec.Raw] | None,
    moves: Moves,
) -> Iterator[Any]:
    at = 0
    for batch in raw.batches():
        for place in np.flatnonzero(stays[at : at + len(batch)]).tolist():
            event = batch[place] if shorten is None else shorten(batch[place])
            if at + place in ends:
                event = ended(event)
            yield moves.moved(at + place, event)
        at += len(batch)
    yield from moves.names
