"""From a problem to a plan: what was measured, else the model; a person's words come before both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from foretrace.fused.dispatch.candidates import CANDIDATES, EMPTY, has_step, refusal, untried
from foretrace.fused.dispatch.choice import Choice, Role, parse_choice, roles_of
from foretrace.fused.dispatch.environment import Environment
from foretrace.fused.dispatch.model import Expense, device_of, expense, options_for
from foretrace.fused.dispatch.tables import Table, nearest
from foretrace.fused.dispatch.training import step
from foretrace.fused.plan import Implementation, Plan, Problem

__all__ = ["Option", "Source", "choose", "modelled", "only_possible", "options_of", "plan_of", "tabled"]

# On the GPU, than the quickest there: so many times and by so many µs, below which the model does not see well.
_SLOWER: Final = 1.5
_BY_US: Final = 10.0

Source = Literal["table", "model", "autotune", "override", "only choice"]


@dataclass(frozen=True, slots=True)
class Option:
    """A candidate for one step: µs the model expects (``None``: not known), and why it is out, if it is.

    ``cost_us``: the longer of ``gpu_us`` and of ``host_us``, the time to launch it; a little more, for the other.
    """

    name: str
    cost_us: float | None
    reason: str | None
    gpu_us: float | None = None
    host_us: float | None = None


def options_of(role: Role, problem: Problem, environment: Environment) -> list[Option]:
    """Return every candidate that has this step, the model's favourite first, those that are out last.

    Whoever is much slower than another on the GPU is no favourite for starting sooner: in a CUDA graph, or beside other
    work of the host, the GPU's time is all there is.
    """
    device = device_of(problem.architecture)
    found = []
    for candidate in CANDIDATES:
        if not has_step(candidate.name, problem.operation, role):
            continue
        reason = refusal(candidate, role, problem, environment)
        cost = expense(role, candidate.name, problem, device) if reason is None and device is not None else None
        times = (None, None, None) if cost is None else (cost.us, cost.gpu, cost.host)
        found.append(Option(candidate.name, times[0], reason or untried(candidate, problem), *times[1:]))
    quickest = min((o.gpu_us for o in found if o.reason is None and o.gpu_us is not None), default=0.0)

    def order(option: Option) -> tuple[bool, bool, bool, float]:
        slow = option.gpu_us is not None and option.gpu_us > max(_SLOWER * quickest, quickest + _BY_US)
        return option.reason is not None, option.cost_us is None, slow, option.cost_us or 0.0

    # The sort is stable: equal costs keep the order of the table of candidates.
    return sorted(found, key=order)


def choose(problem: Problem, environment: Environment, tables: Iterable[Table]) -> Plan:
    """Return the plan from the tables where they have an answer, else the model's."""
    return tabled(problem, environment, tables) or modelled(problem, environment)


def modelled(problem: Problem, environment: Environment) -> Plan:
    """Return the plan of the analytical model."""
    choice = Choice()
    costs: list[tuple[str, float | None]] = []
    refused: list[Option] = []
    alone, sooner = True, False
    for role in roles_of(problem.operation, problem.training):
        options = options_of(role, problem, environment)
        usable = [option for option in options if option.reason is None]
        name = usable[0].name
        choice = choice.having(role, Implementation(name, options_for(role, name, problem)))
        costs += [(f"{role}={option.name}", option.cost_us) for option in usable]
        alone = alone and len(usable) == 1
        sooner = sooner or any((one.cost_us or 0.0) < (usable[0].cost_us or 0.0) for one in usable)
        refused += [option for option in options if option.reason is not None]
    if alone:
        if any(option.reason == EMPTY for option in refused):
            return plan_of(choice, "only choice", EMPTY)
        same = len({option.reason for option in refused}) == 1
        why = f"{'every kernel' if same else refused[0].name} {refused[0].reason}" if refused else "there is no kernel"
        return plan_of(choice, "only choice", f"nothing but plain PyTorch can run here: {why}")
    device = device_of(problem.architecture)
    if problem.training and device is not None and choice != Choice():
        ours, plain = step(choice, problem, device), step(Choice(), problem, device)
        if ours is not None and plain is not None and plain.us <= ours.us:
            return plan_of(Choice(), "model", _better_alone(ours, plain), tuple(costs))
    fitted = "" if problem.architecture.startswith("sm_90") else ", fitted on an H200 and scaled by datasheets,"
    best = "the fastest, but for kernels that start sooner and are much slower on the GPU" if sooner else "the fastest"
    return plan_of(choice, "model", f"the analytical model{fitted} expects it to be {best}", tuple(costs))


def tabled(problem: Problem, environment: Environment, tables: Iterable[Table]) -> Plan | None:
    """Return the plan of the nearest measured row; ``None`` when none is near, or nothing of it can run here."""
    for table, row, distance in nearest(tables, problem):
        runnable = [(label, cost) for label, cost in row.costs if only_possible(label, problem, environment)]
        # One choice that is left of several is no comparison, unless it is the one that won.
        if not runnable or (len(runnable) == 1 and runnable[0] != row.costs[0]):
            continue
        size = " × ".join(str(number) for number in (row.m, row.k, row.n, row.out) if number)
        where = f"the fastest of {len(runnable)} measured on {table.device}"
        reason = where if distance == 0 else f"{where} at the nearest problem, {size}, {row.dtype}, {row.activation}"
        return plan_of(parse_choice(runnable[0][0]), "table", reason, tuple(runnable))
    return None


def only_possible(label: str, problem: Problem, environment: Environment) -> bool:
    """Whether each step of a written choice can serve the problem."""
    choice = parse_choice(label)
    named = {candidate.name: candidate for candidate in CANDIDATES}
    return all(
        (candidate := named.get(choice.of(role).name)) is not None
        and refusal(candidate, role, problem, environment) is None
        for role in roles_of(problem.operation, problem.training)
    )


def plan_of(choice: Choice, source: Source, reason: str, costs: tuple[tuple[str, float | None], ...] = ()) -> Plan:
    """Return the plan of a choice."""
    return Plan(choice.expand, choice.project, choice.backward, choice.save, source, reason, costs)


def _better_alone(ours: Expense, plain: Expense) -> str:
    times = (
        f"a whole step takes the host {ours.host:,.0f} µs by kernels, whose backward is Python, and {plain.host:,.0f} "
        f"by PyTorch's own operators (the GPU {ours.gpu:,.0f} and {plain.gpu:,.0f})"
    )
    decides = "the host to decide" if ours.host > ours.gpu else "PyTorch's own operators to be the fastest"
    return f"the analytical model expects {decides}: {times}"
