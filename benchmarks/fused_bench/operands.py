"""Random operands of a case, what eager makes of them, and what float64 does."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from fused_bench.activations import ACTIVATIONS
from fused_bench.case import Case

__all__ = ["DTYPES", "Operands", "composed", "make_operands", "reference"]

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# Rows of one piece of the float64 reference: at 28672 intermediate features its largest tensor is then 1 GB.
_CHUNK_ROWS = 4096


@dataclass(frozen=True)
class Operands:
    """``x`` [m, k]; ``weights`` by name: gate, up [n, k], down [k, n], or weight [n, k]; ``bias`` [n]; ``grad_out``."""

    x: Tensor
    weights: dict[str, Tensor]
    grad_out: Tensor

    @property
    def bytes(self) -> int:
        """What they occupy."""
        tensors = (self.x, self.grad_out, *self.weights.values())
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def make_operands(case: Case, device: str, seed: int = 0) -> Operands:
    """Normally distributed; weights have variance 1 / fan-in. Zeros or ones would draw less power and run faster."""
    generator = torch.Generator(device).manual_seed(seed)
    dtype = DTYPES[case.dtype]

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        values = torch.randn(*shape, generator=generator, device=device, dtype=torch.float32)
        return values.mul_(scale).to(dtype)

    x = normal(case.m, case.k)
    if case.operation == "linear_act":
        weights = {"weight": normal(case.n, case.k, scale=case.k**-0.5)}
        if case.bias:
            weights["bias"] = normal(case.n, scale=case.k**-0.5)
        return Operands(x, weights, normal(case.m, case.n))
    weights = {
        "gate": normal(case.n, case.k, scale=case.k**-0.5),
        "up": normal(case.n, case.k, scale=case.k**-0.5),
        "down": normal(case.k, case.n, scale=case.n**-0.5),
    }
    return Operands(x, weights, normal(case.m, case.k))


def composed(case: Case, x: Tensor, weights: dict[str, Tensor]) -> Tensor:
    """The operation as a model's author writes it."""
    activate = ACTIVATIONS[case.activation]
    if case.operation == "linear_act":
        return activate(functional.linear(x, weights["weight"], weights.get("bias")))
    hidden = activate(functional.linear(x, weights["gate"])) * functional.linear(x, weights["up"])
    return functional.linear(hidden, weights["down"])


def reference(case: Case, operands: Operands) -> dict[str, Tensor]:
    """Output (``y``) and, for training, the gradients (``x`` and each weight's name), computed in float64.

    Rows are taken in pieces, so that the largest shapes fit; weight gradients add up over the pieces.
    """
    train = case.mode == "train"
    weights = {name: weight.double().requires_grad_(train) for name, weight in operands.weights.items()}
    outputs, grads = [], []
    pieces = zip(torch.split(operands.x, _CHUNK_ROWS), torch.split(operands.grad_out, _CHUNK_ROWS), strict=True)
    for piece, grad in pieces:
        x = piece.double().requires_grad_(train)
        with torch.set_grad_enabled(train):
            y = composed(case, x, weights)
        outputs.append(y.detach())
        if train:
            y.backward(grad.double())  # type: ignore[no-untyped-call]
            assert x.grad is not None
            grads.append(x.grad)
    result = {"y": torch.cat(outputs)}
    if train:
        result["x"] = torch.cat(grads)
        for name, weight in weights.items():
            assert weight.grad is not None
            result[name] = weight.grad
    return result
