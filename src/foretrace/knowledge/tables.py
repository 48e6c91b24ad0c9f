"""The tables that a trace can be asked about in SQL: each column's type, unit and meaning.

The documentation, ``foretrace sql --schema``, the frames themselves and what error messages suggest are made from this
one list. What is unknown is NULL in every column, never 0 or -1.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["ARGS", "STEP_LABEL", "TABLES", "Column", "Table", "column", "table_named", "unit_by_name"]

Type = Literal["integer", "number", "text", "boolean"]


class Column(NamedTuple):
    """One column; ``unit`` is None where the value has none."""

    name: str
    type: Type
    unit: str | None
    meaning: str


class Table(NamedTuple):
    """One table; ``meaning`` says what a row is."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names in order."""
        return tuple(column.name for column in self.columns)


# How a column's name says its unit, for columns that a query makes itself (`sum(duration_us) AS total_us`).
_UNITS = {"_us": "µs", "_bytes": "B", "_tflops": "TFLOP/s", "_gbps": "GB/s", "_flops": "FLOP"}


def unit_by_name(name: str) -> str | None:
    """The unit that the ending of a column's name stands for; None where it stands for none."""
    return next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), None)


_EVENT = Column("event", "integer", None, "Position of the row in the file's traceEvents; it joins the tables.")
_STEP = Column("step", "integer", None, "Position of the step, as in the table steps (0 is the first).")
_GPU_STEP = Column("step", "integer", None, "Position of the step that launched it; NULL outside every step.")
STEP_LABEL = Column("step_label", "text", None, "That step as reports name it: '#3' of ProfilerStep#3.")
_START = Column("start_us", "number", "µs", "Start, counted from the first CPU or GPU row of the trace.")
_DURATION = Column("duration_us", "number", "µs", "Duration.")
_PROCESS = Column("process", "text", None, "The file's pid; for a GPU row most files write the device.")
_THREAD = Column("thread", "text", None, "The file's tid; for a GPU row most files write the stream.")
_STREAM = Column("stream", "integer", None, "Stream it ran on.")
_DEVICE = Column("device", "integer", None, "Device it ran on.")
_PHASE = Column("phase", "text", None, "forward, backward or optimizer; NULL where it cannot be told.")
_MODULE = Column("module", "text", None, "The nn.Module around it, where Python frames were recorded (with_stack).")
_OP = Column("op", "text", None, "Name of the operator it belongs to.")
_OP_EVENT = Column("op_event", "integer", None, "That operator, as in the table ops.")
_LAUNCH = Column("launch_event", "integer", None, "The API call that launched it, as in the table launches.")
_DELAY = Column("launch_delay_us", "number", "µs", "From the start of the launching call to its own start.")
_GRAPH = Column("graph", "boolean", None, "Whether a graph launch put it there.")

# Only a query that names it gets it: making it reads the arguments of every event.
ARGS = Column("args", "text", None, "The event's arguments as JSON text; made only for a query that names it.")

_EVENTS = Table(
    "events",
    "One row an event that has a time (flow arrows and metadata have none), in the file's order.",
    (
        _EVENT,
        Column("name", "text", None, "Name as the file has it."),
        Column("category", "text", None, "The file's own cat string."),
        Column(
            *("kind", "text", None),
            "operator, annotation, python, call, kernel, memcpy, memset, gpu_annotation, overhead, sync, memory, span "
            "or other.",
        ),
        _START,
        Column("duration_us", "number", "µs", "Duration; NULL for an allocator row, which is an instant."),
        _PROCESS,
        _THREAD,
        Column("correlation", "integer", None, "Id that ties an API call to the GPU rows it launched."),
        Column("external_id", "integer", None, "The profiler's id of the operator the row belongs to."),
        Column("stream", "integer", None, "Stream of a GPU row."),
        Column("device", "integer", None, "Device of a GPU row."),
        Column("step", "integer", None, "Step a CPU row starts in; of GPU work, the step that launched it."),
        STEP_LABEL,
        Column("parent_event", "integer", None, "Innermost CPU row of the same thread around a CPU row."),
    ),
)

