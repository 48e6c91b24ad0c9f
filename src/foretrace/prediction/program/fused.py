"""The MLPs of a program as fused modules or Liger's run them, on tensors without data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from foretrace.errors import InputError
from foretrace.knowledge.lowering.fused import LIGER_KERNELS
from foretrace.model.words import count
from foretrace.prediction.dispatch import FusedModules, FusedPlan, FusedProblem
from foretrace.prediction.program.autocast import as_autocast
from foretrace.prediction.program.fused_layer import FusedFunction, Recipe, apply_activation
from foretrace.prediction.program.fused_operators import operators
from foretrace.prediction.program.gated import GatedParts, gated_parts

__all__ = ["holds_fused", "with_fused", "with_liger"]

# The layers of `foretrace.fused.modules`, known by name: the predictor imports none of them.
_ROOM = "foretrace.fused."
_OPERATIONS = {"GatedMLP": "gated_mlp", "MLP": "mlp", "LinearAct": "linear_act"}


def _operation(module: nn.Module) -> str | None:
    for kind in type(module).__mro__:
        if kind.__module__.startswith(_ROOM) and kind.__name__ in _OPERATIONS:
            # A subclass with a forward of its own computes something else.
            own = getattr(type(module), "forward", None)
            return _OPERATIONS[kind.__name__] if own is getattr(kind, "forward", None) else None
    return None


def holds_fused(function: Callable[..., Any]) -> bool:
    """Whether a program holds modules of `foretrace.fused`."""
    return isinstance(function, nn.Module) and any(_operation(item) is not None for item in function.modules())


def with_fused(function: Callable[..., Any], fused: FusedModules, notes: list[str]) -> Callable[..., Any]:
    """The program with every module of `foretrace.fused` in it run as dispatch would, sharing all parameters.

    ``notes`` gets what dispatch chose, and what that rests on. Layers that are no plain `nn.Linear` stay as they are,
    as the fused modules leave them.
    """

    def replace(module: nn.Module) -> nn.Module | None:
        operation = _operation(module)
        if operation is None:
            return None
        if operation != "linear_act" and any(type(child) is not nn.Linear for child in module.children()):
            notes.append(
                f"a {type(module).__name__} has layers that are no plain nn.Linear: it is predicted as PyTorch's "
                "operators, with no kernel of foretrace"
            )
            return None
        return _FusedLayer(module, operation, fused, notes)

    return _replaced(function, replace)[0]


def with_liger(function: Callable[..., Any]) -> Callable[..., Any]:
    """The program with every gated MLP replaced by Liger's; raises `InputError` where nothing could be replaced."""
    if not isinstance(function, nn.Module):
        raise InputError("--variant liger replaces modules, and this program is a plain function; use eager")
    refused: list[str] = []

    def replace(module: nn.Module) -> nn.Module | None:
        parts = gated_parts(module)
        if isinstance(parts, GatedParts) and parts.activation in LIGER_KERNELS:
            return _LigerMLP(parts)
        if isinstance(parts, str):
            refused.append(parts)
        elif parts is not None:
            refused.append(f"Liger has no gated MLP with {parts.activation}")
        return None

    result, count = _replaced(function, replace)
    if not count:
        why = refused[0] if refused else "a gated MLP is recognised by its gate_proj, up_proj, down_proj and act_fn"
        raise InputError(f"--variant liger found nothing to replace in {type(function).__name__}: {why}")
    return result


def _replaced(
    function: Callable[..., Any], replace: Callable[[nn.Module], nn.Module | None]
) -> tuple[Callable[..., Any], int]:
    """A copy of a module with what ``replace`` returns in place of its parts, and how many it replaced."""
    assert isinstance(function, nn.Module)
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*function.parameters(), *function.buffers())}
    root = copy.deepcopy(function, shared)
    done: dict[int, nn.Module] = {}

    def visit(module: nn.Module) -> nn.Module:
        made = done.get(id(module)) or replace(module)
        if made is not None:
            done[id(module)] = made
            return made
        for name, child in module.named_children():
            setattr(module, name, visit(child))
        return module

    return visit(root), len(done)


