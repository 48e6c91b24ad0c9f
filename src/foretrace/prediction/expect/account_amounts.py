"""Accounts of FLOPs and bytes, of memory, and of clauses of words."""

from __future__ import annotations

from collections.abc import Iterator

from foretrace.model.expectations import Account
from foretrace.model.report import Kernel, Transfer
from foretrace.model.words import bytes_of, time
from foretrace.prediction.expect import words
from foretrace.prediction.expect.account_kernels import fused_away
from foretrace.prediction.expect.accounts import Case

__all__ = ["bound", "order", "peak", "same", "work"]

_SHOWN = 4


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


def _noted(case: Case, fact: str) -> Iterator[Account]:
    assert case.answer is not None
    wrong: list[Kernel | Transfer] = list(case.answer.wrong)
    if case.answer.notes:
        yield case.account(fact, "; ".join(case.answer.notes), work=wrong)
