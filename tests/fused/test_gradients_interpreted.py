"""Gradients through our kernels, run by Triton's interpreter, agree with the float64 reference."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from interpreter import interpreted
from mlp_cases import PACKINGS, SAVES, gated_tensors, gradients, mlp_tensors, randn
from torch import Tensor

# Odd sizes: no tile and no vector ends where a row does.
SIZES: dict[str, Any] = {"rows": (2, 3), "k": 23, "n": 37, "out": 19}
# Relative error of the norm: a few roundings.
CLOSE = {torch.float32: 2e-6, torch.float16: 2e-3}


def plan(expand: str, backward: str, save: Any) -> Any:
    from foretrace.fused.plan import Implementation, Plan

    return Plan(Implementation(expand), Implementation("plain"), Implementation(backward), save, "override", "a test")


def doubled(tensors: list[Any]) -> list[Any]:
    return [one if one is None else one.detach().double().requires_grad_() for one in tensors]


def check_close(y: Tensor, tensors: list[Any], right: Tensor, exact: list[Any]) -> None:
    pairs = [(y, right), *zip(gradients(y, tensors), gradients(right, exact), strict=True)]
    for found, expected in pairs:
        if expected is not None and found is not None:
            error = (found.double() - expected).norm() / expected.norm()
            assert error < CLOSE[found.dtype], f"relative error {error:.1e}"


def check_gated_mlp(name: str, packing: Any, activation: str, dtype: torch.dtype) -> None:
    from foretrace.fused.functional import gated_mlp

    tensors = gated_tensors(packing, dtype=dtype, **SIZES)
    exact = doubled(tensors)
    for save in SAVES:
        y = gated_mlp(*tensors, packing=packing, activation=activation, plan=plan(name, name, save))  # type: ignore[arg-type]
        check_close(y, tensors, gated_mlp(*exact, packing=packing, activation=activation), exact)


def check_one_bias(name: str, missing: int) -> None:
    """A gate's bias without an up's, and the other way round: what is missing is zero, and gets no gradient."""
    from foretrace.fused.functional import gated_mlp

    tensors = gated_tensors(dtype=torch.float32, **SIZES)
    tensors[missing] = None
    exact = doubled(tensors)
    for save in SAVES:
        y = gated_mlp(*tensors, activation="silu", plan=plan(name, name, save))  # type: ignore[arg-type]
        check_close(y, tensors, gated_mlp(*exact, activation="silu"), exact)  # type: ignore[arg-type]


def check_single_products(name: str, activation: str, dtype: torch.dtype) -> None:
    from foretrace.fused.functional import linear_act, mlp

    tensors = mlp_tensors(dtype=dtype, **SIZES)
    x, weight, _, bias, _ = tensors
    for save in SAVES:
        exact = doubled(tensors)
        y = mlp(*tensors, activation=activation, plan=plan(name, name, save))
        check_close(y, tensors, mlp(*exact, activation=activation), exact)
        exact = doubled([x, weight, bias])
        y = linear_act(x, weight, bias, activation, plan=plan(name, "elementwise", save))
        check_close(y, [x, weight, bias], linear_act(*exact, activation=activation), exact)


def check_gated_act(activation: str, dtype: torch.dtype) -> None:
    from foretrace.fused.functional import gated_act

    both = randn(2, 3, 46, dtype=dtype)
    exact = both.detach().double().requires_grad_()
    y = gated_act(*both.chunk(2, dim=-1), activation, plan=plan("elementwise", "elementwise", "preact"))
    check_close(y, [both], gated_act(*exact.chunk(2, dim=-1), activation), [exact])


CASES: dict[str, Any] = {
    **{
        f"gated_mlp {name} {packing} {dtype}": partial(check_gated_mlp, name, packing, "gelu", dtype)
        for name in ("elementwise", "portable")
        for packing in PACKINGS
        for dtype in CLOSE
    },
    **{
        f"gated_mlp {name} without {which} bias": partial(check_one_bias, name, missing)
        for name in ("plain", "elementwise", "portable")
        for which, missing in (("gate", 4), ("up", 5))
    },
    **{
        f"mlp and linear_act {name} {dtype}": partial(check_single_products, name, "silu", dtype)
        for name in ("elementwise", "portable")
        for dtype in CLOSE
    },
    **{
        f"gated_act {name}": partial(check_gated_act, name, torch.float32) for name in ("gelu_tanh", "relu2", "sigmoid")
    },
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, str]:
    return interpreted(__file__)


@pytest.mark.parametrize("case", CASES)
def test_gradients_through_kernels(case: str, outcomes: dict[str, str]) -> None:
    assert outcomes[case] == ""
