"""``check``: hold an expectation against a trace, clause by clause, and explain what broke."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from foretrace.analysis.context import Context
from foretrace.analysis.explain import report_from
from foretrace.analysis.explained import explained
from foretrace.errors import InputError
from foretrace.model.expectations import (
    EVERYWHERE,
    Account,
    Checked,
    Clause,
    Expectation,
    Outcome,
    State,
    StepOutcome,
)
from foretrace.model.report import Report, Step
from foretrace.model.reportfile import read_report
from foretrace.model.sidefile import SideFile
from foretrace.prediction.expect import words
from foretrace.prediction.expect.accounts import Case, excess, explain
from foretrace.prediction.expect.language import clause_text, expect
from foretrace.prediction.expect.observe import distrusted, observe
from foretrace.prediction.expect.quantities import find
from foretrace.prediction.expect.relations import Answer, answer, bound_of_trace, matching
from foretrace.prediction.expect.seen import Seen
from foretrace.prediction.expect.subject import Subject, View
from foretrace.prediction.expect.surprises import surprises
from foretrace.prediction.expect.toml_reader import read_toml
from foretrace.trace.table import Trace

__all__ = ["check", "judge"]


def check(target: Trace | Report | str | Path, expectation: Expectation | str | Path) -> Checked:
    """Hold an expectation against a trace.

    Args:
        target: a trace, its path (its side file is read too), a report, or the path of one (``explain --json``). A
            report alone does not hold API calls, annotations and allocations: what needs them is unknown.
        expectation: what ``foretrace.expect`` made, one line such as ``"gemm == 3"``, or the ``Path`` of a TOML file.

    Returns:
        One outcome a clause (held, broken, or unknown with the reason), each broken one with what accounts for it.

    Raises:
        TraceReadError: the path holds no readable trace.
        InputError: the expectation cannot be read, or names a step that the trace does not have; or what was given is
            none of these.
    """
    if not isinstance(target, Trace | Report | str | Path):
        what = type(target).__name__
        raise InputError(f"check takes a trace, its path or a report, not a {what}; give the path of the trace")
    if not isinstance(expectation, Expectation | str | Path):
        what = type(expectation).__name__
        raise InputError(f"{what} is no expectation: make one with foretrace.expect(kernels=5, gemm=3)")
    if isinstance(expectation, Path):
        expectation = read_toml(expectation)
    elif isinstance(expectation, str):
        expectation = expect(expectation)
    if isinstance(target, Report):
        return judge(target, expectation)
    if not isinstance(target, Trace) and (report := read_report(target)) is not None:
        return judge(report, expectation)
    if isinstance(target, Trace):
        context = Context(trace=target)
        return judge(report_from(context), expectation, context=context)
    read = explained(target)
    return judge(read.report, expectation, context=read.context)


def judge(
    report: Report,
    expectation: Expectation,
    *,
    trace: Trace | None = None,
    side: SideFile | None = None,
    steps: Sequence[int] | None = None,
    context: Context | None = None,
) -> Checked:
    """Like ``check`` for a trace that is explained already; ``steps`` are those the report was made of.

    ``context``, where it is at hand, is what the report was made from, and stands for trace, side file and steps.
    """
    if context is None and trace is not None:
        context = Context(trace=trace, side=side, selected=None if steps is None else list(steps))
    subject = Subject(report, context)
    bench = _Bench(subject, expectation)
    outcomes = [bench.outcome(clause) for clause in expectation.clauses]
    states = [outcome.state for outcome in outcomes]
    return Checked(
        trace=report.trace.path,
        gpus=[gpu.name or "GPU of unknown model" for gpu in report.trace.gpus],
        steps=[step.label for step in subject.active],
        state=_worst(states),
        held=states.count("held"),
        broken=states.count("broken"),
        unknown=states.count("unknown"),
        outcomes=outcomes,
        surprises=surprises(subject, expectation),
        alarms=[check.detail for check in report.health if check.state == "bad"],
        predicted=report.trace.predicted,
    )


def _worst(states: Sequence[State]) -> State:
    return "broken" if "broken" in states else "unknown" if "unknown" in states else "held"


@dataclass(frozen=True)
class _Judged:
    """One clause in one step."""

    step: Step
    view: View
    state: State
    observed: float | str | None
    reason: str | None
    seen: Seen | None = None
    answer: Answer | None = None


@dataclass(eq=False)
class _Bench:
    """Where the clauses of one expectation are judged."""

    subject: Subject
    expectation: Expectation
    _others: dict[str, Subject] = field(default_factory=dict)

    def outcome(self, clause: Clause) -> Outcome:
        """The verdict on one clause over all the steps it speaks of."""
        if clause.scope == EVERYWHERE and clause.quantity in ("bound", "unprofiled_us"):
            return self._of_trace(clause)
        judged = [self._judged(clause, step) for step in self.subject.steps(clause.scope)]
        there = [one for one in judged if one.view.absent is None]
        # A region that runs in some steps only is judged where it runs, and so is what is asked for inside of it.
        judged = there or [one for one in judged if not one.view.outside] or judged
        state: State = _worst([one.state for one in judged]) if judged else "unknown"
        wrong = [one for one in judged if one.state == "broken"]
        broken = self._telling(clause, wrong, len(judged)) if wrong else None
        reasons = list(dict.fromkeys(one.reason for one in judged if one.state == "unknown" and one.reason))
        if not judged:
            reasons = ["the trace holds no step"]
        return self._outcome(
            clause,
            state,
            [(one.step.label, one.observed) for one in judged],
            "; ".join(reasons),
            broken=broken,
            of_many=len(judged) > 1,
            note=next((one.view.note for one in judged if clause.quantity == "calls"), None),
            steps=[
                StepOutcome(
                    index=one.step.index,
                    label=one.step.label,
                    state=one.state,
                    observed=one.observed,
                    reason=one.reason,
                )
                for one in judged
            ],
        )

    def _outcome(
        self,
        clause: Clause,
        state: State,
        values: list[tuple[str, float | str | None]],
        reason: str | None,
        *,
        broken: _Judged | None = None,
        of_many: bool = False,
        note: str | None = None,
        steps: Sequence[StepOutcome] = (),
    ) -> Outcome:
        quantity = find(clause.quantity)
        wanted, seen = words.expected(clause), words.observed(clause, values)
        if state == "broken" and seen is not None and any(part in wanted for part in seen.split(" to ")):
            # Rounded alike, the two would look as if the clause held.
            wanted, seen = words.expected(clause, exact=True), words.observed(clause, values, exact=True)
        return Outcome(
            expectation=clause_text(clause),
            quantity=clause.quantity,
            scope=clause.scope,
            unit=None if quantity is None or quantity.unit == "words" else quantity.unit,
            expected=wanted,
            observed=seen,
            state=state,
            reason=reason if state == "unknown" else None,
            note=note if state == "held" else None,
            steps=list(steps),
            accounts=self._accounts(clause, broken, of_many) if state == "broken" and broken is not None else [],
        )

    def _judged(self, clause: Clause, step: Step) -> _Judged:
        view = self.subject.view(clause.scope, step)
        quantity = find(clause.quantity)
        gpu = quantity is not None and quantity.gpu
        never = view.missing and view.uncounted is None
        if never and clause.quantity != "calls" and distrusted(self.subject, gpu=gpu) is None:
            # That the place is nowhere in the trace is known, and then nothing can hold of what ran in it.
            return _Judged(step, view, "broken", None, None)
        if clause.range is None:
            said = answer(self.subject, view, clause, self._other)
            return _Judged(step, view, said.state, said.observed, said.reason, answer=said)
        if clause.pattern:
            seen = matching(self.subject, view, clause.pattern)
        else:
            seen = observe(self.subject, view, clause.quantity)
        state: State = "unknown"
        if seen.value is not None:
            state = "held" if seen.value in clause.range else "broken"
        return _Judged(step, view, state, seen.value, seen.reason, seen=seen)

    def _of_trace(self, clause: Clause) -> Outcome:
        """A clause about all steps together."""
        steps = self.subject.active or self.subject.report.steps
        if not steps:
            return self._outcome(clause, "unknown", [], "the trace holds no step")
        # A step like most of them; the first may be cold.
        usual = sorted(steps, key=lambda step: step.period_us or 0.0)[(len(steps) - 1) // 2]
        view = self.subject.view(EVERYWHERE, usual)
        if clause.range is None:
            said = bound_of_trace(self.subject, clause.words)
            one = _Judged(usual, view, said.state, said.observed, said.reason, answer=said)
        else:
            one = self._judged(clause, usual)
        return self._outcome(clause, one.state, [("", one.observed)], one.reason, broken=one)

    def _telling(self, clause: Clause, wrong: list[_Judged], of: int) -> _Judged:
        """The step that explains: of times and ratios the one that misses by most, of counts one like the others."""
        quantity, wanted = find(clause.quantity), clause.range
        if wanted is not None and quantity is not None and quantity.unit in ("us", "share", "ratio"):
            misses = [
                abs(excess(one.observed, wanted)) if isinstance(one.observed, int | float) else 0.0 for one in wrong
            ]
            return wrong[misses.index(max(misses))]
        # Where every step breaks it, the last one explains: the first may be cold.
        return wrong[-1] if len(wrong) == of else wrong[0]

    def _accounts(self, clause: Clause, one: _Judged, of_many: bool) -> list[Account]:
        siblings = [other for other in self.expectation.clauses if other.scope == clause.scope and other != clause]
        return explain(Case(self.subject, one.view, clause, siblings, one.seen, one.answer, of_many))

    def _other(self, path: str) -> Subject:
        """The other trace, read once however many clauses name it."""
        if path not in self._others:
            try:
                read = explained(path)
            except InputError as error:
                raise InputError(f"same_kernels_as: {error}") from None
            self._others[path] = Subject(read.report, read.context)
        return self._others[path]
