"""The search of an autotune, apart from how a choice is run and timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from foretrace.fused.dispatch.cache import Tuned
from foretrace.fused.dispatch.candidates import possible
from foretrace.fused.dispatch.choice import Choice, Role, choice_of, roles_of
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.plan import Plan, Problem

__all__ = ["Measure", "search"]

# Runs and times choices against each other: µs of the operation, or the reason why a choice is refused.
Measure = Callable[[Sequence[Choice]], dict[Choice, float | str]]
PLAIN: Final = Choice()


def search(problem: Problem, environment: Environment, base: Plan, measure: Measure) -> Tuned:
    """Find the fastest right choice.

    From the plan that would have been used, each step in turn is varied over everything that can serve it; then
    the best of every step are tried together. Equal times are decided by the choice's line of text. Plain PyTorch is
    always among the candidates, and is what remains when all else is refused.
    """
    start = choice_of(base)
    roles = roles_of(problem.operation, problem.training)
    varied: dict[Role, list[Choice]] = {
        role: [
            start.having(role, implementation)
            for candidate in possible(role, problem, environment)
            for implementation in candidate.implementations(problem, role)
        ]
        for role in roles
    }
    # plain keeps for backward what the others keep, so that only speed is compared
    plain = PLAIN if start.save == PLAIN.save else Choice(save=start.save)
    first = _unique([start, plain, *(choice for choices in varied.values() for choice in choices)])
    found = measure(first)

    together = start
    for role in roles:
        right = [choice for choice in varied[role] if isinstance(found[choice], float)]
        if right:
            best = min(right, key=lambda choice: _rank(problem, found, choice))
            together = together.having(role, best.of(role))
    if together not in found:
        # Once more beside the best so far: times of two measurements do not compare well.
        leaders = sorted((c for c in found if isinstance(found[c], float)), key=lambda c: _rank(problem, found, c))[:2]
        found |= measure(_unique([together, *leaders]))

    def label(choice: Choice) -> str:
        return choice.label(problem.operation, problem.training)

    right = sorted((c for c in found if isinstance(found[c], float)), key=lambda c: _rank(problem, found, c))
    return Tuned(
        best=label(right[0] if right else plain),
        costs=tuple((label(choice), float(found[choice])) for choice in right),
        refused=tuple((label(choice), str(why)) for choice, why in found.items() if isinstance(why, str)),
    )


def _rank(problem: Problem, found: dict[Choice, float | str], choice: Choice) -> tuple[float, str]:
    return float(found[choice]), choice.label(problem.operation, problem.training)


def _unique(choices: Sequence[Choice]) -> list[Choice]:
    return list(dict.fromkeys(choices))
