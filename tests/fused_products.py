"""What the tests of products with activations share: data, float64 references, and canaries around results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn import functional

ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "silu": functional.silu,
    "relu": functional.relu,
    "relu2": lambda z: functional.relu(z).square(),
    "sigmoid": torch.sigmoid,
    "none": lambda z: z,
}
CANARY = 777.0
# Elements of CANARY before and after each tensor a function allocates: 16-byte aligned, more than a tile's row.
MARGIN = 1024


def data(rows: int, columns: int, dtype: torch.dtype, seed: int, device: str = "cpu") -> torch.Tensor:
    """Normal numbers, small enough that a product of them with data of this kind is of order 1."""
    generator = torch.Generator().manual_seed(1000 * seed + 31 * rows + columns)
    return (torch.randn(rows, columns, generator=generator) * columns**-0.25).to(dtype).to(device)


def pair(features: int, inner: int, dtype: torch.dtype, packing: str, device: str = "cpu") -> list[torch.Tensor]:
    """Gate and up weights [N, K] in one of the packings; ``swapped``: separate, up at the lower address."""
    gate, up = data(features, inner, dtype, 1, device), data(features, inner, dtype, 2, device)
    if packing in ("separate", "swapped"):
        first, second = sorted((gate, up), key=torch.Tensor.data_ptr)
        return [first, second] if packing == "separate" else [second, first]
    if packing == "gate_up":
        stacked = torch.cat([gate, up])
        return [stacked[:features], stacked[features:]]
    if packing == "up_gate":
        stacked = torch.cat([up, gate])
        return [stacked[features:], stacked[:features]]
    stacked = torch.stack([gate, up], 1).flatten(0, 1)
    return [stacked[0::2], stacked[1::2]]


def preactivation(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """x·weightᵀ + bias in float64."""
    product = x.double() @ weight.double().T
    return product if bias is None else product + bias.double()


def close(result: torch.Tensor | None, expected: torch.Tensor, lost: float = 2e-5) -> None:
    """Equal up to one rounding to the result's dtype, and to what float32 sums lose: ``lost``, absolute."""
    assert result is not None
    rounding = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-20}[result.dtype]
    torch.testing.assert_close(result.double(), expected, rtol=1.02 * rounding, atol=lost)


@contextmanager
def canaries() -> Iterator[None]:
    """Surround what ``Tensor.new_empty`` makes with canaries; all of them must be alive at the end."""
    made: list[tuple[torch.Tensor, int]] = []
    original = torch.Tensor.new_empty

    def framed(self: torch.Tensor, *sizes: Any, **options: Any) -> torch.Tensor:
        size = torch.Size(sizes[0] if len(sizes) == 1 and not isinstance(sizes[0], int) else sizes)
        count = size.numel()
        around = original(self, (count + 2 * MARGIN,), **options).fill_(CANARY)
        made.append((around, count))
        return around[MARGIN : MARGIN + count].view(size)

    torch.Tensor.new_empty = framed  # type: ignore[method-assign]
    try:
        yield
    finally:
        torch.Tensor.new_empty = original  # type: ignore[method-assign]
    assert made
    for around, count in made:
        assert bool((around[:MARGIN] == CANARY).all())
        assert bool((around[MARGIN + count :] == CANARY).all())


def no_worse_than(eager: torch.Tensor, result: torch.Tensor, expected: torch.Tensor) -> None:
    """The error against float64 is at most eager PyTorch's, by norm, give or take 2 %."""
    ours, theirs = ((one.double() - expected).norm() / expected.norm() for one in (result, eager))
    assert ours <= 1.02 * theirs, f"relative error {ours:.2e}, eager {theirs:.2e}"