_KERNELS = Table(
    "kernels",
    "One row a GPU kernel (copies and memsets are in transfers), in order of start.",
    (
        _EVENT,
        Column("name", "text", None, "Name as the profiler wrote it."),
        Column("short_name", "text", None, "Name in short, as decoded."),
        Column(
            *("kind", "text", None),
            "gemm, attention, convolution, normalization, softmax, reduction, elementwise, fused, embedding, sort, "
            "copy, communication, optimizer or other.",
        ),
        _OP,
        _OP_EVENT,
        Column(
            "op_path", "text", None, "Operators and annotations around the launch, outermost first, joined by ' > '."
        ),
        _MODULE,
        _GPU_STEP,
        STEP_LABEL,
        _PHASE,
        _START,
        _DURATION,
        _STREAM,
        _DEVICE,
        _LAUNCH,
        _DELAY,
        _GRAPH,
        Column("grid_x", "integer", "blocks", "Blocks along x."),
        Column("grid_y", "integer", "blocks", "Blocks along y."),
        Column("grid_z", "integer", "blocks", "Blocks along z."),
        Column("block_x", "integer", "threads", "Threads of a block along x."),
        Column("block_y", "integer", "threads", "Threads of a block along y."),
        Column("block_z", "integer", "threads", "Threads of a block along z."),
        Column("registers", "integer", None, "Registers a thread."),
        Column("shared_memory_bytes", "integer", "B", "Shared memory a block."),
        Column("flops", "integer", "FLOP", "Floating-point operations, from the recorded shapes."),
        Column("bytes", "integer", "B", "Least bytes to move: operands read once, results written once."),
        Column("bound", "text", None, "compute, memory or latency: what its rate is limited by."),
        Column("achieved_tflops", "number", "TFLOP/s", "FLOPs over duration."),
        Column("achieved_gbps", "number", "GB/s", "Bytes over duration."),
        Column("of_peak", "number", None, "Share (0 to 1) of the rate that peak names."),
        Column("peak", "text", None, "The datasheet rate that of_peak divides by."),
        Column("cache_assisted", "boolean", None, "Whether caches must have served some of the bytes."),
        Column("dtype", "text", None, "Element type that the kernel's name tells."),
        Column("tile", "text", None, "Tile of a matrix product, as its library writes it."),
        Column("layout", "text", None, "Layout letters of a matrix product, from the kernel's name."),
        Column("epilogue", "text", None, "What a matrix product does to its result, joined by ', '."),
    ),
)

_TRANSFERS = Table(
    "transfers",
    "One row a memcpy or memset on the GPU, in order of start.",
    (
        _EVENT,
        Column("name", "text", None, "Name as the profiler wrote it."),
        Column("kind", "text", None, "memcpy or memset."),
        Column("direction", "text", None, "Of a memcpy: HtoD, DtoH, DtoD, PtoP."),
        Column("bytes", "integer", "B", "Size."),
        Column("gbps", "number", "GB/s", "Size over duration."),
        _OP,
        _OP_EVENT,
        _GPU_STEP,
        STEP_LABEL,
        _START,
        _DURATION,
        _STREAM,
        _DEVICE,
        _LAUNCH,
        _DELAY,
        _GRAPH,
    ),
)

_LAUNCHES = Table(
    "launches",
    "One row an API call that put work on a stream: kernel, graph, memcpy and memset calls, in the file's order.",
    (
        _EVENT,
        Column("call", "text", None, "Name of the API call."),
        Column("kind", "text", None, "kernel, graph, memcpy, memset, or other (a call that GPU rows point at)."),
        Column("op", "text", None, "Name of the innermost operator around the call."),
        _OP_EVENT,
        _STEP,
        STEP_LABEL,
        _PROCESS,
        _THREAD,
        Column("correlation", "integer", None, "Id that ties the call to the GPU rows it launched."),
        _START,
        Column("duration_us", "number", "µs", "Time the CPU spent in the call."),
        Column("gpu_rows", "integer", None, "Kernels, copies and memsets it launched; NULL where none was recorded."),
        Column("kernels", "integer", None, "Kernels among them; NULL where none of its GPU rows was recorded."),
        Column("gpu_us", "number", "µs", "Their durations together."),
        Column("first_gpu_event", "integer", None, "The first of them to start."),
        Column("delay_us", "number", "µs", "From the start of the call to the start of that one."),
    ),
)

