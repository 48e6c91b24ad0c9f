"""How accurate the activation inside the fused operation is, for every number its input can be.

Weights of zeros and ones turn the whole operation into the activation alone: gate row j picks input column j, the last
column is one and is all that up sees, down picks each hidden once. Then y is act(x) and the gradient of x is act'(x),
each rounded, with no other error, and at a shape the fastest kernels serve. Inputs are every finite bf16 or fp16
number up to a bound beyond which every activation is its asymptote.

Errors are in units in the last place of the exact result (float64), as stored in the type: half is perfect.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fused_bench.activations import ACTIVATIONS
from fused_bench.case import Case, Mode, Operation
from fused_bench.entrants import Entrant, UnavailableError
from fused_bench.operands import DTYPES, Operands
from fused_bench.prepare import fresh_compiler, leaves_of, said, step_of
from fused_bench.session import Session
from fused_bench.shapes import SMALL
from fused_bench.tables import text_table

__all__ = ["accuracy", "all_numbers", "measure_sweep", "sweep_operands", "ulp_errors"]

# gelu and silu are 0 or z to the last bit of bf16 long before; squares stay finite.
_BOUND = 1.0e4
# Where formulas differ: between rounding near zero, the bend, and the tail, in which the result itself gets tiny.
# Results below the smallest normal number are apart: there the unit stays that of the smallest normal number, and
# hardware may flush to zero.
_SUBNORMAL = "subnormal result"
_REGIONS = {
    "z ≤ -8": (-math.inf, -8.0),
    "-8 < z ≤ -3": (-8.0, -3.0),
    "-3 < z ≤ -1e-3": (-3.0, -1e-3),
    "|z| < 1e-3": (-1e-3, 1e-3),
    "1e-3 ≤ z": (1e-3, math.inf),
}
_SKIP = ("cublas", "max-autotune", "max-autotune-tma", "quack-untuned", "foretrace-module", "foretrace-compiled")


def accuracy(session: Session) -> None:
    """Every activation, forward and its derivative."""
    if session.preparing:
        return
    shapes = session.shapes or [SMALL if session.device.is_gpu else (256, 264, 512)]
    operations: tuple[tuple[Operation, bool], ...] = (("gated_mlp", False), ("linear_act", True))
    cases = [
        Case(operation, *shape, activation, "train", "fp16" if session.dtype == "fp16" else "bf16", bias)
        for shape in shapes
        for activation in ("gelu_tanh", "silu", "gelu", "relu", "relu2", "sigmoid")
        for operation, bias in operations
    ]
    session.each("accuracy", cases, lambda case: measure_sweep(session, case))


def all_numbers(dtype: torch.dtype, device: str) -> Tensor:
    """Every finite number of a 16-bit type up to the bound, in the order of their bits; zeros of both signs once."""
    bits = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32, device=device).to(torch.int16)
    numbers = bits.view(dtype)
    return numbers[numbers.isfinite() & (numbers.abs() <= _BOUND)]


def sweep_operands(case: Case, device: str) -> tuple[Operands, Tensor]:
    """Operands that make y = act(z), and z, [m, columns]: the inputs as they lie in x.

    The last 8 columns of x are kept for the one; needs n ≥ k for the gated MLP, as models have it. With one product
    (``linear_act``) y has more columns than z, each input column appears in several of them.
    """
    dtype = DTYPES[case.dtype]
    numbers = all_numbers(dtype, device)
    columns = case.k - 8
    count = case.m * columns
    # Shuffled: a sweep of fewer points than there are numbers still sees all magnitudes.
    generator = torch.Generator().manual_seed(0)
    numbers = numbers[torch.randperm(len(numbers), generator=generator).to(device)]
    z = numbers.repeat(-(-count // len(numbers)))[:count].view(case.m, columns)
    x = torch.zeros(case.m, case.k, dtype=dtype, device=device)
    x[:, :columns] = z
    x[:, columns] = 1
    rows = torch.arange(case.n, device=device)
    picks = torch.zeros(case.n, case.k, dtype=dtype, device=device)
    picks[rows, rows % columns] = 1
    if case.operation == "linear_act":
        grad_out = torch.zeros(case.m, case.n, dtype=dtype, device=device)
        grad_out[:, :columns] = 1
        bias = torch.zeros(case.n, dtype=dtype, device=device)
        return Operands(x, {"weight": picks, "bias": bias}, grad_out), z
    up = torch.zeros_like(picks)
    up[:, columns] = 1
    # Output o takes one of the hidden columns that hold input o, from all over the width.
    copies = case.n // columns
    if copies == 0:
        raise ValueError(f"the sweep needs at least {columns} intermediate features, there are {case.n}")
    outputs = torch.arange(columns, device=device)
    down = torch.zeros(case.k, case.n, dtype=dtype, device=device)
    down[outputs, outputs + columns * (outputs % copies)] = 1
    grad_out = torch.zeros(case.m, case.k, dtype=dtype, device=device)
    grad_out[:, :columns] = 1
    return Operands(x, {"gate": picks, "up": up, "down": down}, grad_out), z


def ulp_errors(found: Tensor, exact: Tensor, dtype: torch.dtype) -> Tensor:
    """|found - exact| in units in the last place of ``exact`` in ``dtype``; NaN and wrong infinities are infinite."""
    info = torch.finfo(dtype)
    # 2 to the exponent of the exact value, never below the smallest normal number, times the step at one.
    _, exponent = torch.frexp(exact.abs().clamp_min(info.tiny))
    ulp = torch.ldexp(torch.ones_like(exact), exponent - 1) * info.eps
    error = (found.double() - exact).abs() / ulp
    return torch.where(error.isfinite(), error, math.inf)


def exact_values(activation: str, z: Tensor) -> tuple[Tensor, Tensor]:
    """act(z) and act'(z) in float64."""
    source = z.double().requires_grad_()
    value = _exact(activation, source)
    (slope,) = torch.autograd.grad(value.sum(), source)
    return value.detach(), slope


