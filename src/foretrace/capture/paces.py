"""What dispatch knows of how long a chosen kernel takes, for the predictor's clock.

The clock's times of fused products were measured on the Hopper kernel. Of the others dispatch knows how they compare:
its model costs every kernel of tiles for the same problem, and where a plan comes from a tuned table, whole calls were
measured with both. Of the whole calls of more than 128 rows in the H200's table, the model's ratios alone come out
within 3 % in the mean, with a scatter of 2 (training) to 7 % (the portable kernel, forward).

That holds where both kernels are busy. With few rows the model's Hopper kernel pays for tiles that are mostly empty and
multiprocessors that are idle, which the clock's time, the library's product, does not hold: no ratio says then how much
longer another kernel takes, and least of all one below 1. There, and on GPUs whose kernels were not compared, the clock
is told what the model expects of the kernel itself, to weigh against its own time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import NamedTuple

from foretrace.fused.dispatch.choice import Choice, Role, choice_of, parse_choice, roles_of
from foretrace.fused.dispatch.model import Device, device_of, expense, passes
from foretrace.fused.dispatch.tables import Row, Table, nearest
from foretrace.fused.plan import Implementation, Plan, Problem
from foretrace.knowledge.calibration.margins import SUSTAINED_BANDWIDTH, SUSTAINED_RATE
from foretrace.knowledge.gpus import Gpu, peak_for

__all__ = ["Paces", "paces_of"]

_HOPPER = Implementation("hopper")
# Those that work in tiles as the Hopper kernel does. The decode kernels stream weights, as the library's product of few
# rows does, from which the clock takes their time.
_COMPARED = ("portable", "tma")

# Rows above which ratios were held against measured calls, and where.
_FEW_ROWS = 128
_RATIOS_HOLD = ("sm_80", "sm_90")


class Paces(NamedTuple):
    """Each by step, and nothing for steps of which nothing is known; no step is in both.

    ``beside_hopper``: how many times as long its kernel takes as the Hopper kernel would. ``expected_us``: what the
    model expects of its kernel, without the gap before a launch.
    """

    beside_hopper: dict[str, float]
    expected_us: dict[str, float]


def paces_of(problem: Problem, plan: Plan, tables: Iterable[Table], gpu: Gpu | None = None) -> Paces:
    """What dispatch knows of a plan's kernels. ``gpu``: by default the one that the model has of an architecture."""
    device = _device_of(problem, gpu)
    choice = choice_of(plan)
    steps = [role for role in roles_of(problem.operation, problem.training) if choice.of(role).name in _COMPARED]
    if device is None or not steps:
        return Paces({}, {})
    ours, hopper = (_kernels_us(each, steps, problem, device) for each in (choice, _with_hopper(choice, steps)))
    corrected = _measured_over_modelled(problem, plan, steps, device, tables)
    gap = passes(0, 1, problem, device).gpu
    ratios: dict[str, float] = {}
    if problem.m > _FEW_ROWS and problem.architecture in _RATIOS_HOLD:
        found = {role: corrected * ours[role] / hopper[role] for role in steps if hopper.get(role) and role in ours}
        ratios = {role: ratio for role, ratio in found.items() if ratio >= 1}
    return Paces(ratios, {role: us - gap for role, us in ours.items() if role not in ratios})


def _device_of(problem: Problem, gpu: Gpu | None) -> Device | None:
    """The model's constants of an architecture, held to what the datasheet allows this GPU of it."""
    device = device_of(problem.architecture)
    if device is None or gpu is None:
        return device
    peak = peak_for(gpu, problem.dtype, tensor_cores=True)
    return replace(
        device,
        sms=gpu.sms,
        half=device.half if peak is None else min(device.half, SUSTAINED_RATE * peak[0]),
        bandwidth=min(device.bandwidth, SUSTAINED_BANDWIDTH * gpu.memory_bandwidth_gbps / 1e3),
    )


def _measured_over_modelled(
    problem: Problem, plan: Plan, steps: list[Role], device: Device, tables: Iterable[Table]
) -> float:
    """What the kernels of these steps took in the row that a plan comes from, over what the model says; 1 without one.

    The row times whole calls. What one takes longer than the same with the Hopper kernel, its kernels take longer.
    """
    choice = choice_of(plan)
    row = _row_of(problem, plan, tables)
    if row is None or plan.costs[0][1] is None:
        return 1.0
    other = _with_hopper(choice, steps)
    beside = [cost for label, cost in row.costs if _names(parse_choice(label)) == _names(other)]
    if not beside:
        return 1.0
    there = replace(problem, **{field.name: getattr(row, field.name) for field in fields(row) if field.name != "costs"})
    ours, hopper = (sum(_kernels_us(each, steps, there, device).values()) for each in (choice, other))
    took = hopper + plan.costs[0][1] - min(beside)
    return took / ours if ours > 0 and took > 0 else 1.0


def _row_of(problem: Problem, plan: Plan, tables: Iterable[Table]) -> Row | None:
    """The row of a table that a plan comes from."""
    if plan.source != "table":
        return None
    return next((row for _, row, _ in nearest(tables, problem) if plan.costs[0] in row.costs), None)


def _with_hopper(choice: Choice, steps: list[Role]) -> Choice:
    for role in steps:
        choice = choice.having(role, _HOPPER)
    return choice


def _names(choice: Choice) -> tuple[str, ...]:
    """A choice without what tunes its kernels."""
    return choice.expand.name, choice.project.name, choice.backward.name, choice.save


def _kernels_us(choice: Choice, steps: list[Role], problem: Problem, device: Device) -> dict[Role, float]:
    """µs that the model expects of each step's kernel."""
    expected = {
        role: expense(role, choice.of(role).name, problem, device, choice.of(role).options or None) for role in steps
    }
    return {role: cost.gpu for role, cost in expected.items() if cost is not None}