_OPS = Table(
    "ops",
    "One row a call of an operator on the CPU, in the file's order.",
    (
        _EVENT,
        Column("name", "text", None, "Name of the operator."),
        Column("parent_event", "integer", None, "Innermost operator around it, as in this table; NULL for outermost."),
        Column("depth", "integer", None, "Operators around it; 0 for outermost."),
        _STEP,
        STEP_LABEL,
        _PHASE,
        _MODULE,
        _PROCESS,
        _THREAD,
        _START,
        _DURATION,
        Column("self_us", "number", "µs", "Duration without what was recorded inside it, API calls too."),
        Column("gpu_us", "number", "µs", "GPU time launched anywhere below it, copies and memsets included."),
        Column("self_gpu_us", "number", "µs", "GPU time it launched itself, not through an operator inside it."),
        Column("kernels", "integer", None, "Kernels launched anywhere below it."),
        Column("shapes", "text", None, "Shapes of its inputs as JSON text, where recorded (record_shapes)."),
        Column("dtypes", "text", None, "Types of its inputs as JSON text, where recorded (record_shapes)."),
        Column("sequence", "integer", None, "Autograd's sequence number; a backward operator has its forward one's."),
        Column("forward_event", "integer", None, "Of a backward operator: the forward operator it belongs to."),
    ),
)

_STEPS = Table(
    "steps",
    "One row a profiler step; a trace without any has one row, the whole trace.",
    (
        Column("step", "integer", None, "Position of the step; 0 is the first."),
        Column("label", "text", None, "The annotation's name."),
        _START,
        Column("wall_us", "number", "µs", "Duration of the annotation."),
        Column(
            "period_us", "number", "µs", "To the next step's start; of the last one, to the end of all it launched."
        ),
        Column("gpu_busy_us", "number", "µs", "Union over streams of the GPU work it launched."),
        Column("gpu_idle_us", "number", "µs", "The period without the union of all GPU work in it."),
        Column("kernels", "integer", None, "Kernels it launched."),
        Column("memcpys", "integer", None, "Copies it launched."),
        Column("memsets", "integer", None, "Memsets it launched."),
        Column("launches", "integer", None, "API calls in it that enqueue GPU work, copies and memsets included."),
        Column("kernel_launches", "integer", None, "Those that enqueue kernels; a graph launch is one."),
        Column("occupancy_queries", "integer", None, "Occupancy queries in it."),
        Column(
            "synchronizations", "integer", None, "Calls in it that block the CPU; the profiler's own are not counted."
        ),
        Column("forward_us", "number", "µs", "GPU time of the forward pass (union over streams)."),
        Column("backward_us", "number", "µs", "GPU time of the backward pass (union over streams)."),
        Column("optimizer_us", "number", "µs", "GPU time of the optimizer (union over streams)."),
        Column("other_us", "number", "µs", "GPU time of none of these phases (union over streams)."),
        Column("idle_cause", "text", None, "What the largest part of its GPU idle time is put down to."),
        Column("idle_cause_us", "number", "µs", "That part."),
    ),
)

TABLES: tuple[Table, ...] = (_EVENTS, _KERNELS, _TRANSFERS, _LAUNCHES, _OPS, _STEPS)


def table_named(name: str) -> Table | None:
    """The table of that name; None where there is none."""
    return next((table for table in TABLES if table.name == name), None)


def column(table: str, name: str) -> Column | None:
    """A column of a table; None where there is none of these names."""
    found = table_named(table)
    columns = () if found is None else (*found.columns, ARGS) if table == "events" else found.columns
    return next((column for column in columns if column.name == name), None)
