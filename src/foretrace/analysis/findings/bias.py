"""Where a bias is added: in the GEMM's epilogue, or by a kernel of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from foretrace.analysis.findings.dataflow import Work, infer
from foretrace.analysis.findings.facts import Facts
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.results import Tensor
from foretrace.knowledge.rules_kernels import EPILOGUE_LOST
from foretrace.model.report import Finding

__all__ = ["LostBias", "find", "lost_biases"]

_ADDS = frozenset({"add", "add_"})


@dataclass(frozen=True)
class LostBias:
    """An addition that an epilogue could have taken.

    ``how``: ``added`` (an add of a vector to a product), ``linear`` (an add inside ``aten::linear``),
    ``convolution`` (inside ``aten::_convolution``), ``seeded`` (the output was filled with it before the GEMM).
    """

    how: str
    work: Work
    rows: tuple[int, ...]
    operator: str


def find(facts: Facts) -> Iterable[Finding]:
    """``bias_in_epilogue``, ``epilogue_lost`` and ``convolution_bias``."""
    yield from _inside(facts)
    lost: dict[tuple[str, str], list[LostBias]] = {}
    for bias in lost_biases(facts):
        lost.setdefault((bias.how, bias.operator), []).append(bias)
    for (how, operator), members in lost.items():
        rows = [row for bias in members for row in bias.rows]
        time_us = sum(int(facts.context.trace.duration[row]) for row in rows) / 1000
        saving: float | None = facts.per_step(time_us)
        rule = "epilogue_lost"
        if how == "convolution":
            rule = "convolution_bias"
            if not facts.worth(time_us):
                continue
            if any(bias.work.phase is not None for bias in members):
                saving = None  # the fused convolutions have no backward pass
        number, each = facts.tally(len(members))
        yield facts.finding(
            rule,
            rows,
            saving_us=saving,
            source_row=members[0].work.op,
            count=len(members),
            number=number,
            each=each,
            operator=operator,
            time=facts.spent(time_us, each),
            total=facts.spent(time_us),
            why=EPILOGUE_LOST[how][0] if how in EPILOGUE_LOST else "",
            advice=EPILOGUE_LOST[how][1] if how in EPILOGUE_LOST else "",
        )


def lost_biases(facts: Facts) -> Iterator[LostBias]:
    """Every addition of a bias that runs as work of its own, in order of start."""
    trace = facts.context.trace
    parent = trace.forest.parent
    for work in facts.once(infer):
        if work.name in _ADDS:
            up = int(parent[work.op])
            inside = trace.name(up) if up >= 0 and trace.kind[up] == RowKind.OPERATOR else ""
            if inside == "aten::linear" and work.name == "add_":
                yield LostBias("linear", work, tuple(work.rows), "aten::linear")
            elif inside == "aten::_convolution" and work.name == "add_":
                yield LostBias("convolution", work, tuple(work.rows), "aten::convolution")
            elif _adds_vector_to_product(work):
                source = next(s for s, same in work.sources if same and s.kind == "gemm")
                yield LostBias("added", work, tuple(work.rows), f"aten::{source.name}")
        elif work.kind == "gemm" and work.name == "addmm" and len(work.rows) > 1:
            seed = _seed(facts, work)
            if seed:
                yield LostBias("seeded", work, seed, "aten::addmm")


def _adds_vector_to_product(work: Work) -> bool:
    result = work.result
    if result is None or result.last not in work.moved.vectors or len(work.moved.reads) != 2:
        return False
    # A product that already has a bias does not get another one.
    return any(same and source.kind == "gemm" and source.name in ("mm", "bmm") for source, same in work.sources)


def _seed(facts: Facts, work: Work) -> tuple[int, ...]:
    """Copies and pointwise kernels that an addmm runs before its GEMM."""
    trace = facts.context.trace
    seeds = []
    for row in work.rows:
        if trace.kind[row] == RowKind.MEMCPY or facts.kernel_at[row].kind in ("elementwise", "copy"):
            seeds.append(row)
        else:
            return tuple(seeds)
    return ()


def _inside(facts: Facts) -> Iterator[Finding]:
    """Products whose bias needed no kernel."""
    rows: dict[str, list[int]] = {}
    for work in facts.once(infer):
        if work.kind != "gemm" or len(work.rows) != 1 or work.kernel is None:
            continue
        named = "bias" in (work.kernel.decoded.get("epilogue") or [])
        if named or (work.name in ("addmm", "_addmm_activation") and _vector_bias(work)):
            rows.setdefault(work.name, []).append(work.rows[0])
    for name, members in rows.items():
        number, each = facts.tally(len(members))
        yield facts.finding(
            "bias_in_epilogue", members, number=number, each=each, operator=name if "::" in name else f"aten::{name}"
        )


def _vector_bias(work: Work) -> bool:
    bias: Tensor | None = work.moved.reads[0] if len(work.moved.reads) == 3 else None
    result = work.result
    return bias is not None and result is not None and bias.elements == bias.last == result.last
