"""Why a clause broke: the events of the trace that account for the difference, and the facts that explain them.

``explain`` asks the explainer of the clause's quantity; each yields ``Account`` records, most telling first. A fact is
an entry of ``knowledge/differences.py``; a finding of the report that tells the same is named beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from foretrace.knowledge.differences import DIFFERENCES
from foretrace.knowledge.kernels import KINDS
from foretrace.model.expectations import Account, Clause
from foretrace.model.report import Evidence, Kernel, Transfer
from foretrace.prediction.expect.quantities import ratio_of
from foretrace.prediction.expect.relations import Answer
from foretrace.prediction.expect.seen import Seen
from foretrace.prediction.expect.subject import Subject, View

__all__ = ["Case", "explain"]

_SHOWN_EVIDENCE = 8
_SHOWN_ACCOUNTS = 6
_TRANSFERS = ("memcpy", "memset")


@dataclass(frozen=True, eq=False)
class Case:
    """One broken clause in one step.

    Attributes:
        seen: what a number came to; None for a clause of words.
        answer: what a clause of words came to; None for a number.
        siblings: the other clauses of the same scope: what the author expects beside this one.
    """

    subject: Subject
    view: View
    clause: Clause
    siblings: Sequence[Clause]
    seen: Seen | None = None
    answer: Answer | None = None

    @property
    def difference(self) -> float:
        """How much more than the range allows was seen; negative where it is less."""
        if self.seen is None or self.seen.value is None or self.clause.range is None:
            return 0.0
        low, high = self.clause.range.low, self.clause.range.high
        if high is not None and self.seen.value >= high:
            return self.seen.value - high
        return self.seen.value - low if low is not None else 0.0

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
    from foretrace.prediction.expect import account_amounts, account_calls, account_kernels, account_transfers

    name = case.clause.quantity
    parts = ratio_of(name)
    if parts is not None:
        name = parts[0]
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
        "gpu_busy_us": account_amounts.kernel_time,
        "wall_us": account_amounts.host_time,
        "period_us": account_amounts.host_time,
        "gpu_idle_us": account_amounts.host_time,
        "cpu_us": account_amounts.host_time,
        "unprofiled_us": account_amounts.host_time,
    }
    explainers |= dict.fromkeys(KINDS, account_kernels.counts)
    explainers |= dict.fromkeys((f"{kind}_us" for kind in KINDS), account_amounts.kernel_time)
    return list(explainers[name](case))[:_SHOWN_ACCOUNTS] or [_nothing_there(case)]


def _nothing_there(case: Case) -> Account:
    """What is said where no event stands for what was expected: what the place holds instead."""
    view = case.view
    parts = [(len(view.kernels), "kernel"), *((sum(t.kind == k for t in view.transfers), k) for k in _TRANSFERS)]
    held = ", ".join(f"{number} {word}{'' if number == 1 else 's'}" for number, word in parts)
    text = f"nothing here stands for it; the place holds {held}"
    return case.account("not_there", text, work=view.kernels[:1])
