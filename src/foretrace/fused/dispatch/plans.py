"""Plans, each made once: a call finds its plan with one look-up."""

from __future__ import annotations

import os
import warnings
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any, Final

from foretrace.fused.dispatch import cache
from foretrace.fused.dispatch.choice import Choice, choice_of, parse_choice
from foretrace.fused.dispatch.choose import choose, only_possible, plan_of
from foretrace.fused.dispatch.environment import current
from foretrace.fused.dispatch.machine import gpu_of, may_measure
from foretrace.fused.dispatch.overrides import SCOPE, Scope, Words, apply_words, words_of_process
from foretrace.fused.dispatch.tables import shipped
from foretrace.fused.plan import Plan, Problem

__all__ = [
    "AUTOTUNE_VARIABLE",
    "base_plan",
    "clear",
    "coarse_rows",
    "plan_asked",
    "plan_for",
    "plan_for_key",
    "tuned_plan",
]

AUTOTUNE_VARIABLE: Final = "FORETRACE_FUSED_AUTOTUNE"
# Far more than a program has shapes; a program whose row count never repeats must not fill the memory.
_MOST: Final = 1 << 14

# dataclasses.astuple copies deeply, which takes fifty times as long
_key: Final = attrgetter(*(field.name for field in fields(Problem)))

_plans: dict[tuple[Any, ...], Plan] = {}
_overridden: dict[tuple[tuple[Any, ...], Words], Plan] = {}
# Plans by coarse row counts, so that calls of nearly the same size share one plan object.
_coarse: dict[tuple[Problem, Words], Plan] = {}
# What calls run by that are made to see what another GPU would be asked, …
_MEANWHILE: Final = plan_of(Choice(), "only choice", "the call is made for its problems, not for its result")
# … and what no call ever runs by.
_NOBODYS: Final = replace(_MEANWHILE)


def plan_for(problem: Problem) -> Plan:
    """Return the plan for a problem: which implementations serve it.

    In this order: the words of `override` blocks and of ``FORETRACE_FUSED_OVERRIDE``; what an autotune on this GPU
    found; the nearest row of a shipped table; the analytical model. Plain PyTorch where nothing else can run.
    With ``FORETRACE_FUSED_AUTOTUNE=1`` a problem that was never tuned is tuned on its first call.

    Raises `InputError` when an override cannot be followed.
    """
    return plan_asked(_key(problem))


def plan_for_key(key: tuple[Any, ...]) -> Plan:
    """As `plan_for`, for the fields of a problem in their order: one look-up, and no problem has to be built.

    Where problems are being recorded it is a plan that no call has, so that every call is looked at in full and comes
    to `plan_asked`.
    """
    scope = SCOPE.get()
    if scope is None:
        plan = _plans.get(key)
        if plan is None:
            plan = _keep(_plans, key, _coarsely(Problem(*key), ()))
        return plan
    if scope.asked is not None:
        return _NOBODYS
    return _in_scope(key, scope)


def plan_asked(key: tuple[Any, ...]) -> Plan:
    """As `plan_for_key`; where problems are being recorded, note this one."""
    plan = plan_for_key(key)
    if plan is not _NOBODYS:
        return plan
    scope = SCOPE.get()
    assert scope is not None
    problem = Problem(*key)
    scope.note(problem)
    return _in_scope(key, scope) if scope.architecture in (None, problem.architecture) else _MEANWHILE


def _in_scope(key: tuple[Any, ...], scope: Scope) -> Plan:
    plan = _overridden.get((key, scope.words))
    if plan is None:
        plan = _keep(_overridden, (key, scope.words), _coarsely(Problem(*key), scope.words))
    return plan


def clear() -> None:
    """Forget every plan, as after a change of the environment variables or of the cache's files."""
    _plans.clear()
    _overridden.clear()
    _coarse.clear()


def base_plan(problem: Problem) -> Plan:
    """Return the plan without overrides and without measuring anything: autotuned before, table, or model."""
    return tuned_plan(problem) or choose(problem, current(), shipped(problem.architecture))


def tuned_plan(problem: Problem) -> Plan | None:
    """Return the plan that an autotune on this GPU found; ``None`` without one, or when it cannot serve the problem."""
    gpu = gpu_of(problem.architecture)
    found = cache.load(problem, gpu.name) if gpu is not None else None
    if gpu is None or found is None or not only_possible(found.best, problem, current()):
        return None
    reason = f"the fastest of {len(found.costs)} that were right, measured on this {gpu.name}"
    return plan_of(parse_choice(found.best), "autotune", reason, found.costs)


def coarse_rows(m: int) -> int:
    """Return the row count a plan is made for: ``m`` up to 16, above rounded up to one of four in an octave."""
    if m <= 16:
        return m
    step = 1 << ((m - 1).bit_length() - 3)
    return -(-m // step) * step


def _coarsely(problem: Problem, words: Words) -> Plan:
    problem = replace(problem, m=coarse_rows(problem.m))
    plan = _coarse.get((problem, words))
    return plan if plan is not None else _keep(_coarse, (problem, words), _made(problem, words))


def _made(problem: Problem, words: Words) -> Plan:
    # A block's words come before the variable's.
    merged = tuple(sorted((dict(words_of_process()) | dict(words)).items()))
    if not merged and os.environ.get(AUTOTUNE_VARIABLE) == "1":
        _tune_once(problem)
    plan = base_plan(problem)
    if not merged:
        return plan
    wished = apply_words(merged, choice_of(plan), problem, current())
    return _overriding(wished, plan, problem)


def _overriding(wished: Choice, plan: Plan, problem: Problem) -> Plan:
    label = wished.label(problem.operation, problem.training)
    if label == choice_of(plan).label(problem.operation, problem.training):
        return plan
    instead = "plain PyTorch, which was the only one" if plan.source == "only choice" else f"the {plan.source}'s choice"
    return plan_of(wished, "override", f"asked for instead of {instead}", plan.costs)


def _tune_once(problem: Problem) -> None:
    if gpu_of(problem.architecture) is None or tuned_plan(problem) is not None or not may_measure():
        return
    import torch

    from foretrace.fused.dispatch.autotune import tune_problem

    try:
        tune_problem(problem)
    except torch.cuda.OutOfMemoryError:
        size = " × ".join(str(number) for number in (problem.m, problem.k, problem.n, problem.out) if number)
        warnings.warn(
            f"there is too little GPU memory to tune {problem.operation} of {size}, so it is chosen without a "
            f"measurement; tune it beforehand with foretrace.fused.autotune, or unset {AUTOTUNE_VARIABLE}",
            RuntimeWarning,
            stacklevel=2,
        )


def _keep(plans: dict[Any, Plan], key: Any, plan: Plan) -> Plan:
    if len(plans) >= _MOST:
        plans.clear()
    plans[key] = plan
    return plan
