"""How an allocator snapshot is written: its fields, by what they were called when, and its words.

Sources: the docstrings of ``torch.cuda.memory._snapshot`` and what ``torch/cuda/_memory_viz.py`` reads (2.0 to 2.13,
``_block_extra_legacy`` for the oldest), ``torch/csrc/cuda/Module.cpp`` and ``memory_snapshot.cpp`` for what is written,
``c10/core/CachingDeviceAllocator.h`` and its predecessor ``c10/cuda/CUDACachingAllocator.h`` for the actions.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from foretrace.knowledge.formats import Foreign

__all__ = [
    "ACTION_FIELD",
    "ADDRESSES",
    "BLOCK_STATES",
    "CALLED",
    "CALL_BEGINS",
    "CALL_NAMES",
    "CALL_OPERATIONS",
    "ENTRY_ADDRESS",
    "ENTRY_ADDRESS_OF_OOM",
    "ENTRY_FRAMES",
    "ENTRY_INTEGERS",
    "ENTRY_SIZE",
    "ENTRY_TEXTS",
    "ENTRY_TIME",
    "FRAME_FIELDS",
    "HOW_TO_RECORD",
    "JSON_FOREIGN",
    "LARGEST_BYTES",
    "LATEST_US",
    "LEGACY_HISTORY",
    "LEGACY_REQUESTED",
    "MAGIC_FOREIGN",
    "MOST_LINE",
    "MOST_UNPACKED_BYTES",
    "MOST_UNPACKED_TIMES",
    "NO_TEXT",
    "PAGE_MARK",
    "PICKLE_BEGINS",
    "SEGMENT_KINDS",
    "STAGE_END",
    "STAGE_START",
    "TEXT_FOREIGN",
    "UNKNOWN_FREE",
]

# Addresses have 64 bits; a negative number is one above 2**63, read as signed.
ADDRESSES: Final = 1 << 64
# No GPU has a pebibyte; a larger size of what is there is damage. (What was asked for in vain may be anything.)
LARGEST_BYTES: Final = 1 << 50
# Stands in the column of addresses for the free memory of a failed request that was not recorded, or cannot be.
UNKNOWN_FREE: Final = ADDRESSES - 1
# 1 January 2200 in µs since 1970. Times are those of the system's clock (c10::getTime), which is never beyond.
LATEST_US: Final = 7_258_118_400_000_000
# Lines of source files are C ints (co_firstlineno).
MOST_LINE: Final = (1 << 31) - 1

# What the writers call the states of a block, and what the documentation calls them (`active_awaiting_free`, in the
# docstring up to 2.13, was never written by the C++ of those versions).
BLOCK_STATES: Final[dict[str, Literal["active", "pending", "free"]]] = {
    "active_allocated": "active",
    "active_pending_free": "pending",
    "active_awaiting_free": "pending",
    "inactive": "free",
}
# What `torch.cuda.memory_snapshot` says of a segment's pool.
SEGMENT_KINDS: Final = {"small": True, "large": False}

# Entries of `device_traces`. `device_free` stands in an `oom` where the others have `addr`. `time_us` is missing
# before 2.1 (files of 2023), `compile_context` and `user_metadata` came with 2.7 and 2.9.
ACTION_FIELD: Final = "action"
ENTRY_ADDRESS: Final = "addr"
ENTRY_ADDRESS_OF_OOM: Final = "device_free"
ENTRY_SIZE: Final = "size"
ENTRY_TIME: Final = "time_us"
ENTRY_INTEGERS: Final = (ENTRY_ADDRESS, ENTRY_SIZE, "stream", ENTRY_TIME)
ENTRY_TEXTS: Final = ("user_metadata", "compile_context")
ENTRY_FRAMES: Final = "frames"
# What stands there where nobody set a text.
NO_TEXT: Final = frozenset({"", "N/A"})
FRAME_FIELDS: Final = frozenset({"name", "filename", "line"})

# Blocks of 2.0 and before: `history: [{addr, frames, real_size}]`, and neither `address` nor `requested_size`.
LEGACY_HISTORY: Final = "history"
LEGACY_REQUESTED: Final = "real_size"

# Events of `external_annotations`.
STAGE_START: Final = "START"
STAGE_END: Final = "END"

# How a pickle of data begins: its protocol, or before protocol 2 a container (and what it remembers or holds first,
# which text in brackets is not); none of them begins JSON.
PICKLE_BEGINS: Final = re.compile(rb"\x80|\([dl](?:p\d|[SVIFLN(])|[\]}]")
# Before protocol 2 a pickle that calls something begins with the names of a module and of what it takes from it, or
# with a mark and an argument. Its operations, as pickletools calls them, tell it from a text.
CALL_BEGINS: Final = re.compile(rb"c[A-Za-z_][\w.]*\r?\n[A-Za-z_][\w.]*\r?\n|\(")
CALL_OPERATIONS: Final = frozenset({"REDUCE", "INST", "OBJ", "BUILD", "NEWOBJ"})
# Those that name something, a module and what it takes from it, which are words without spaces.
CALL_NAMES: Final = frozenset({"GLOBAL", "INST"})
CALLED: Final = re.compile(r"[A-Za-z_][\w.]* [A-Za-z_][\w.]*")
# Snapshots pack 10 to 40 times with gzip, and gzip at most 1032 times. What unpacks to more than the first, and to
# more than the second times its size, is made to fill the memory.
MOST_UNPACKED_BYTES: Final = 256 << 20
MOST_UNPACKED_TIMES: Final = 200
HOW_TO_RECORD: Final = (
    "name the pickle that torch.cuda.memory._dump_snapshot wrote (or a JSON file of torch.cuda.memory_snapshot())"
)
# A page of `_memory_viz.py` carries its snapshot inside, as base64.
PAGE_MARK: Final = b"MemoryViz"

OUT_OF_MEMORY: Final = Foreign(
    "a text with an out-of-memory message, not a snapshot", "read it with `foretrace oom FILE`"
)

MAGIC_FOREIGN: Final[tuple[tuple[bytes, Foreign], ...]] = (
    (b"PK\x03\x04", Foreign("a ZIP archive, as torch.save writes checkpoints", HOW_TO_RECORD)),
    # The first pickle of the format before 1.6: torch.serialization.MAGIC_NUMBER.
    (b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", Foreign("a checkpoint of an old torch.save", HOW_TO_RECORD)),
)

JSON_FOREIGN: Final[tuple[tuple[frozenset[str], Foreign], ...]] = (
    (
        frozenset({"traceEvents"}),
        Foreign("a profiler trace, not a memory snapshot", "read it with `foretrace explain`"),
    ),
    (
        frozenset({"schema", "totals", "fragmentation"}),
        Foreign("a document that `foretrace memory --json` wrote", "name the snapshot it was made from"),
    ),
)
TEXT_FOREIGN: Final[tuple[tuple[bytes, Foreign], ...]] = (
    (
        PAGE_MARK,
        Foreign("a page of memory_viz with a snapshot inside", "name the pickle that the page was made from"),
    ),
    (
        b"CUDA memory summary",
        Foreign("the printed table of torch.cuda.memory_summary(), not a snapshot", HOW_TO_RECORD),
    ),
    (b"OutOfMemoryError", OUT_OF_MEMORY),
    (b"out of memory. Tried to allocate", OUT_OF_MEMORY),
)
