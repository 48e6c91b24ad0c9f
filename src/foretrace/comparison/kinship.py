"""Whether two traces may be compared at all, and whether they do the same work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isclose

from foretrace.comparison.identity import expected_of, may_drift, other_parameters, same_workload, twins
from foretrace.comparison.joins import K, M, N, unequal, width
from foretrace.comparison.notes import how_aligned, surroundings
from foretrace.comparison.places import Alignment, total
from foretrace.comparison.products import same_share
from foretrace.comparison.subject import Item, Subject
from foretrace.knowledge.comparing import (
    RELATED_GPU_SHARE,
    RELATED_OPERATOR_SHARE,
    RELATED_PRODUCT_SHARE,
    SAME_FLOPS,
)
from foretrace.knowledge.limits import COMPUTE_KINDS, SHOWN_KINDS
from foretrace.model.words import first_of, share_of, whole

__all__ = ["DRIFT_OF_RUNS", "DRIFT_OF_TWINS", "Kinship", "damage", "in_part", "kinship", "recompiles"]

# Unprofiled timings hold the spread within one process; what differs between two they cannot tell.
DRIFT_OF_TWINS = "drift between two runs of the same program; `foretrace bench` interleaves what it compares"
DRIFT_OF_RUNS = "timed in two runs, between which clocks and neighbours differ; `foretrace bench` interleaves"


@dataclass
class Kinship:
    """The verdict over a pair; fields as in ``model.comparison.Pair``."""

    related: bool
    gpu_share: float | None
    operator_share: float | None
    same_work: bool | None = None
    withheld: str | None = None
    notes: list[str] = field(default_factory=list)
    other_work: str | None = None  # why a ratio of times would be no speed-up (other work, a prediction)
    expected: str | None = None  # "predicted for compile, recorded eager": a prediction of another variant
    drifts: str | None = None  # why unprofiled timings of the two may differ though the program does not
    twins: bool = False  # two recordings known to be of one program
    in_part: bool = False  # a step is there in part only: what the other trace has beyond it was cut away


def kinship(a: Subject, b: Subject, alignment: Alignment) -> Kinship:
    """Judge a pair: related or not, same work or not, and what must be said before any number."""
    parts = [f"{name}: {what}" for name, subject in _both(a, b) for what in in_part(subject)]
    if parts:
        found = Kinship(True, None, None, withheld=f"a step is not whole ({parts[0]})", in_part=True)
        found.notes = [f"Nothing is compared: {'; '.join(parts)}.", *surroundings(a, b)]
        return found
    gpu_share = _gpu_share(alignment)
    operator_share = _operator_share(a, b)
    product_share = same_share(a.products, b.products)
    related = (
        same_workload(a, b)
        or (gpu_share or 0.0) >= RELATED_GPU_SHARE
        or (operator_share or 0.0) >= RELATED_OPERATOR_SHARE
        or (product_share or 0.0) >= RELATED_PRODUCT_SHARE
    )
    found = Kinship(related, gpu_share, operator_share)
    if not related:
        found.withheld = "the traces are unrelated"
        found.notes.append(_unrelated(gpu_share, operator_share))
        return found
    found.notes += [*surroundings(a, b), *how_aligned(a, b, alignment)]
    _work(found, a, b, alignment)
    if product_share is not None:
        found.notes.append(f"Matrix products of equal size hold {share_of(product_share)} of the products' FLOPs.")
    found.expected = expected_of(a, b, alignment)
    if a.report.trace.predicted != b.report.trace.predicted and found.other_work is None:
        found.other_work = (
            f"{found.expected}: the change is expected, not measured"
            if found.expected
            else "one of the two is predicted: the difference is the prediction's error"
        )
    found.twins = twins(a, b, alignment)
    if found.twins:
        found.drifts = DRIFT_OF_TWINS
    elif may_drift(a, b):
        found.drifts = DRIFT_OF_RUNS
    both = _both(a, b)
    compiling = [name for name, subject in both if recompiles(subject)]
    damaged = [f"{name}: {what}" for name, subject in both for what in damage(subject)]
    if compiling:
        found.withheld = f"{' and '.join(compiling)} compiled while it was recorded: its steps hold compile time"
        found.notes.insert(0, f"No speed-up is quoted: {found.withheld}. Warm up every shape first, then record.")
    if damaged:
        found.withheld = f"a recording cannot be trusted ({damaged[0]})"
        found.notes.insert(0, f"No change of a time is told: these recordings cannot be trusted: {'; '.join(damaged)}.")
    return found


def recompiles(subject: Subject) -> str | None:
    """What shows that a trace compiled while it was recorded; None where nothing does."""
    finding = next((f for f in subject.report.findings if f.rule == "recompile"), None)
    return None if finding is None else finding.explanation


def _both(a: Subject, b: Subject) -> tuple[tuple[str, Subject], tuple[str, Subject]]:
    return ("the baseline", a), ("the other trace", b)


def in_part(subject: Subject) -> list[str]:
    """That steps of a trace are there in part only, in words; empty where all are whole."""
    return [c.detail for c in subject.report.health if c.check == "cut_steps" and c.state == "bad"]


def damage(subject: Subject) -> list[str]:
    """Health checks of a trace that are bad, in words."""
    return [check.detail.rstrip(".") for check in subject.report.health if check.state == "bad"]


def _gpu_share(alignment: Alignment) -> float | None:
    """Share of both steps' GPU time that is paired on a name, on equal work, or on the parts of a fused kernel."""
    everything = total([*alignment.a, *alignment.b])
    if not alignment.a or not alignment.b or not everything:
        return None
    paired = []
    for spot in alignment.spots:
        rows_a, rows_b = [alignment.a[i] for i in spot.a], [alignment.b[j] for j in spot.b]
        if not rows_a or not rows_b or spot.how == "order and kind":
            continue
        if len(rows_a) + len(rows_b) > 2 or _alike(rows_a[0], rows_b[0]):
            paired += [*rows_a, *rows_b]
    return total(paired) / everything


