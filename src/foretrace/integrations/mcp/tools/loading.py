"""``load``: what a file is and what it holds, in short."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Alarm, Answer, alarms_of, first, name_of, said
from foretrace.integrations.mcp.library import Library, Opened
from foretrace.integrations.mcp.tools.listing import MEMORY_KINDS, kind_of
from foretrace.integrations.mcp.tools.memory import MemorySizes, read_memory, sizes_of
from foretrace.model.memory import Memory
from foretrace.report.text import clean

__all__ = ["Loaded", "load"]

_STEPS_SAID = 8
_MOST_SAID = 8


class GpuRow(Answer):
    """A device the trace names."""

    id: int
    name: str | None
    compute_capability: str | None
    sms: int | None


class Recorded(Answer):
    """What was recorded; what was not cannot be reported."""

    gpu: bool
    shapes: bool
    stacks: bool
    memory: bool
    graphs: bool


class TraceFacts(Answer):
    """A trace in short."""

    events: int = Field(description="entries of traceEvents; an event id is a position among them")
    steps: int
    step_labels: list[str]
    kernels: int
    transfers: int
    gpus: list[GpuRow]
    gpus_left_out: int
    torch_version: str | None
    rank: int | None
    predicted: bool = Field(description="true: foretrace predicted it, nothing was measured")
    unprofiled_step_us: float | None = Field(description="median of the same step timed without the profiler")
    recorded: Recorded
    warnings: list[str]
    repairs: list[str]


class MemoryFacts(Answer):
    """A file about memory in short."""

    format: str
    device: int | None
    devices: list[int]
    segments: int
    blocks: int
    sizes: MemorySizes
    repairs: list[str]


class Loaded(Answer):
    """What a file is; ``path`` is its handle for the other tools."""

    path: str
    kind: Literal["trace", "report", "snapshot", "memory_timeline", "memory_summary", "memory_counters"]
    size_bytes: int
    trace: TraceFacts | None
    memory: MemoryFacts | None
    alarms: list[Alarm]
    next: str


def load(
    library: Library,
    path: Annotated[
        str,
        Field(description="A trace, report, snapshot or memory summary, by its path from the root.", max_length=4096),
    ],
) -> Loaded:
    """Read a file and say what it is."""
    name = library.root.file(path)
    stamp = library.root.stamp(name)
    if stamp is None:  # it was there a moment ago
        raise InputError(f"{clean(name)} is gone; list_files lists what there is")
    size = stamp.size
    kind = kind_of(library.root.folder / name)
    if kind in MEMORY_KINDS:
        return _memory(name, size, read_memory(library, name))
    opened = library.open(name)
    return Loaded(
        path=name,
        kind="report" if opened.trace is None else "trace",
        size_bytes=size,
        trace=_trace(opened),
        memory=None,
        alarms=alarms_of(opened.whole.health),
        next="explain for the verdict and the findings; query for SQL over its events",
    )


def _trace(opened: Opened) -> TraceFacts:
    report = opened.whole
    info = report.trace
    return TraceFacts(
        events=info.events,
        steps=len(report.steps),
        step_labels=first([step.label for step in report.steps], _STEPS_SAID),
        kernels=len(report.kernels),
        transfers=len(report.transfers),
        gpus=[
            GpuRow(
                id=gpu.id,
                name=None if gpu.name is None else name_of(gpu.name),
                compute_capability=gpu.compute_capability,
                sms=gpu.sms,
            )
            for gpu in info.gpus[:_MOST_SAID]
        ],
        gpus_left_out=max(0, len(info.gpus) - _MOST_SAID),
        torch_version=said(info.torch_version, 60),
        rank=info.rank,
        predicted=info.predicted,
        unprofiled_step_us=None if info.unprofiled is None else info.unprofiled.median_us,
        recorded=Recorded(
            gpu=info.has.gpu,
            shapes=info.has.shapes,
            stacks=info.has.stacks,
            memory=info.has.memory,
            graphs=info.has.graphs,
        ),
        warnings=first(info.warnings, _MOST_SAID, 300),
        repairs=first(info.repairs, _MOST_SAID, 300),
    )


_FORMATS: dict[str, Literal["snapshot", "memory_timeline", "memory_summary", "memory_counters"]] = {
    "snapshot": "snapshot",
    "timeline": "memory_timeline",
    "summary": "memory_summary",
    "stats": "memory_counters",
}


def _memory(name: str, size: int, memory: Memory) -> Loaded:
    return Loaded(
        path=name,
        kind=_FORMATS[memory.source.format],
        size_bytes=size,
        trace=None,
        memory=MemoryFacts(
            format=memory.source.format,
            device=memory.source.device,
            devices=[one.device for one in memory.devices],
            segments=len(memory.segments),
            blocks=len(memory.blocks),
            sizes=sizes_of(memory),
            repairs=first(memory.source.repairs, _MOST_SAID, 300),
        ),
        alarms=alarms_of(memory.health),
        next="memory for where it is, what pins it, and whether a request would succeed",
    )
