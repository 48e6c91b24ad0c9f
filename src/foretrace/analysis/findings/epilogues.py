"""GEMMs whose result a pointwise kernel takes at once: work that an epilogue could do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from foretrace.analysis.findings.claims import claimed, lost
from foretrace.analysis.findings.dataflow import Work, infer
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.round_trips import Chain, build, label, measure, title_of
from foretrace.knowledge.limits import LEAST_ROUND_TRIP
from foretrace.model.report import Finding
from foretrace.model.words import breakdown, bytes_of

__all__ = ["find"]


@dataclass(frozen=True)
class _Pair:
    """A chain (or a single pointwise kernel) and the GEMMs whose results it takes."""

    gemms: list[Work]
    chain: Chain
    bytes: int  # of GEMM results that would not be written and read again

    @property
    def saving_us(self) -> float:
        """At most what is left of the pointwise time once its own round trips are gone."""
        chain = self.chain
        return min(chain.us * self.bytes / chain.moved, chain.us - chain.saving_us) if chain.moved else 0.0


def find(facts: Facts) -> Iterable[Finding]:
    """``gemm_then_pointwise``: one finding over all pairs, the kinds that save most named first."""
    kinds: dict[str, list[_Pair]] = {}
    for pair in _pairs(facts):
        if pair.bytes < LEAST_ROUND_TRIP:
            continue
        chain = title_of([label(work) for work in pair.chain.works])
        kinds.setdefault(f"{_gemm_name(pair.gemms)}, then {chain}", []).append(pair)
    ranked = sorted(kinds.items(), key=lambda item: -_saving(item[1]))
    members = [pair for _, group in ranked for pair in group]
    if not members or not facts.worth(_saving(members)):
        return
    first = [ranked_group[0] for _, ranked_group in ranked]
    rows = [row for pair in first for work in [*pair.gemms, *pair.chain.works] for row in work.rows]
    number, each = facts.tally(len(members))
    others = len(ranked) - 1
    parts = [(words, facts.per_step(_saving(group))) for words, group in ranked]
    joined = any(len(pair.chain.works) > 1 for pair in members)
    yield facts.finding(
        "gemm_then_pointwise",
        rows,
        saving_us=facts.per_step(_saving(members)),
        source_row=members[0].chain.works[0].op,
        count=len(members),
        pair=ranked[0][0],
        others=f" and {others} other{'s' if others > 1 else ''}" if others else "",
        number=number,
        each=each,
        megabytes=bytes_of(facts.per_step(sum(pair.bytes for pair in members))),
        saving=facts.spent(_saving(members)),
        parts=f" By kind: {breakdown(parts)}." if others else "",
        additional=" It comes on top of joining the pointwise kernels with one another (hbm_round_trip)."
        if joined
        else "",
    )


def _pairs(facts: Facts) -> list[_Pair]:
    taken = facts.once(claimed)
    chain_of = {id(work): chain for chain in facts.once(build) for work in chain.works}
    fed: dict[int, tuple[Chain, list[Work]]] = {}
    for work in facts.once(infer):
        if work.kind != "pointwise" or id(work) in taken:
            continue
        gemms = [gemm for source, same in work.sources if same and (gemm := _product(facts, source))]
        gemms = [g for g in gemms if g.phase == work.phase]
        if gemms:
            chain = chain_of.get(id(work)) or measure([work])
            fed.setdefault(id(chain.works[0]), (chain, []))[1].extend(gemms)
    return [
        _Pair(gemms, chain, sum(gemm.trips * (gemm.result.bytes if gemm.result else 0) for gemm in gemms))
        for chain, gemms in fed.values()
    ]


def _product(facts: Facts, source: Work) -> Work | None:
    """The GEMM behind a result; a bias that was added to it on the way is passed over."""
    if source.kind == "gemm":
        return source
    if id(source) in facts.once(lost):
        for before, same in source.sources:
            if same and before.kind == "gemm":
                return before
    return None


def _gemm_name(gemms: list[Work]) -> str:
    names = sorted({gemm.name for gemm in gemms})
    return " + ".join(f"{sum(g.name == n for g in gemms)} {n}" if len(gemms) > 1 else n for n in names)


def _saving(members: list[_Pair]) -> float:
    return sum(pair.saving_us for pair in members)