class _FusedLayer(nn.Module):
    """A module of `foretrace.fused`, by the kernels that dispatch chooses for each of its calls."""

    def __init__(self, module: nn.Module, operation: str, fused: FusedModules, notes: list[str]) -> None:
        super().__init__()
        self.kept = module  # its parameters stay where the program finds them
        self.operation = operation
        self.fused = fused
        self.notes = notes
        self.train(module.training)

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [..., K], result [..., out]."""
        flat, *weights = as_autocast("linear", x, *self._weights())
        flat = flat.reshape(-1, flat.shape[-1])
        tensors = [item for item in (flat, *weights) if item is not None]
        training = torch.is_grad_enabled() and any(item.requires_grad for item in tensors)
        plan = self._plan(flat, weights, training)
        recipe = Recipe(self.operation, str(self.kept.activation), self._packing, plan)
        # A module that says what to keep is run by the fused modules' own autograd function, whatever its kernels.
        asked = training and str(self.kept.save) != "auto"
        if plan.is_plain and not asked:
            result = self._plain(recipe, flat, *weights)
        elif training:
            result = FusedFunction.apply(recipe, flat, *weights)  # type: ignore[no-untyped-call]
        else:
            result = recipe.forward(flat, tuple(weights), keep=False)[0]
        shaped: Tensor = result.reshape(*x.shape[:-1], result.shape[-1])
        return shaped

    @property
    def _packing(self) -> str:
        return str(getattr(self.kept, "packing", "separate"))

    def _weights(self) -> tuple[Any, ...]:
        """First (or gate, or stacked), up and second weight, and a bias for each."""
        kept: Any = self.kept
        if self.operation == "linear_act":
            return kept.weight, None, None, kept.bias, None, None
        if self.operation == "mlp":
            return kept.fc1.weight, None, kept.fc2.weight, kept.fc1.bias, None, kept.fc2.bias
        down = kept.down_proj
        if self._packing != "separate":
            return kept.gate_up_proj.weight, None, down.weight, kept.gate_up_proj.bias, None, down.bias
        gate, up = kept.gate_proj, kept.up_proj
        return gate.weight, up.weight, down.weight, gate.bias, up.bias, down.bias

    def _plan(self, x: Tensor, weights: list[Any], training: bool) -> FusedPlan:
        first, up, down, bias, up_bias, _ = weights
        stacked = self.operation == "gated_mlp" and up is None
        rows = [x, *(item for item in (first, up, down) if item is not None)]
        problem = FusedProblem(
            operation=self.operation,
            m=x.shape[0],
            n=first.shape[0] // (2 if stacked else 1),
            k=x.shape[1],
            out=0 if down is None else down.shape[0],
            dtype=str(x.dtype).removeprefix("torch."),
            activation=str(self.kept.activation),
            training=training,
            bias=bias is not None or up_bias is not None,
            packing=self._packing,
            aligned=all(item.shape[1] * item.element_size() % 16 == 0 for item in rows),
            precision=str(self.kept.precision),
        )
        plan = self.fused.plan(problem)
        save = str(self.kept.save)
        if training and save != "auto":
            plan = replace(plan, save=save)
        self._note(problem, plan)
        return plan

    def _note(self, problem: FusedProblem, plan: FusedPlan) -> None:
        steps = [f"expand={plan.expand}"]
        steps += [f"project={plan.project}"] if problem.out else []
        steps += [f"backward={plan.backward}", f"save={plan.save}"] if problem.training else []
        self.notes.append(
            f"dispatch runs {problem.operation} of {count(problem.m, 'row')} as {' '.join(steps)} ({plan.source}); "
            f"{self.fused.assumed}"
        )

    def _plain(
        self, recipe: Recipe, x: Tensor, first: Any, up: Any, down: Any, bias: Any, up_bias: Any, down_bias: Any
    ) -> Tensor:
        """PyTorch's operators and its autograd, as the fused modules run where no kernel of theirs wins."""
        name = str(self.kept.activation)
        linear = nn.functional.linear
        if self.operation != "gated_mlp":
            hidden = apply_activation(name, linear(x, first, bias))
            return hidden if down is None else linear(hidden, down, down_bias)
        if self._packing == "gate_up":  # one product reads x once
            gate, other = linear(x, first, bias).chunk(2, dim=-1)
        else:
            # Autograd brings the gradients of the halves of a stacked weight together by operators of its own.
            (first, up), (bias, up_bias) = recipe.gate_and_up(first, up), recipe.gate_and_up(bias, up_bias)
            gate, other = linear(x, first, bias), linear(x, up, up_bias)
        return linear(apply_activation(name, gate) * other, down, down_bias)


class _LigerMLP(nn.Module):
    """``down(activation(gate(x)) * up(x))`` by Liger's kernel between three products of the library."""

    def __init__(self, parts: GatedParts) -> None:
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = parts.gate, parts.up, parts.down
        self._activation = parts.activation

    def forward(self, x: Tensor) -> Tensor:
        """Shapes: x [..., K], result [..., out]."""
        gate, up = self.gate_proj(x), self.up_proj(x)
        hidden = LigerGELUMulFunction.apply(gate, up, self._activation)  # type: ignore[no-untyped-call]
        projected: Tensor = self.down_proj(hidden)
        return projected


class LigerGELUMulFunction(torch.autograd.Function):
    """The activation and the product; both of Liger's functions have this row's cost, whatever their name."""

    @staticmethod
    def forward(context: Any, gate: Tensor, up: Tensor, activation: str) -> Tensor:
        context.save_for_backward(gate, up)
        context.activation = activation
        hidden: Tensor = operators.liger_act(gate, up, activation)
        return hidden

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        gate, up = context.saved_tensors
        return (*operators.liger_act_backward(gradients[0].contiguous(), gate, up, context.activation), None)
