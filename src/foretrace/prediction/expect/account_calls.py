"""Accounts of API calls, compilations and other things the CPU does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from foretrace.analysis.callsites import called_in, site
from foretrace.knowledge.baseline import taken_apart
from foretrace.knowledge.differences import NO_QUERY_FAMILIES, TRITON_FAMILIES
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.kineto import Call, RowKind
from foretrace.model.expectations import Account
from foretrace.model.report import Kernel
from foretrace.model.words import listed
from foretrace.prediction.expect.account_kernels import done_elsewhere
from foretrace.prediction.expect.accounts import Case
from foretrace.prediction.expect.subject import Subject

__all__ = ["calls", "compilations", "frames", "instead", "launches", "queries", "unqueried", "views", "waits"]

_SHOWN = 4
_WORDS = {
    Call.LAUNCH_GRAPH: ("graph", "graphs"),
    Call.MEMCPY: ("copy", "copies"),
    Call.MEMSET: ("memset", "memsets"),
}


def launches(case: Case) -> Iterator[Account]:
    """What the launch calls enqueue, and what a graph launch hides."""
    context = case.subject.context
    replayed = [kernel for kernel in case.view.kernels if kernel.graph]
    if context is None or case.view.calls is None:
        return
    trace = context.trace
    rows = [row for row in case.view.calls if trace.links.enqueues[row]]
    if replayed and case.difference < 0:
        graphs = [row for row in rows if trace.links.call[row] == Call.LAUNCH_GRAPH]
        text = f"{_counted(len(graphs), 'graph launch', 'graph launches')} put {len(replayed)} kernels on the GPU"
        yield case.account("graph_launch", text, rows=graphs)
    kinds = Counter(_WORDS.get(Call(int(trace.links.call[row])), ("kernel", "kernels")) for row in rows)
    listed = ", ".join(_counted(times, *word) for word, times in kinds.most_common())
    text = f"{_counted(len(rows), 'launch call')}: {listed}" if rows else "no launch call was made"
    apart = [row for row in rows if trace.links.call[row] in (Call.MEMCPY, Call.MEMSET)]
    yield case.account("launch_kinds", text, rows=apart or rows, why=None if apart else "")


def queries(case: Case) -> Iterator[Account]:
    """More queries: by operator. Fewer: the kernels nobody asked about."""
    if case.difference > 0:
        yield from _by_operator(case, "queries", "occupancy query", "occupancy queries")
        return
    products = [kernel for kernel in case.view.kernels if kernel.kind in ("gemm", "convolution", "attention")]
    yield from _unasked(case, products or case.view.kernels)


def unqueried(case: Case) -> Iterator[Account]:
    """Why there is no occupancy query before the kernels that were expected to have one."""
    assert case.answer is not None
    yield from _unasked(case, [item for item in case.answer.wrong if isinstance(item, Kernel)])


def _unasked(case: Case, kernels: list[Kernel]) -> Iterator[Account]:
    if not kernels:
        return
    by_fact: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_fact.setdefault(_why_unasked(kernel), []).append(kernel)
    for fact, members in by_fact.items():
        names = ", ".join(_brief(Counter(kernel.short_name for kernel in members)))
        calls = Counter(name for kernel in members if (name := _launch_name(case.subject, kernel)) is not None)
        through = f" through {', '.join(calls)}" if calls else ""
        text = f"{names}: launched{through}, no query in front"
        rows = [row for kernel in members if (row := case.subject.launch_of(kernel)) >= 0]
        yield case.account(fact, text, work=members, rows=rows, count=-len(members))


def _why_unasked(kernel: Kernel) -> str:
    if kernel.graph:
        return "queries_at_capture"
    family = decode(kernel.name, op=kernel.op).family
    if family in NO_QUERY_FAMILIES:
        return "no_query_by_design"
    if family in TRITON_FAMILIES:
        return "no_query_triton"
    if kernel.kind in ("gemm", "convolution", "attention") and not kernel.decoded.get("triton_kind"):
        return "no_query_library"
    return "no_query_plain"


def _launch_name(subject: Subject, kernel: Kernel) -> str | None:
    row = subject.launch_of(kernel)
    return subject.context.trace.name(row) if row >= 0 and subject.context is not None else None


def waits(case: Case) -> Iterator[Account]:
    """Which calls wait for the GPU, and in which operator."""
    if case.difference > 0:
        yield from _by_operator(case, "waits", "wait", "waits")


def views(case: Case) -> Iterator[Account]:
    """Which operators changed only sizes and strides, or that compiled code has none."""
    if case.seen is not None and not case.seen.rows:
        yield case.account("views", "no view operator ran")
    yield from _by_name(case, "views")


def compilations(case: Case) -> Iterator[Account]:
    """What was compiled, or which frame ran as another compilation."""
    yield from _by_name(case, "compilation")


def frames(case: Case) -> Iterator[Account]:
    """The compiled frames that ran in the step."""
    yield from _by_name(case, "frames")


def calls(case: Case) -> Iterator[Account]:
    """The calls of the scope, where there are too many; what does its work instead, where there are too few."""
    if case.difference > 0:
        yield from _called(case, "calls_made")
        return
    elsewhere = list(done_elsewhere(case))
    yield from elsewhere
    yield from _taken_apart(case)
    if not elsewhere:
        yield from _called(case, "calls_left")


def instead(case: Case) -> Iterator[Account]:
    """What does the work of an operator that is not called at all."""
    yield from done_elsewhere(case)
    yield from _taken_apart(case)


def _called(case: Case, fact: str) -> Iterator[Account]:
    """``2 × aten::linear → aten::addmm``: each call with the operators around it, and its line where stacks tell it."""
    context = case.subject.context
    rows = list(case.seen.rows) if case.seen is not None else []
    if context is None or not rows:
        return
    stacks = case.subject.report.trace.has.stacks
    places = Counter(
        called_in(context, row) + (f" ({where})" if (stacks or len(rows) == 1) and (where := _site(case, row)) else "")
        for row in rows
    )
    lead = "there: " if fact == "calls_left" else ""
    yield case.account(fact, lead + ", ".join(_brief(places)), rows=rows, count=case.difference)


def _site(case: Case, row: int) -> str:
    """Where the outermost operator around a call was called."""
    context = case.subject.context
    assert context is not None
    around = [up for up in (row, *context.trace.forest.ancestors(row)) if context.trace.kind[up] == RowKind.OPERATOR]
    return site(context, around[-1]) if around else ""


def _taken_apart(case: Case) -> Iterator[Account]:
    """The operators that do in several calls what the expected one does in one."""
    context, wanted = case.subject.context, case.clause.scope.op
    if context is None or wanted is None:
        return
    trace = context.trace
    step = case.view.step.index
    rows = [row for row in context.operator_rows.tolist() if int(context.attribution.step[row]) == step]
    parts = taken_apart(wanted, {trace.name(row) for row in rows})
    if parts:
        of_parts = [row for row in rows if trace.name(row) in parts]
        text = f"{listed(parts)} run in this step: together they do what {wanted} does in one call"
        yield case.account("taken_apart", text, rows=of_parts)


def _by_name(case: Case, fact: str) -> Iterator[Account]:
    context = case.subject.context
    rows = list(case.seen.rows) if case.seen is not None else []
    if context is None or not rows:
        return
    names = Counter(context.trace.name(row) for row in rows)
    yield case.account(fact, ", ".join(_brief(names)), rows=rows, count=case.difference)


def _by_operator(case: Case, fact: str, one: str, many: str) -> Iterator[Account]:
    context = case.subject.context
    rows = np.array(case.seen.rows if case.seen is not None else (), dtype=np.int64)
    if context is None or not len(rows):
        return
    trace = context.trace
    by_owner: dict[tuple[str, str], list[int]] = {}
    for row in rows.tolist():
        op = int(trace.links.op[row])
        owner = f"in {trace.name(op)}" if op >= 0 else "outside any operator"
        by_owner.setdefault((owner, trace.name(row)), []).append(row)
    for (owner, name), members in sorted(by_owner.items(), key=lambda item: -len(item[1])):
        text = f"{_counted(len(members), one, many)} {owner}: {name}"
        yield case.account(fact, text, rows=members, count=min(len(members), case.difference))


def _brief(names: Counter[str]) -> list[str]:
    shown = [f"{times} × {name}" if times > 1 else name for name, times in names.most_common(_SHOWN)]
    return [*shown, "…"] if len(names) > _SHOWN else shown


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"
