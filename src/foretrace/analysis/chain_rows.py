"""Which events the nodes of a dispatch chain stand for: the folded tree laid over the rows of a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from foretrace.analysis.chain import CUT_SHORT, representative_step
from foretrace.model.report import ON_GPU, Launcher, Report
from foretrace.model.timeline import Band, Timeline

__all__ = ["chain_events"]


def chain_events(report: Report, timeline: Timeline) -> list[list[int]]:
    """The events of each node of ``report.chain``, nodes in reading order (a node before those below it).

    A folded node has as many as it counts, times those of the nodes above it. A list is empty where the events cannot
    be told with certainty: rows that the timeline leaves out, several threads whose roots mingle, a tree cut short.
    """
    rows = _Rows.of(timeline, _band(report, timeline))
    found: dict[int, list[int]] = {}
    roots = list(report.chain)
    if roots and rows.step is not None and roots[0].name == timeline.names[int(timeline.name[rows.step])]:
        _below(roots[0], [rows.step], rows, found)
        roots = roots[1:]
    if len(rows.lanes) <= 1:
        _match(roots, [rows.roots], rows, found)
    if rows.step is None:
        _unlaunched(roots, timeline, rows, found)
    events = timeline.event
    listed: list[list[int]] = []
    waiting = report.chain[::-1]
    while waiting:
        node = waiting.pop()
        listed.append([int(events[row]) for row in found.get(id(node), [])])
        waiting.extend(node.children[::-1])
    return listed


def _unlaunched(roots: Sequence[Launcher], timeline: Timeline, rows: _Rows, found: dict[int, list[int]]) -> None:
    """Work on the GPU that no call is known to have launched, in the tree of a whole trace: by name, then by time."""
    on_gpu = np.array([lane.side == "gpu" for lane in timeline.lanes], dtype=np.bool_)[timeline.lane]
    on_gpu[timeline.arrow_to] = False
    free = np.flatnonzero(on_gpu)
    waiting: dict[int, list[int]] = {}
    for row in free[np.argsort(timeline.start[free], kind="stable")].tolist():
        waiting.setdefault(rows.names[row], []).append(row)
    wanted: dict[str, list[Launcher]] = {}
    for node in roots:
        if node.kind in ON_GPU:
            wanted.setdefault(node.name, []).append(node)
    for name, nodes in wanted.items():
        mine = waiting.get(rows.name_id.get(name, -1), [])
        if len(mine) == sum(node.count for node in nodes):
            at = iter(mine)
            found.update({id(node): list(islice(at, node.count)) for node in nodes})


def _band(report: Report, timeline: Timeline) -> Band | None:
    if not report.steps:
        return None
    label = report.steps[representative_step(report.steps)].label
    return next((band for band in timeline.bands if band.label == label), None)


@dataclass
class _Rows:
    """Rows of one step: what lies directly below each, without Python frames, in order of time."""

    names: list[int]
    calls: set[int]
    name_id: dict[str, int]
    step: int | None = None
    roots: list[int] = field(default_factory=list)
    lanes: set[int] = field(default_factory=set)  # of the roots
    below: dict[int, list[int]] = field(default_factory=dict)
    launched: dict[int, list[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, timeline: Timeline, band: Band | None) -> _Rows:
        kinds = np.asarray(timeline.kind)
        python = timeline.kinds.index("python") if "python" in timeline.kinds else -1
        call = timeline.kinds.index("call") if "call" in timeline.kinds else -1
        on_cpu = np.array([lane.side == "cpu" for lane in timeline.lanes], dtype=np.bool_)[timeline.lane]
        mine = on_cpu & (kinds != python)
        if band is not None:
            mine &= (timeline.start >= band.start_ns) & (timeline.start < band.end_ns)
        picked = np.flatnonzero(mine)
        rows = cls(
            names=timeline.name.tolist(),
            calls=set(np.flatnonzero(kinds == call).tolist()),
            name_id={name: at for at, name in enumerate(timeline.names)},
        )
        rows._nest(timeline, picked, band)
        for launch, work in zip(timeline.arrow_from.tolist(), timeline.arrow_to.tolist(), strict=True):
            rows.launched.setdefault(launch, []).append(work)
        return rows

    def _nest(self, timeline: Timeline, picked: np.ndarray[tuple[int], np.dtype[np.int64]], band: Band | None) -> None:
        """Find what each row lies in: rows are in order of lane, start and depth."""
        open_rows: list[tuple[int, int]] = []  # (row, end)
        lane_now = -1
        lanes, starts = timeline.lane[picked].tolist(), timeline.start[picked].tolist()
        lengths = timeline.duration[picked].tolist()
        for row, lane, start, length in zip(picked.tolist(), lanes, starts, lengths, strict=True):
            if lane != lane_now:
                lane_now, open_rows = lane, []
            while open_rows and open_rows[-1][1] <= start:
                open_rows.pop()
            # A row that outlasts the one it starts in does not lie in it.
            while open_rows and open_rows[-1][1] < start + length:
                open_rows.pop()
            if open_rows:
                self.below.setdefault(open_rows[-1][0], []).append(row)
            elif (
                band is not None
                and self.step is None
                and start == band.start_ns
                and timeline.names[self.names[row]] == band.label
            ):
                self.step = row
            else:
                self.roots.append(row)
                self.lanes.add(lane)
            open_rows.append((row, start + length))


def _match(nodes: Sequence[Launcher], instances: list[list[int]], rows: _Rows, found: dict[int, list[int]]) -> None:
    """Give each node its rows: every instance holds the rows that lie below one parent, in order."""
    on_cpu = [node for node in nodes if node.kind not in ON_GPU]
    taken: dict[int, list[int]] = {id(node): [] for node in on_cpu}
    for candidates in instances:
        if not _laid_over(on_cpu, candidates, rows, taken):
            return
    for node in on_cpu:
        if taken[id(node)]:
            _below(node, taken[id(node)], rows, found)


def _laid_over(nodes: Sequence[Launcher], candidates: list[int], rows: _Rows, taken: dict[int, list[int]]) -> bool:
    """Take the rows below one parent for its nodes; False where the two do not fit, and nothing is certain."""
    shown = {rows.name_id.get(node.name, -1) for node in nodes}
    waiting = iter(row for row in candidates if row not in rows.calls or rows.names[row] in shown)
    for node in nodes:
        if node.name.startswith(CUT_SHORT):
            return True  # the tree ends here; what came before it fits
        mine = list(islice(waiting, node.count))
        name = rows.name_id.get(node.name, -1)
        if len(mine) < node.count or any(rows.names[row] != name for row in mine):
            return False
        taken[id(node)] += mine
    return next(waiting, None) is None


def _below(node: Launcher, mine: list[int], rows: _Rows, found: dict[int, list[int]]) -> None:
    """Note the rows of a node and go on with what lies below them."""
    found[id(node)] = mine
    _match(node.children, [rows.below.get(row, []) for row in mine], rows, found)
    for child in node.children:
        if child.kind in ON_GPU:
            name = rows.name_id.get(child.name, -1)
            work = [gpu for row in mine for gpu in rows.launched.get(row, []) if rows.names[gpu] == name]
            if len(work) == child.count * len(mine):
                found[id(child)] = work
