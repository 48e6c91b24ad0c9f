"""Accounts of times, of FLOPs and bytes, and of clauses of words."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.model.expectations import Account
from foretrace.model.report import Kernel, Transfer
from foretrace.model.words import bytes_of, share_of, time
from foretrace.prediction.expect import words
from foretrace.prediction.expect.account_kernels import fused_away
from foretrace.prediction.expect.accounts import Case
from foretrace.prediction.expect.observe import observe

__all__ = ["bound", "host_time", "kernel_time", "order", "peak", "same", "work"]

_SHOWN = 4
_WORTH = 0.05  # share of the whole from which a part is named


def kernel_time(case: Case) -> Iterator[Account]:
    """The kernels that hold most of the time, and what nobody may have counted beside them."""
    wanted = set(case.seen.events) if case.seen is not None else set()
    kernels = [kernel for kernel in case.view.kernels if kernel.event in wanted]
    total = sum(kernel.duration_us for kernel in kernels)
    groups: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        groups.setdefault(kernel.short_name, []).append(kernel)
    ranked = sorted(groups.items(), key=lambda item: -sum(kernel.duration_us for kernel in item[1]))
    shown = [item for item in ranked[:_SHOWN] if sum(k.duration_us for k in item[1]) >= _WORTH * total]
    parts = []
    for name, members in shown:
        us = sum(kernel.duration_us for kernel in members)
        times = f"{len(members)} × " if len(members) > 1 else ""
        parts.append(f"{times}{name} {time(us)} ({share_of(us / total)})" if total else name)
    if parts:
        yield case.account(
            "time_of_kernels", ", ".join(parts), work=[max(m, key=lambda k: k.duration_us) for _, m in shown]
        )


def host_time(case: Case) -> Iterator[Account]:
    """Idle causes of a step, a cold first step, and the CPU rows that take most of the time."""
    subject, step = case.subject, case.view.step
    cold = next((finding for finding in subject.report.findings if finding.rule == "cold_first_step"), None)
    if cold is not None and step.index == 0 and case.difference > 0:
        account = case.account("cold_step", cold.title)
        account.evidence = cold.evidence
        yield account
    if not case.view.scope.inner and case.clause.quantity in ("wall_us", "period_us", "gpu_idle_us") and step.idle:
        parts = [
            f"{_cause(cause.cause)}{f' ({cause.detail})' if cause.detail else ''} {time(cause.us)}"
            for cause in step.idle[:_SHOWN]
        ]
        yield case.account("idle_causes", f"the GPU was idle: {', '.join(parts)}")
    rows = list(case.seen.rows) if case.seen is not None else []
    if rows and subject.context is not None:
        trace = subject.context.trace
        by_name: dict[str, list[int]] = {}
        for row in rows:
            by_name.setdefault(trace.name(row), []).append(row)
        ranked = sorted(by_name.items(), key=lambda item: -int(trace.duration[item[1]].sum()))[:_SHOWN]
        parts = [f"{name} {time(int(trace.duration[found].sum()) / 1000)}" for name, found in ranked]
        yield case.account("time_of_host", ", ".join(parts), rows=[found[0] for _, found in ranked])
    elif case.clause.quantity in ("wall_us", "period_us") and not case.view.scope.inner:
        busy = observe(subject, case.view, "gpu_busy_us")
        if busy.value:
            yield case.account("time_of_kernels", f"the GPU works {time(busy.value)} of it", why="")


def work(case: Case) -> Iterator[Account]:
    """The kernels that hold most FLOPs or bytes."""
    field = "bytes" if "bytes" in case.clause.quantity else "flops"
    groups: dict[str, list[Kernel]] = {}
    for kernel in case.view.kernels:
        if getattr(kernel, field):
            groups.setdefault(kernel.short_name, []).append(kernel)
    ranked = sorted(groups.items(), key=lambda item: -sum(getattr(k, field) for k in item[1]))[:_SHOWN]
    parts = []
    for name, members in ranked:
        amount = sum(getattr(kernel, field) for kernel in members)
        said = words.amount(amount, "bytes" if field == "bytes" else "flop")
        parts.append(f"{len(members)} × {name} {said}" if len(members) > 1 else f"{name} {said}")
    if parts:
        yield case.account("amounts", ", ".join(parts), work=[members[0] for _, members in ranked])


def peak(case: Case) -> Iterator[Account]:
    """The request at which most memory was in use."""
    context = case.subject.context
    rows = list(case.seen.rows) if case.seen is not None else []
    if context is None or not rows:
        return
    trace, row = context.trace, rows[0]
    size = trace.args(row).get("Bytes")
    at = f" for {bytes_of(size)}" if isinstance(size, int) and size > 0 else ""
    yield case.account("peak", f"a request{at} at {time(trace.start_us(row))}", rows=rows)


def bound(case: Case) -> Iterator[Account]:
    """The report's reasons for its verdict."""
    assert case.answer is not None
    for note in case.answer.notes:
        yield case.account("bound_reasons", note)


def order(case: Case) -> Iterator[Account]:
    """The place at which the order differs."""
    yield from _noted(case, "order_differs")
    wanted = case.clause.words.count("elementwise")
    if "fused" not in case.clause.words and wanted > sum(k.kind == "elementwise" for k in case.view.kernels):
        yield from fused_away(case)


def same(case: Case) -> Iterator[Account]:
    """The kernels that only one of the two traces has."""
    yield from _noted(case, "other_kernels")


def _cause(name: str) -> str:
    return name.replace("_", " ").replace("cpu", "the CPU")


def _noted(case: Case, fact: str) -> Iterator[Account]:
    assert case.answer is not None
    wrong: list[Kernel | Transfer] = list(case.answer.wrong)
    if case.answer.notes:
        yield case.account(fact, "; ".join(case.answer.notes), work=wrong)
