"""Why a clause broke: the events of the trace that account for the difference, and the facts that explain them.

``explain`` asks the explainer of the clause's quantity; each yields ``Account`` records, most telling first. A fact is
an entry of ``knowledge/differences.py``; a finding of the report that tells the same is named beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from foretrace.analysis.context import Context
from foretrace.knowledge.differences import DIFFERENCES
from foretrace.knowledge.kernels import KINDS
from foretrace.model.expectations import Account, Clause, Range
from foretrace.model.report import Evidence, Kernel, Transfer
from foretrace.model.words import count
from foretrace.prediction.expect.observe import observe
from foretrace.prediction.expect.quantities import find, ratio_of
from foretrace.prediction.expect.relations import Answer
from foretrace.prediction.expect.seen import Seen
from foretrace.prediction.expect.subject import Subject, View

__all__ = ["Case", "excess", "explain"]

_SHOWN_EVIDENCE = 8
_SHOWN_ACCOUNTS = 6
_TRANSFERS = ("memcpy", "memset")
# Parts of a ratio that are explained by what holds most of them; of a count no single row is to blame for a ratio.
_PART_UNITS = ("us", "flop", "bytes")
_HOST_TIMES = ("wall_us", "period_us", "cpu_us", "unprofiled_us")


def excess(value: float, wanted: Range) -> float:
    """How much more than a range allows a value is; negative where it is less."""
    low, high = wanted.low, wanted.high
    if high is not None and value >= high:
        return value - high
    return value - low if low is not None else 0.0


@dataclass(frozen=True, eq=False)
class Case:
    """One broken clause in one step.

    Attributes:
        seen: what a number came to; None for a clause of words.
        answer: what a clause of words came to; None for a number.
        of_many: whether the clause spoke of several steps, so that an account of times has to name this one.
        of_ratio: whether the clause is the larger part of a ratio of two times: GPU work is then no reason.
        siblings: the other clauses of the same scope: what the author expects beside this one.
    """

    subject: Subject
    view: View
    clause: Clause
    siblings: Sequence[Clause]
    seen: Seen | None = None
    answer: Answer | None = None
    of_many: bool = False
    of_ratio: bool = False

    @property
    def where(self) -> str:
        """``in ProfilerStep#2: `` where the clause spoke of several steps."""
        return f"in {self.view.step.label}: " if self.of_many else ""

    @property
    def difference(self) -> float:
        """How much more than the range allows was seen; negative where it is less."""
        if self.seen is None or self.seen.value is None or self.clause.range is None:
            return 0.0
        return excess(self.seen.value, self.clause.range)

    @property
    def counted(self) -> list[Kernel | Transfer]:
        """The GPU rows the value counts, in order of start."""
        wanted = set(self.seen.events) if self.seen is not None else set()
        work: list[Kernel | Transfer] = [*self.view.kernels, *self.view.transfers]
        return sorted((item for item in work if item.event in wanted), key=lambda item: item.start_us)

    def account(
        self,
        rule: str,
        text: str,
        *,
        work: Iterable[Kernel | Transfer] = (),
        rows: Iterable[int] = (),
        count: float | None = None,
        why: str | None = None,
    ) -> Account:
        """One account by a fact of the knowledge base; ``work`` and ``rows`` are its evidence."""
        fact = DIFFERENCES[rule]
        items = list(work)
        launched = [row for item in items[:_SHOWN_EVIDENCE] if (row := self.subject.launch_of(item)) >= 0]
        evidence = [Evidence(event=item.event, name=item.name, start_us=item.start_us) for item in items]
        evidence += self.subject.evidence([*rows, *launched] if len(items) <= 1 else list(rows))
        evidence = list({one.event: one for one in evidence}.values())
        there = {finding.rule for finding in self.subject.report.findings}
        return Account(
            text=text,
            why=(why if why is not None else fact.why) or None,
            rule=rule,
            source=fact.source,
            count=count,
            finding=next((name for name in fact.findings if name in there), None),
            evidence=evidence[:_SHOWN_EVIDENCE],
        )


