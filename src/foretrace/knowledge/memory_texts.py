"""What is said of memory's history, and of the texts torch prints about it; with the limits behind the words."""

from __future__ import annotations

import re
from typing import Final

from foretrace.knowledge.rule import Rule

__all__ = [
    "COUNTED",
    "COUNTERS_BEYOND",
    "COUNTER_RULES",
    "COUNTS",
    "HISTORY_TOO_LARGE",
    "MOST_BYTES",
    "MOST_ORIGINS",
    "NOT_IN_COUNTERS",
    "NO_COUNTERS",
    "NO_SUCH_DEVICE",
    "NO_SUMMARY",
    "OTHER_PLACES",
    "RING_LEAST",
    "RING_STEP",
    "ROWS",
    "SUMMARY_HEAD",
    "SUMMARY_UNITS",
    "TIMELINE_BEFORE",
    "TIMELINE_CATEGORIES",
    "TIMELINE_CHANGE",
    "TIMELINE_CREATE",
    "TIMELINE_DESTROY",
    "TIMELINE_EMPTY",
    "TIMELINE_IMAGE",
    "TIMELINE_MALFORMED",
    "TIMELINE_PICTURE",
    "TIMELINE_PREEXISTING",
    "TIMELINE_SAYS",
    "UNREADABLE_COUNTERS",
]

# --- The history ------------------------------------------------------------------------------------------------------

# Origins of what was alive at a peak that are told apart; the smallest beyond them are one item.
MOST_ORIGINS: Final = 200
OTHER_PLACES: Final = "{places} other places"

# Allocations are counted in 64-bit numbers. Ten million of 100 GB each stay below this, so that only a broken file is
# beyond it.
MOST_BYTES: Final = 1 << 62
HISTORY_TOO_LARGE: Final = (
    "{path} has a history of sizes that are negative or add up to more than a 64-bit number counts: it is "
    "damaged; record it again."
)

# `_record_memory_history(max_entries=N)` keeps the last N entries a device in a ring (torch/cuda/memory.py). N is not
# recorded, but people write a round number or a power of two: PyTorch's own tutorial has 100 000.
RING_LEAST: Final = 1000
RING_STEP: Final = 1000

# --- torch.cuda.memory_summary() and memory_stats() -------------------------------------------------------------------

# Layout and units of the text: torch/cuda/memory.py, memory_summary. Older versions write KB, MB and GB for the
# same powers of 1024, and have no row of requested memory.
SUMMARY_HEAD: Final = re.compile(r"PyTorch CUDA memory summary, device ID\s+(\d+)")
SUMMARY_UNITS: Final = {
    unit: 1 << (10 * power)
    for power, units in enumerate((("B",), ("KiB", "KB"), ("MiB", "MB"), ("GiB", "GB"), ("TiB", "TB"), ("PiB", "PB")))
    for unit in units
}
# A row of the text → the counter of memory_stats() that it shows. Its pools' rows ("from large pool") are not read.
ROWS: Final = {
    "Allocated memory": "allocated_bytes",
    "Active memory": "active_bytes",
    "Requested memory": "requested_bytes",
    "GPU reserved memory": "reserved_bytes",
    "Non-releasable memory": "inactive_split_bytes",
    "Allocations": "allocation",
    "Active allocs": "active",
    "GPU reserved segments": "segment",
    "Non-releasable allocs": "inactive_split",
}
# Counts that stand alone in the text's head → the key of memory_stats().
COUNTS: Final = {"CUDA OOMs": "num_ooms", "cudaMalloc retries": "num_alloc_retries"}

NO_SUMMARY: Final = (
    "{path} holds no memory summary: the table that print(torch.cuda.memory_summary()) writes begins with "
    '"PyTorch CUDA memory summary" and has a row "Allocated memory".'
)
# Every dictionary of counters has it: "allocated_bytes.all.current", or nested {"allocated_bytes": {"all": …}}.
COUNTED: Final = "allocated_bytes"
NO_COUNTERS: Final = (
    "{path} holds none of the counters of torch.cuda.memory_stats(), such as allocated_bytes.all.current: write "
    "json.dumps(torch.cuda.memory_stats()) after the first CUDA call; before it the dictionary is empty."
)
COUNTERS_BEYOND: Final = (
    "{path} has a counter that no allocator has: {name} is {value}; the file is damaged, write it again."
)
UNREADABLE_COUNTERS: Final = (
    "{path} is neither JSON nor a Python dictionary: write json.dumps(torch.cuda.memory_stats()) to it."
)
NO_SUCH_DEVICE: Final = "{path} says nothing of device {device}; it has {devices}."

# What counters do not say, by the check that says so: (its name, the sentence).
NOT_IN_COUNTERS: Final = {
    "blocks": "counters know no blocks: the largest hole, who pins it and whether a request would succeed are unknown; "
    "torch.cuda.memory._dump_snapshot() writes them",
    "streams": "counters do not tell streams and private pools apart: free memory of another stream counts as holes or "
    "whole segments",
    "cut": "numbers are cut to {unit}, so that differences of them may be off by one",
    "expandable": "no hole was ever counted although memory is free: the allocator does not count the holes of "
    "expandable segments, so that holes and whole segments cannot be told apart",
    "expandable_unknown": "holes of expandable segments are not counted as such, and whether there are any is not "
    "recorded",
    "requested": "what was asked for is not recorded, as in older versions: rounding and the peak of requested memory "
    "are unknown",
    "requested_pending": "some frees wait for another stream, and the counter of what was asked for counts them as "
    "well: what the live tensors asked for, and their rounding, are unknown",
    "adds_up_requested": "the counters have more asked for than active: they were not read at one moment, or the file "
    "is damaged",
    "adds_up": "{parts} of the counters are more than what is reserved: they were not read at one moment, or belong "
    "to another allocator backend",
    "missing": "not recorded: {names}",
}

