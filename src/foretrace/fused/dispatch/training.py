"""What a whole training step takes, by the model: in small layers the host decides, and our backward is Python.

Steps are chosen one by one for what they save. Whether all of them together save more than an autograd function in
Python costs the host can only be said of the whole.
"""

from __future__ import annotations

from typing import Final

from foretrace.fused.dispatch.candidates import GRADIENT_ROWS, HALF
from foretrace.fused.dispatch.choice import Choice, roles_of
from foretrace.fused.dispatch.model import HOST_ATEN, HOST_OURS, Device, Expense, expense, products
from foretrace.fused.plan import Problem

__all__ = ["is_worth_it", "step"]

# µs of host time that an autograd function in Python takes over ATen's own, forward and backward together. On the
# machine of an H200 a step of linear_act with a bias at 16 rows, 256 → 512, took 417 µs by ours and 303 by eager, where
# forward alone took 29 and 39; other machines and hours: 313 and 215, 439 and 253.
_HOST_FUNCTION: Final = 110.0


def is_worth_it(choice: Choice, problem: Problem, device: Device) -> bool:
    """Whether a training step by a choice is expected to take less time than by PyTorch's own operators."""
    ours, plain = step(choice, problem, device), step(Choice(), problem, device)
    return ours is None or plain is None or ours.us < plain.us


def step(choice: Choice, problem: Problem, device: Device) -> Expense | None:
    """Forward and backward, every gradient wanted; ``None`` where the model does not know an implementation."""
    total = _gradients(choice, problem, device)
    for role in roles_of(problem.operation, problem.training):
        found = expense(role, choice.of(role).name, problem, device)
        if found is None:
            return None
        total = total.and_(found)
    return total


def _gradients(choice: Choice, problem: Problem, device: Device) -> Expense:
    """The products for x and the weights, which no plan names, and what one way does there and the other does not."""
    if problem.operation == "gated_act":
        return Expense(0.0, 0.0 if _is_plain(choice) else _HOST_FUNCTION)
    m, n, k, out = problem.m, problem.n, problem.k, problem.out
    gated, apart = problem.operation == "gated_mlp", problem.packing == "separate"
    for_x = [(m, k, n)] * 2 if gated and apart else [(m, k, 2 * n if gated else n)]
    second = [(out, n, m)] if out else []
    if _is_plain(choice):
        weights = [*([(n, k, m)] * 2 if gated and apart else [(2 * n if gated else n, k, m)]), *second]
        added = Expense(0.0, HOST_ATEN if gated and apart else 0.0)
        return products([*for_x, *weights], problem, device).and_(added)
    weights = [(2 * n if gated else n, k, m), *second]
    function = Expense(0.0, _HOST_FUNCTION)
    if m <= GRADIENT_ROWS and problem.dtype in HALF:
        written = products(weights, problem, device)
        return products(for_x, problem, device).and_(Expense(written.gpu, len(weights) * HOST_OURS)).and_(function)
    return products([*for_x, *weights], problem, device).and_(function)


def _is_plain(choice: Choice) -> bool:
    return choice.expand.name == choice.project.name == choice.backward.name == "plain"
