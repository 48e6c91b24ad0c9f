"""``event``: everything about one row of a trace, with the ids of what surrounds it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Answer, TimedRow, facts_of, first, name_of, short, short_names
from foretrace.integrations.mcp.arguments import TracePath
from foretrace.integrations.mcp.library import Library, Opened
from foretrace.knowledge.kernels import decode, describe
from foretrace.knowledge.kineto import GPU_WORK, HOST_ROWS, RowKind
from foretrace.model.report import Kernel
from foretrace.trace.table import Trace

__all__ = ["EventAnswer", "event"]

_ARGUMENT_LENGTH = 300
_ARGUMENTS_LENGTH = 2_500
_AROUND = 24
_BELOW = 12


class NeighbourRow(Answer):
    """The row before or after on the same stream, or beside it on the same thread."""

    event: int
    name: str
    start_us: float
    duration_us: float
    gap_us: float = Field(description="between the two; below zero where they overlap")


class LaunchRow(Answer):
    """The API call behind a GPU row."""

    event: int
    name: str
    start_us: float
    delay_us: float = Field(description="from the start of the call to the start on the GPU")


class KernelFacts(Answer):
    """What is known of a kernel."""

    short_name: str
    kind: str
    words: str
    decoded: dict[str, Any]
    unknown: list[str]
    phase: str | None
    grid: list[int] | None
    block: list[int] | None
    registers: int | None
    shared_memory_bytes: int | None
    flops: int | None
    bytes: int | None
    bound: str | None
    achieved_tflops: float | None
    achieved_gbps: float | None
    of_peak: float | None
    peak: str | None
    graph: bool | None = Field(description="true: a CUDA graph launched it, so it has no operator")


class EventAnswer(Answer):
    """One event. What does not apply to its kind is null or empty."""

    path: str
    event: int
    name: str
    kind: str = Field(description="kernel, memcpy, memset, operator, annotation, python, call, overhead, …")
    category: str
    start_us: float
    duration_us: float
    process: str
    thread: str = Field(description="the thread, or of a GPU row the stream, as the trace writes it")
    device: int | None
    stream: int | None
    step: int | None
    step_label: str | None
    op: str | None
    op_path: list[str] = Field(description="operators and annotations around it, outermost first")
    module: str | None
    arguments: dict[str, str] = Field(description="the event's args, each as JSON, long ones cut")
    arguments_left_out: int
    kernel: KernelFacts | None
    launch: LaunchRow | None
    around: list[TimedRow] = Field(description="of a CPU row: the rows it runs in, innermost first")
    below: list[TimedRow] = Field(description="of a CPU row: the rows directly inside it, the first of them")
    below_total: int | None
    gpu_work: list[TimedRow] = Field(description="of a CPU row: the GPU rows launched inside it, the first of them")
    gpu_work_total: int | None
    before: list[NeighbourRow]
    after: list[NeighbourRow]
    findings: list[int] = Field(description="numbers of the findings that rest on it, for the tool finding")


def event(
    library: Library,
    path: TracePath,
    event: Annotated[int, Field(description="The event's id: its position in traceEvents.", ge=0, le=2**53)],
    neighbours: Annotated[int, Field(description="Rows before and after it that are named.", ge=0, le=20)] = 2,
) -> EventAnswer:
    """Say everything about one event."""
    opened = library.open(path)
    trace = opened.need_trace("a single event")
    rows = np.flatnonzero(trace.event == event)
    if not len(rows):
        raise InputError(
            f"event {event} is no row of {opened.name}: there is none of that number, or it is a flow arrow, metadata "
            f"or an event without a time (the trace has {trace.total_events} events)"
        )
    return _Seen(opened, trace, int(rows[0])).answer(neighbours)


class _Seen:
    """One row and what surrounds it."""

    def __init__(self, opened: Opened, trace: Trace, row: int) -> None:
        self.opened, self.trace, self.row = opened, trace, row
        self.kind = RowKind(int(trace.kind[row]))
        self.context = opened.context()
        self.names = short_names(opened.whole)

    def answer(self, neighbours: int) -> EventAnswer:
        trace, row = self.trace, self.row
        on_gpu, on_cpu = self.kind in GPU_WORK, self.kind in HOST_ROWS
        all_arguments = trace.args(row)
        arguments = _arguments(all_arguments)
        step = int(self.context.attribution.step[row])
        labels = {span.index: span.label for span in trace.steps}
        lane = trace.lanes[int(trace.lane[row])]
        below = trace.forest.children().get(row, []) if on_cpu else []
        work = self._work_below() if on_cpu else []
        before, after = self._neighbours(neighbours)
        return EventAnswer(
            path=self.opened.name,
            event=int(trace.event[row]),
            name=short(trace.name(row), 2_000),
            kind=self.kind.name.lower(),
            category=name_of(trace.categories[int(trace.category_id[row])]),
            start_us=trace.start_us(row),
            duration_us=int(trace.duration[row]) / 1000,
            process=name_of(str(lane.pid)),
            thread=name_of(str(lane.tid)),
            device=_known(trace.device[row]) if on_gpu else None,
            stream=_known(trace.stream[row]) if on_gpu else None,
            step=step if step in labels else None,
            step_label=name_of(labels[step]) if step in labels else None,
            op=self._op(),
            op_path=self._op_path(),
            module=self._module(),
            arguments=arguments,
            arguments_left_out=len(all_arguments) - len(arguments),
            kernel=self._kernel() if self.kind == RowKind.KERNEL else None,
            launch=self._launch() if on_gpu else None,
            around=self._rows(list(trace.forest.ancestors(row))[:_AROUND]) if on_cpu else [],
            below=self._rows(below[:_BELOW]),
            below_total=len(below) if on_cpu else None,
            gpu_work=self._rows(work[:_BELOW]),
            gpu_work_total=len(work) if on_cpu else None,
            before=before,
            after=after,
            findings=[
                number
                for number, finding in enumerate(self.opened.whole.findings, 1)
                if any(evidence.event == int(trace.event[row]) for evidence in finding.evidence)
            ],
        )

    def _rows(self, rows: Sequence[int]) -> list[TimedRow]:
        trace = self.trace
        return [
            TimedRow(
                event=int(trace.event[row]),
                name=self._short(row),
                start_us=trace.start_us(row),
                duration_us=int(trace.duration[row]) / 1000,
            )
            for row in rows
        ]

    def _short(self, row: int) -> str:
        name = self.trace.name(row)
        return name_of(self.names.get(name, name))

    def _op(self) -> str | None:
        if self.kind in GPU_WORK:
            name = self.context.op_name(self.row)
        elif self.kind == RowKind.CALL:
            inside = int(self.trace.links.op[self.row])
            name = self.trace.name(inside) if inside >= 0 else None
        else:
            return None
        return None if name is None else name_of(name)

    def _op_path(self) -> list[str]:
        if self.kind in GPU_WORK:
            return [name_of(name) for name in self.context.op_path(self.row)[-_AROUND:]]
        if self.kind not in HOST_ROWS:
            return []
        named = (RowKind.OPERATOR, RowKind.ANNOTATION)
        around = [row for row in self.trace.forest.ancestors(self.row) if self.trace.kind[row] in named]
        return [name_of(self.trace.name(row)) for row in reversed(around[:_AROUND])]

    def _module(self) -> str | None:
        attribution = self.context.attribution
        if self.kind in GPU_WORK:
            module = attribution.module.get(self.row)
        elif self.kind in HOST_ROWS:
            step = int(attribution.step[self.row])
            module = attribution.place(self.row, step=step, at=int(self.trace.start[self.row]))[1]
        else:
            return None
        return None if module is None else name_of(module)

    def _launch(self) -> LaunchRow | None:
        trace = self.trace
        call = int(trace.links.launch[self.row])
        if call < 0:
            return None
        return LaunchRow(
            event=int(trace.event[call]),
            name=name_of(trace.name(call)),
            start_us=trace.start_us(call),
            delay_us=(int(trace.start[self.row]) - int(trace.start[call])) / 1000,
        )

    def _kernel(self) -> KernelFacts:
        decoded = decode(self.trace.name(self.row), op=self.context.op_name(self.row))
        number = int(self.trace.event[self.row])
        one: Kernel | None = next((each for each in self.opened.whole.kernels if each.event == number), None)
        return KernelFacts(
            short_name=name_of(one.short_name if one is not None else self.trace.name(self.row)),
            kind=decoded.kind if one is None else one.kind,
            words=short(describe(decoded), 600),
            decoded=facts_of(decoded.decoded),
            unknown=first(decoded.unknown, 12),
            phase=one.phase if one else None,
            grid=one.grid if one else None,
            block=one.block if one else None,
            registers=one.registers if one else None,
            shared_memory_bytes=one.shared_memory_bytes if one else None,
            flops=one.flops if one else None,
            bytes=one.bytes if one else None,
            bound=one.bound if one else None,
            achieved_tflops=one.achieved_tflops if one else None,
            achieved_gbps=one.achieved_gbps if one else None,
            of_peak=one.of_peak if one else None,
            peak=one.peak if one else None,
            graph=one.graph if one else None,
        )

    def _work_below(self) -> list[int]:
        """GPU rows whose launch is this row or lies inside it, in order of start."""
        trace = self.trace
        children = trace.forest.children()
        inside = {self.row}
        waiting = [self.row]
        while waiting:
            below = children.get(waiting.pop(), [])
            inside.update(below)
            waiting += below
        gpu = trace.gpu_rows
        mine: list[int] = gpu[np.isin(trace.links.launch[gpu], list(inside))].tolist()
        return mine

    def _neighbours(self, most: int) -> tuple[list[NeighbourRow], list[NeighbourRow]]:
        """Rows of the same stream, or of the same thread beside a CPU row, before and after it."""
        trace, row = self.trace, self.row
        if self.kind in GPU_WORK:
            gpu = trace.gpu_rows
            same = (trace.stream[gpu] == trace.stream[row]) & (trace.device[gpu] == trace.device[row])
            line = gpu[same & (trace.lane[gpu] == trace.lane[row])].tolist()
        elif self.kind in HOST_ROWS:
            parent = int(trace.forest.parent[row])
            line = [each for each in trace.forest.children().get(parent, []) if trace.lane[each] == trace.lane[row]]
        else:
            return [], []
        at = line.index(row)
        before = [self._neighbour(each, row, each) for each in line[max(0, at - most) : at]]
        after = [self._neighbour(row, each, each) for each in line[at + 1 : at + 1 + most]]
        return before, after

    def _neighbour(self, first: int, second: int, shown: int) -> NeighbourRow:
        trace = self.trace
        return NeighbourRow(
            event=int(trace.event[shown]),
            name=self._short(shown),
            start_us=trace.start_us(shown),
            duration_us=int(trace.duration[shown]) / 1000,
            gap_us=(int(trace.start[second]) - int(trace.end[first])) / 1000,
        )


def _known(value: Any) -> int | None:
    return int(value) if value >= 0 else None


def _arguments(arguments: dict[str, Any]) -> dict[str, str]:
    """As many of an event's arguments as fit."""
    kept: dict[str, str] = {}
    used = 0
    for key, value in arguments.items():
        name, told = name_of(str(key)), _told(value)
        used += len(name) + len(told)
        if used > _ARGUMENTS_LENGTH:
            break
        kept[name] = told
    return kept


def _told(value: object) -> str:
    """One argument as JSON, or a text as it is."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return short(text, _ARGUMENT_LENGTH)
