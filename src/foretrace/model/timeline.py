"""A timeline to be drawn: what ran when, in which lane, as columns.

It is made of a ``Trace`` by ``analysis/timeline.py`` and drawn by the HTML report. Times are int64 nanoseconds since
the trace's origin, the zero of every ``start_us`` in a report, or since ``origin_ns`` after it. A row keeps the number
of its event in the file, by which reports and findings name events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Band", "DrawnLane", "Timeline"]


@dataclass(frozen=True)
class DrawnLane:
    """One thread of the CPU, or one stream of a GPU."""

    title: str  # "thread 12 (python)", "stream 7"
    group: str  # "CPU, process 4711", "GPU 0: NVIDIA H200"
    side: Literal["cpu", "gpu"]
    depth: int  # rows that lie under each other in it at most
    subtitle: str = ""  # "705 µs busy", "1204 rows"


@dataclass(frozen=True)
class Band:
    """A step, drawn behind all lanes; ns, counted as the rows are."""

    label: str
    start_ns: int
    end_ns: int


@dataclass(eq=False)
class Timeline:
    """Rows in order of lane, then start.

    Attributes:
        lanes: CPU threads first, then streams, each in the order in which they are drawn.
        lane: uint32, position in ``lanes``.
        depth: uint32, 0 is the outermost.
        start: int64 ns since the trace's origin, less ``origin_ns``; duration: int64 ns.
        name: uint32, position in ``names``.
        kind: uint8, position in ``kinds``: of a GPU row the kind in the report (a kernel kind, memcpy, memset), of a
            CPU row what it is (operator, annotation, call, python).
        event: int64, the event of the file.
        arrow_from, arrow_to: uint32, positions of rows: a launch, and what it put on a stream.
        bands: the steps.
        left_out: rows that are not drawn, by the reason.
        labels: what is written into a rectangle, one for each of ``names``: short names of kernels.
        origin_ns: where times are counted from, ns after the trace's origin: 0, but for a trace so long that a page
            cannot hold its times exactly.
    """

    lanes: list[DrawnLane]
    names: list[str]
    kinds: list[str]
    lane: NDArray[np.uint32]
    depth: NDArray[np.uint32]
    start: NDArray[np.int64]
    duration: NDArray[np.int64]
    name: NDArray[np.uint32]
    kind: NDArray[np.uint8]
    event: NDArray[np.int64]
    arrow_from: NDArray[np.uint32]
    arrow_to: NDArray[np.uint32]
    bands: list[Band] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    origin_ns: int = 0

    def __len__(self) -> int:
        return len(self.start)
