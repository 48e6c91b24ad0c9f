"""What `foretrace.fused` has to offer: as a user calls it, and every implementation by name.

A forced entrant is called what it is forced to, in the words of tables and overrides:
``expand=tma project=plain backward=elementwise save=preact``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from fused_bench.case import Case
from fused_bench.entrants import Built, Entrant, UnavailableError, own_leaves
from fused_bench.operands import DTYPES, Operands
from fused_bench.opponents import unstacked

__all__ = ["OURS", "architecture_of", "choices_for", "forced", "problem_of"]


def _fused(name: str = "foretrace.fused") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(f"{name} cannot be imported: {error}") from error


def _functional(**options: Any) -> Callable[[Case, Operands], Built]:
    """The functions with separate weights, as a model of the Llama kind has them."""

    def build(case: Case, operands: Operands) -> Built:
        leaves = own_leaves(case, operands.weights)
        if "save" in options and case.mode == "forward":
            raise UnavailableError("without a backward there is nothing to keep")
        if case.operation == "linear_act":
            linear_act, bias = _fused().linear_act, leaves.get("bias")
            if options.get("save") == "recompute":
                raise UnavailableError("without a second product there is no hidden to compute again")
            return Built(lambda x: linear_act(x, leaves["weight"], bias, case.activation, **options), leaves)
        gated_mlp = _fused().gated_mlp
        gate, up, down = leaves["gate"], leaves["up"], leaves["down"]
        return Built(lambda x: gated_mlp(x, gate, up, down, activation=case.activation, **options), leaves)

    return build


def _stacked(case: Case, operands: Operands) -> Built:
    """Gate and up as one [2n, k] weight: what QuACK takes, and what models with a fused gate_up_proj hold."""
    if case.operation == "linear_act":
        raise UnavailableError("there is nothing to stack")
    gated_mlp = _fused().gated_mlp
    stacked = torch.cat([operands.weights["gate"], operands.weights["up"]])
    leaves = own_leaves(case, {"stacked": stacked, "down": operands.weights["down"]})

    def forward(x: Tensor) -> Tensor:
        out: Tensor = gated_mlp(
            x, leaves["stacked"], None, leaves["down"], activation=case.activation, packing="gate_up"
        )
        return out

    return Built(forward, leaves, lambda: unstacked(case, leaves))


def _module(case: Case, operands: Operands) -> Built:
    """The module, with whatever a call of a module costs on the host."""
    fused = _fused()
    if case.operation == "linear_act":
        made = fused.LinearAct(case.k, case.n, bias=case.bias, activation=case.activation, device="meta")
        homes = {name: (made, name) for name in operands.weights}
    else:
        made = fused.GatedMLP(case.k, case.n, activation=case.activation, device="meta")
        homes = {name: (getattr(made, f"{name}_proj"), "weight") for name in operands.weights}
    leaves: dict[str, Tensor] = {}
    for name, (home, attribute) in homes.items():
        parameter = torch.nn.Parameter(operands.weights[name], requires_grad=case.mode == "train")
        setattr(home, attribute, parameter)
        leaves[name] = parameter
    return Built(made, leaves)


def _compiled_module(case: Case, operands: Operands) -> Built:
    built = _module(case, operands)
    return replace(built, forward=torch.compile(built.forward, dynamic=False, fullgraph=True))


OURS: dict[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        Entrant("foretrace", "ours", _functional()),
        Entrant("foretrace-module", "ours", _module),
        Entrant("foretrace-stacked", "ours", _stacked),
        Entrant("foretrace-fast", "ours", _functional(precision="fast")),
        Entrant("foretrace-recompute", "ours", _functional(save="recompute")),
        Entrant("foretrace-input", "ours", _functional(save="input")),
        Entrant("foretrace-compiled", "ours", _compiled_module, compiles=True),
    )
}


def forced(words: str) -> Entrant:
    """An entrant that runs exactly these implementations. Raises `foretrace.errors.InputError` for bad words."""
    choice = _fused("foretrace.fused.dispatch.choice").parse_choice(words)
    plans = _fused("foretrace.fused.plan")
    plan = plans.Plan(choice.expand, choice.project, choice.backward, choice.save, "override", "the benchmark said so")
    return Entrant(words, "ours", _functional(plan=plan))


def architecture_of(device: str) -> str:
    """What dispatch calls this device."""
    if not device.startswith("cuda"):
        return "cpu"
    major, minor = torch.cuda.get_device_capability(torch.device(device))
    return f"sm_{major}{minor}"


def problem_of(case: Case, architecture: str) -> Any:
    """The case as dispatch knows it, a `foretrace.fused.plan.Problem`."""
    even = case.k % 8 == 0 and case.n % 8 == 0
    return _fused("foretrace.fused.plan").Problem(
        operation=case.operation,
        m=case.m,
        n=case.n,
        k=case.k,
        out=case.k if case.operation == "gated_mlp" else 0,
        dtype=str(DTYPES[case.dtype]).removeprefix("torch."),
        activation=case.activation,
        architecture=architecture,
        training=case.mode == "train",
        bias=case.bias,
        aligned=even,
    )


def choices_for(case: Case, device: str, *, variants: bool = False) -> list[str]:
    """The forced choices worth measuring, as words: every possible forward, and for training a subset of the pairs.

    A forward implementation and a backward one cost independently of each other, so pairs of equal name and pairs
    with ``elementwise`` on either side are enough. ``variants``: also the tuning options of the implementations that
    the model thinks near the best, and nothing of those it thinks far from it.
    """
    problem = problem_of(case, architecture_of(device))
    expands = _named("expand", problem, variants)
    projects = _named("project", problem, variants) if case.operation == "gated_mlp" else ["plain"]
    if case.mode == "forward":
        few = [name for name in projects if "[" not in name]
        return [
            f"expand={expand} project={project}"
            for expand in expands
            for project in (projects if _family(expand) == "small" else few)
        ]
    found = []
    for expand, backward in product(expands, _named("backward", problem, variants)):
        alike = _family(expand) == _family(backward)
        if alike or "elementwise" in (expand, backward):
            found.append(f"expand={expand} project=plain backward={backward} save=preact")
            fused = case.operation == "gated_mlp" and expand not in ("plain", "elementwise")
            if alike and fused and "[" not in expand + backward:
                found.append(f"expand={expand} project=plain backward={backward} save=recompute")
    return found


# By the model, which knows costs to some 20 %; of few rows it mostly counts what the host takes.
_NEAR, _FAR = 1.2, 1.5
_FEW_ROWS = 256


def _named(role: str, problem: Any, variants: bool) -> list[str]:
    """The possible implementations of a step, in the words of a choice."""
    candidates = _fused("foretrace.fused.dispatch.candidates")
    write = _fused("foretrace.fused.dispatch.choice").write_implementation
    environment = _fused("foretrace.fused.dispatch.environment").current()
    possible = candidates.possible(role, problem, environment)
    if not variants:
        return [candidate.name for candidate in possible]
    options = _fused("foretrace.fused.dispatch.choose").options_of(role, problem, environment)
    costs = {option.name: option.cost_us for option in options if option.cost_us is not None}
    best = min(costs.values(), default=0.0)
    found = []
    for candidate in possible:
        known = best and problem.m > _FEW_ROWS
        times = costs.get(candidate.name, best) / best if known else 1.0
        if times <= _NEAR:
            found += [write(one) for one in candidate.implementations(problem, role)]
        elif times <= _FAR or candidate.name == "plain":
            found.append(candidate.name)
    return found


def _family(words: str) -> str:
    return words.partition("[")[0]