def explain(case: Case) -> list[Account]:
    """What accounts for the difference of a broken clause, most telling first; empty where nothing is known."""
    from foretrace.prediction.expect import (
        account_amounts,
        account_calls,
        account_kernels,
        account_times,
        account_transfers,
    )

    if case.view.missing:
        instead = list(account_calls.instead(case)) if case.clause.quantity == "calls" else []
        return [*instead, case.account("no_such_place", case.view.absent or "")]
    parts = ratio_of(case.clause.quantity)
    if parts is not None:
        part = _too_large(case, *parts)
        if part is None:
            return []
        case = part
    explainers: dict[str, Callable[[Case], Iterator[Account]]] = {
        "kernels": account_kernels.counts,
        "kernel": account_kernels.patterns,
        "memcpys": account_transfers.memcpys,
        "memsets": account_transfers.memsets,
        "launches": account_calls.launches,
        "kernel_launches": account_calls.launches,
        "graph_launches": account_calls.launches,
        "occupancy_queries": account_calls.queries,
        "occupancy_query_before": account_calls.unqueried,
        "synchronizations": account_calls.waits,
        "metadata_only": account_calls.views,
        "recompiles": account_calls.compilations,
        "graph_breaks": account_calls.frames,
        "calls": account_calls.calls,
        "bound": account_amounts.bound,
        "order": account_amounts.order,
        "same_kernels_as": account_amounts.same,
        "flops": account_amounts.work,
        "bytes": account_amounts.work,
        "peak_memory_bytes": account_amounts.peak,
        "gpu_busy_us": account_times.kernel_time,
        "wall_us": account_times.step_time,
        "period_us": account_times.step_time,
        "gpu_idle_us": account_times.idle_time,
        "cpu_us": account_times.cpu_time,
        "unprofiled_us": account_times.unprofiled_time,
    }
    explainers |= dict.fromkeys(KINDS, account_kernels.counts)
    explainers |= dict.fromkeys((f"{kind}_us" for kind in KINDS), account_times.kernel_time)
    found = list(explainers[case.clause.quantity](case))[:_SHOWN_ACCOUNTS]
    return found or ([_nothing_there(case)] if _lacks(case) else [])


def _too_large(case: Case, above: str, below: str) -> Case | None:
    """The part of a ratio that is too large: above the line where the ratio is too high, below where it is too low.

    None where no row can be named for it.
    """
    name, other = (above, below) if case.difference > 0 else (below, above)
    if other == "gpu_idle_us":
        name = "gpu_busy_us"  # a step that idles too little works too much of it
    large, small = find(name), find(other)
    if large is None or small is None or large.unit not in _PART_UNITS or {name, other} <= set(_HOST_TIMES):
        return None
    seen = observe(case.subject, case.view, name)
    # What belongs to the smaller part as well does not make the larger one too large.
    shared = set(observe(case.subject, case.view, other).events) if case.difference < 0 else set()
    seen = replace(seen, events=tuple(event for event in seen.events if event not in shared))
    clause = Clause(quantity=name, scope=case.clause.scope, range=Range(high=0.0))
    return replace(case, clause=clause, seen=seen, of_ratio=small.unit == "us")


def _lacks(case: Case) -> bool:
    """Whether something was expected of which the place holds too few, or nothing."""
    quantity = find(case.clause.quantity)
    if case.seen is None or quantity is None or case.difference >= 0:
        return False
    return quantity.unit == "count" or case.seen.value == 0


def _nothing_there(case: Case) -> Account:
    """What is said where no event stands for what was expected: what the place holds instead."""
    view, context = case.view, case.subject.context
    if case.clause.quantity == "calls" or not case.subject.report.trace.has.gpu:
        names = Counter() if context is None else _operators_of(context, view.step.index)
        held = count(sum(names.values()), "operator") if names else "no operator"
        near = get_close_matches(case.clause.scope.op or "", names, n=1)
        held += f"; the nearest name is {near[0]}" if near else ""
        return case.account("not_there", f"nothing here stands for it; the step holds {held}")
    parts = [(len(view.kernels), "kernel"), *((sum(t.kind == k for t in view.transfers), k) for k in _TRANSFERS)]
    held = ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in parts)
    text = f"nothing here stands for it; the place holds {held}"
    return case.account("not_there", text, work=view.kernels[:1])


def _operators_of(context: Context, step: int) -> Counter[str]:
    rows = context.operator_rows.tolist()
    return Counter(context.trace.name(row) for row in rows if int(context.attribution.step[row]) == step)
