"""One thing to measure: an operation at a shape, forward or with its backward."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Case", "Mode", "Operation"]

Operation = Literal["gated_mlp", "linear_act"]
Mode = Literal["forward", "train"]


@dataclass(frozen=True, slots=True)
class Case:
    """``m`` rows, ``k`` input features, ``n`` intermediate features (of ``linear_act``: output features).

    ``gated_mlp`` is down(act(gate(x)) * up(x)) from k to n and back to k; ``linear_act`` is act(x Wᵀ + b).
    ``train``: forward, then the gradients of x and of every weight and bias.
    """

    operation: Operation
    m: int
    k: int
    n: int
    activation: str = "gelu_tanh"
    mode: Mode = "forward"
    dtype: str = "bf16"
    bias: bool = False

    @property
    def name(self) -> str:
        """Short enough for the head of a table."""
        bias = " with bias" if self.bias else ""
        return f"{self.operation} {self.activation}{bias} ({self.m}, {self.k}, {self.n}) {self.dtype} {self.mode}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the matrix products, two for each multiply-add; backward has twice forward's."""
        products = 3 if self.operation == "gated_mlp" else 1
        return 2 * products * self.m * self.k * self.n * (3 if self.mode == "train" else 1)

    @property
    def weight_elements(self) -> int:
        """Numbers in all weight matrices."""
        return (3 if self.operation == "gated_mlp" else 1) * self.k * self.n

    def as_dict(self) -> dict[str, Any]:
        """For the result file."""
        return asdict(self)