def _alike(one: Item, other: Item) -> bool:
    return one.code == other.code or (one.size is not None and one.size == other.size)


def _operator_share(a: Subject, b: Subject) -> float | None:
    one, other = a.host.call_paths, b.host.call_paths
    if not one or not other:
        return None
    return 2 * (one & other).total() / (one.total() + other.total())


def _unrelated(gpu_share: float | None, operator_share: float | None) -> str:
    known = [
        f"{share_of(share)} of {what}"
        for share, what in ((gpu_share, "the GPU time"), (operator_share, "the operator calls"))
        if share is not None
    ]
    said = f"only {' and '.join(known)} could be aligned" if known else "neither kernels nor operators could be aligned"
    return f"These traces are unrelated: {said}. Nothing below is a comparison of one program with another."


def _work(found: Kinship, a: Subject, b: Subject, alignment: Alignment) -> None:
    """Compare sizes, types and FLOPs of what was paired, and the FLOPs of what was added or removed."""
    sizes: Counter[str] = Counter()
    types: Counter[str] = Counter()
    joins: Counter[str] = Counter()
    alone: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
    flops = [0, 0]
    known = True
    unsized = False  # whether a product without a partner is of unknown size: then it may be any of the other trace's
    for spot in alignment.spots:
        rows_a, rows_b = [alignment.a[i] for i in spot.a], [alignment.b[j] for j in spot.b]
        for rows, others, counts in ((rows_a, rows_b, alone[0]), (rows_b, rows_a, alone[1])):
            # That two products of other sizes stand in one order is no sign that one does the other's work.
            apart = not others or (spot.how == "order and kind" and unequal(rows_a[0], rows_b[0]))
            products = [item for item in rows if item.kind == "gemm" and apart]
            counts.update(_size(item) for item in products if item.is_product)
            unsized |= not all(item.is_product for item in products)
        sizes.update(_other_parts(rows_a, rows_b))
        if len(rows_a) + len(rows_b) > 2 and not _products_alone(rows_a, rows_b):
            continue  # fused attention counts its FLOPs differently from the products it replaces
        for side, rows in enumerate((rows_a, rows_b)):
            for item in rows:
                if item.kind in COMPUTE_KINDS:
                    known &= item.flops is not None
                    flops[side] += item.flops or 0
        if len(rows_a) + len(rows_b) > 2:
            if spot.how == "work":
                joins[_join(rows_a, rows_b)] += 1
        elif rows_a and rows_b and rows_a[0].kind in COMPUTE_KINDS and spot.how != "order and kind":
            one, other = rows_a[0], rows_b[0]
            if one.size and other.size and one.size != other.size:
                sizes[f"{_size(one)} → {_size(other)}"] += 1
            if one.dtype and other.dtype and one.dtype != other.dtype:
                types[f"{one.dtype} → {other.dtype}"] += 1
    both_gpu = bool(a.items and b.items)
    reasons = other_parameters(a, b)
    if sizes:
        reasons.append(f"other sizes: {_listed(sizes)}")
    if types:
        reasons.append(f"other element types: {_listed(types)}")
    if not a.items and not b.items:
        flops, known = _cpu_flops(a, b)
    elif not both_gpu and a.report.trace.has.gpu != b.report.trace.has.gpu:
        known = False  # what was not recorded is not zero
    if known and max(flops) and abs(flops[1] - flops[0]) > SAME_FLOPS * max(flops):
        reasons.append(
            f"{whole(flops[1] / flops[0])} times the FLOPs" if flops[0] else "the baseline holds no matrix products"
        )
    if known and not unsized and not reasons:
        lacking = {"other trace": alone[0] - alone[1], "baseline": alone[1] - alone[0]}
        reasons += [
            f"products that the {trace} lacks: {_listed(counts)}" for trace, counts in lacking.items() if counts
        ]
    both_known = both_gpu or (a.products is not None and b.products is not None)
    # Siblings joined, or a model that is shallower and wider: only who says what ran knows.
    sure = not unsized and (not joins or same_workload(a, b))
    if joins and not reasons:
        told = "the same work" if sure else "the same work, unless layers were joined: sizes do not tell"
        found.notes.append(f"Products computed together or apart: {_listed(joins)}: {told}.")
    found.same_work = False if reasons else (True if known and both_known and sure else None)
    if reasons:
        found.other_work = "the traces do not do the same work"
        found.notes.insert(0, f"Not the same work: {'; '.join(reasons)}. A ratio of times would be no speed-up.")