_COUNTERS: Final = "torch.cuda.memory_stats: num_alloc_retries, num_ooms; c10/cuda/CUDACachingAllocator.cpp"

COUNTER_RULES: Final[dict[str, Rule]] = {
    "allocator_retries": Rule(
        severity="warning",
        title="the allocator emptied its cache {times} to serve a request",
        explanation="Neither the cache nor the device had room, so it waited for the GPU, gave back every whole free "
        "segment and asked anew. What was cached has to be asked for again, call by call, and the next such request "
        "may fail.",
        suggestion="Lower the peak (smaller batch, activation checkpointing), or keep sizes from changing. A snapshot "
        "(torch.cuda.memory._dump_snapshot) shows who holds what.",
        source=_COUNTERS,
    ),
    "out_of_memory_counted": Rule(
        severity="warning",
        title="{times} failed for want of memory",
        explanation="Each raised torch.OutOfMemoryError; a program that caught it went on.",
        suggestion="foretrace oom explains the message of such an error.",
        source=_COUNTERS,
    ),
    "holes": Rule(
        severity="warning",
        title="{bytes} ({share} of what is reserved) lie in holes between live blocks",
        explanation="The allocator returns only segments that are wholly free, and never moves a live tensor: a hole "
        "serves requests that fit into it, and nothing else.",
        suggestion="Allocate what lives long before what comes and goes, or set "
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True. A snapshot shows what pins the holes.",
        source="inactive_split_bytes of torch.cuda.memory_stats",
    ),
    "peaks": Rule(
        severity="info",
        title="at most {allocated} was allocated and {reserved} reserved",
        explanation="Since the program began, or since torch.cuda.reset_peak_memory_stats(). The two need not have "
        "been at the same moment.",
        source="allocated_bytes.all.peak and reserved_bytes.all.peak of torch.cuda.memory_stats",
    ),
    "private_pools": Rule(
        severity="note",
        title="{bytes} of what is reserved belong to {pools}",
        explanation="Pools of CUDA graphs and torch.cuda.MemPool lend nothing to ordinary tensors, even where they are "
        "free.",
        source="reserved_bytes_by_private_pools of torch.cuda.memory_stats",
    ),
}

# --- torch.profiler's memory timeline ---------------------------------------------------------------------------------

# The categories by their number in the file: torch/profiler/_memory_profiler.py numbers them in the order in which it
# colours them (_CATEGORY_TO_COLORS), not in that of its enumeration.
TIMELINE_CATEGORIES: Final = (
    "parameters", "optimizer state", "inputs", "temporaries", "activations", "gradients", "autograd detail", "unknown",
)  # fmt: skip

# What an entry of the raw form does, by number (Action in the same file; a change of version is written as two entries,
# one that takes the bytes from the old category and one that gives them to the new).
TIMELINE_PREEXISTING: Final = 1
TIMELINE_CREATE: Final = 2
TIMELINE_CHANGE: Final = 3
TIMELINE_DESTROY: Final = 4
# Raw entries count ns, with -1 for what was there before; the other form counts µs.
TIMELINE_BEFORE: Final = -1

TIMELINE_MALFORMED: Final = (
    "{path} is no memory timeline of torch.profiler: {what}; export_memory_timeline(path) writes one, as "
    ".raw.json.gz, .json.gz or .json."
)
# The picture is a page with an image inside.
TIMELINE_PICTURE: Final = re.compile(r"\s*<html\b[\s\S]*data:image/png", re.IGNORECASE)
TIMELINE_IMAGE: Final = (
    "{path} is the memory timeline as a picture, which holds no numbers; export it once more with a path that ends in "
    ".raw.json.gz or .json."
)
TIMELINE_EMPTY: Final = (
    "{path} is a memory timeline without an entry: nothing was allocated on its device while it was recorded, or "
    'another device is meant (export_memory_timeline(path, device="cuda:0")).'
)
# What a timeline does not say, by the check that says so. A GPU's allocations are reported with the size of their
# block (c10/cuda/CUDACachingAllocator.cpp, reportMemoryUsageToProfiler).
TIMELINE_SAYS: Final = {
    "allocator": "a timeline knows tensors, not the allocator: reserved memory, segments, holes and fragmentation are "
    "unknown; torch.cuda.memory._dump_snapshot() writes them",
    "device": "the file does not say which device it is of",
    "places": "what was held is known by category, as torch.profiler infers it from the operators it saw, not by line",
    "sizes": "on a GPU sizes are those of blocks, which are rounded up from what was asked for",
    "counts": "this form of the timeline holds sums: how many tensors they are is unknown, and a peak that lasted less "
    "than a microsecond is not in it; export as .raw.json.gz for both",
    "categories": "{share} of what was held at the peak is of no known category: record with record_shapes=True, "
    "profile_memory=True and with_stack=True",
    "negative": "more is freed than was held ({places}): the recording lacks allocations, or the file is damaged",
}
