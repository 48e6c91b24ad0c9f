"""Why the GPU was idle: every gap of a step is given the cause its surroundings show."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretrace.analysis.context import Context
from foretrace.knowledge.kineto import Call, RowKind, is_compiling, is_data_loading
from foretrace.knowledge.limits import BACK_TO_BACK_NS, LAUNCH_LATENCY_NS, SMALL_GAP_NS

__all__ = ["Cause", "IdleCauses"]


@dataclass(frozen=True)
class Cause:
    """What a gap is put down to; ``row`` is the CPU row that shows it (-1: none)."""

    cause: str
    detail: str | None
    row: int = -1


@dataclass(eq=False)
class IdleCauses:
    """Answers ``explain(start, end)`` for stretches without GPU work (ns, half open)."""

    context: Context

    def explain(self, start: int, end: int, limit: int) -> Cause:
        """The cause of the gap ``[start, end)`` inside a period that ends at ``limit``."""
        if end - start < SMALL_GAP_NS:
            return Cause("launch_latency", "hand-over between kernels")
        artifact = self._profiler(start, end)
        if artifact >= 0:
            return Cause("profiler", self.context.trace.name(artifact), artifact)
        following = self._next_gpu_row(end)
        if following < 0:
            return self._cpu(self._main_lane, start, min(end, limit))
        launch = int(self.context.trace.links.launch[following])
        if launch < 0:
            return Cause("unknown", "the next kernel's launch is not in the trace")
        trace = self.context.trace
        launched, returned = int(trace.start[launch]), int(trace.end[launch])
        if trace.links.graph[following] and launched < start:
            return Cause("graph", "between the nodes of one graph launch", launch)
        if launched < start:
            if returned >= start or end - launched <= LAUNCH_LATENCY_NS or end - start <= BACK_TO_BACK_NS:
                return Cause("launch_latency", trace.name(launch), launch)
            return Cause(
                "unknown", "the next kernel was queued already; it waited for another stream or a resource"
            )
        if launched - start < SMALL_GAP_NS:
            return Cause("launch_latency", trace.name(launch), launch)
        return self._cpu(int(trace.lane[launch]), start, min(launched, limit))

    def _cpu(self, lane: int, start: int, end: int) -> Cause:
        """What the CPU thread did while the GPU had nothing to do."""
        trace = self.context.trace
        blocked = self._blocking_call(lane, start, end)
        if blocked >= 0:
            op = trace.forest.enclosing(blocked, RowKind.OPERATOR)
            where = f"{trace.name(op)} → {trace.name(blocked)}" if op >= 0 else trace.name(blocked)
            return Cause("synchronization", where, blocked)
        row = self._busy_row(lane, start, end)
        if row < 0:
            return Cause("waiting_for_cpu", self._outside(start, end))
        chain = [row, *trace.forest.ancestors(row)]
        for ancestor in chain:
            name = trace.name(ancestor)
            if is_data_loading(name):
                return Cause("data_loading", name, ancestor)
            if is_compiling(name):
                return Cause("compile", name, ancestor)
        for ancestor in chain:
            if trace.kind[ancestor] == RowKind.OPERATOR:
                return Cause("waiting_for_cpu", trace.name(ancestor), ancestor)
        if trace.kind[row] in (RowKind.CALL, RowKind.PYTHON):
            return Cause("waiting_for_cpu", trace.name(row), row)
        return Cause("waiting_for_cpu", f"Python between the operators of {trace.name(row)}", row)

    def _outside(self, start: int, end: int) -> str:
        """Words for a window in which the thread recorded nothing."""
        middle = (start + end) // 2
        if self.context.trace.steps[0].row >= 0 and not any(
            s.start <= middle < s.end for s in self.context.trace.steps
        ):
            return "between steps (the profiler's own step, or code around the loop)"
        return "code outside every recorded row"

    def _busy_row(self, lane: int, start: int, end: int) -> int:
        """The deepest row of a thread that covers at least half of a window (-1: none does)."""
        trace = self.context.trace
        half = (end - start) / 2
        best = -1
        rows, starts = self._roots.get(lane, ([], []))
        while rows:
            covering = -1
            at = bisect_right(starts, start) - 1
            for row in rows[max(at, 0) : bisect_left(starts, end)]:
                overlap = min(end, int(trace.end[row])) - max(start, int(trace.start[row]))
                if overlap >= half:
                    covering = row
                    break
            if covering < 0:
                return best
            best = covering
            rows = self._children.get(covering, [])
            starts = [int(trace.start[row]) for row in rows]
        return best

    def _blocking_call(self, lane: int, start: int, end: int) -> int:
        """A synchronizing call that was waiting when the GPU ran dry and returned before ``end`` (-1: none)."""
        rows, ends = self._blocking.get(lane, ([], []))
        trace = self.context.trace
        for row in rows[bisect_left(ends, start) : bisect_right(ends, end)]:
            if trace.start[row] <= start:
                return row
        return -1

    def _profiler(self, start: int, end: int) -> int:
        """A profiler overhead row that covers at least half of the gap (-1: none)."""
        trace = self.context.trace
        for row in self._overhead:
            overlap = min(end, int(trace.end[row])) - max(start, int(trace.start[row]))
            if overlap * 2 >= end - start:
                return row
        return -1

    def _next_gpu_row(self, at: int) -> int:
        position = bisect_left(self._gpu_starts, at)
        rows = self.context.trace.gpu_rows
        return int(rows[position]) if position < len(rows) else -1

    @cached_property
    def _gpu_starts(self) -> list[int]:
        trace = self.context.trace
        starts: list[int] = trace.start[trace.gpu_rows].tolist()
        return starts

    @cached_property
    def _overhead(self) -> list[int]:
        rows: list[int] = self.context.trace.rows(RowKind.OVERHEAD).tolist()
        return rows

    @cached_property
    def _children(self) -> dict[int, list[int]]:
        return self.context.trace.forest.children()

    @cached_property
    def _roots(self) -> dict[int, tuple[list[int], list[int]]]:
        """Thread → its root rows and their starts."""
        trace = self.context.trace
        table: dict[int, tuple[list[int], list[int]]] = {}
        for row in self._children.get(-1, []):
            rows, starts = table.setdefault(int(trace.lane[row]), ([], []))
            rows.append(row)
            starts.append(int(trace.start[row]))
        return table

    @cached_property
    def _blocking(self) -> dict[int, tuple[list[int], list[int]]]:
        """Thread → its synchronizing calls and their ends, in order of end."""
        trace = self.context.trace
        rows = np.flatnonzero(trace.links.call == Call.SYNCHRONIZE)
        table: dict[int, tuple[list[int], list[int]]] = {}
        for row in rows[np.argsort(trace.end[rows], kind="stable")].tolist():
            calls, ends = table.setdefault(int(trace.lane[row]), ([], []))
            calls.append(row)
            ends.append(int(trace.end[row]))
        return table

    @cached_property
    def _main_lane(self) -> int:
        """The thread that launches most."""
        trace = self.context.trace
        lanes = trace.lane[np.flatnonzero(trace.links.enqueues)]
        return int(np.bincount(lanes).argmax()) if len(lanes) else -1
