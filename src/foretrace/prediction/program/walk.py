"""All tensors of a nested value: what a program takes and returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["tensors_of"]


def tensors_of(value: Any, *, modules: bool = False) -> Iterator[Any]:
    """The tensors in nested tuples, lists, dicts and dataclass-like outputs, in order.

    ``modules``: those of modules too, parameters before buffers.
    """
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif modules and isinstance(value, torch.nn.Module):
        yield from value.parameters()
        yield from value.buffers()
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_of(item, modules=modules)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_of(item, modules=modules)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_of(getattr(value, name), modules=modules)
