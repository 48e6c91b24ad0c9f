"""How tracks that foretrace adds to a trace are marked and placed.

Sources: the Trace Event Format; what Perfetto's importer does with it (``src/trace_processor/importers/json``,
``slice_tracker.cc``): complete events of one (pid, tid) must nest or be apart, a partial overlap drops the later one;
counters belong to the process and are called by event name and key; a counter keeps its value until the next event and
cannot say "unknown"; ``process_sort_index`` and ``thread_sort_index`` are heeded, lower ones first.
"""

from __future__ import annotations

__all__ = [
    "EXTRA_LANE",
    "FIRST_PID",
    "FIRST_TID",
    "SORT_INDEX",
    "TRACK_CATEGORY",
    "TRACK_PROCESS",
]

# The `cat` of every event that foretrace adds, metadata and counters included: by it a reader leaves them out, and a
# second annotation replaces the first. Kineto has no such category.
TRACK_CATEGORY = "foretrace"
TRACK_PROCESS = "foretrace"

# The importer takes process numbers as uint32 and ours must be no other's: chosen downwards from the largest int32.
FIRST_PID = 2**31 - 2
FIRST_TID = 2**31 - 2

# The name of a lane for what overlaps on another one.
EXTRA_LANE = "{name} (overlapping rows, {number})"

# Kineto sorts the CPU at its pid and GPUs from 5,000,000 on; below all of them is the top of the screen.
SORT_INDEX = -1
