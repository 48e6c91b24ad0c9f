"""Intermediates between pointwise kernels that travel through memory, and what fusing them would save."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foretrace.analysis.findings.claims import claimed
from foretrace.analysis.findings.dataflow import Work, chains, infer
from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.limits import LEAST_ROUND_TRIP
from foretrace.model.report import Finding
from foretrace.model.words import breakdown, bytes_of, rate_of

__all__ = ["Chain", "build", "find", "label", "measure", "title_of"]

_NAMED_PARTS = 3


@dataclass(frozen=True)
class Chain:
    """Pointwise works of which each takes the result of another; totals over them.

    ``saved``: bytes that would not move if they were one kernel; ``moved``: bytes they move; ``us``: their time.
    """

    works: list[Work]
    saved: int
    moved: int
    us: float

    @property
    def saving_us(self) -> float:
        """Time of the saved bytes at the rate the chain reaches, µs; what is left is at least its longest kernel."""
        longest = max(work.kernel.duration_us for work in self.works if work.kernel is not None)
        return min(self.us * self.saved / self.moved, self.us - longest) if self.moved else 0.0


def find(facts: Facts) -> Iterable[Finding]:
    """``hbm_round_trip``: one finding over all chains, the kinds that save most named first."""
    kinds: dict[tuple[str, ...], list[Chain]] = {}
    for chain in facts.once(build):
        if chain.saved >= LEAST_ROUND_TRIP:
            kinds.setdefault(tuple(label(work) for work in chain.works), []).append(chain)
    ranked = sorted(kinds.items(), key=lambda item: -_saving(item[1]))
    members = [chain for _, group in ranked for chain in group]
    if not members or not facts.worth(_saving(members)):
        return
    saved = facts.per_step(sum(chain.saved for chain in members))
    others = len(ranked) - 1
    kept = any(source.trips == 1 for chain in members for work in chain.works for source, _ in work.sources)
    parts = [(title_of(names), facts.per_step(_saving(group))) for names, group in ranked]
    yield facts.finding(
        "hbm_round_trip",
        [row for _, group in ranked for work in group[0].works for row in work.rows],
        saving_us=facts.per_step(_saving(members)),
        source_row=members[0].works[-1].op,
        count=len(members),
        chain=title_of(ranked[0][0]),
        others=f" and {others} other chain{'s' if others > 1 else ''}" if others else "",
        megabytes=bytes_of(saved),
        rate=rate_of(sum(c.moved for c in members) / sum(c.us for c in members) / 1e3),
        saving=facts.spent(_saving(members)),
        each=facts.each,
        parts=f" By chain: {breakdown(parts)}." if others else "",
        kept=" Results needed again later (by the backward pass or another operator) are counted as still written."
        if kept
        else "",
    )


def measure(works: list[Work]) -> Chain:
    """Totals of one chain."""
    members = {id(work) for work in works}
    saved = 0
    for work in works:
        for source, same in work.sources:
            if same and id(source) in members and source.result is not None:
                saved += source.trips * source.result.bytes
    kernels = [work.kernel for work in works if work.kernel is not None]
    return Chain(
        works,
        saved,
        moved=sum(kernel.bytes or 0 for kernel in kernels),
        us=sum(kernel.duration_us for kernel in kernels),
    )


def build(facts: Facts) -> list[Chain]:
    """Chains of the steps; what belongs to another finding (a lost bias, attention) is left out."""
    taken = facts.once(claimed)
    free = [work for work in facts.once(infer) if id(work) not in taken]
    return [measure(works) for works in chains(free)]


def title_of(names: Sequence[str]) -> str:
    """``gelu → mul``; long chains show their ends."""
    if len(names) > 4:
        return f"{names[0]} → … → {names[-1]} ({len(names)} kernels)"
    return " → ".join(names)


def label(work: Work) -> str:
    """The operator's name; copies among pointwise works are casts, generated kernels are what they fuse."""
    if work.name.rstrip("_") == "copy":
        return "cast"
    decoded = work.kernel.decoded if work.kernel is not None else {}
    parts = [str(op) for op in decoded.get("ops") or [] if op not in (decoded.get("view_ops") or [])]
    if work.kernel is not None and work.kernel.kind == "fused" and len(parts) > 1:
        return f"fused {'·'.join(parts)}" if len(parts) <= _NAMED_PARTS else f"fused {parts[0]}·…·{parts[-1]}"
    return work.name


def _saving(members: Sequence[Chain]) -> float:
    return sum(chain.saving_us for chain in members)
