"""Ways to compute the fused layers, by implementation and device, and what to compare them with: eager and float64."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor
from torch.nn.functional import linear

from fused_products import ACTIVATIONS

SAVES: Final = ("preact", "recompute", "input")
PACKINGS: Final = ("separate", "gate_up", "up_gate", "interleaved")
# Implementations that read and write through TMA: sizes of whole 16 bytes.
BY_TMA: Final = ("tma", "hopper")
OPERATIONS: Final = ("gated_mlp", "mlp", "linear_act", "gated_act")


@dataclass(frozen=True)
class Way:
    """An implementation of the product with the activation, by name, or ``auto``; where, and in which dtype."""

    name: str
    device: str
    dtype: torch.dtype

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Rows, K, N, out: no multiple of a tile, and odd where the implementation takes that."""
        rows = 5 if self.name == "small" else 37
        return (rows, 40, 72, 24) if self.name in BY_TMA else (rows, 23, 37, 19)

    @property
    def slow(self) -> bool:
        """In Triton's interpreter."""
        return self.device == "cpu" and self.name not in ("auto", "plain")

    def serves(self, operation: str) -> bool:
        return operation != "gated_act" or self.name in ("auto", "plain", "elementwise")

    @contextlib.contextmanager
    def asked(self, operation: str) -> Iterator[dict[str, Any]]:
        """The words of a call by this way, and the block it must be in."""
        if self.name == "auto":
            yield {}
            return
        from foretrace.fused.dispatch.overrides import override
        from foretrace.fused.plan import Implementation, Plan

        own_backward = self.name != "small" and not (operation == "linear_act" and self.name in (*BY_TMA, "portable"))
        backward = self.name if own_backward else "elementwise"
        project = "small" if self.name == "small" else "plain"
        if self.device == "cpu":  # where no kernel may be asked for by name
            steps = (Implementation(name) for name in (self.name, project, backward))
            yield {"plan": Plan(*steps, "preact", "override", "a test asks for it")}
        else:
            with override(expand=self.name, project=project, backward=backward):
                yield {}

    def run(self, operation: str, tensors: Sequence[Tensor | None], **words: Any) -> Tensor:
        from foretrace.fused import functional

        with self.asked(operation) as more:
            y: Tensor = getattr(functional, operation)(*tensors, **words, **more)
        return y

    def tensors(
        self, operation: str, sizes: tuple[int, int, int, int] | None = None, packing: str = "separate"
    ) -> list[Tensor | None]:
        """Operands in the order of `foretrace.fused.functional`, with every bias; all of them leaves."""
        rows, k, n, out = sizes or self.sizes
        wide, two = (n, True) if packing == "separate" else (2 * n, False)
        half = (n, k) if two else None
        shapes: dict[str, list[tuple[int, ...] | None]] = {
            "gated_mlp": [(rows, k), (wide, k), half, (out, n), (wide,), (n,) if two else None, (out,)],
            "mlp": [(rows, k), (n, k), (out, n), (n,), (out,)],
            "linear_act": [(rows, k), (n, k), (n,)],
            "gated_act": [(rows, n), (rows, n)],
        }
        return [
            None if shape is None else self.normal(*shape, seed=seed) for seed, shape in enumerate(shapes[operation])
        ]

    def normal(self, *shape: int, seed: int = 0, grad: bool = True) -> Tensor:
        """Numbers of order 1; of a matrix after the first, such that products are of order 1 as well."""
        generator = torch.Generator().manual_seed(1000 * seed + sum(shape))
        values = torch.randn(shape, generator=generator) * (shape[-1] ** -0.5 if seed and len(shape) > 1 else 1.0)
        return values.to(self.device, self.dtype).requires_grad_(grad)


def halves(stacked: Tensor | None, second: Tensor | None, packing: str) -> tuple[Tensor | None, Tensor | None]:
    """Gate and up of weights or biases."""
    if packing == "separate" or stacked is None:
        return stacked, second
    if packing == "interleaved":
        return stacked[0::2], stacked[1::2]
    first, last = stacked.chunk(2)
    return (first, last) if packing == "gate_up" else (last, first)


