"""Are a variant's results right? Against the same program in float64, and never worse than eager beyond rounding."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from foretrace.capture.bench.tools import mapped, said
from foretrace.capture.variants import leaves_of, step_of
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, ForetraceError
from foretrace.knowledge.benching import EAGER_UNUSABLE, MAX_WORSE, NORM_WORSE, rounding_slack
from foretrace.knowledge.dtypes import dtype as known_dtype
from foretrace.model.bench import Check, TensorError
from foretrace.model.words import share_of
from foretrace.prediction.program.walk import tensors_of

__all__ = ["Yardstick", "check", "collect", "make_yardstick"]

Results = dict[str, Any]  # name → tensor


@dataclass(frozen=True)
class _Error:
    norm: float  # of the difference over that of the reference; of integers the share of wrong elements
    largest: float  # absolute
    scale: float  # largest reference value


@dataclass(frozen=True)
class Yardstick:
    """The float64 results, and how far eager is from them; or ``reason``: why there are none."""

    reference: Results = field(default_factory=dict)
    eager: Results = field(default_factory=dict)
    errors: dict[str, _Error | str] = field(default_factory=dict)
    reason: str | None = None


def collect(result: Any, program: Program, mode: str) -> Results:
    """Copies of what a step returned, in training also of the gradients, by name."""
    outputs = list(tensors_of(result))
    found = {("output" if len(outputs) == 1 else f"output {i}"): tensor for i, tensor in enumerate(outputs)}
    if mode == "train":
        named = getattr(program.function, "named_parameters", None)
        names = {id(tensor): name for name, tensor in named()} if callable(named) else {}
        for i, leaf in enumerate(leaves_of(program)):
            if leaf.grad is not None:
                found[f"gradient of {names.get(id(leaf), f'input {i}')}"] = leaf.grad
    return {name: tensor.detach().clone() for name, tensor in found.items()}


def make_yardstick(program: Program, mode: str, seed: int) -> Yardstick:
    """Run the program eagerly (twice, with other random numbers) and in float64.

    Raises :class:`CaptureError` when the program itself fails.
    """
    import torch

    step = step_of(program, program.function, mode)
    try:
        eager = collect(step(), program, mode)
        torch.manual_seed(seed + 1)
        again = collect(step(), program, mode)
        torch.manual_seed(seed)
    except ForetraceError:
        raise
    except (Exception, SystemExit) as error:
        raise CaptureError(f"the program failed (eager): {said(error)}") from error
    if not eager:
        return Yardstick(reason="the program returns no tensor")
    for name, tensor in eager.items():
        if _differs(tensor, again[name]):
            return Yardstick(
                reason=f"two eager calls give different results ({name}): dropout, sampling, or state that changes"
            )
    try:
        reference = _in_double(program, mode)
    except Exception as error:
        return Yardstick(reason=f"the program cannot be run in float64: {said(error)}")
    for name, tensor in eager.items():
        expected = reference.get(name)
        if expected is None or expected.shape != tensor.shape:
            return Yardstick(reason=f"in float64 the program gives another {name}")
        if tensor.is_floating_point() and expected.dtype != torch.float64:
            kind = str(expected.dtype).removeprefix("torch.")
            return Yardstick(
                reason=f"the program casts its {name} to {kind} by itself, so there is no float64 reference"
            )
    errors = {name: _error(tensor, reference[name]) for name, tensor in eager.items()}
    worst = max((error.norm for error in errors.values() if isinstance(error, _Error)), default=0.0)
    if worst > EAGER_UNUSABLE:
        return Yardstick(
            reason=f"eager itself is {share_of(worst)} away from float64, so that nothing can be told from it"
        )
    return Yardstick(reference, eager, errors)


def _in_double(program: Program, mode: str) -> Results:
    import torch

    def double(tensor: Any) -> Any:
        if not tensor.is_floating_point():
            return tensor.detach().clone()
        return tensor.detach().to(torch.float64).requires_grad_(tensor.requires_grad)

    def run(move: Callable[[Any], Any]) -> Results:
        function = copy.deepcopy(program.function)
        if isinstance(function, torch.nn.Module):
            function = move(function.double())
        changed = replace(
            program,
            function=function,
            inputs=mapped(program.inputs, lambda t: double(move(t))),
            keywords=mapped(dict(program.keywords), lambda t: double(move(t))),
        )
        return collect(step_of(changed, function, mode)(), changed, mode)

    try:
        return run(lambda value: value)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()
        return run(lambda value: value.to("cpu"))


def check(results: Results, yardstick: Yardstick) -> Check:
    """Hold a variant's results against the reference."""
    if yardstick.reason is not None:
        # NaN needs no reference.
        wrong = next((name for name, tensor in results.items() if _has_nan(tensor)), None)
        if wrong is not None:
            return Check(state="wrong", reason=f"{wrong} holds NaN")
        return Check(state="unknown", reason=yardstick.reason)
    tensors = []
    for name, eager in yardstick.eager.items():
        found = results.get(name)
        base = yardstick.errors[name]
        wrong = None
        error: _Error | str
        if found is None:
            error = wrong = f"there is no {name}"
        elif found.dtype != eager.dtype or found.shape != eager.shape:
            error = wrong = f"{name} is {_described(found)} and eager's is {_described(eager)}"
        else:
            error = _error(found, yardstick.reference[name])
            wrong = error if isinstance(error, str) else _worse(name, error, base, eager.dtype)
        known = error if isinstance(error, _Error) else None
        tensors.append(
            TensorError(
                name=name,
                dtype=_short(eager.dtype),
                relative_error=known.norm if known else None,
                max_error_ulps=_ulps(known, eager.dtype) if known else None,
                eager_relative_error=base.norm if isinstance(base, _Error) else None,
                wrong=wrong,
            )
        )
    faults = [item.wrong for item in tensors if item.wrong is not None]
    return Check(
        state="wrong" if faults else "passed",
        reason=faults[0] if faults else None,
        relative_error=_largest(item.relative_error for item in tensors),
        max_error_ulps=_largest(item.max_error_ulps for item in tensors),
        tensors=tensors,
    )


