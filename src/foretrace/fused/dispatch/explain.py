"""Say which implementations serve a call, why, from where that is known, and what the others cost."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from foretrace.fused.dispatch import cache
from foretrace.fused.dispatch.choice import Role, choice_of, roles_of, write_implementation
from foretrace.fused.dispatch.choose import Option, options_of
from foretrace.fused.dispatch.environment import Environment, current
from foretrace.fused.dispatch.machine import gpu_of
from foretrace.fused.dispatch.plans import plan_for
from foretrace.fused.dispatch.problems import gated_problem, problems_of
from foretrace.fused.plan import Plan, Problem

__all__ = ["Explanation", "Explanations", "explain"]

_STEPS: dict[Role, str] = {"expand": "input to hidden", "project": "hidden to output", "backward": "gradient"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choice for one problem. ``str()`` of it is for reading, `to_dict` for programs.

    ``options``: for each step every candidate, with the µs the analytical model expects of it or the reason why it is
    out. ``plan.costs``: what was measured of whole operations, where the plan rests on that. ``refused``: choices that
    an autotune refused, and why.
    """

    problem: Problem
    plan: Plan
    options: tuple[tuple[Role, tuple[Option, ...]], ...]
    refused: tuple[tuple[str, str], ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as JSON can hold it."""
        return {
            "problem": asdict(self.problem),
            "choice": {role: write_implementation(choice_of(self.plan).of(role)) for role, _ in self.options}
            | {"save": self.plan.save},
            "source": self.plan.source,
            "reason": self.plan.reason,
            "measured_us": dict(self.plan.costs) if self.plan.source in ("table", "autotune") else {},
            "options": {role: [asdict(option) for option in options] for role, options in self.options},
            "refused": dict(self.refused),
        }

    def __str__(self) -> str:
        problem, plan = self.problem, self.plan
        sizes = " → ".join(str(size) for size in (problem.k, problem.n, problem.out) if size)
        pass_ = "forward and backward" if problem.training else "forward"
        lines = [
            f"{problem.operation}, {pass_}: {problem.m} rows, {sizes}, {problem.dtype}, {problem.activation}"
            f" ({problem.precision}), {problem.architecture}"
        ]
        choice = choice_of(plan)
        for role, options in self.options:
            lines.append(f"  {role} ({_STEPS[role]}): {write_implementation(choice.of(role))}")
            for option in options:
                cost = option.reason or (
                    "not modelled" if option.cost_us is None else f"{option.cost_us:.0f} µs expected"
                )
                lines.append(f"    {option.name:<12} {cost}")
        if problem.training:
            lines.append(f"  save={plan.save}")
        lines.append(f"  from: {plan.source} ({plan.reason})")
        if plan.source in ("table", "autotune"):
            lines += [f"    {cost:.1f} µs measured: {label}" for label, cost in plan.costs if cost is not None]
        lines += [f"    refused: {label}: {reason}" for label, reason in self.refused]
        return "\n".join(lines)


class Explanations(tuple[Explanation, ...]):
    """Several problems of one call, in the order in which it met them."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def explain(
    target: Any, *inputs: Any, architecture: str | None = None, training: bool | None = None, **named: Any
) -> Explanation | Explanations:
    """Explain the choice for a call, as things stand now: tables, autotuned results and overrides included.

    ``explain(x, gate_weight, up_weight, down_weight, …)`` takes the arguments of `gated_mlp` and computes nothing.
    ``explain(module, x)`` calls the module once, or any function; ``explain(problem)`` takes a `Problem`.
    ``architecture``: ask for another one, ``"sm_90"``, without having it. ``training``: whether gradients are
    wanted, where it should not be taken from the call.

    Returns one explanation, or several when the call meets several problems. Raises `InputError` when it meets none.
    """
    import torch

    find = gated_problem if isinstance(target, torch.Tensor) else problems_of
    problems = find(target, *inputs, **named)
    changes: dict[str, Any] = {}
    if architecture is not None:
        changes["architecture"] = architecture
    if training is not None:
        changes["training"] = training
    found = Explanations(_explained(replace(problem, **changes), current()) for problem in problems)
    return found[0] if len(found) == 1 else found


def _explained(problem: Problem, environment: Environment) -> Explanation:
    options = tuple(
        (role, tuple(options_of(role, problem, environment))) for role in roles_of(problem.operation, problem.training)
    )
    gpu = gpu_of(problem.architecture)
    tuned = cache.load(problem, gpu.name) if gpu is not None else None
    return Explanation(problem, plan_for(problem), options, tuned.refused if tuned is not None else ())
