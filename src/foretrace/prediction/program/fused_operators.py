"""The steps of fused modules, and of Liger's, as operators of the meta device: what each takes and makes.

`foretrace.prediction.program.lower_fused` turns them into work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from foretrace.knowledge.lowering.fused import bias_strips

__all__ = ["NAMESPACE", "operators"]

# Its operators appear in traces under the namespace of the fused modules (`foretrace.prediction.program.observe`).
NAMESPACE = "foretrace_prediction_fused"
_library: Any = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
operators: Any = getattr(torch.ops, NAMESPACE)


def _define(schema: str, run: Callable[..., Any]) -> None:
    _library.define(schema)
    _library.impl(schema.partition("(")[0], run, "Meta")


def _gate_up(
    x: Tensor, gate: Tensor, _up: Tensor, _gb: Any, _ub: Any, _activation: str, keep: bool, *_pace: float
) -> Any:
    rows, columns = x.shape[0], gate.shape[0]
    return x.new_empty(rows, columns), x.new_empty(rows if keep else 0, 2 * columns)


def _linear_act(x: Tensor, weight: Tensor, _bias: Any, _activation: str, keep: bool, *_pace: float) -> Any:
    rows, columns = x.shape[0], weight.shape[0]
    return x.new_empty(rows, columns), x.new_empty(rows if keep else 0, columns)


def _backward(
    _grad: Tensor, down: Tensor, preact: Tensor, _activation: str, bias: bool, hidden: bool, *_pace: float
) -> Any:
    sums = preact.new_empty(preact.shape[1] if bias else 0, dtype=torch.float32)
    return torch.empty_like(preact), sums, preact.new_empty(preact.shape[0] if hidden else 0, down.shape[1])


def _project(hidden: Tensor, weight: Tensor, _bias: Any) -> Any:
    return hidden.new_empty(hidden.shape[0], weight.shape[0])


def _weight_gradient(grad: Tensor, x: Tensor) -> Any:
    return grad.new_empty(grad.shape[1], x.shape[1])


def _gated_act(gate: Tensor, _up: Tensor, _activation: str) -> Any:
    return gate.new_empty(gate.shape)


def _gated_act_backward(_grad: Tensor, gate: Tensor, up: Tensor, _activation: str) -> Any:
    return gate.new_empty(gate.shape), up.new_empty(up.shape)


def _act(preact: Tensor, _activation: str) -> Any:
    return torch.empty_like(preact)


def _act_backward(_grad: Tensor, preact: Tensor, _activation: str, bias: bool) -> Any:
    rows, columns = preact.shape
    partial = preact.new_empty(bias_strips(rows, columns) if bias else 0, columns, dtype=torch.float32)
    return torch.empty_like(preact), partial


_define(
    "gate_up(Tensor x, Tensor gate, Tensor up, Tensor? gate_bias, Tensor? up_bias, str activation, bool keep, "
    "float beside_hopper, float expected_us) -> (Tensor, Tensor)",
    _gate_up,
)
_define(
    "linear_act(Tensor x, Tensor weight, Tensor? bias, str activation, bool keep, float beside_hopper, "
    "float expected_us) -> (Tensor, Tensor)",
    _linear_act,
)
for _kind in ("gate_up_backward", "linear_act_backward"):
    _define(
        f"{_kind}(Tensor grad_out, Tensor down, Tensor preact, str activation, bool bias, bool hidden, "
        "float beside_hopper, float expected_us) -> (Tensor, Tensor, Tensor)",
        _backward,
    )
_define("project(Tensor hidden, Tensor weight, Tensor? bias) -> Tensor", _project)
_define("weight_gradient(Tensor grad, Tensor x) -> Tensor", _weight_gradient)
_define("act(Tensor preact, str activation) -> Tensor", _act)
_define("act_backward(Tensor grad_hidden, Tensor preact, str activation, bool bias) -> (Tensor, Tensor)", _act_backward)
for _kind in ("gated_act", "liger_act"):
    _define(f"{_kind}(Tensor gate, Tensor up, str activation) -> Tensor", _gated_act)
    _define(
        f"{_kind}_backward(Tensor grad_hidden, Tensor gate, Tensor up, str activation) -> (Tensor, Tensor)",
        _gated_act_backward,
    )
