"""What a whole step takes, by the model: in small layers the host decides, and our backward is Python.

Steps are chosen one by one for what they save. Whether all of them together save more than an autograd function in
Python costs the host can only be said of the whole.
"""

from __future__ import annotations

from typing import Final

from foretrace.fused.dispatch.candidates import GRADIENT_ROWS, HALF
from foretrace.fused.dispatch.choice import Choice, roles_of
from foretrace.fused.dispatch.model import HOST_OURS, Device, Expense, expense, passes, products
from foretrace.fused.plan import Problem

__all__ = ["step"]

# µs of host time that an autograd function in Python takes over ATen's own, forward and backward together. On the
# machine of an H200 a step of linear_act with a bias at 16 rows, 256 → 512, took 417 µs by ours and 303 by eager, where
# forward alone took 29 and 39; other machines and hours: 313 and 215, 439 and 253.
_HOST_FUNCTION: Final = 110.0
# What cuBLAS takes for weights' gradients of one row and of few rows, over the time of writing them, which ours take:
# 56, 26 and 18 to 21 µs for 16384 × 2048 in bf16 (`foretrace.fused.kernels.small_gradient` has more).
_ONE_ROW: Final = 3.3
_FEW_ROWS: Final = 1.3


def step(choice: Choice, problem: Problem, device: Device) -> Expense | None:
    """Forward, and in training backward with every gradient; ``None``: the model does not know an implementation."""
    total = _gradients(choice, problem, device) if problem.training else Expense(0.0, 0.0)
    for role in roles_of(problem.operation, problem.training):
        made = choice.of(role)
        found = expense(role, made.name, problem, device, made.options)
        if found is None:
            return None
        total = total.plus(found)
    return total


def _gradients(choice: Choice, problem: Problem, device: Device) -> Expense:
    """The products for x and the weights, which no plan names, and what one way does there and the other does not."""
    ours = any(choice.of(role).name != "plain" for role in roles_of(problem.operation, problem.training))
    function = Expense(0.0, _HOST_FUNCTION if ours else 0.0)
    if problem.operation == "gated_act":
        return function
    m, n, k, out = problem.m, problem.n, problem.k, problem.out
    both = 2 * n if problem.operation == "gated_mlp" else n
    # Gate and up: one product where one tensor holds both, gate first. Of separate ones our gradient is one as well.
    apart = problem.operation == "gated_mlp" and problem.packing != "gate_up"
    for_x = [(m, k, n)] * 2 if apart else [(m, k, both)]
    weights = [(n, k, m)] * 2 if apart and not (ours and problem.packing == "separate") else [(both, k, m)]
    weights += [(out, n, m)] if out else []
    total = products(for_x, problem, device).plus(function).plus(_weights(weights, ours, problem, device))
    if ours or not apart:
        return total
    total = total.plus(passes(3 * m * k, 1, problem, device))  # adds what gate and up contribute to x
    if problem.packing == "separate":
        return total
    # Autograd makes a gradient of the whole weight from each half, zeros around it, and adds the two.
    return total.plus(passes(7 * both * k, 5, problem, device))


def _weights(sizes: list[tuple[int, int, int]], ours: bool, problem: Problem, device: Device) -> Expense:
    found = products(sizes, problem, device)
    if problem.dtype not in HALF or not 0 < problem.m <= GRADIENT_ROWS:
        return found
    if ours:
        return Expense(found.gpu, len(sizes) * HOST_OURS)
    return Expense(found.gpu * (_ONE_ROW if problem.m == 1 else _FEW_ROWS), found.host)
