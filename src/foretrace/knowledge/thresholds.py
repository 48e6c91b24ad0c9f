"""Where a health check turns from fine to doubtful to unusable, each with the reason for its value.

Shares are 0..1; times are nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "CROSSING",
    "DRIVES_DEVICE",
    "DRIVES_DEVICE_BY_TIME",
    "GRAPH_ROWS",
    "LAUNCHES_LOST",
    "LONGEST_ROW_FACTOR",
    "LONG_KERNEL_NS",
    "NEGATIVE_DELAY",
    "NEGATIVE_DELAY_NS",
    "OVERLAP",
    "OVERLAP_NS",
    "TIMELESS",
    "TIMELESS_GAP_NS",
    "TIMELESS_ROWS",
    "UNLINKED",
    "ZERO_TIME_AFTER_NS",
    "Limit",
]


@dataclass(frozen=True)
class Limit:
    """A share above ``suspect`` is doubtful, above ``bad`` the numbers that rest on it are not to be trusted."""

    suspect: float
    bad: float

    def state(self, share: float) -> str:
        """``ok``, ``suspect`` or ``bad`` for a share."""
        return "bad" if share > self.bad else "suspect" if share > self.suspect else "ok"


# GPU time without a launch row. Kernels launched before the window make up to a few percent of a short recording;
# with half of the time unlinked, statements per operator or step describe the smaller part of the work.
UNLINKED = Limit(suspect=0.02, bad=0.5)

# Kernel launches without a kernel row. CUPTI loses whole buffers, so a loss is rarely below a percent; at a fifth,
# busy time and idle time are wrong by as much.
LAUNCHES_LOST = Limit(suspect=0.005, bad=0.2)

# Rows of one graph replay against the fullest replay at the same place of another step. The same graph has the same
# nodes every time; conditional nodes may differ a little.
GRAPH_ROWS = Limit(suspect=0.02, bad=0.1)

# Time by which rows of one stream overlap, as a share of the GPU time. A stream runs one after another; programmatic
# dependent launch starts a kernel's prologue some µs early, which stays far below a fifth of the time.
OVERLAP = Limit(suspect=0.02, bad=0.2)
# Overlaps up to here are rounding: traces before torch 2.2 have whole microseconds, start and end rounded apart.
OVERLAP_NS = 2_000

# GPU rows that start before their launch. Host and device clocks are matched to about a microsecond; more means that
# the clocks drifted apart and gaps cannot be attributed.
NEGATIVE_DELAY = Limit(suspect=0.001, bad=0.05)
NEGATIVE_DELAY_NS = 1_000

# CPU rows that end after the row they start in: the nesting, and with it self times, is a guess for them.
CROSSING = Limit(suspect=0.002, bad=0.05)

# Which process drives a device of a merged file: the share of its rows that must speak for one process. Rows with an
# id of one process only say it outright; a lost launch may mislead a few.
DRIVES_DEVICE = 0.9
# A process whose launch alone came before the row: of two ranks that share a device number each explains half.
DRIVES_DEVICE_BY_TIME = 0.75

# Rows without usable time, or with unreadable args, as a share of all rows.
TIMELESS = Limit(suspect=0.0, bad=0.05)

# A start of exactly zero is a missing time when the recording itself begins later than this (1 s): recordings whose
# clock starts at zero hold other rows within the first second.
ZERO_TIME_AFTER_NS = 1_000_000_000
# So many operators, calls or GPU rows that begin at the very same earliest moment, with nothing else for a
# millisecond, have the value of a field that was never filled in: a moment's rows are a nest of a few, and what
# they contain begins within microseconds. They must also be this share of the rows (the state's own limit).
TIMELESS_ROWS = 8
TIMELESS_GAP_NS = 1_000_000

# The longest GPU row may outlast the rest of the recording (work in flight at its end), not tenfold.
LONGEST_ROW_FACTOR = 10
# Kernels run microseconds to milliseconds; when the median passes a second, nanoseconds were written as microseconds.
LONG_KERNEL_NS = 1_000_000_000
