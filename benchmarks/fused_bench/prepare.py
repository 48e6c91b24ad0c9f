"""From an entrant to a step that may be timed: built, called for the first time, its results checked."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fused_bench.case import Case
from fused_bench.device import Device
from fused_bench.entrants import Built, Entrant, UnavailableError
from fused_bench.operands import DTYPES, Operands, reference

__all__ = ["Prepared", "Yardstick", "fresh_compiler", "prepare", "prepare_all", "said"]

# How much more than eager's an error may be. 16-bit types: sampling (few rows), and a tenth of a unit in the last
# place. float32: nothing is rounded but sums, whose order differs from kernel to kernel.
_ALLOWED_FACTOR = {"bf16": 1.1, "fp16": 1.1, "fp32": 3.0}
_ALLOWED_ULPS = 0.1


@dataclass
class Prepared:
    """``step``: one forward, or one forward and backward, as often as wanted; ``None`` when it must not be timed.

    ``leaves``: what a training step leaves gradients in.
    """

    name: str
    result: dict[str, Any]
    step: Callable[[], Tensor] | None = None
    leaves: tuple[Tensor, ...] = ()

    def drop_gradients(self) -> None:
        """Free the gradients of the last step."""
        for leaf in self.leaves:
            leaf.grad = None


class Yardstick:
    """The float64 results of a case, and eager's relative errors against them once they are known."""

    def __init__(self, case: Case, operands: Operands) -> None:
        self._case = case
        self._truth = reference(case, operands)
        self.eager: dict[str, float] | None = None

    def errors(self, found: dict[str, Tensor]) -> dict[str, float]:
        """‖found - truth‖ / ‖truth‖ of every result. Raises ``KeyError`` when one is missing."""
        errors = {}
        for name, truth in self._truth.items():
            value = found[name].detach()
            if value.shape != truth.shape:
                raise ValueError(f"{name} has the shape {tuple(value.shape)}, not {tuple(truth.shape)}")
            errors[name] = float((value.double() - truth).norm() / truth.norm())
        return errors

    def verdict(self, errors: dict[str, float]) -> str | None:
        """Say what is wrong, or ``None``. Eager itself only has to be finite and near."""
        unit = torch.finfo(DTYPES[self._case.dtype]).eps / 2
        for name, error in errors.items():
            eager = 50 * unit if self.eager is None else self.eager[name]
            limit = _ALLOWED_FACTOR[self._case.dtype] * eager + _ALLOWED_ULPS * unit
            if not error <= limit:  # NaN is never at most anything
                return f"error of {name} is {error:.3g}, eager's {eager:.3g}, at most {limit:.3g} allowed"
        return None


def said(error: BaseException) -> str:
    """One line of an error, not too long for a table."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}"[:300]


def prepare(entrant: Entrant, case: Case, operands: Operands, yardstick: Yardstick | None, device: Device) -> Prepared:
    """Build, call, check. Never raises for what an entrant does: its state says it.

    States: ``ok``; ``absent`` (not here, or not for this case); ``failed`` (it raised); ``wrong``. ``first_call_s``
    includes building and compiling, with whatever this process and its caches already had.
    """
    result: dict[str, Any] = {"role": entrant.role, "state": "ok", "reason": None, "first_call_s": None, "errors": None}
    prepared = Prepared(entrant.name, result)
    try:
        start = time.perf_counter()
        built = entrant.build(case, operands)
        device.poison(2 * case.m * max(case.n, case.k) * operands.x.element_size())
        start_call = time.perf_counter()
        found = _collect(built, case, operands)
        device.synchronize()
        result["first_call_s"] = round(time.perf_counter() - start_call + (start_call - start), 4)
        if yardstick is not None and built.floor_step is None:
            _check(result, yardstick, found, entrant)
        if result["state"] == "ok":
            prepared.leaves = leaves_of(built, case, operands)
            prepared.step = built.floor_step or step_of(built, case, operands, prepared.leaves)
    except UnavailableError as error:
        result.update(state="absent", reason=str(error))
    except Exception as error:
        result.update(state="failed", reason=said(error))
    return prepared


def prepare_all(
    entrants: Sequence[Entrant],
    case: Case,
    operands: Operands,
    device: Device,
    *,
    check: bool = True,
) -> list[Prepared]:
    """Prepare every entrant; eager first, which sets the limit for the others' errors."""
    if any(entrant.compiles for entrant in entrants):
        fresh_compiler()
    yardstick = Yardstick(case, operands) if check else None
    prepared = []
    for entrant in sorted(entrants, key=lambda one: one.name != "eager"):
        prepared.append(prepare(entrant, case, operands, yardstick, device))
    del yardstick
    device.release()
    order = [entrant.name for entrant in entrants]
    return sorted(prepared, key=lambda one: order.index(one.name))


def fresh_compiler() -> None:
    """Compiled code of other shapes counts towards the limit after which torch.compile gives up on a function."""
    torch._dynamo.reset()
    # Several entrants and weight sets may share a function.
    limit = "recompile_limit" if hasattr(torch._dynamo.config, "recompile_limit") else "cache_size_limit"
    setattr(torch._dynamo.config, limit, 64)


def _check(result: dict[str, Any], yardstick: Yardstick, found: dict[str, Tensor], entrant: Entrant) -> None:
    errors = yardstick.errors(found)
    # JSON knows no NaN.
    result["errors"] = {name: float(f"{e:.4g}") if math.isfinite(e) else str(e) for name, e in errors.items()}
    wrong = yardstick.verdict(errors)
    if wrong is not None:
        result.update(state="wrong", reason=wrong)
    elif entrant.name == "eager":
        yardstick.eager = errors


def _collect(built: Built, case: Case, operands: Operands) -> dict[str, Tensor]:
    """Results of one step by name."""
    if built.floor_step is not None:
        return {"y": built.floor_step()}
    leaves = leaves_of(built, case, operands)
    found = {"y": step_of(built, case, operands, leaves)()}
    if case.mode == "train":
        gradient = leaves[0].grad
        if gradient is None:
            raise RuntimeError("backward left no gradient in the input")
        found |= {"x": gradient, **built.weight_gradients()}
    return found


def leaves_of(built: Built, case: Case, operands: Operands) -> tuple[Tensor, ...]:
    """The input, of this entrant's own, and its weights."""
    return (operands.x.detach().requires_grad_(case.mode == "train"), *built.leaves.values())


def step_of(built: Built, case: Case, operands: Operands, leaves: Sequence[Tensor]) -> Callable[[], Tensor]:
    """The call that is timed. Training: gradients are dropped first, so that none is added to."""
    forward, grad_out, x = built.forward, operands.grad_out, leaves[0]
    if case.mode == "forward":

        def infer() -> Tensor:
            with torch.no_grad():
                return forward(x)

        return infer

    def train() -> Tensor:
        for leaf in leaves:
            leaf.grad = None
        y = forward(x)
        y.backward(grad_out)  # type: ignore[no-untyped-call]
        return y.detach()

    return train
