"""What a trace is expected to hold, and what checking it gave: plain data.

An ``Expectation`` is a list of clauses; all of them must hold. A ``Clause`` is one quantity, where it is looked at
(its ``Scope``) and what it must be. Times are µs, sizes bytes, shares 0..1. ``Checked`` is the JSON contract of
``foretrace check``; fields may be added within ``foretrace.check/1``, never changed or removed.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from foretrace.model.report import Evidence
from foretrace.model.shown import Shown

__all__ = [
    "CHECK_SCHEMA_NAME",
    "EVERYWHERE",
    "Account",
    "Checked",
    "Clause",
    "Expectation",
    "Outcome",
    "Range",
    "Scope",
    "State",
    "StepOutcome",
    "Surprise",
]

CHECK_SCHEMA_NAME: Literal["foretrace.check/1"] = "foretrace.check/1"

State = Literal["held", "broken", "unknown"]


class Range(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers from ``low`` to ``high``; ``None`` is no limit, an open end does not belong to it."""

    low: float | None = None
    high: float | None = None
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (self.low_open and value == self.low)):
            return False
        return not (self.high is not None and (value > self.high or (self.high_open and value == self.high)))

    @property
    def exact(self) -> float | None:
        """The one number of the range; ``None`` where it holds several."""
        return self.low if self.low == self.high and not self.low_open and not self.high_open else None


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where a clause looks; without any field at every active step.

    ``step`` is a position (``"0"``) or the end of a label (``"#3"``); the others are names or globs: of a
    ``record_function`` label, an ``nn.Module`` frame, an operator. Several fields must hold at once.
    """

    step: str | None = None
    region: str | None = None
    module: str | None = None
    op: str | None = None

    @property
    def inner(self) -> bool:
        """Whether the scope is a part of a step."""
        return (self.region, self.module, self.op) != (None, None, None)


EVERYWHERE = Scope()


class Clause(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity and what it must be.

    ``range`` belongs to quantities that are numbers, ``words`` to the others (the alternatives of ``bound``, the
    items of ``order``, the kind of ``occupancy_query_before``, the path and kind of ``same_kernels_as``).
    ``pattern`` holds the decoded fields that kernels must match to be counted (quantity ``kernel`` only).
    """

    quantity: str
    scope: Scope = EVERYWHERE
    range: Range | None = None
    words: tuple[str, ...] = ()
    pattern: tuple[tuple[str, str], ...] = ()


class Expectation(msgspec.Struct, frozen=True):
    """Clauses that must all hold; ``a & b`` is both."""

    clauses: tuple[Clause, ...] = ()

    def __and__(self, other: Expectation) -> Expectation:
        return Expectation(tuple(dict.fromkeys((*self.clauses, *other.clauses))))

    def __len__(self) -> int:
        return len(self.clauses)


class Account(msgspec.Struct, kw_only=True):
    """Something in the trace that accounts for a difference, or for a part of it.

    ``count`` is how much of the difference it is, in the unit of the quantity and with its sign (more than expected
    is positive), per step; ``None`` where it has no number. ``rule`` names the fact of the knowledge base, ``finding``
    the finding of the report that tells the same in full.
    """

    text: str
    why: str | None
    rule: str | None
    source: str | None
    count: float | None = None
    finding: str | None = None
    evidence: list[Evidence] = []


class StepOutcome(msgspec.Struct, kw_only=True):
    """One clause in one step."""

    index: int
    label: str
    state: State
    observed: float | str | None
    reason: str | None = None


class Outcome(msgspec.Struct, kw_only=True):
    """The verdict on one clause.

    ``expectation`` is the clause in one line, as ``--expect`` takes it. ``observed`` is in words and stands for all
    steps where they agree. ``reason`` says why it is unknown, ``note`` what a reader has to know of one that held (that
    the place it speaks of is nowhere in the trace). ``steps`` is empty for what is said of the whole trace.
    """

    expectation: str
    quantity: str
    scope: Scope
    unit: str | None
    expected: str
    observed: str | None
    state: State
    reason: str | None = None
    steps: list[StepOutcome] = []
    accounts: list[Account] = []
    note: str | None = None


class Surprise(msgspec.Struct, kw_only=True):
    """Something the trace holds that no clause speaks of."""

    quantity: str
    text: str
    why: str | None
    rule: str | None
    finding: str | None = None
    evidence: list[Evidence] = []


class Checked(Shown, msgspec.Struct, kw_only=True):
    """A trace held against expectations; the JSON contract of ``foretrace check``."""

    schema: Literal["foretrace.check/1"] = CHECK_SCHEMA_NAME
    trace: str
    gpus: list[str]
    steps: list[str]  # labels of the active steps
    state: State  # broken if one clause is, else unknown if one is
    held: int
    broken: int
    unknown: int
    outcomes: list[Outcome]
    surprises: list[Surprise]
    alarms: list[str]  # why the trace's own numbers may not be trusted
    predicted: bool = False  # the trace was predicted, not measured
