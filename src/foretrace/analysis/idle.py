"""Why the GPU was idle: every gap of a step is given the cause its surroundings show."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np

from foretrace.analysis.context import Context
from foretrace.knowledge.blocking import is_lazy_loading
from foretrace.knowledge.kineto import RowKind, is_backward_root, is_compiling, is_data_loading, step_number
from foretrace.knowledge.limits import BACK_TO_BACK_NS, LAUNCH_LATENCY_NS, SMALL_GAP_NS

__all__ = ["BETWEEN_STEPS", "OUTSIDE", "QUEUED", "Cause", "IdleCauses"]

# Details of gaps in which the launching thread recorded nothing.
OUTSIDE = "code outside every recorded row"
BETWEEN_STEPS = "between steps (the profiler's own step, or code around the loop)"
# The profiler's rows do not overlap by the hundred; a file in which they do gets no more attention than this.
_OVERHEAD_ROWS = 64
# Detail of a gap before a kernel that was launched in time.
QUEUED = "a launched kernel waited: for another stream, or for work that was not recorded"


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
    _kept_inside: dict[int, tuple[list[int], list[int]]] = field(default_factory=dict, init=False)

    def split(self, start: int, end: int) -> list[tuple[int, int]]:
        """The gap in one piece, or in two where the next kernel was launched long before it started.

        The CPU can be blamed for the time until its launch call returned, not for what the kernel then waited for.
        """
        following = self._next_gpu_row(end)
        launch = int(self.context.trace.links.launch[following]) if following >= 0 else -1
        if launch >= 0:
            returned = int(self.context.trace.end[launch])
            if start < returned and end - returned > LAUNCH_LATENCY_NS:
                return [(start, returned), (returned, end)]
        return [(start, end)]

    def explain(self, start: int, end: int, limit: int) -> Cause:
        """The cause of a piece ``[start, end)`` of a gap (see ``split``) inside a period that ends at ``limit``."""
        if end - start < SMALL_GAP_NS:
            return Cause("launch_latency", "hand-over between kernels")
        trace = self.context.trace
        following = self._next_gpu_row(end)
        launch = int(trace.links.launch[following]) if following >= 0 else -1
        lane = int(trace.lane[launch]) if launch >= 0 else self._main_lane
        artifact = self._profiler(start, end, launch)
        if artifact >= 0:
            return Cause("profiler", trace.name(artifact), artifact)
        if following < 0:
            return self._cpu(lane, start, min(end, limit), launch)
        if launch < 0:
            return Cause("unknown", "the next kernel's launch is not in the trace")
        launched, returned = int(trace.start[launch]), int(trace.end[launch])
        if trace.links.graph[following] and launched < start:
            return Cause("graph", "between the nodes of one graph launch", launch)
        if launched < start:
            if returned > start or end - launched <= LAUNCH_LATENCY_NS or end - start <= BACK_TO_BACK_NS:
                return Cause("launch_latency", trace.name(launch), launch)
            return Cause("unknown", QUEUED)
        if launched - start < SMALL_GAP_NS:
            return Cause("launch_latency", trace.name(launch), launch)
        return self._cpu(lane, start, min(launched, limit), launch)

    def _cpu(self, lane: int, start: int, end: int, launch: int) -> Cause:
        """What the CPU thread did while the GPU had nothing to do; ``launch`` is the call that ended it (-1: none)."""
        trace = self.context.trace
        blocked = self._blocking_call(lane, start, end)
        if blocked in self.context.profiler_syncs:
            return Cause("profiler", f"the profiler's own {trace.name(blocked)}", blocked)
        if blocked >= 0:
            op = trace.forest.enclosing(blocked, RowKind.OPERATOR)
            where = f"{trace.name(op)} → {trace.name(blocked)}" if op >= 0 else trace.name(blocked)
            return Cause("synchronization", where, blocked)
        row = self._busy_row(lane, start, end)
        if row < 0:
            return Cause("waiting_for_cpu", self._outside(start, end, launch))
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
        name = "the step" if step_number(trace.name(row)) is not None else trace.name(row)
        return Cause("waiting_for_cpu", f"Python in {name}", row)

    def _outside(self, start: int, end: int, launch: int) -> str:
        """Words for a window in which the launching thread recorded nothing."""
        trace = self.context.trace
        if launch >= 0 and any(is_backward_root(trace.name(up)) for up in trace.forest.ancestors(launch)):
            return "the autograd engine, outside its operators"
        if trace.steps[0].row < 0:
            return OUTSIDE
        middle = (start + end) // 2
        starts, reach = self._steps
        at = bisect_right(starts, middle) - 1
        return OUTSIDE if at >= 0 and middle < reach[at] else BETWEEN_STEPS

    @cached_property
    def _steps(self) -> tuple[list[int], list[int]]:
        """Starts of the steps, and how far any step that began until then reaches (ns)."""
        spans = sorted((span.start, span.end) for span in self.context.trace.steps)
        return [start for start, _ in spans], list(accumulate((end for _, end in spans), max))

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
            rows, starts = self._inside(covering)
        return best

    def _inside(self, row: int) -> tuple[list[int], list[int]]:
        """The children of a row and their starts; many gaps fall into one row, so both are kept."""
        found = self._kept_inside.get(row)
        if found is None:
            rows = self.context.trace.forest.children().get(row, [])
            found = self._kept_inside[row] = (rows, self.context.trace.start[rows].tolist())
        return found

    def _blocking_call(self, lane: int, start: int, end: int) -> int:
        """A synchronizing call that was waiting when the GPU ran dry and returned before ``end`` (-1: none)."""
        rows, ends = self._blocking.get(lane, ([], []))
        trace = self.context.trace
        for row in rows[bisect_left(ends, start) : bisect_right(ends, end)]:
            if trace.start[row] <= start:
                return row
        return -1

    def _profiler(self, start: int, end: int, launch: int) -> int:
        """A profiler overhead row that covers at least half of the gap and held up the work (-1: none).

        The profiler asks for buffers on a thread of its own too. It held the work up if the launching thread recorded
        nothing meanwhile, or if the launch was made before the gap and took longer than launches do.
        """
        trace = self.context.trace
        rows, starts, latest = self._overhead
        lane = int(trace.lane[launch]) if launch >= 0 else self._main_lane
        launched = int(trace.start[launch]) if launch >= 0 else end
        at = bisect_left(starts, end) - 1
        furthest = max(0, at - _OVERHEAD_ROWS)
        while at >= furthest and latest[at] > start:
            low, high = max(start, starts[at]), min(end, int(trace.end[rows[at]]))
            if (high - low) * 2 >= end - start:
                begun = self._starts_of(lane)
                quiet = bisect_right(begun, low) >= bisect_left(begun, high)
                if end - launched > LAUNCH_LATENCY_NS if launched < start else quiet:
                    return rows[at]
            at -= 1
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
    def _overhead(self) -> tuple[list[int], list[int], list[int]]:
        """The profiler's own rows by start, their starts, and the latest end so far."""
        trace = self.context.trace
        rows = trace.rows(RowKind.OVERHEAD)
        rows = rows[[not is_lazy_loading(trace.name(row)) for row in rows.tolist()]] if len(rows) else rows
        rows = rows[np.argsort(trace.start[rows], kind="stable")]
        return rows.tolist(), trace.start[rows].tolist(), np.maximum.accumulate(trace.end[rows]).tolist()

    def _starts_of(self, lane: int) -> list[int]:
        """Starts of all CPU rows of a thread, in order."""
        kept = self._lane_starts.get(lane)
        if kept is None:
            trace = self.context.trace
            host = trace.forest.order
            kept = self._lane_starts[lane] = trace.start[host[trace.lane[host] == lane]].tolist()
        return kept

    @cached_property
    def _lane_starts(self) -> dict[int, list[int]]:
        return {}

    @cached_property
    def _roots(self) -> dict[int, tuple[list[int], list[int]]]:
        """Thread → its root rows and their starts."""
        trace = self.context.trace
        table: dict[int, tuple[list[int], list[int]]] = {}
        for row in self.context.trace.forest.children().get(-1, []):
            rows, starts = table.setdefault(int(trace.lane[row]), ([], []))
            rows.append(row)
            starts.append(int(trace.start[row]))
        return table

    @cached_property
    def _blocking(self) -> dict[int, tuple[list[int], list[int]]]:
        """Thread → its calls that wait for the GPU and their ends, in order of end."""
        trace = self.context.trace
        table: dict[int, tuple[list[int], list[int]]] = {}
        for row in self.context.blocking.tolist():
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
