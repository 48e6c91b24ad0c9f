"""``Trace``: one file as columns, one row an event, times in integer nanoseconds.

Rows are the events that have a time (complete, begin/end pairs, allocator instants), in the file's order. Flow
arrows and metadata are read for what they say and are no rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.formats import NANOSECONDS
from foretrace.knowledge.kineto import GPU_WORK, RowKind
from foretrace.model.prediction import is_predicted
from foretrace.model.shown import Shown

if TYPE_CHECKING:
    import polars

    from foretrace.trace.forest import Forest
    from foretrace.trace.links import Links
    from foretrace.trace.steps import StepSpan

__all__ = ["Lane", "Trace"]

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
UInt8 = NDArray[np.uint8]
Bool = NDArray[np.bool_]


@dataclass(frozen=True)
class Lane:
    """A (process, thread) pair of the file: a CPU thread, or a stream of a device."""

    pid: int | str
    tid: int | str


@dataclass(eq=False)
class Trace(Shown):
    """A profiler trace as columns; every array has one entry a row.

    Attributes:
        path: where it was read from (``-`` for standard input).
        format: ``"kineto"`` or ``"kineto array"``, with ``" gzip"`` when compressed.
        meta: the top-level keys of the file other than ``traceEvents``.
        total_events: entries of ``traceEvents``, flow arrows and metadata included.
        repairs: what had to be mended before the file could be read, in words.
        names: the distinct event names; ``name_id`` points into it.
        categories: the distinct ``cat`` strings; ``category_id`` points into it.
        lanes: the distinct (pid, tid) pairs; ``lane`` points into it.
        kind: ``RowKind`` of each row, uint8.
        start, duration: int64 nanoseconds on the file's own clock.
        event: int64, position in the file's ``traceEvents``.
        arguments: the raw JSON of each row's ``args`` (empty where it has none); see ``args``.
        flows: (category, id, is_start, lane, time in ns) of the forward-to-backward arrows.
        odd: counts of rows that were left out of the columns or changed, by reason (for the health checks).
    """

    path: str
    format: str
    meta: dict[str, Any]
    total_events: int
    repairs: list[str]
    names: list[str]
    name_id: Int32
    categories: list[str]
    category_id: Int32
    lanes: list[Lane]
    lane: Int32
    kind: UInt8
    start: Int64
    duration: Int64
    event: Int64
    arguments: list[Any]
    flows: list[tuple[str, int, bool, int, int]] = field(default_factory=list)
    lane_names: dict[int, str] = field(default_factory=dict)
    odd: dict[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.start)

    def __repr__(self) -> str:
        gpu = int(self.is_gpu_work.sum())
        return f"<Trace {self.path}: {len(self)} rows, {gpu} on the GPU, {len(self.steps)} steps>"

    @property
    def in_nanoseconds(self) -> bool:
        """Whether the file's times are nanoseconds although the format says microseconds; columns are ns all the same.

        Other readers of the file have other times.
        """
        return NANOSECONDS in self.odd

    @property
    def predicted(self) -> bool:
        """Whether the file says that foretrace predicted it: no time in it was measured."""
        return is_predicted(self.meta)

    @cached_property
    def correlation(self) -> Int64:
        """The id that ties API calls and GPU rows, int64; 0 is none. Read on first use."""
        return self._link_ids[0]

    @cached_property
    def stream(self) -> Int32:
        """Stream of a GPU row, int32; -1 where the row has none. Read on first use."""
        return self._link_ids[1]

    @cached_property
    def device(self) -> Int32:
        """Device of a GPU row, int32; -1 where the row has none. Read on first use."""
        return self._link_ids[2]

    @cached_property
    def _link_ids(self) -> tuple[Int64, Int32, Int32]:
        from foretrace.trace.ids import link_ids

        return link_ids(self.arguments, self.kind, self.odd)

    @cached_property
    def external(self) -> Int64:
        """The profiler's id of the operator a row belongs to, int64; 0 is none. Read on first use."""
        return self._operator_ids[0]

    @cached_property
    def sequence(self) -> Int64:
        """Autograd's sequence number, int64; -1 where the row has none. Read on first use."""
        return self._operator_ids[1]

    @cached_property
    def _operator_ids(self) -> tuple[Int64, Int64]:
        from foretrace.trace.ids import operator_ids

        return operator_ids(self.arguments, self.kind)

    @cached_property
    def end(self) -> Int64:
        """Start plus duration, int64 nanoseconds."""
        return self.start + self.duration

    @cached_property
    def origin(self) -> int:
        """The earliest start of a CPU or GPU row, ns; report times count from here."""
        timed = self.kind != RowKind.SPAN
        timed &= self.kind != RowKind.OTHER
        timed &= self.kind != RowKind.OVERHEAD
        if not timed.any():
            return int(self.start.min()) if len(self) else 0
        return int(self.start[timed].min())

    @property
    def length_us(self) -> float | None:
        """From the origin to the last end, µs; ``None`` without rows."""
        return (int(self.end.max()) - self.origin) / 1000 if len(self) else None

    def counts(self) -> dict[RowKind, int]:
        """How many rows there are of each kind that is there, in the order of ``RowKind``."""
        kinds, many = np.unique(self.kind, return_counts=True)
        return {RowKind(kind): count for kind, count in zip(kinds.tolist(), many.tolist(), strict=True)}

    @cached_property
    def is_gpu_work(self) -> Bool:
        """Mask of kernel, memcpy and memset rows: what occupies the GPU."""
        return np.isin(self.kind, GPU_WORK)

    @cached_property
    def gpu_rows(self) -> Int64:
        """Row numbers of all GPU work in order of start."""
        rows = np.flatnonzero(self.is_gpu_work)
        return rows[np.argsort(self.start[rows], kind="stable")].astype(np.int64)

    def rows(self, *kinds: RowKind) -> Int64:
        """Row numbers of the given kinds, in the file's order."""
        return np.flatnonzero(np.isin(self.kind, kinds)).astype(np.int64)

    def name(self, row: int) -> str:
        """The name of a row."""
        return self.names[int(self.name_id[row])]

    def args(self, row: int) -> dict[str, Any]:
        """The decoded ``args`` of a row, mended if need be; an empty dict where it has none that can be read."""
        raw = self.arguments[row]
        if not raw:
            return {}
        if isinstance(raw, dict):
            return raw
        from foretrace.trace.ids import read_args

        return read_args(raw) or {}

    def start_us(self, row: int) -> float:
        """Start of a row in µs since ``origin``."""
        return (int(self.start[row]) - self.origin) / 1000

    @cached_property
    def forest(self) -> Forest:
        """The call forest of the CPU rows, one tree root list a thread."""
        from foretrace.trace.forest import build_forest

        return build_forest(self)

    @cached_property
    def links(self) -> Links:
        """Which call launched which GPU row."""
        from foretrace.trace.links import build_links

        return build_links(self)

    @cached_property
    def steps(self) -> list[StepSpan]:
        """The profiler steps, or one span over everything where the trace has none."""
        from foretrace.trace.steps import find_steps

        return find_steps(self)

    @cached_property
    def marks(self) -> list[StepSpan]:
        """In a slim trace, where the steps begin that follow those it was cut to; they are none of its steps."""
        from foretrace.trace.steps import find_marks

        return find_marks(self)

    @cached_property
    def events(self) -> polars.DataFrame:
        """The rows as a Polars frame, one an event, in the file's order; for SQL and free analysis.

        Columns, NULL for what is unknown::

            event         int    position in the file's traceEvents
            name, category, kind   text; kind is that of RowKind, in small letters ("kernel", "operator")
            start_us      float  µs since the first CPU or GPU row (``origin``)
            duration_us   float  µs; NULL for an allocator row, which is an instant
            process, thread        text; the file's pid and tid
            correlation   int    ties an API call and the GPU rows it launched
            external_id   int    the profiler's id of the operator
            stream, device         int; of a GPU row
            step          int    of a CPU row the step it starts in, of GPU work the step that launched it
            parent_event  int    the innermost CPU row of the same thread around a CPU row

        ``foretrace.analysis.tables.Tables`` has this and five more tables and answers SQL.
        """
        from foretrace.trace.frames import events_frame

        return events_frame(self)
