"""``check``: expectations held against a trace, every mismatch explained."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from foretrace.errors import InputError
from foretrace.integrations.mcp.answers import Answer, EventRow, Paged, evidence_row, first, paged, short, short_names
from foretrace.integrations.mcp.arguments import Steps, TracePath
from foretrace.integrations.mcp.library import Library
from foretrace.integrations.mcp.paging import Limit, Offset, piece
from foretrace.model.expectations import Account, Clause, Expectation, Outcome
from foretrace.model.sidefile import side_path

__all__ = ["CheckAnswer", "check"]

_EVENTS = 3
_ACCOUNTS = 4
_SURPRISES = 5
_STEPS = 10
_FILE_BYTES = 20_000  # that the expectations of a file take in memory, about
# Arguments of `foretrace.expect` that are no quantity.
_PLACES = ("step", "region", "module", "op", "kernel")


class AccountRow(Answer):
    """What accounts for a difference, or for a part of it."""

    text: str
    why: str | None
    rule: str | None
    count: float | None = Field(description="how much of the difference a step, with its sign; null: it has no number")
    events: list[EventRow] = Field(description="the first of the rows it rests on")
    events_total: int


class OutcomeRow(Answer):
    """The verdict on one expectation."""

    expectation: str
    state: Literal["held", "broken", "unknown"]
    expected: str
    observed: str | None
    unit: str | None
    reason: str | None = Field(description="why it is unknown")
    note: str | None = Field(description="what to know of one that held: the place is nowhere in the trace")
    broken_steps: list[str]
    accounts: list[AccountRow]
    accounts_left_out: int


class CheckAnswer(Paged):
    """All outcomes, the broken ones first; ``outcomes`` is a page of them."""

    path: str
    state: Literal["held", "broken", "unknown"]
    held: int
    broken: int
    unknown: int
    steps: int
    outcomes: list[OutcomeRow]
    not_spoken_of: list[str] = Field(description="what the trace holds that no expectation speaks of")
    alarms: list[str]
    predicted: bool


def check(
    library: Library,
    path: TracePath,
    expectations: Annotated[
        list[Annotated[str, Field(max_length=2_000)]],
        Field(
            description="Lines QUANTITY == VALUE (or >=, <=, >, <), with a place in front where one is meant.",
            max_length=50,
            examples=[["kernels == 5", "gemm == 3", "mlp_fwd: gpu_busy_us <= 250", "bound == compute"]],
        ),
    ] = [],  # noqa: B006 (the SDK reads it as the default of the schema and never changes it)
    quantities: Annotated[
        dict[str, int | float | str] | None,
        Field(description="The same by name: {'kernels': 5, 'memcpys': 0, 'gpu_busy_us': '236 us ± 10%'}."),
    ] = None,
    file: Annotated[
        str | None, Field(description="A TOML file of expectations, by its path from the root.", max_length=4096)
    ] = None,
    steps: Steps = None,
    limit: Limit = None,
    offset: Offset = 0,
) -> CheckAnswer:
    """Hold a trace against expectations."""
    from foretrace.prediction.expect import judge

    expectation, traces = _confined(library, _expectation(library, expectations, quantities, file))
    opened = library.open(path)
    selected = opened.steps(steps)
    with library.steady(traces):
        checked = judge(opened.report(selected), expectation, trace=opened.trace, side=opened.side, steps=selected)
    names = short_names(opened.whole)
    order = {"broken": 0, "unknown": 1, "held": 2}
    outcomes = sorted(checked.outcomes, key=lambda one: order[one.state])
    cut = piece(outcomes, lambda _, one: _row(one, names), limit=limit, offset=offset)
    return CheckAnswer(
        path=opened.name,
        state=checked.state,
        held=checked.held,
        broken=checked.broken,
        unknown=checked.unknown,
        steps=len(checked.steps),
        outcomes=cut.rows,
        not_spoken_of=first([one.text for one in checked.surprises], _SURPRISES, 200),
        alarms=[short(text, 300) for text in checked.alarms],
        predicted=checked.predicted,
        **paged(cut),
    )


def _expectation(
    library: Library, lines: list[str], quantities: dict[str, int | float | str] | None, file: str | None
) -> Expectation:
    from foretrace.prediction.expect import expect, read_toml

    named: dict[str, Any] = dict(quantities or {})
    place = next((name for name in _PLACES if name in named), None)
    if place is not None:
        raise InputError(
            f"{place} is no quantity; write a line with the place in front, such as 'mlp_fwd: gemm == 3' or "
            "'kernel[tile=256x128] == 2'"
        )
    parts: list[Expectation | str] = list(lines)
    if file is not None:
        name = library.root.file(file)
        parts.append(library.keep(("expectations", name), [name], lambda: (read_toml(name), _FILE_BYTES)))
    expectation = expect(*parts, **named)
    if not len(expectation):
        raise InputError("nothing is expected: give expectations such as ['kernels == 5'], quantities, or a file")
    return expectation


def _confined(library: Library, expectation: Expectation) -> tuple[Expectation, list[str]]:
    """The expectation with the traces that it names by the names that may be read, and these with their side files."""
    read: list[str] = []

    def confined(clause: Clause) -> Clause:
        if clause.quantity != "same_kernels_as" or not clause.words:
            return clause
        # A file of expectations may name a trace of the folder beside it.
        name = library.root.file(os.path.normpath(clause.words[0]))
        side = side_path(name).as_posix()
        library.root.beside(side)
        read.extend([name, side])
        return msgspec.structs.replace(clause, words=(name, *clause.words[1:]))

    return Expectation(tuple(map(confined, expectation.clauses))), read


def _row(one: Outcome, names: Mapping[str, str]) -> OutcomeRow:
    return OutcomeRow(
        expectation=short(one.expectation, 300),
        state=one.state,
        expected=short(one.expected, 300),
        observed=None if one.observed is None else short(one.observed, 300),
        unit=one.unit,
        reason=None if one.reason is None else short(one.reason, 400),
        note=None if one.note is None else short(one.note, 400),
        broken_steps=first([step.label for step in one.steps if step.state == "broken"], _STEPS),
        accounts=[_account(account, names) for account in one.accounts[:_ACCOUNTS]],
        accounts_left_out=max(0, len(one.accounts) - _ACCOUNTS),
    )


def _account(one: Account, names: Mapping[str, str]) -> AccountRow:
    return AccountRow(
        text=short(one.text, 400),
        why=None if one.why is None else short(one.why, 600),
        rule=one.rule,
        count=one.count,
        events=[evidence_row(event, names) for event in one.evidence[:_EVENTS]],
        events_total=len(one.evidence),
    )