def _other_parts(a: Sequence[Item], b: Sequence[Item]) -> list[str]:
    """Products that went into a fused kernel of another size: ``2 of 64·768·3072 → 32·768·12288``; else nothing.

    Only where their FLOPs are the kernel's: of fewer, the others were not found, and of more some are not its own.
    """
    if len(a) + len(b) < 3 or (len(a) > 1) == (len(b) > 1):
        return []
    (whole,), rows = (a, b) if len(a) == 1 else (b, a)
    parts = [item for item in rows if item.is_product]
    if not whole.unites or not whole.is_product or not parts:
        return []
    if not whole.flops or not isclose(sum(item.flops or 0 for item in parts), whole.flops, rel_tol=SAME_FLOPS):
        return []
    rest = {(item.size[M], *item.size[K:]) for item in (whole, *parts) if item.size is not None}
    if len(rest) == 1 and width(whole, N) == sum(width(item, N) for item in parts):
        return []
    words = [_each(parts), _size(whole)]
    return [" → ".join(words if rows is a else words[::-1])]


def _products_alone(a: Sequence[Item], b: Sequence[Item]) -> bool:
    """Whether what computes on both sides are matrix products whose FLOPs are known."""
    return all(
        any(item.kind == "gemm" for item in rows)
        and all(item.kind == "gemm" and item.flops is not None for item in rows if item.kind in COMPUTE_KINDS)
        for rows in (a, b)
    )


def _join(a: Sequence[Item], b: Sequence[Item]) -> str:
    """Products that are one of the other side's: ``2 of 3072·8192·768 are one of 6144·8192·768``."""
    before, after = ([item for item in rows if item.is_product] for rows in (a, b))
    if len(before) > 1:
        return f"{_each(before)} are one of {_size(after[0])}"
    return f"one of {_size(before[0])} is {_each(after)}"


def _each(items: Sequence[Item]) -> str:
    sizes = Counter(_size(item) for item in items)
    return " and ".join(f"{'one' if number == 1 else number} of {words}" for words, number in sizes.items())


def _cpu_flops(a: Subject, b: Subject) -> tuple[list[int], bool]:
    """FLOPs of both steps' products on the CPU, and whether they may be held against each other.

    Generated code may hold products that no row tells: where a side that ran some tells fewer, nothing is known.
    """
    if a.products is None or b.products is None:
        return [0, 0], False
    both = (a.products, b.products)
    fewer, more = sorted(both, key=lambda products: products.sizes.total())
    hides = fewer.hidden and fewer.sizes.total() < more.sizes.total()
    return [products.flops for products in both], not hides


def _size(item: Item) -> str:
    size = item.size or ()
    if item.kind == "gemm" and len(size) == 4:
        m, n, k, batch = size
        return f"{f'{batch}×' if batch not in (None, 1) else ''}{m}·{k}·{n}"
    return f"{item.kind} of other operands"


def _listed(counts: Counter[str]) -> str:
    words = [f"{word}{f' ({number}×)' if number > 1 else ''}" for word, number in counts.most_common()]
    return first_of(words, SHOWN_KINDS)
