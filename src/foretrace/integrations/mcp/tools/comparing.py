"""``compare``: what differs between traces of one program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Answer, Paged, first, name_of, paged, said, short
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, Piece, piece
from foretrace.knowledge.agents import MOST_TRACES
from foretrace.model.comparison import Comparison, Copy, Metric, OperatorChange, Pair, Place, Row, Side
from foretrace.model.sidefile import side_path

__all__ = ["ComparisonAnswer", "compare"]

_LINES = 8
_ROWS = 3
_CHANGES = 16
Section = Literal["places", "operators", "metrics", "copies"]


class SideRow(Answer):
    """One of the traces."""

    label: str
    path: str
    gpus: list[str]
    torch_version: str | None
    predicted: bool
    steps: int
    step: str | None = Field(description="the step that is compared")
    warnings: list[str]


class ConclusionRow(Answer):
    """What changed in one of the other traces, and what stayed the same."""

    setup: str
    changed: list[str]
    same: list[str]


class ChangeRow(Answer):
    """One number a step of the baseline and of another trace."""

    name: str
    unit: str
    baseline: float | None
    other: float | None
    direction: str = Field(description="same: equal, or a difference inside the spread over steps")
    relative: float | None = Field(description="of the baseline; -0.3 is 30 % less")
    reason: str | None = Field(description="why something of it is unknown")


class SpeedupRow(Answer):
    """Baseline over other; null where it must not be quoted."""

    of: str
    ratio: float | None
    reason: str | None


class CategoryRow(Answer):
    """GPU rows of both steps by what became of them."""

    category: str
    baseline_kernels: int
    other_kernels: int
    baseline_us: float
    other_us: float


class PairFacts(Answer):
    """The baseline against one other trace."""

    other: int = Field(description="position of the other trace among the paths")
    related: bool
    same_work: bool | None
    withheld: str | None = Field(description="why no change of a time is told")
    notes: list[str]
    speedups: list[SpeedupRow]
    categories: list[CategoryRow]
    bytes_vanished: int | None


class GateRow(Answer):
    """One condition of fail_on against one of the other traces."""

    expression: str
    other: int
    state: Literal["held", "failed", "unknown"]
    detail: str


class GpuRow(Answer):
    """A kernel, copy or memset of one side."""

    event: int
    short_name: str
    kind: str
    op: str | None
    us: float


class PlaceRow(Answer):
    """Rows of both sides that do the same work: the first of them, of the first place where it repeats."""

    category: str
    title: str
    how: str = Field(description="what they were paired by")
    count: int
    baseline_us: float
    other_us: float
    direction: str
    bytes_vanished: int | None
    baseline: list[GpuRow]
    baseline_total: int = Field(description="rows of one such place")
    other: list[GpuRow]
    other_total: int


class OperatorRow(Answer):
    """A CPU operator by name: calls and own CPU time of the compared steps."""

    name: str
    role: str
    baseline_calls: int
    other_calls: int
    baseline_self_us: float | None
    other_self_us: float | None


class CopyRow(Answer):
    """Copies that only the other trace makes."""

    name: str
    op: str | None
    count: int
    us: float
    bytes: int | None
    why: str | None


class ComparisonAnswer(Paged):
    """The conclusion, or the rows of one section about one of the other traces."""

    sides: list[SideRow]
    conclusion: list[ConclusionRow]
    changes: list[ChangeRow] = Field(description="numbers that differ, of the other trace that is asked about")
    changes_left_out: int = Field(description="section metrics has them")
    pairs: list[PairFacts]
    gates: list[GateRow]
    other: int
    sections: dict[str, int] = Field(description="rows of each section, of the other trace that is asked about")
    section: Section | None
    rows: list[PlaceRow | OperatorRow | ChangeRow | CopyRow]


def compare(
    library: Library,
    paths: Annotated[
        list[Annotated[str, Field(max_length=4096)]],
        Field(
            description="Traces by their paths from the root; the first is the baseline.",
            min_length=2,
            max_length=MOST_TRACES,
        ),
    ],
    fail_on: Annotated[
        list[Annotated[str, Field(max_length=300)]],
        Field(
            description="Gates METRIC OP VALUE; a value with a sign or % is a change.",
            max_length=20,
            examples=[["gpu_time > +3%", "kernels > +0"]],
        ),
    ] = [],  # noqa: B006 (the SDK reads it as the default of the schema and never changes it)
    other: Annotated[
        int, Field(description="Which of the other traces rows and changes are about (1 is the second path).", ge=1)
    ] = 1,
    section: Annotated[Section | None, Field(description="Rows of one part instead of the conclusion.")] = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> ComparisonAnswer:
    """Compare traces."""
    from foretrace.comparison.gates import judge, parse_condition

    conditions = [parse_condition(text) for text in fail_on]
    if other >= len(paths):
        raise InputError(f"there is no other trace {other}; with {len(paths)} paths it is 1 to {len(paths) - 1}")
    if section is None and offset:
        raise InputError("the conclusion has no further rows; name a section with offset")
    comparison = _compared(library, paths)
    gates = judge(comparison, conditions)
    pair = next(one for one in comparison.pairs if one.b == other)
    parts = _parts(comparison, pair)
    cut: Piece[Any] = Piece([], 0, 0)
    if section is not None:
        items, make = parts[section]
        cut = piece(items, make, limit=limit, offset=offset)
    brief = section is None
    changes = _changes(comparison, other) if brief else []
    return ComparisonAnswer(
        sides=[_side(one) for one in comparison.sides] if brief else [],
        conclusion=[_conclusion(one) for one in comparison.conclusion] if brief else [],
        changes=changes[:_CHANGES],
        changes_left_out=max(0, len(changes) - _CHANGES),
        pairs=[_pair(one) for one in comparison.pairs] if brief else [],
        gates=[
            GateRow(
                expression=short(one.expression, 200), other=one.side, state=one.state, detail=short(one.detail, 300)
            )
            for one in gates
        ],
        other=other,
        sections={name: len(items) for name, (items, _) in parts.items()},
        section=section,
        rows=cut.rows,
        **paged(cut),
    )


def _compared(library: Library, paths: Sequence[str]) -> Comparison:
    from foretrace.comparison import compare as compare_traces
    from foretrace.model.reportfile import read_report

    names = [library.root.file(path) for path in paths]
    sides = [side_path(name).as_posix() for name in names]
    for side in sides:
        library.root.beside(side)

    def made() -> tuple[Comparison, int]:
        sources: list[Any] = []
        for name in names:
            report = read_report(name)
            if report is not None:
                report.trace.path = name
            sources.append(name if report is None else report)
        comparison = compare_traces(sources)
        return comparison, 3 * len(msgspec.json.encode(comparison))

    return library.keep(("compare", *names), [*names, *sides], made)


def _parts(comparison: Comparison, pair: Pair) -> dict[Section, tuple[Sequence[Any], Any]]:
    return {
        "places": (pair.places, lambda _, one: _place(one)),
        "operators": (pair.operators, lambda _, one: _operator(one)),
        "metrics": (comparison.metrics, lambda _, one: _change(one, pair.b)),
        "copies": (pair.copies, lambda _, one: _copy(one)),
    }


def _side(one: Side) -> SideRow:
    return SideRow(
        label=name_of(one.label),
        path=one.path,
        gpus=first(one.gpus, 4),
        torch_version=said(one.torch_version, 60),
        predicted=one.predicted,
        steps=one.steps,
        step=None if one.step is None else name_of(one.step),
        warnings=first(one.warnings, 4, 300),
    )


def _conclusion(one: Any) -> ConclusionRow:
    return ConclusionRow(
        setup=name_of(one.setup),
        changed=first(one.changed, _LINES, 300),
        same=first(one.same, _LINES, 300),
    )


def _changes(comparison: Comparison, other: int) -> list[ChangeRow]:
    """The numbers that differ."""
    rows = [_change(metric, other) for metric in comparison.metrics]
    return [row for row in rows if row.direction in ("less", "more")]


def _change(metric: Metric, other: int) -> ChangeRow:
    change = metric.changes[other]
    before, after = metric.values[0], metric.values[other]
    reason = (change.reason if change is not None else None) or before.reason or after.reason
    return ChangeRow(
        name=metric.name,
        unit=metric.unit,
        baseline=before.median,
        other=after.median,
        direction="unknown" if change is None else change.direction,
        relative=None if change is None else change.relative,
        reason=None if reason is None else short(reason, 200),
    )


def _pair(one: Pair) -> PairFacts:
    return PairFacts(
        other=one.b,
        related=one.related,
        same_work=one.same_work,
        withheld=None if one.withheld is None else short(one.withheld, 400),
        notes=first(one.notes, 4, 400),
        speedups=[
            SpeedupRow(of=each.of, ratio=each.ratio, reason=None if each.reason is None else short(each.reason, 200))
            for each in one.speedups
        ],
        categories=[
            CategoryRow(
                category=each.category,
                baseline_kernels=each.a_kernels,
                other_kernels=each.b_kernels,
                baseline_us=each.a_us,
                other_us=each.b_us,
            )
            for each in one.categories
            if each.a_kernels or each.b_kernels or each.a_transfers or each.b_transfers
        ],
        bytes_vanished=one.bytes_vanished,
    )


def _place(one: Place) -> PlaceRow:
    return PlaceRow(
        category=one.category,
        title=short(one.title, 240),
        how=one.how,
        count=one.count,
        baseline_us=one.a_us,
        other_us=one.b_us,
        direction=one.change.direction,
        bytes_vanished=one.bytes_vanished,
        baseline=[_gpu_row(row) for row in one.a[:_ROWS]],
        baseline_total=len(one.a),
        other=[_gpu_row(row) for row in one.b[:_ROWS]],
        other_total=len(one.b),
    )


def _gpu_row(one: Row) -> GpuRow:
    op = None if one.op is None else name_of(one.op)
    return GpuRow(event=one.event, short_name=name_of(one.short_name), kind=one.kind, op=op, us=one.us)


def _operator(one: OperatorChange) -> OperatorRow:
    return OperatorRow(
        name=name_of(one.name),
        role=one.role,
        baseline_calls=one.a_calls,
        other_calls=one.b_calls,
        baseline_self_us=one.a_self_us,
        other_self_us=one.b_self_us,
    )


def _copy(one: Copy) -> CopyRow:
    return CopyRow(
        name=name_of(one.name),
        op=None if one.op is None else name_of(one.op),
        count=one.count,
        us=one.us,
        bytes=one.bytes,
        why=None if one.why is None else short(one.why, 300),
    )
