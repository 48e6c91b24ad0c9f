"""A recording reduced to what a committed baseline holds: counts per step, by name and place, and no times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal, TypeVar

from foretrace.analysis.context import Context
from foretrace.knowledge.baseline import operator_name
from foretrace.knowledge.dtypes import dtype
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.model.baseline import KernelCount, MadeOn, OperatorCount, Part, TransferCount, WaitCount
from foretrace.model.report import Kernel, Report, Transfer

__all__ = ["made_on", "part_of", "rows_at"]

_TOTALS = ("kernels", "launches", "memcpys", "memsets", "synchronizations")
_K = TypeVar("_K", bound=tuple[object, ...])


def made_on(report: Report, context: Context) -> MadeOn:
    """The torch, the GPU and the element types of a recording."""
    side = context.side
    spelled = {word for row in context.operator_rows.tolist() for word in context.operands(row)["dtypes"]}
    found = [dtype(word) for word in spelled if isinstance(word, str)]
    version = side.software.torch if side is not None else None
    names = sorted({gpu.name or "GPU of unknown model" for gpu in report.trace.gpus}) if report.trace.has.gpu else []
    return MadeOn(
        torch=version or report.trace.torch_version,
        gpu=", ".join(names) or None,
        dtypes=sorted({one.name for one in found if one is not None and one.kind == "float"}),
    )


def part_of(report: Report, context: Context, label: str) -> Part:
    """The counts of one recording: of each thing the most that any step with work had."""
    trace = context.trace
    steps = context.working_steps
    places = _Places(context)
    gpu = report.trace.has.gpu
    calls = context.calls_by_step
    operators = len(context.operator_rows) > 0
    kernels = _most((k.step, places.kernel(k)) for k in report.kernels if k.step in steps)
    transfers = _most((t.step, places.transfer(t)) for t in report.transfers if t.step in steps)
    waits: Counter[tuple[str, str | None, tuple[str, ...]]] = Counter()
    if calls is not None:
        waits = _most(
            (step, (trace.name(row), places.owner(row), places.path(row)))
            for step in steps
            for row in (calls[step].tolist() if step in calls else [])
            if trace.links.call[row] == Call.SYNCHRONIZE and row not in context.profiler_syncs
        )
    of_step = context.attribution.step
    paths = _most(
        (int(of_step[row]), places.path(row))
        for row in context.operator_rows.tolist()
        if int(of_step[row]) in steps and operator_name(trace.name(row)) is not None
    )
    totals = {}
    for name in _TOTALS:
        counted = [value for step in report.steps if step.index in steps and (value := getattr(step, name)) is not None]
        if counted and (gpu or calls is not None):
            totals[name] = max(counted)
    return Part(
        label=label,
        totals=totals,
        kernels=[
            KernelCount(kernel=name, kind=kind, operator=op, path=list(path), epilogue=list(epilogue), count=count)
            for (name, kind, op, path, epilogue), count in _ordered(kernels)
        ]
        if gpu
        else None,
        transfers=[
            TransferCount(copy=name, kind=kind, operator=op, path=list(path), count=count)
            for (name, kind, op, path), count in _ordered(transfers)
        ]
        if gpu
        else None,
        waits=[
            WaitCount(call=name, operator=op, path=list(path), count=count)
            for (name, op, path), count in _ordered(waits)
        ]
        if calls is not None
        else None,
        operators=[OperatorCount(path=list(path), count=count) for path, count in _ordered(paths)]
        if operators
        else None,
    )


def rows_at(context: Context, path: tuple[str, ...]) -> list[int]:
    """The operator rows with these operators around them (its own name last), of the step that has most of them."""
    places, of_step = _Places(context), context.attribution.step
    wanted = [row for row in context.operator_rows.tolist() if operator_name(context.trace.name(row)) == path[-1]]
    by_step: dict[int, list[int]] = {step: [] for step in context.working_steps}
    for row in wanted:
        if int(of_step[row]) in by_step and places.path(row) == path:
            by_step[int(of_step[row])].append(row)
    return max(by_step.values(), key=len, default=[])


class _Places:
    """Names and operator paths of rows, without what changes from run to run."""

    def __init__(self, context: Context) -> None:
        self._context = context
        rows = context.trace.gpu_rows
        self._row = dict(zip(context.trace.event[rows].tolist(), rows.tolist(), strict=True))
        self._paths: dict[int, tuple[str, ...]] = {}

    def kernel(self, kernel: Kernel) -> tuple[str, str, str | None, tuple[str, ...], tuple[str, ...]]:
        op, path = self._of_gpu(kernel)
        epilogue = kernel.decoded.get("epilogue") or []
        return kernel.short_name, kernel.kind, op, path, tuple(str(word) for word in epilogue)

    def transfer(self, transfer: Transfer) -> tuple[str, Literal["memcpy", "memset"], str | None, tuple[str, ...]]:
        return transfer.name, transfer.kind, *self._of_gpu(transfer)

    def owner(self, row: int) -> str | None:
        """The operator that a call is made in."""
        op = int(self._context.trace.links.op[row])
        return operator_name(self._context.trace.name(op)) if op >= 0 else None

    def _of_gpu(self, work: Kernel | Transfer) -> tuple[str | None, tuple[str, ...]]:
        row = self._row[work.event]
        start = int(self._context.attribution.op[row])
        if start < 0:
            start = int(self._context.trace.links.launch[row])
        name = operator_name(work.op) if work.op is not None else None
        return name, self.path(start) if start >= 0 else ()

    def path(self, row: int) -> tuple[str, ...]:
        """The operators around a row, outermost first, its own name last where it is an operator.

        Labels of the program stand for no work and are left out: a new one changes nothing.
        """
        pending = []
        trace, parent = self._context.trace, self._context.trace.forest.parent
        while row >= 0 and row not in self._paths:
            pending.append(row)
            row = int(parent[row])
        path = self._paths[row] if row >= 0 else ()
        for inner in reversed(pending):
            if trace.kind[inner] == RowKind.OPERATOR and (name := operator_name(trace.name(inner))) is not None:
                path = (*path, name)
            self._paths[inner] = path
        return path


def _most(seen: Iterable[tuple[int | None, _K]]) -> Counter[_K]:
    """From (step, key) pairs: of each key the most that one step had."""
    of_step: dict[int | None, Counter[_K]] = {}
    for step, key in seen:
        of_step.setdefault(step, Counter())[key] += 1
    most: Counter[_K] = Counter()
    for counted in of_step.values():
        most |= counted
    return most


def _ordered(counted: Counter[_K]) -> list[tuple[_K, int]]:
    """In an order that does not depend on the run."""
    return sorted(counted.items(), key=lambda item: tuple(str(part) for part in item[0]))