def _worse(name: str, error: _Error, eager: _Error | str, dtype: Any) -> str | None:
    import torch

    if isinstance(eager, str):
        return None  # better than eager, whose own result does not pass
    if not dtype.is_floating_point:
        if error.norm <= NORM_WORSE * eager.norm:
            return None
        return f"{share_of(error.norm)} of {name} are other than in float64 (eager: {share_of(eager.norm)})"
    slack = rounding_slack(torch.finfo(dtype).eps, dtype.itemsize)
    if error.norm > NORM_WORSE * eager.norm + slack:
        return f"{name} is off by {error.norm:.2g} of its norm, eager by {eager.norm:.2g}"
    # A single rounding may be half a spacing at the largest value.
    most = MAX_WORSE * eager.largest + max(slack, torch.finfo(dtype).eps) * error.scale
    if error.largest > most:
        return f"an element of {name} is off by {error.largest:.2g}, eager's worst by {eager.largest:.2g}"
    return None


def _error(found: Any, reference: Any) -> _Error | str:
    """How far a tensor is from its reference, or why it is wrong without any measure."""
    import torch

    found = found.to(reference.device)
    if not (found.is_floating_point() or found.is_complex()):
        wrong = (found != reference).double()
        return _Error(float(wrong.mean()) if wrong.numel() else 0.0, float(wrong.sum()), 1.0)
    if found.is_complex():
        found, reference = torch.view_as_real(found), torch.view_as_real(reference)
    found, reference = found.double(), reference.double()
    if bool(torch.isnan(found).any()):
        return "it holds NaN"
    infinite = torch.isinf(reference)
    if not torch.equal(found[infinite], reference[infinite]) or bool(torch.isinf(found[~infinite]).any()):
        return "it is infinite where float64 is not"
    found, reference = found[~infinite], reference[~infinite]
    if not found.numel():
        return _Error(0.0, 0.0, 0.0)
    difference = (found - reference).abs()
    size = float(torch.linalg.vector_norm(reference))
    off = float(torch.linalg.vector_norm(difference))
    norm = off / size if size else (0.0 if off == 0 else math.inf)
    return _Error(norm, float(difference.max()), float(reference.abs().max()))


def _ulps(error: _Error, dtype: Any) -> float | None:
    import torch

    if not dtype.is_floating_point:
        return None
    if error.scale == 0:
        return 0.0 if error.largest == 0 else None
    return error.largest / (torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(error.scale)))


def _differs(a: Any, b: Any) -> bool:
    """Whether two results differ by more than rounding (atomics add in any order)."""
    import torch

    if a.shape != b.shape or not a.is_floating_point():
        return a.shape != b.shape or not torch.equal(a, b)
    error = _error(a, b.double())
    return isinstance(error, _Error) and error.norm > 8 * rounding_slack(torch.finfo(a.dtype).eps, a.dtype.itemsize)


def _has_nan(tensor: Any) -> bool:
    return bool((tensor != tensor).any())  # NaN alone is unequal to itself


def _described(tensor: Any) -> str:
    return f"{_short(tensor.dtype)} {list(tensor.shape)}"


def _short(dtype: Any) -> str:
    found = known_dtype(str(dtype))
    return found.name if found is not None else str(dtype).removeprefix("torch.")


def _largest(values: Any) -> float | None:
    return max((value for value in values if value is not None and math.isfinite(value)), default=None)
