"""Everyone else: eager, torch.compile, Liger, QuACK, cuBLASLt's epilogue, and the bare matrix products as a floor.

Liger and QuACK take part where they can be imported.
Each is built the way its own documentation says; weights are shared, or repacked once beforehand where it needs that.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fused_bench.case import Case
from fused_bench.entrants import Built, Entrant, UnavailableError, own_leaves
from fused_bench.operands import Operands, composed

__all__ = ["OPPONENTS", "unstacked"]

_LIGER_MODULES = {
    "liger": {
        "gelu_tanh": ("liger_kernel.transformers.geglu", "LigerGEGLUMLP", "gelu_pytorch_tanh"),
        "silu": ("liger_kernel.transformers.swiglu", "LigerSwiGLUMLP", "silu"),
    },
    "liger-fused": {"silu": ("liger_kernel.transformers.mlp", "LigerMLP", "silu")},
}
_QUACK_GATED = {"gelu_tanh": "geglu", "silu": "swiglu", "relu": "reglu", "sigmoid": "glu"}
_QUACK_PLAIN = {"gelu_tanh": "gelu_tanh_approx", "silu": "silu", "relu": "relu", "relu2": "relu_sq"}


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:  # an opponent broken at import is as absent as one not installed
        raise UnavailableError(f"{name} cannot be imported: {error}") from error


def _eager(case: Case, operands: Operands) -> Built:
    leaves = own_leaves(case, operands.weights)
    return Built(lambda x: composed(case, x, leaves), leaves)


def _compiled(**options: Any) -> Callable[[Case, Operands], Built]:
    def build(case: Case, operands: Operands) -> Built:
        leaves = own_leaves(case, operands.weights)
        names, tensors = tuple(leaves), tuple(leaves.values())

        def function(x: Tensor, *weights: Tensor) -> Tensor:
            return composed(case, x, dict(zip(names, weights, strict=True)))

        compiled: Any = torch.compile(function, dynamic=False, fullgraph=True, options=options or None)
        return Built(lambda x: compiled(x, *tensors), leaves)

    return build


def _max_autotune(persistent_tma: bool) -> Callable[[Case, Operands], Built]:
    def build(case: Case, operands: Operands) -> Built:
        from torch._inductor import list_mode_options

        options = dict(list_mode_options("max-autotune-no-cudagraphs"))
        if persistent_tma:
            if operands.x.device.type != "cuda":
                raise UnavailableError("the persistent TMA template is for CUDA")
            options["triton.enable_persistent_tma_matmul"] = True  # what ENABLE_PERSISTENT_TMA_MATMUL=1 sets
        return _compiled(**options)(case, operands)

    return build


def _liger(which: str) -> Callable[[Case, Operands], Built]:
    def build(case: Case, operands: Operands) -> Built:
        _needs_gpu(operands, "Liger")
        if case.operation != "gated_mlp":
            raise UnavailableError("Liger has gated MLPs only")
        known = _LIGER_MODULES[which]
        if case.activation not in known:
            raise UnavailableError(f"Liger has no {case.activation} in this module")
        path, name, activation = known[case.activation]
        config = SimpleNamespace(hidden_size=case.k, intermediate_size=case.n, hidden_act=activation)
        with torch.device("meta"):
            module = getattr(_import(path), name)(config)
        leaves = own_leaves(case, operands.weights)
        # Parameters proper, as a user's model has them; assignment keeps the storage.
        for weight in leaves:
            parameter = nn.Parameter(operands.weights[weight], requires_grad=case.mode == "train")
            getattr(module, f"{weight}_proj").weight = parameter
            leaves[weight] = parameter
        if which == "liger-fused":  # takes [batch, sequence, hidden] only
            return Built(lambda x: module(x.unsqueeze(0)).squeeze(0), leaves)
        return Built(module, leaves)

    return build


def _quack(tuned: bool) -> Callable[[Case, Operands], Built]:
    def build(case: Case, operands: Operands) -> Built:
        _needs_gpu(operands, "QuACK")
        if case.operation == "linear_act":
            return _quack_linear(case, operands, tuned)
        if case.activation not in _QUACK_GATED:
            raise UnavailableError(f"QuACK has no gated {case.activation}")
        mlp = _import("quack.mlp").mlp_func
        stacked = torch.cat([operands.weights["gate"], operands.weights["up"]])
        leaves = own_leaves(case, {"stacked": stacked, "down": operands.weights["down"]})
        name = _QUACK_GATED[case.activation]

        def forward(x: Tensor) -> Tensor:
            out: Tensor = mlp(x, leaves["stacked"], leaves["down"], activation=name, concat_layout=True, tuned=tuned)
            return out

        return Built(forward, leaves, lambda: unstacked(case, leaves))

    return build


def _quack_linear(case: Case, operands: Operands, tuned: bool) -> Built:
    if case.activation not in _QUACK_PLAIN:
        raise UnavailableError(f"QuACK has no linear + {case.activation}")
    if case.mode == "train":
        raise UnavailableError("QuACK's linear + activation has no gradient of its own; it needs the next linear layer")
    gemm_act = _import("quack.gemm_interface").gemm_act
    weight, bias = operands.weights["weight"], operands.weights.get("bias")
    name = _QUACK_PLAIN[case.activation]

    def forward(x: Tensor) -> Tensor:
        out: Tensor = gemm_act(x, weight.t(), bias=bias, activation=name, store_preact=False, tuned=tuned)[1]
        return out

    return Built(forward, {})


def _addmm_activation(case: Case, operands: Operands) -> Built:
    _needs_gpu(operands, "cuBLASLt")
    if case.operation != "linear_act" or case.activation != "gelu_tanh" or not case.bias:
        raise UnavailableError("cuBLASLt's epilogue is linear + bias + tanh GELU only")
    if case.mode == "train":
        raise UnavailableError("_addmm_activation has no backward")
    weight, bias = operands.weights["weight"], operands.weights["bias"]
    return Built(lambda x: torch._addmm_activation(bias, x, weight.t(), use_gelu=True), {})


def _bare_products(case: Case, operands: Operands) -> Built:
    """The matrix products alone, with the stacked gate/up weight; nothing else is read, written or computed."""
    if case.operation == "linear_act":
        return _bare_linear(case, operands)
    weights, x, grad_out = operands.weights, operands.x, operands.grad_out
    stacked, down = torch.cat([weights["gate"], weights["up"]]), weights["down"]
    hidden = torch.randn(case.m, case.n, device=x.device, dtype=x.dtype)
    preact = torch.empty(case.m, 2 * case.n, device=x.device, dtype=x.dtype)
    y = torch.empty_like(x)
    grad_stacked, grad_down = torch.empty_like(stacked), torch.empty_like(down)
    grad_hidden, grad_x = torch.empty_like(hidden), torch.empty_like(x)

    def step() -> Tensor:
        torch.mm(x, stacked.t(), out=preact)
        torch.mm(hidden, down.t(), out=y)
        if case.mode == "train":
            torch.mm(grad_out, down, out=grad_hidden)
            torch.mm(grad_out.t(), hidden, out=grad_down)
            torch.mm(preact, stacked, out=grad_x)
            torch.mm(preact.t(), x, out=grad_stacked)
        return y

    return Built(lambda _: step(), {}, floor_step=step)


def _bare_linear(case: Case, operands: Operands) -> Built:
    x, weight, grad_out = operands.x, operands.weights["weight"], operands.grad_out
    y, grad_x, grad_weight = torch.empty_like(grad_out), torch.empty_like(x), torch.empty_like(weight)

    def step() -> Tensor:
        torch.mm(x, weight.t(), out=y)
        if case.mode == "train":
            torch.mm(grad_out, weight, out=grad_x)
            torch.mm(grad_out.t(), x, out=grad_weight)
        return y

    return Built(lambda _: step(), {}, floor_step=step)


def unstacked(case: Case, leaves: dict[str, Tensor]) -> dict[str, Tensor]:
    """The gradients of gate, up and down where gate and up are one [2n, k] leaf."""
    stacked, down = leaves["stacked"].grad, leaves["down"].grad
    if stacked is None or down is None:
        return {}
    return {"gate": stacked[: case.n], "up": stacked[case.n :], "down": down}


def _needs_gpu(operands: Operands, what: str) -> None:
    if operands.x.device.type != "cuda":
        raise UnavailableError(f"{what} needs a GPU")


OPPONENTS: dict[str, Entrant] = {
    entrant.name: entrant
    for entrant in (
        Entrant("eager", "baseline", _eager),
        Entrant("compile", "opponent", _compiled(), compiles=True),
        Entrant("max-autotune", "opponent", _max_autotune(persistent_tma=False), compiles=True),
        Entrant("max-autotune-tma", "opponent", _max_autotune(persistent_tma=True), compiles=True),
        Entrant("liger", "opponent", _liger("liger")),
        Entrant("liger-fused", "opponent", _liger("liger-fused")),
        Entrant("quack", "opponent", _quack(tuned=True)),
        Entrant("quack-untuned", "opponent", _quack(tuned=False)),
        Entrant("addmm_activation", "opponent", _addmm_activation),
        Entrant("cublas", "floor", _bare_products),
    )
}
