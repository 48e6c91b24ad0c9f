"""Gated MLPs as foretrace's fused modules or Liger's run them, on tensors without data.

The predictor takes no part of the fused modules themselves: this says what they launch, in their order, as operators
of the meta device. `foretrace.prediction.program.lower_fused` turns those into work.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from foretrace.errors import InputError
from foretrace.knowledge.dtypes import dtype as element_type
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.lowering.fused import LIGER_KERNELS, fuses
from foretrace.prediction.program.autocast import as_autocast
from foretrace.prediction.program.gated import GatedParts, gated_parts

__all__ = ["NAMESPACE", "with_fused"]

# Its operators appear in traces under the namespace of the fused modules (`foretrace.prediction.program.observe`).
NAMESPACE = "foretrace_prediction_fused"
_library: Any = torch.library.Library(NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_operators: Any = getattr(torch.ops, NAMESPACE)


def _define(schema: str, run: Callable[..., Any]) -> None:
    _library.define(schema)
    _library.impl(schema.partition("(")[0], run, "Meta")


def _gate_up(x: Tensor, gate: Tensor, _up: Tensor, _gb: Any, _ub: Any, _activation: str, keep: bool) -> Any:
    rows, columns = x.shape[0], gate.shape[0]
    return x.new_empty(rows, columns), x.new_empty(rows if keep else 0, 2 * columns)


def _gate_up_backward(_grad: Tensor, _down: Tensor, preact: Tensor, _activation: str, bias: bool) -> Any:
    return torch.empty_like(preact), preact.new_empty(preact.shape[1] if bias else 0, dtype=torch.float32)


def _act(gate: Tensor, _up: Tensor, _activation: str) -> Any:
    return torch.empty_like(gate)


def _act_backward(_grad: Tensor, gate: Tensor, up: Tensor, _activation: str) -> Any:
    return torch.empty_like(gate), torch.empty_like(up)


_define(
    "gate_up(Tensor x, Tensor gate, Tensor up, Tensor? gate_bias, Tensor? up_bias, str activation, bool keep) "
    "-> (Tensor, Tensor)",
    _gate_up,
)
_define(
    "gate_up_backward(Tensor grad_out, Tensor down, Tensor preact, str activation, bool bias) -> (Tensor, Tensor)",
    _gate_up_backward,
)
for _kind in ("gated_act", "liger_act"):
    _define(f"{_kind}(Tensor gate, Tensor up, str activation) -> Tensor", _act)
    _define(
        f"{_kind}_backward(Tensor grad_hidden, Tensor gate, Tensor up, str activation) -> (Tensor, Tensor)",
        _act_backward,
    )


def with_fused(function: Callable[..., Any], variant: str, gpu: Gpu | None, notes: list[str]) -> Callable[..., Any]:
    """The program with every gated MLP replaced, sharing all parameters.

    Args:
        function: the program; must be a module.
        variant: ``foretrace`` or ``liger``.
        gpu: decides whether activations go into epilogues; ``None``: a recent data-centre GPU.
        notes: gets what is assumed.

    Raises `InputError` where nothing could be replaced.
    """
    if not isinstance(function, nn.Module):
        raise InputError(f"--variant {variant} replaces modules, and this program is a plain function; use eager")
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*function.parameters(), *function.buffers())}
    root = copy.deepcopy(function, shared)
    refused: list[str] = []
    count = 0

    def visit(module: nn.Module) -> nn.Module:
        nonlocal count
        parts = gated_parts(module)
        if isinstance(parts, GatedParts) and (variant != "liger" or parts.activation in LIGER_KERNELS):
            count += 1
            return _FusedMLP(parts, variant, gpu)
        if isinstance(parts, str):
            refused.append(parts)
        elif parts is not None:
            refused.append(f"Liger has no gated MLP with {parts.activation}")
        for name, child in module.named_children():
            setattr(module, name, visit(child))
        return module

    result = visit(root)
    if not count:
        why = refused[0] if refused else "a gated MLP is recognised by its gate_proj, up_proj, down_proj and act_fn"
        raise InputError(f"--variant {variant} found nothing to replace in {type(function).__name__}: {why}")
    if variant == "foretrace":
        notes.append(
            "the dispatcher's choice is not asked: gate and up products are taken to be one fused kernel wherever that "
            "can run, and where the tuned tables know better, another one runs"
        )
    return result


class _FusedMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` by the kernels of a variant."""

    def __init__(self, parts: GatedParts, variant: str, gpu: Gpu | None) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = parts.gate, parts.up, parts.down
        self._activation = parts.activation
        self._variant = variant
        self._capability = "9.0" if gpu is None else gpu.compute_capability

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [..., K], result [..., out]."""
        gate, up, down = self.gate_proj, self.up_proj, self.down_proj
        known = element_type(str(as_autocast("linear", x)[0].dtype))
        if self._variant == "liger":
            hidden = LigerGELUMulFunction.apply(gate(x), up(x), self._activation)  # type: ignore[no-untyped-call]
        elif known is not None and fuses(known.name, self._capability):
            return self._fused(x)
        else:
            hidden = GatedActFunction.apply(gate(x), up(x), self._activation)  # type: ignore[no-untyped-call]
        projected: Tensor = down(hidden)
        return projected

    def _fused(self, x: Tensor) -> Tensor:
        gate, up, down = self.gate_proj, self.up_proj, self.down_proj
        tensors = (x, gate.weight, up.weight, down.weight, gate.bias, up.bias, down.bias)
        flat, *weights = as_autocast("linear", *tensors)
        flat = flat.reshape(-1, flat.shape[-1])
        if torch.is_grad_enabled() and any(item is not None and item.requires_grad for item in (flat, *weights)):
            result = GatedMLPFunction.apply(self._activation, flat, *weights)  # type: ignore[no-untyped-call]
        else:
            result, _, _ = _forward(self._activation, False, flat, *weights)
        projected: Tensor = result.reshape(*x.shape[:-1], result.shape[-1])
        return projected


def _forward(
    activation: str, keep: bool, x: Tensor, gate: Tensor, up: Tensor, down: Tensor, gb: Any, ub: Any, db: Any
) -> tuple[Tensor, Tensor, Tensor]:
    hidden, preact = _operators.gate_up(x, gate, up, gb, ub, activation, keep)
    result = torch.mm(hidden, down.t()) if db is None else torch.addmm(db, hidden, down.t())
    return result, hidden, preact


class GatedMLPFunction(torch.autograd.Function):
    """The whole MLP; pre-activations and hidden are kept, as the fused modules do by default."""

    @staticmethod
    def forward(context: Any, activation: str, x: Tensor, *weights: Any) -> Tensor:
        result, hidden, preact = _forward(activation, True, x, *weights)
        context.save_for_backward(x, *weights[:3], hidden, preact)
        context.activation = activation
        context.biases = [item is not None for item in weights[3:]]
        return result

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        x, gate, up, down, hidden, preact = context.saved_tensors
        _, wants_x, *_ = context.needs_input_grad
        grad = gradients[0].contiguous()
        of_down = torch.mm(grad.t(), hidden)
        of_preact, of_bias = _operators.gate_up_backward(grad, down, preact, context.activation, any(context.biases))
        half = gate.shape[0]
        of_x = None
        if wants_x:
            of_x = torch.mm(of_preact[:, :half], gate).addmm_(of_preact[:, half:], up)
        of_both = torch.mm(of_preact.t(), x)
        has_gate, has_up, has_down = context.biases
        of_biases = (
            of_bias[:half].to(x.dtype) if has_gate else None,
            of_bias[half:].to(x.dtype) if has_up else None,
            grad.sum(0) if has_down else None,
        )
        return None, of_x, of_both[:half], of_both[half:], of_down, *of_biases


class GatedActFunction(torch.autograd.Function):
    """The activation and the product by foretrace's elementwise kernel."""

    @staticmethod
    def forward(context: Any, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        context.save_for_backward(gate, up)
        context.activation = activation
        hidden: Tensor = _operators.gated_act(gate, up, activation)
        return hidden

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        gate, up = context.saved_tensors
        return (*_operators.gated_act_backward(gradients[0].contiguous(), gate, up, context.activation), None)


class LigerGELUMulFunction(torch.autograd.Function):
    """The same by Liger's; both of its functions have this row's cost, whatever their name."""

    @staticmethod
    def forward(context: Any, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        context.save_for_backward(gate, up)
        context.activation = activation
        hidden: Tensor = _operators.liger_act(gate, up, activation)
        return hidden

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        gate, up = context.saved_tensors
        return (*_operators.liger_act_backward(gradients[0].contiguous(), gate, up, context.activation), None)
