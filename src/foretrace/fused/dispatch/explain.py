"""Say which implementations serve a call, why, from where that is known, and what the others cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from foretrace.errors import InputError
from foretrace.fused.dispatch import cache
from foretrace.fused.dispatch.candidates import EMPTY, GRADIENT_ROWS, weight_gradients
from foretrace.fused.dispatch.choice import Role, choice_of, roles_of, write_implementation
from foretrace.fused.dispatch.choose import Option, choose, options_of
from foretrace.fused.dispatch.environment import current, elsewhere, named_architecture
from foretrace.fused.dispatch.machine import gpu_of
from foretrace.fused.dispatch.model import device_of
from foretrace.fused.dispatch.plans import coarse_rows, plan_for
from foretrace.fused.dispatch.problems import gated_problem, problems_of
from foretrace.fused.dispatch.tables import shipped
from foretrace.fused.plan import Plan, Problem
from foretrace.version import torch_release

__all__ = ["Explanation", "Explanations", "explain"]

_STEPS: Final[dict[Role, str]] = {"expand": "input to hidden", "project": "hidden to output", "backward": "gradient"}


@dataclass(frozen=True, slots=True)
class Explanation:
    """The choice for one problem. ``str()`` of it is for reading, `to_dict` for programs.

    ``options``: for each step every candidate, with the µs the analytical model expects of it or the reason why it is
    out: the longer of its GPU's and its host's time. ``plan.costs``: what was measured of whole operations, where the
    plan rests on that. ``refused``: choices that an autotune refused, and why. ``met``: how often the call met the
    problem, as in a model of equal layers. ``assumed``: of a GPU that is not here, what was taken to run there.
    """

    problem: Problem
    plan: Plan
    options: tuple[tuple[Role, tuple[Option, ...]], ...]
    refused: tuple[tuple[str, str], ...] = ()
    met: int = 1
    assumed: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as JSON can hold it."""
        return {
            "problem": asdict(self.problem),
            "met": self.met,
            "choice": {role: write_implementation(choice_of(self.plan).of(role)) for role, _ in self.options}
            | {"save": self.plan.save},
            "source": self.plan.source,
            "reason": self.plan.reason,
            "measured_us": dict(self.plan.costs) if self.plan.source in ("table", "autotune") else {},
            "options": {role: [asdict(option) for option in options] for role, options in self.options},
            "refused": dict(self.refused),
            "assumed": self.assumed,
        }

    def __str__(self) -> str:
        problem, plan = self.problem, self.plan
        sizes = " → ".join(f"{size:,}" for size in (problem.k, problem.n, problem.out) if size)
        pass_ = "forward and backward" if problem.training else "forward"
        rows = f"{problem.m:,} row{'' if problem.m == 1 else 's'}"
        times = "" if self.met == 1 else f"; met {self.met:,} times"
        lines = [
            f"{problem.operation}, {pass_}: {rows}, {sizes}, {problem.dtype}, {problem.activation}"
            f" ({problem.precision}), {problem.architecture}{times}"
        ]
        coarse = coarse_rows(problem.m)
        if coarse != problem.m and plan.source not in ("only choice", "override"):
            lines.append(f"  decided, and expected below, as for {coarse:,} rows")
        choice = choice_of(plan)
        # A reason that is one and the same for every kernel is said once, below.
        reasons = {option.reason for _, options in self.options for option in options if option.reason is not None}
        told = len(reasons) == 1 and all(o.name == "plain" or o.reason for _, options in self.options for o in options)
        for role, options in self.options:
            lines.append(f"  {role} ({_STEPS[role]}): {write_implementation(choice.of(role))}")
            if not told:
                lines += _listed(options, choice.of(role).name)
        if problem.training:
            if weight_gradients(problem, plan) == "small":
                lines.append(f"  gradients of weights: small, as for all of at most {GRADIENT_ROWS} rows")
            lines.append(f"  save={plan.save}")
        lines += self._expected()
        if told and plan.source != "only choice":
            lines.append(f"  nothing but plain PyTorch can run here: every kernel {reasons.pop()}")
        lines.append(f"  from: {plan.source} ({plan.reason})")
        if plan.source in ("table", "autotune"):
            lines.append("  measured, the GPU's time of a whole call in a CUDA graph:")
            lines += [f"    {cost:,.1f} µs: {label}" for label, cost in plan.costs if cost is not None]
        lines += [f"    refused: {label}: {reason}" for label, reason in self.refused]
        if self.assumed is not None:
            lines.append(f"  {self.assumed}")
        return "\n".join(lines)

    def _expected(self) -> list[str]:
        """The sum over the chosen steps, and what the figures are; nothing where the model has none."""
        choice = choice_of(self.plan)
        steps = {
            role: next((option for option in options if option.name == choice.of(role).name), None)
            for role, options in self.options
        }
        known = [_longer(option) for option in steps.values() if option is not None and option.gpu_us is not None]
        if len(known) < len(steps) or self.plan.reason == EMPTY:
            return []
        these = f"these {len(known)} steps" if len(known) > 1 else "this step"
        others = "; the gradients of x and of the weights come on top" if self.problem.training else ""
        device = device_of(self.problem.architecture)
        others += "" if device is None else f"; rates are those of the {device.name}"
        return [f"  {these}: {sum(known):,.0f} µs expected, of each the longer of GPU and host{others}"]


