"""The rows of a report's parts, as ``explain`` gives them a page at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

from pydantic import Field

from foretrace.integrations.mcp.answers import Answer, first, name_of, short
from foretrace.integrations.mcp.paging import Piece, piece
from foretrace.model.report import Finding, Launcher, Report, Step
from foretrace.model.trace_memory import Allocating, StepMemory

__all__ = [
    "SECTIONS",
    "FindingRow",
    "Row",
    "Section",
    "StepRow",
    "finding_rows",
    "section_piece",
    "sizes_of_sections",
    "step_rows",
]

Section = Literal[
    "findings",
    "steps",
    "kernels",
    "gemms",
    "elementwise",
    "operators",
    "transfers",
    "idle",
    "chain",
    "memory",
    "health",
]
SECTIONS: tuple[Section, ...] = get_args(Section)

_CAUSES = 3
_EVENTS = 3
_ALLOCATING = 3
_LISTED = 12


class FindingRow(Answer):
    """A finding in short; the tool finding tells it in full."""

    number: int
    rule: str
    severity: str
    title: str
    saving_us: float | None = Field(description="a step; null: it has no number")
    upper_bound: bool
    count: int


class CauseRow(Answer):
    """Idle time of a step that one cause explains."""

    cause: str
    detail: str | None
    us: float
    gaps: int


class StepRow(Answer):
    """One step."""

    step: int = Field(description="its position")
    label: str
    wall_us: float
    period_us: float
    gpu_busy_us: float | None
    gpu_idle_us: float | None
    kernels: int | None
    memcpys: int | None
    memsets: int | None
    launches: int | None
    synchronizations: int | None
    idle_causes: list[CauseRow] = Field(description="the largest")
    idle_causes_total: int


class KernelRow(Answer):
    """All kernels of one name."""

    short_name: str
    name: str
    kind: str
    op: str | None
    calls: int
    calls_per_step: float | None
    total_us: float
    share: float
    median_us: float
    min_us: float
    bound: str
    of_peak: float | None
    peak: str | None
    events: list[int] = Field(description="the first of them, for the tool event")


class GemmRow(Answer):
    """All matrix products of one shape and kernel; m, n, k in torch's order (rows, columns, reduction)."""

    m: int | None
    n: int | None
    k: int | None
    batch: int | None
    dtype: str | None
    layout: str | None
    tile: str | None
    op: str | None
    kernel: str
    epilogue: list[str]
    calls: int
    median_us: float
    flops: int | None
    tflops: float | None
    of_peak: float | None
    peak: str | None
    events: list[int] = Field(description="the first of its calls, for the tool event")


class ElementwiseRow(Answer):
    """All pointwise, reduction or copy kernels of one name and size."""

    short_name: str
    kind: str
    op: str | None
    parts: list[str]
    calls: int
    median_us: float
    bytes: int | None
    gbps: float | None
    of_peak: float | None
    cache_assisted: bool


class OperatorRow(Answer):
    """One operator; CPU and GPU time run in parallel and do not add up."""

    name: str
    calls: int
    cpu_us: float
    self_cpu_us: float
    gpu_us: float | None
    self_gpu_us: float | None
    kernels: int | None
    metadata_only: bool


class TransferRow(Answer):
    """One memcpy or memset."""

    event: int
    kind: str
    direction: str | None
    bytes: int | None
    step: int | None
    op: str | None
    start_us: float
    duration_us: float
    stream: int | None


class GapRow(Answer):
    """A stretch in which the GPU ran nothing; the longest first."""

    step: int
    start_us: float
    duration_us: float
    cause: str
    detail: str | None


class ChainRow(Answer):
    """A node of the dispatch tree of one step, in order; those of a larger depth below it are its children."""

    depth: int
    kind: str
    name: str
    count: int
    us: float | None


class AllocatingRow(Answer):
    """What one operator allocated."""

    op: str | None
    within: str | None
    allocations: int
    bytes: int


class MemoryRow(Answer):
    """One step on one device, by the trace's allocator rows."""

    device: str
    step: int
    label: str
    start_bytes: int | None
    end_bytes: int | None
    peak_bytes: int | None
    peak_event: int | None
    peak_op: str | None
    allocations: int
    allocated_bytes: int
    freed_bytes: int
    reserved_grown_bytes: int | None
    alive_at_peak: list[AllocatingRow] = Field(description="the largest")
    alive_at_peak_total: int
    missing: dict[str, str]


class HealthRow(Answer):
    """One check of whether the trace can be trusted."""

    check: str
    state: str
    detail: str
    count: int | None


Row = (
    FindingRow
    | StepRow
    | KernelRow
    | GemmRow
    | ElementwiseRow
    | OperatorRow
    | TransferRow
    | GapRow
    | ChainRow
    | MemoryRow
    | HealthRow
)


def section_piece(report: Report, section: Section, *, limit: int | None, offset: int) -> Piece[Any]:
    """A page of the rows of a section."""
    items, make = _PARTS[section](report)
    return piece(items, make, limit=limit, offset=offset)


def sizes_of_sections(report: Report) -> dict[str, int]:
    """How many rows each section has."""
    return {section: len(_PARTS[section](report)[0]) for section in SECTIONS}


def finding_rows(report: Report, most: int) -> list[FindingRow]:
    """The first findings in short."""
    return [_finding(position, one) for position, one in enumerate(report.findings[:most])]


