"""What every pass of one explanation shares: the trace, the steps asked for, the GPU, decoded names, costs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis import intervals
from foretrace.analysis.attribution import Attribution, attribute, rows_by_step
from foretrace.analysis.blocking import blocking_calls, profiler_syncs
from foretrace.errors import InputError
from foretrace.knowledge import gpus
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.kernels import Decoded, decode
from foretrace.knowledge.kineto import RowKind, module_name
from foretrace.model.report import Gpu as TraceGpu
from foretrace.model.sidefile import SideFile
from foretrace.model.slim import slim_note
from foretrace.trace.steps import StepSpan
from foretrace.trace.table import Trace

__all__ = ["Context", "has_stacks", "stacks_recorded", "whole"]

Int64 = NDArray[np.int64]


def whole(value: object) -> int | None:
    """A JSON integer; None for anything else (``true`` is no number, though Python says it is one)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def has_stacks(trace: Trace) -> bool:
    """Whether Python frames are there that tell source lines; frames of modules alone tell none."""
    frames = np.unique(trace.name_id[trace.kind == RowKind.PYTHON]).tolist()
    return any(module_name(trace.names[name]) is None for name in frames)


def stacks_recorded(trace: Trace) -> bool:
    """Whether frames were recorded, which takes the CPU time; they may have been left out of the file since."""
    note = slim_note(trace.meta)
    return bool(np.any(trace.kind == RowKind.PYTHON)) or (note is not None and "stacks" in note.dropped)


