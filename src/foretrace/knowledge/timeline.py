"""What a drawn timeline holds: how many rows, which not, and what the rows of the CPU are called."""

from __future__ import annotations

from foretrace.knowledge.kineto import RowKind

__all__ = [
    "CPU_KINDS",
    "LEFT_OUT",
    "LONGEST_NS",
    "MOST_ROWS",
    "OUT_OF_REACH",
    "PROFILER_GROUP",
    "SHORT_CPU_ROWS",
    "SHORT_FRAMES",
]

# Chromium on two slow cores opens this many rows within the two seconds a reader waits, and they take about 4 MB.
MOST_ROWS = 300_000

# What a row of the CPU is, by its category.
CPU_KINDS = {
    RowKind.OPERATOR: "operator",
    RowKind.ANNOTATION: "annotation",
    RowKind.PYTHON: "python",
    RowKind.CALL: "call",
    RowKind.OVERHEAD: "profiler",
}

# Rows that would show nothing new, with what the reader is told about them.
LEFT_OUT = {
    RowKind.SPAN: "the profiler's frame around the recording",
    RowKind.GPU_ANNOTATION: "annotations mirrored on a stream, which are no GPU work",
    RowKind.SYNC: "synchronization records of the driver, whose calls are drawn",
    RowKind.MEMORY: "allocations and frees, which have no duration",
    RowKind.OTHER: "rows of categories that PyTorch does not write, such as added tracks",
}

SHORT_FRAMES = "the shortest Python frames: the timeline would hold too many rows"
SHORT_CPU_ROWS = "the shortest CPU rows: the timeline would hold too many rows"

# A page counts in float64, which holds whole numbers up to 2⁵³ exactly: 104 days of nanoseconds.
LONGEST_NS = 2**53
OUT_OF_REACH = "so far in time from most others, or so long, that one picture cannot hold them (more than 104 days)"

# The lanes of the profiler's own work.
PROFILER_GROUP = "The profiler's own work"