def eager(operation: str, tensors: Sequence[Any], activation: str = "gelu_tanh", packing: str = "separate") -> Tensor:
    """The layer in PyTorch's own operators, from its definition."""
    act = ACTIVATIONS[activation]
    if operation == "gated_act":
        return act(tensors[0]) * tensors[1]
    if operation == "linear_act":
        return act(linear(*tensors))
    if operation == "mlp":
        x, weight1, weight2, bias1, bias2 = tensors
        return linear(act(linear(x, weight1, bias1)), weight2, bias2)
    x, gate, up, down, gate_bias, up_bias, down_bias = tensors
    gate, up = halves(gate, up, packing)
    gate_bias, up_bias = halves(gate_bias, up_bias, packing)
    return linear(act(linear(x, gate, gate_bias)) * linear(x, up, up_bias), down, down_bias)


def copies(tensors: Sequence[Tensor | None], dtype: torch.dtype | None = None) -> list[Tensor | None]:
    """Leaves of the same values that want the same gradients."""
    return [
        one if one is None else one.detach().clone().to(dtype or one.dtype).requires_grad_(one.requires_grad)
        for one in tensors
    ]


def gradients(y: Tensor, tensors: Sequence[Tensor | None], grad: Tensor, **words: Any) -> list[Tensor]:
    """Of those that want one."""
    leaves = [one for one in tensors if one is not None and one.requires_grad]
    return list(torch.autograd.grad(y, leaves, grad, **words))


def assert_no_worse(found: Sequence[Tensor], theirs: Sequence[Tensor], exact: Sequence[Tensor]) -> None:
    """As near to float64 as eager PyTorch, but for the chance of few numbers and the order of sums."""
    for number, (one, other, right) in enumerate(zip(found, theirs, exact, strict=True)):
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        if not right.numel():
            continue
        scale = right.norm() + 1e-30
        mistake, allowed = (float((each.double() - right).norm() / scale) for each in (one, other))
        bound = (1.5 + 4 / right.numel() ** 0.5) * allowed + (8 if one.dtype == torch.float32 else 1) * torch.finfo(
            one.dtype
        ).eps
        assert mistake <= bound, f"result {number}: error {mistake:.2g}, eager's {allowed:.2g}"


def assert_right(
    way: Way,
    operation: str,
    tensors: Sequence[Tensor | None],
    view: Callable[[Tensor], Tensor] = lambda x: x,
    reduce: Callable[[Tensor], Tensor] | None = None,
    activation: str = "gelu_tanh",
    packing: str = "separate",
    **words: Any,
) -> None:
    """The output and every gradient are as good as eager's.

    ``view``: of the first tensor, what the layer gets. ``reduce``: a loss; else the gradient that comes in is random.
    """

    def all_of(layer: Callable[[list[Any]], Tensor], leaves: Sequence[Tensor | None]) -> list[Tensor]:
        first = leaves[0]
        assert first is not None
        y = layer([view(first), *leaves[1:]])
        loss = y if reduce is None else reduce(y)
        grad = way.normal(*y.shape, seed=9, grad=False) if reduce is None else torch.ones_like(loss)
        return [y.detach(), *gradients(loss, leaves, grad.to(loss.dtype))]

    def ours(given: list[Any]) -> Tensor:
        extra = words if operation == "gated_act" or way.name == "auto" else {"save": "preact", **words}
        extra = {**extra, "packing": packing} if operation == "gated_mlp" else extra
        return way.run(operation, given, activation=activation, **extra)

    def right(given: list[Any]) -> Tensor:
        return eager(operation, given, activation, packing)

    found = all_of(ours, tensors)
    assert_no_worse(found, all_of(right, copies(tensors)), all_of(right, copies(tensors, torch.float64)))


def ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """One unit in the last place of a dtype at float64 values."""
    info = torch.finfo(dtype)
    return torch.exp2(torch.floor(torch.log2(values.abs().clamp(min=info.tiny)))) * info.eps
