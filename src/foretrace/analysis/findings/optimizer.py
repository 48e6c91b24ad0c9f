"""Optimizer steps that launch a kernel a tensor, or go over the parameters more often than needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.kineto import RowKind, is_optimizer
from foretrace.knowledge.limits import FOR_LOOP_KERNELS
from foretrace.knowledge.optimizers import FUSED, FUSED_PASSES, optimizer_class
from foretrace.model.report import Finding

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """``for_loop_optimizer`` and ``foreach_optimizer``, an optimizer class at a time."""
    classes: dict[str, list[int]] = {}
    for row in facts.in_steps:
        if facts.kernel_at[row].phase == "optimizer":
            name = _class(facts, row)
            if name is not None:
                classes.setdefault(name, []).append(row)
    for name, rows in classes.items():
        names = [facts.kernel_at[row].op or "" for row in rows]
        many = [row for row, op in zip(rows, names, strict=True) if op.startswith("aten::_foreach_")]
        single = [row for row, op in zip(rows, names, strict=True) if not _is_multi_tensor(op)]
        if name in FUSED and facts.per_step(len(single)) >= FOR_LOOP_KERNELS and len(single) > len(many):
            yield _told(facts, "for_loop_optimizer", name, single, None)
        elif many and name in FUSED_PASSES:
            yield from _foreach(facts, name, many)


def _foreach(facts: Facts, name: str, rows: list[int]) -> Iterable[Finding]:
    """Several passes over the parameters, against the one of the fused step."""
    context = facts.context
    ops = Counter(int(context.attribution.op[row]) for row in rows)
    passes: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for op in ops:
        lists = sum("TensorList" in str(kind) for kind in context.operands(op)["dtypes"])
        if not lists:
            return  # shapes were not recorded
        operator = context.trace.name(op)
        calls[operator] += 1
        passes[operator] += lists + 1  # each list is read, one is written
    groups = min(calls.values())
    each = sum(passes.values()) / groups
    fused = FUSED_PASSES[name]
    if each <= fused:
        return
    time_us = sum(facts.kernel_at[row].duration_us for row in rows)
    saving = facts.per_step(time_us * (1 - fused / each))
    if facts.worth(saving * len(facts.context.working_steps)):
        yield _told(facts, "foreach_optimizer", name, rows, saving, passes=f"{each:.0f}", fused=str(fused))


def _told(facts: Facts, rule: str, name: str, rows: list[int], saving: float | None, **places: Any) -> Finding:
    time_us = sum(facts.kernel_at[row].duration_us for row in rows)
    number, each = facts.tally(len(rows))
    return facts.finding(
        rule,
        rows,
        saving_us=saving,
        source_row=facts.anchor(rows[0]),
        optimizer=name,
        number=number,
        each=each,
        time=facts.spent(time_us, each),
        saving=facts.spent(saving * len(facts.context.working_steps)) if saving else "",
        **places,
    )


def _is_multi_tensor(op: str) -> bool:
    return op.startswith(("aten::_foreach_", "aten::_fused_"))


def _class(facts: Facts, row: int) -> str | None:
    trace = facts.context.trace
    start = facts.anchor(row)
    if start < 0:
        return None
    for up in trace.forest.ancestors(start):
        if trace.kind[up] in (RowKind.OPERATOR, RowKind.ANNOTATION) and is_optimizer(trace.name(up)):
            return optimizer_class(trace.name(up))
    return None
