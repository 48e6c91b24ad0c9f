"""What a trace can be cut down by: the parts that may be left out, and the words for what was.

Sources: the keys of ``args`` as Kineto's ``output_json.cpp`` and torch's ``collection.cpp`` write them (torch 1.8 to
2.13; the early ones in lower case).
"""

from __future__ import annotations

from foretrace.knowledge.kineto import RowKind

__all__ = [
    "DROPPABLE",
    "KIND_WORDS",
    "LEFT_OUT",
    "LINKING_ARGS",
    "MARK_WORDS",
    "SHAPE_ARGS",
    "SLIM_KEY",
    "STACK_ARGS",
]

# The top-level key under which a slim trace says what became of the whole one; ``model.slim.SlimNote`` is its content.
SLIM_KEY = "foretraceSlim"

# Part → what it is, in the order the help lists them.
DROPPABLE = {
    "stacks": "Python frames (nn.Module frames stay) and the call stacks of operators",
    "modules": "nn.Module frames",
    "shapes": "shapes, types and values of operators' inputs: FLOPs and bytes are unknown afterwards",
    "memory": "the allocator's rows",
    "arrows": "flow arrows (launch to kernel, forward to backward)",
    "args": "all details of rows but the ids that link them, streams, sizes of copies and grids",
}

# Parts that a report misses: the part, what it gives, the option of torch.profiler.profile, what is unknown without it.
LEFT_OUT = (
    ("shapes", "operator shapes", "record_shapes=True", ": FLOPs and bytes are unknown"),
    ("stacks", "source lines", "with_stack=True", "; --keep-stacks keeps them"),
    ("memory", "allocations", "profile_memory=True", ""),
)

STACK_ARGS = ("Call stack", "Call Stack")
SHAPE_ARGS = ("Input Dims", "Input dims", "Input type", "Input Strides", "Concrete Inputs", "Kwinputs")
# What is left of `args` without the details: who launched what, on which stream, and how much.
LINKING_ARGS = (
    *("External id", "external id", "correlation", "stream", "device", "context", "Sequence number", "Fwd thread id"),
    *("bytes", "grid", "block"),
)

# One and many of each kind of row.
KIND_WORDS: dict[RowKind, tuple[str, str]] = {
    RowKind.OTHER: ("other row", "other rows"),
    RowKind.OPERATOR: ("operator", "operators"),
    RowKind.ANNOTATION: ("annotation", "annotations"),
    RowKind.PYTHON: ("Python frame", "Python frames"),
    RowKind.CALL: ("API call", "API calls"),
    RowKind.KERNEL: ("kernel", "kernels"),
    RowKind.MEMCPY: ("copy", "copies"),
    RowKind.MEMSET: ("memset", "memsets"),
    RowKind.GPU_ANNOTATION: ("GPU annotation", "GPU annotations"),
    RowKind.OVERHEAD: ("row of the profiler", "rows of the profiler"),
    RowKind.SYNC: ("synchronization record", "synchronization records"),
    RowKind.MEMORY: ("allocator row", "allocator rows"),
    RowKind.SPAN: ("frame of the recording", "frames of the recording"),
}
# The same of events that are no rows.
MARK_WORDS = {
    "arrow": ("arrow end", "arrow ends"),
    "name": ("name", "names"),
    "own": ("event that foretrace had added", "events that foretrace had added"),
    "mark": ("mark or counter", "marks and counters"),
    "unread": ("event without a usable time", "events without a usable time"),
}