@dataclass(eq=False)
class Context:
    """One explanation in progress."""

    trace: Trace
    side: SideFile | None = None
    selected: list[int] | None = None  # positions of steps; None: all, and what belongs to none
    _paths: dict[int, tuple[str, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Speak of the steps alone where the trace was cut: what else is there only ran meanwhile."""
        note = slim_note(self.trace.meta) if self.selected is None else None
        if note is not None and note.cut:
            self.selected = [span.index for span in self.trace.steps]

    @cached_property
    def attribution(self) -> Attribution:
        """Step, phase, module and operator of every GPU row."""
        return attribute(self.trace)

    @cached_property
    def steps(self) -> list[StepSpan]:
        """The steps the report speaks of."""
        steps = self.trace.steps
        if self.selected is None:
            return steps
        unknown = [i for i in self.selected if not 0 <= i < len(steps)]
        if unknown:
            raise InputError(f"there is no step {unknown[0]}; the trace has steps 0 to {len(steps) - 1}")
        return [steps[i] for i in sorted(set(self.selected))]

    @cached_property
    def has_gpu(self) -> bool:
        """Whether any kernel, copy or memset was recorded; a step that a trace was cut to may hold none of them."""
        return bool(len(self.trace.gpu_rows)) or self._was_recorded("gpu")

    @cached_property
    def has_calls(self) -> bool:
        """Whether any API call was recorded; a step that a trace was cut to may hold none of them."""
        return bool(len(self.trace.rows(RowKind.CALL))) or self._was_recorded("calls")

    def _was_recorded(self, what: str) -> bool:
        note = slim_note(self.trace.meta)
        return note is not None and note.cut and what in note.recorded

    @cached_property
    def busy(self) -> tuple[Int64, Int64]:
        """Starts and ends (ns) of the stretches in which any stream of any device worked, whole trace, in order."""
        rows = self.trace.gpu_rows
        return intervals.union_intervals(self.trace.start[rows], self.trace.end[rows])

    @cached_property
    def blocking(self) -> Int64:
        """Rows of the API calls that hold the CPU until GPU work is done, by end."""
        return blocking_calls(self.trace)

    @cached_property
    def launching(self) -> set[int]:
        """CPU rows with GPU work somewhere below them."""
        trace = self.trace
        parent = trace.forest.parent.tolist()
        found: set[int] = set()
        gpu = trace.gpu_rows
        owners = np.concatenate([trace.links.op[gpu], trace.links.launch[gpu]])
        for row in np.unique(owners[owners >= 0]).tolist():
            current = row
            while current >= 0 and current not in found:
                found.add(current)
                current = parent[current]
        return found

    @cached_property
    def profiler_syncs(self) -> set[int]:
        """Rows of the synchronizing calls that are the profiler's own; they never count as the program's."""
        return profiler_syncs(self.trace)

    @cached_property
    def cpu_only(self) -> bool:
        """Whether the program used no GPU at all: no GPU rows, no calls that enqueue any, no device named.

        Without GPU rows but with one of the others the recording lost its GPU part, and an operator's time on the CPU
        is the time to launch it, not to do it.
        """
        trace = self.trace
        named = bool(trace.meta.get("deviceProperties"))
        return not self.has_gpu and not named and not bool(trace.links.enqueues.any())

    @cached_property
    def working_steps(self) -> list[int]:
        """Positions of the selected steps that hold an operator or launched GPU work; all, where none does.

        A loop that ends before the schedule does leaves a last step with nothing in it.
        """
        trace = self.trace
        busy = set(self.attribution.step[trace.rows(RowKind.OPERATOR)].tolist())
        busy |= set(self.attribution.step[trace.gpu_rows].tolist())
        indexes = [span.index for span in self.steps]
        return [index for index in indexes if index in busy] or indexes

    @cached_property
    def gpu_rows(self) -> Int64:
        """GPU rows the report speaks of, by start: those of the selected steps; with no selection, all."""
        rows = self.trace.gpu_rows
        if self.selected is None:
            return rows
        return rows[np.isin(self.attribution.step[rows], [s.index for s in self.steps])]

    @cached_property
    def kernel_rows(self) -> Int64:
        """Kernel rows among ``gpu_rows``."""
        rows: Int64 = self.gpu_rows[self.trace.kind[self.gpu_rows] == RowKind.KERNEL]
        return rows

    @cached_property
    def operator_rows(self) -> Int64:
        """Operator rows the report speaks of, in the file's order."""
        rows = self.trace.rows(RowKind.OPERATOR)
        if self.selected is None:
            return rows
        return rows[np.isin(self.attribution.step[rows], [s.index for s in self.steps])]

    @cached_property
    def kernels_of_op(self) -> dict[int, list[int]]:
        """Operator row → the kernel rows it launched itself."""
        table: dict[int, list[int]] = {}
        for row in self.trace.rows(RowKind.KERNEL).tolist():
            op = int(self.attribution.op[row])
            if op >= 0:
                table.setdefault(op, []).append(row)
        return table

    @cached_property
    def gpus(self) -> list[TraceGpu]:
        """The devices the trace names."""
        listed = self.trace.meta.get("deviceProperties")
        found: list[TraceGpu] = []
        for entry in listed if isinstance(listed, list) else []:
            if not isinstance(entry, dict):
                continue
            major, minor = whole(entry.get("computeMajor")), whole(entry.get("computeMinor"))
            name = entry.get("name")
            number = whole(entry.get("id"))
            found.append(
                TraceGpu(
                    id=len(found) if number is None else number,
                    name=name if isinstance(name, str) else None,
                    compute_capability=None if major is None or minor is None else f"{major}.{minor}",
                    sms=whole(entry.get("numSms")),
                )
            )
        if not found and self.side is not None:
            found = [TraceGpu(id=g.index, name=g.name, compute_capability=g.compute_capability) for g in self.side.gpus]
        used = set(self.trace.device[self.trace.gpu_rows].tolist())
        # A process sees all devices of its host; those it used are the ones the report speaks of.
        return [gpu for gpu in found if gpu.id in used] or found

    @cached_property
    def datasheets(self) -> dict[int, Gpu]:
        """Device number → datasheet, for the devices that are known."""
        memory = {}
        listed = self.trace.meta.get("deviceProperties")
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict) and (number := whole(entry.get("id"))) is not None:
                memory[number] = whole(entry.get("totalGlobalMem"))
        table = {}
        for gpu in self.gpus:
            sheet = gpus.find(
                gpu.name,
                sms=gpu.sms,
                memory_bytes=memory.get(gpu.id),
                compute_capability=gpu.compute_capability,
            )
            if sheet is not None:
                table[gpu.id] = sheet
        return table

    def datasheet(self, row: int) -> Gpu | None:
        """The datasheet of the device a GPU row ran on."""
        device = int(self.trace.device[row])
        if device in self.datasheets:
            return self.datasheets[device]
        sheets = list(self.datasheets.values())
        # Without a device number the row can only be on the one kind of GPU the trace names.
        same = len({sheet.name for sheet in sheets}) == 1 and len(sheets) == len(self.gpus)
        return sheets[0] if same and device < 0 else None

    def op_name(self, gpu_row: int) -> str | None:
        """Name of the operator a GPU row belongs to."""
        op = int(self.attribution.op[gpu_row])
        return self.trace.name(op) if op >= 0 else None

    def decoded(self, row: int) -> Decoded:
        """The decoded name of a kernel row."""
        return decode(self.trace.name(row), op=self.op_name(row))

    def op_path(self, gpu_row: int) -> list[str]:
        """Operators and annotations around a GPU row's launch, outermost first, the step's own left out."""
        op = int(self.attribution.op[gpu_row])
        start = op if op >= 0 else int(self.trace.links.launch[gpu_row])
        if start < 0:
            return []
        return list(self._path(start))

    def _path(self, row: int) -> tuple[str, ...]:
        """Names of the operators and annotations around a row and its own; rows that add nothing share a tuple."""
        kept = self._paths
        pending = []
        parent = self.trace.forest.parent
        while row >= 0 and row not in kept:
            pending.append(row)
            row = int(parent[row])
        path = kept[row] if row >= 0 else ()
        for inner in reversed(pending):
            if inner in self._named_rows:
                path = (*path, self.trace.name(inner))
            kept[inner] = path
        return path

    @cached_property
    def _named_rows(self) -> set[int]:
        """Rows that a path names: operators and annotations, the steps' own left out."""
        named = set(self.trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION).tolist())
        return named - {span.row for span in (*self.trace.steps, *self.trace.marks)}

    @cached_property
    def next_start(self) -> dict[int, int]:
        """Step → start (ns) of the next step of its process; the last one of each has none."""
        following: dict[int, int] = {}
        # Process → start of the earliest step seen so far, and the start after that one.
        latest: dict[int | str | None, tuple[int, int | None]] = {}
        for span in sorted([*self.trace.steps, *self.trace.marks], key=lambda s: -s.start):
            start, after = latest.get(span.pid, (span.start, None))
            if start > span.start:
                after = start
            if after is not None and span.index >= 0:
                following[span.index] = after
            latest[span.pid] = (span.start, after)
        return following

    @cached_property
    def calls_by_step(self) -> dict[int, Int64] | None:
        """API calls by step; None where the trace recorded none at all."""
        calls = self.trace.rows(RowKind.CALL)
        return rows_by_step(calls, self.attribution.step) if self.has_calls else None

    def operands(self, row: int) -> dict[str, Any]:
        """Shapes, dtypes, strides and scalar inputs of an operator row as the cost tables take them."""
        args = self.trace.args(row)
        shapes = args.get("Input Dims", args.get("Input dims"))
        dtypes = args.get("Input type")
        return {
            "shapes": shapes if isinstance(shapes, list) else [],
            "dtypes": dtypes if isinstance(dtypes, list) else [],
            "strides": args.get("Input Strides") if isinstance(args.get("Input Strides"), list) else None,
            "concrete": args.get("Concrete Inputs") if isinstance(args.get("Concrete Inputs"), list) else None,
        }

    @cached_property
    def has_shapes(self) -> bool:
        """Whether operators carry their input shapes."""
        return any(b"Input Dims" in bytes(raw) for raw in self._operator_arguments())

    def _operator_arguments(self) -> list[Any]:
        rows = self.trace.rows(RowKind.OPERATOR)
        return [self.trace.arguments[r] for r in rows.tolist() if self.trace.arguments[r]]