def step_rows(report: Report, most: int) -> list[StepRow]:
    """The first steps."""
    return [_step(position, one) for position, one in enumerate(report.steps[:most])]


def _finding(position: int, one: Finding) -> FindingRow:
    return FindingRow(
        number=position + 1,
        rule=one.rule,
        severity=one.severity,
        title=short(one.title, 240),
        saving_us=one.saving_us,
        upper_bound=one.upper_bound,
        count=one.count,
    )


def _step(_: int, one: Step) -> StepRow:
    return StepRow(
        step=one.index,
        label=name_of(one.label),
        wall_us=one.wall_us,
        period_us=one.period_us,
        gpu_busy_us=one.gpu_busy_us,
        gpu_idle_us=one.gpu_idle_us,
        kernels=one.kernels,
        memcpys=one.memcpys,
        memsets=one.memsets,
        launches=one.launches,
        synchronizations=one.synchronizations,
        idle_causes=[
            CauseRow(cause=cause.cause, detail=_name(cause.detail), us=cause.us, gaps=cause.gaps)
            for cause in one.idle[:_CAUSES]
        ],
        idle_causes_total=len(one.idle),
    )


def _name(text: str | None) -> str | None:
    return None if text is None else name_of(text)


Part = tuple[Sequence[Any], Callable[[int, Any], Answer]]


def _kernels(report: Report) -> Part:
    events: dict[str, list[int]] = {}
    for kernel in report.kernels:
        some = events.setdefault(kernel.name, [])
        if len(some) < _EVENTS:
            some.append(kernel.event)

    def row(_: int, one: Any) -> KernelRow:
        return KernelRow(
            short_name=name_of(one.short_name),
            name=name_of(one.name),
            kind=one.kind,
            op=_name(one.op),
            calls=one.calls,
            calls_per_step=one.calls_per_step,
            total_us=one.total_us,
            share=one.share,
            median_us=one.median_us,
            min_us=one.min_us,
            bound=one.bound,
            of_peak=one.of_peak,
            peak=_name(one.peak),
            events=events.get(one.name, []),
        )

    return report.groups, row


def _same(model: type[Answer], *, texts: Sequence[str] = (), left: Sequence[str] = ()) -> Callable[[int, Any], Answer]:
    """Rows that have the fields of the report's own, the texts among them made short."""
    fields = [name for name in model.model_fields if name not in left]

    def row(_: int, one: Any) -> Answer:
        values = {name: getattr(one, name) for name in fields}
        for name in texts:
            values[name] = _name(values[name])
        for name, value in values.items():
            if isinstance(value, list):
                values[name] = value[:_EVENTS] if name == "events" else first([str(item) for item in value], _LISTED)
        return model(**values)

    return row


def _chain(report: Report) -> Part:
    return list(_nodes(report.chain)), lambda _, one: ChainRow(
        depth=one[0], kind=one[1].kind, name=name_of(one[1].name), count=one[1].count, us=one[1].us
    )


def _nodes(roots: Sequence[Launcher]) -> Iterator[tuple[int, Launcher]]:
    waiting = [(0, node) for node in reversed(roots)]
    while waiting:
        depth, node = waiting.pop()
        yield depth, node
        waiting += [(depth + 1, child) for child in reversed(node.children)]


def _memory(report: Report) -> Part:
    devices = report.memory.devices if report.memory is not None else []
    return [(device.device, step) for device in devices for step in device.steps], lambda _, one: _memory_row(*one)


def _memory_row(device: str, one: StepMemory) -> MemoryRow:
    return MemoryRow(
        device=name_of(device),
        step=one.step,
        label=name_of(one.label),
        start_bytes=one.start_bytes,
        end_bytes=one.end_bytes,
        peak_bytes=one.peak_bytes,
        peak_event=one.peak_event,
        peak_op=_name(one.peak_op),
        allocations=one.allocations,
        allocated_bytes=one.allocated_bytes,
        freed_bytes=one.freed_bytes,
        reserved_grown_bytes=one.reserved_grown_bytes,
        alive_at_peak=[_allocating(each) for each in one.alive_at_peak[:_ALLOCATING]],
        alive_at_peak_total=len(one.alive_at_peak),
        missing={name_of(key): short(text, 300) for key, text in one.missing.items()},
    )


def _allocating(one: Allocating) -> AllocatingRow:
    return AllocatingRow(op=_name(one.op), within=_name(one.within), allocations=one.allocations, bytes=one.bytes)


_PARTS: dict[Section, Callable[[Report], Part]] = {
    "findings": lambda report: (report.findings, _finding),
    "steps": lambda report: (report.steps, _step),
    "kernels": _kernels,
    "gemms": lambda report: (report.gemms, _same(GemmRow, texts=("op", "kernel", "peak", "tile", "layout"))),
    "elementwise": lambda report: (report.elementwise, _same(ElementwiseRow, texts=("short_name", "op"))),
    "operators": lambda report: (report.operators, _same(OperatorRow, texts=("name",))),
    "transfers": lambda report: (report.transfers, _same(TransferRow, texts=("op", "direction"))),
    "idle": lambda report: (report.gaps, _same(GapRow, texts=("cause", "detail"))),
    "chain": _chain,
    "memory": _memory,
    "health": lambda report: (report.health, _same(HealthRow, texts=())),
}