def _longer(option: Option) -> float:
    """µs of GPU or host, whichever takes longer: the two overlap."""
    return max(option.gpu_us or 0.0, option.host_us or 0.0)


def _listed(options: tuple[Option, ...], chosen: str) -> list[str]:
    """A line for each candidate with what it is expected to take, and one for each reason why others are out.

    The chosen one first, then the quickest.
    """
    options = tuple(sorted(options, key=lambda option: (option.name != chosen, option.gpu_us is None, _longer(option))))
    costs = {
        option.name: "not modelled"
        if option.gpu_us is None
        else f"{_longer(option):,.0f} µs expected: {option.gpu_us:,.0f} on the GPU, {option.host_us:,.0f} on the host"
        for option in options
        if option.reason is None
    }
    reasons: dict[str, list[str]] = {}
    for option in options:
        if option.reason is not None:
            reasons.setdefault(option.reason, []).append(option.name)
    out = {", ".join(names): reason for reason, names in reasons.items()}
    width = max(12, *map(len, out)) if out else 12
    return [f"    {names:<{width}} {said}" for names, said in (costs | out).items()]


class Explanations(tuple[Explanation, ...]):
    """Several problems of one call, each once, in the order in which it met them."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))


def explain(
    target: Any,
    *inputs: Any,
    architecture: str | None = None,
    torch: str | None = None,
    training: bool | None = None,
    **named: Any,
) -> Explanation | Explanations:
    """Explain the choice for a call, as things stand now: tables, autotuned results and overrides included.

    ``explain(x, gate_weight, up_weight, down_weight, …)`` takes the arguments of `gated_mlp` and computes nothing.
    ``explain(module, x)`` calls the module once, or any function; ``explain(problem)`` takes a `Problem`.
    ``architecture``: ask for another GPU than the tensors' own, ``"sm_90"`` or ``"H200"``, without having it; the call
    itself then runs in plain PyTorch, and may be on the meta device. ``torch``: the release that runs there, as
    ``"2.11"``, which says which Triton; by default the one installed here. ``training``: whether gradients are wanted,
    where it should not be taken from the call.

    Returns one explanation, or several when the call meets several problems. Raises `InputError` when it meets none,
    for a release without an architecture, for an architecture or a release that is not known, and for an override that
    cannot be followed there.
    """
    from torch import Tensor

    release = None if torch is None else torch_release(torch)
    if release is not None and architecture is None:
        raise InputError("torch= says what runs on another GPU; give architecture= as well, or leave it out")
    if architecture is not None:
        architecture = named_architecture(architecture)
    if isinstance(target, Tensor):
        problems = gated_problem((target, *inputs), named, architecture)
    else:
        problems = problems_of(target, inputs, named, architecture)
    if training is not None:
        problems = Counter(replace(problem, training=training) for problem in problems.elements())
    found = Explanations(_explained(problem, count, architecture, release) for problem, count in problems.items())
    return found[0] if len(found) == 1 else found


def _explained(problem: Problem, met: int, architecture: str | None, release: tuple[int, int] | None) -> Explanation:
    # What decides: a plan is made for rows rounded up, so that nearly equal calls share it.
    decided = replace(problem, m=coarse_rows(problem.m))
    gpu = gpu_of(problem.architecture)
    environment, assumed = current(), None
    plan = plan_for(problem)
    if architecture is not None and gpu is None:
        environment, assumed = elsewhere(release)
        if plan.source != "override":
            plan = choose(decided, environment, shipped(problem.architecture))
    options = tuple(
        (role, tuple(options_of(role, decided, environment))) for role in roles_of(problem.operation, problem.training)
    )
    tuned = cache.load(problem, gpu.name) if gpu is not None else None
    return Explanation(problem, plan, options, tuned.refused if tuned is not None else (), met, assumed)
