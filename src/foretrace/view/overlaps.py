"""Rows that the Perfetto UI would drop, put on lanes of their own.

Complete events of one lane must nest or be apart for Perfetto; of two that overlap in part it drops the later one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.tracks import EXTRA_LANE, FIRST_TID
from foretrace.trace.table import Lane, Trace
from foretrace.view.raw import RawFile

__all__ = ["Moves", "fitting_lanes", "overlap_moves"]


@dataclass(eq=False)
class Moves:
    """Events that go to another lane: ``tids`` by position, ``names`` are the metadata events of the new lanes."""

    tids: dict[int, int] = field(default_factory=dict)
    names: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0  # rows among them

    def moved(self, place: int, event: msgspec.Raw) -> msgspec.Raw:
        """The event with the thread it goes to."""
        tid = self.tids.get(place)
        if tid is None:
            return event
        decoded = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
        return msgspec.Raw(msgspec.json.encode({**decoded, "tid": tid}))


def fitting_lanes(starts: list[int], ends: list[int]) -> list[int]:
    """A lane for each span, 0 the first, so that spans of one lane nest or are apart.

    The spans are in order of start, of equal starts the longer first.
    """
    open_ends: list[list[int]] = []
    chosen = []
    for start, end in zip(starts, ends, strict=True):
        for lane, stack in enumerate(open_ends):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or stack[-1] >= end:
                stack.append(end)
                chosen.append(lane)
                break
        else:
            open_ends.append([end])
            chosen.append(len(open_ends) - 1)
    return chosen


def overlap_moves(trace: Trace, raw: RawFile, rows: NDArray[np.bool_]) -> Moves:
    """What to move of the rows that stay. An arrow that begins or ends where a moved row starts goes with it."""
    moves = Moves()
    order = np.flatnonzero(rows)
    order = order[np.lexsort((-trace.duration[order], trace.start[order], trace.lane[order]))]
    cuts = np.flatnonzero(np.diff(trace.lane[order])) + 1
    free = _free_tids(trace, raw)
    moved_at: dict[tuple[Any, Any, int], int] = {}
    stays_at: set[tuple[Any, Any, int]] = set()
    for group in np.split(order, cuts) if len(order) else []:
        lanes = fitting_lanes(trace.start[group].tolist(), trace.end[group].tolist())
        lane = trace.lanes[int(trace.lane[group[0]])]
        tids: dict[int, int] = {}
        for row, extra in zip(group.tolist(), lanes, strict=True):
            key = (lane.pid, lane.tid, int(trace.start[row]))
            if not extra:
                stays_at.add(key)
                continue
            if extra not in tids:
                tids[extra] = next(free)
                moves.names += _named(trace, int(trace.lane[row]), lane, extra, tids[extra])
            moves.tids[int(trace.event[row])] = moved_at[key] = tids[extra]
            moves.count += 1
    for mark in raw.marks if moved_at else []:
        at: tuple[Any, Any, int] = (mark.pid, mark.tid, -1 if mark.ns is None else mark.ns)
        if mark.ph in ("s", "t", "f") and at in moved_at and at not in stays_at:
            moves.tids[mark.position] = moved_at[at]
    return moves


def _free_tids(trace: Trace, raw: RawFile) -> Iterator[int]:
    used = {lane.tid for lane in trace.lanes} | {mark.tid for mark in raw.marks}
    return (tid for tid in range(FIRST_TID, 0, -1) if tid not in used)


def _named(trace: Trace, number: int, lane: Lane, extra: int, tid: int) -> list[dict[str, Any]]:
    name = trace.lane_names.get(number) or f"{lane.tid}"
    title = EXTRA_LANE.format(name=name, number=extra)
    return [{"ph": "M", "name": "thread_name", "pid": lane.pid, "tid": tid, "args": {"name": title}}]
