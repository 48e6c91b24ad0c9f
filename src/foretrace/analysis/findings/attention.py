"""Attention computed as separate products and a softmax, whose scores cross memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foretrace.analysis.findings.dataflow import Work, infer
from foretrace.analysis.findings.facts import Facts
from foretrace.model.report import Finding
from foretrace.model.words import bytes_of

__all__ = ["Attention", "find", "inner_works"]

_SOFTMAX = frozenset({"softmax", "_softmax", "_safe_softmax"})
_PRODUCT = frozenset({"bmm", "baddbmm"})
# Between the scores and the softmax, or after it: scaling, masking, casts, dropout. More than this is no attention.
_MOST_STEPS = 6


@dataclass(frozen=True)
class Attention:
    """``first`` makes the scores, ``inner`` works on them (softmax included), ``last`` takes them."""

    first: Work
    inner: list[Work]
    last: Work


def find(facts: Facts) -> Iterable[Finding]:
    """``slow_attention``: batched product → … → softmax → … → batched product."""
    found = list(_attentions(facts))
    if not found:
        return
    trace = facts.context.trace
    inner = [row for attention in found for work in attention.inner for row in work.rows]
    rows = [
        row for attention in found for work in (attention.first, *attention.inner, attention.last) for row in work.rows
    ]
    all_us = sum(int(trace.duration[row]) for row in rows) / 1000
    inner_us = sum(int(trace.duration[row]) for row in inner) / 1000
    scores = max((a.first.result.bytes for a in found if a.first.result), default=0)
    ancestors = {trace.name(up) for up in trace.forest.ancestors(found[0].first.op)}
    number, each = facts.tally(len(found))
    within = "aten::_scaled_dot_product_attention_math" in ancestors
    yield facts.finding(
        "slow_attention",
        rows,
        saving_us=facts.per_step(inner_us),
        source_row=found[0].first.op,
        count=len(found),
        number=number,
        each=each,
        time=facts.spent(all_us, each),
        inner=facts.spent(inner_us, each),
        kernels=f"{len(rows) / len(found):.0f}",
        scores=bytes_of(scores),
        how="scaled_dot_product_attention fell back to its math implementation"
        if within
        else "the product with the keys, the softmax and the product with the values are separate operators",
    )


def _attentions(facts: Facts) -> Iterator[Attention]:
    """Every place where a softmax stands between two batched products, each taking the result before it."""
    for work in facts.once(infer):
        if work.name not in _SOFTMAX or work.moved.result is None:
            continue
        before = _back(work)
        after = _forward(work)
        if before and after and _shares_scores(before[-1], after[-1]):
            yield Attention(before[-1], [*reversed(before[:-1]), work, *after[:-1]], after[-1])


def inner_works(facts: Facts) -> Iterator[Work]:
    """Works between the two products of each attention."""
    for attention in _attentions(facts):
        yield from attention.inner


def _back(work: Work) -> list[Work]:
    """Works from ``work`` (excluded) back to the product that made the scores (last); empty if there is none."""
    path: list[Work] = []
    current = work
    for _ in range(_MOST_STEPS):
        size = current.moved.reads[0].elements if current.moved.reads else 0
        current_source = next(
            (s for s, _ in current.sources if s.result is not None and s.result.elements == size), None
        )
        if current_source is None:
            return []
        path.append(current_source)
        if current_source.name in _PRODUCT:
            return path
        current = current_source
    return []


def _forward(work: Work) -> list[Work]:
    """Works from ``work`` (excluded) on to the product that takes the scores (last); empty if there is none."""
    path: list[Work] = []
    current = work
    for _ in range(_MOST_STEPS):
        if not current.takers:
            return []
        current = current.takers[0]
        path.append(current)
        if current.name in _PRODUCT:
            return path
    return []


def _shares_scores(first: Work, last: Work) -> bool:
    """Whether the second product multiplies a matrix of the first one's size."""
    scores = first.result
    return scores is not None and any(read.elements == scores.elements for read in last.moved.reads)