def _exact(activation: str, z: Tensor) -> Tensor:
    """Without the cancellation that float64 itself has in the far tail: 1 + erf(z) and 1 + tanh(z) are zero there."""
    if activation == "gelu":
        tail: Tensor = torch.special.erfc(-z * math.sqrt(0.5))
        return 0.5 * z * tail
    if activation == "gelu_tanh":
        slope: Tensor = 2 * math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)
        return z * torch.sigmoid(slope)
    return ACTIVATIONS[activation](z)


def measure_sweep(session: Session, case: Case) -> dict[str, Any]:
    """Errors of every entrant, forward and backward, against float64 and against eager's."""
    from fused_bench.suites import entrants_for  # suites knows this file

    device = session.device
    operands, z = sweep_operands(case, device.name)
    value, slope = exact_values(case.activation, z)
    dtype = DTYPES[case.dtype]
    record: dict[str, Any] = {"name": f"sweep {case.name}", **case.as_dict(), "points": z.numel(), "entrants": {}}
    entrants = [one for one in entrants_for(session, case, implementations=True) if one.name not in _SKIP]
    asked: tuple[tuple[Mode, str, Tensor], ...] = (("forward", "value", value), ("train", "slope", slope))
    eager: dict[str, Tensor] = {}
    fresh_compiler()
    for entrant in sorted(session.wanted(case, entrants), key=lambda one: one.name != "eager"):
        result: dict[str, Any] = {"role": entrant.role, "state": "ok", "reason": None}
        record["entrants"][entrant.name] = result
        for mode, what, exact in asked:
            try:
                found = _run(entrant, case, operands, mode)[:, : z.shape[1]]
            except UnavailableError as error:
                result.setdefault("missing", {})[what] = str(error)
                continue
            except Exception as error:
                result.update(state="failed", reason=said(error))
                continue
            errors = ulp_errors(found, exact, dtype)
            eager.setdefault(what, errors)  # eager comes first
            result[what] = _statistics(errors, eager[what], z, exact.abs() < torch.finfo(dtype).tiny)
        if "value" not in result and result["state"] == "ok":
            result.update(state="absent", reason=result["missing"]["value"])
    session.say(_table(record) + "\n")
    return record


def _run(entrant: Entrant, case: Case, operands: Operands, mode: Mode) -> Tensor:
    """y of a forward without gradients, or the gradient of x."""
    asked = replace(case, mode=mode)
    built = entrant.build(asked, operands)
    leaves = leaves_of(built, asked, operands)
    y = step_of(built, asked, operands, leaves)()
    if mode == "forward":
        return y
    assert leaves[0].grad is not None
    return leaves[0].grad


def _statistics(errors: Tensor, eager: Tensor, z: Tensor, subnormal: Tensor) -> dict[str, Any]:
    """Largest and mean error, and at how many points it is worse than eager's, over all normal results; by region."""
    worse = errors - eager
    found: dict[str, Any] = {
        "largest": _finite(errors[~subnormal].max()),
        "mean": _finite(errors[~subnormal].mean()),
        "worse_than_eager": int(((worse > 1e-6) & ~subnormal).sum()),
        "regions": {},
    }
    regions = {name: (z.double() > low) & (z.double() <= high) & ~subnormal for name, (low, high) in _REGIONS.items()}
    for name, inside in {**regions, _SUBNORMAL: subnormal}.items():
        if bool(inside.any()):
            here, there = errors[inside], eager[inside]
            found["regions"][name] = {
                "largest": _finite(here.max()),
                "mean": _finite(here.mean()),
                "eager_largest": _finite(there.max()),
                "eager_mean": _finite(there.mean()),
            }
    return found


def _finite(value: Tensor) -> float | str:
    """JSON has no infinity."""
    number = float(value)
    return round(number, 4) if math.isfinite(number) else "infinite"


def _table(record: dict[str, Any]) -> str:
    head = [
        "",
        "value: largest",
        "mean ulp",
        "worse than eager at",
        "slope: largest",
        "mean ulp",
        "worse than eager at",
    ]
    rows, notes = [], []
    for name, result in record["entrants"].items():
        if result["state"] == "failed":
            notes.append(f"  {name}: {result['reason']}")
        if result["state"] != "ok":
            continue
        cells = [name]
        for what in ("value", "slope"):
            found = result.get(what)
            keys = ("largest", "mean", "worse_than_eager")
            cells += ["-", "-", "-"] if found is None else [str(found[key]) for key in keys]
        rows.append(cells)
    return "\n".join([f"{record['name']}, {record['points']} points", text_table(head, rows), *notes])
