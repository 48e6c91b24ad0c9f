"""Operator calls as they were seen: every tensor as a record, storages numbered."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from foretrace.knowledge.dtypes import itemsize
from foretrace.prediction.work import Access, Tensor

__all__ = [
    "Call",
    "Operand",
    "contiguous_strides",
    "elements",
    "held_bytes",
    "is_dense",
    "merged",
    "tensors_in",
    "touched",
]


@dataclass(frozen=True, slots=True)
class Operand:
    """One tensor of a call. ``on_gpu``: it would live on the GPU; tensors of the CPU stay where they are.

    ``place`` tells views of one storage apart, ``room`` is the storage's size in bytes, where it is known.
    """

    tensor: Tensor
    on_gpu: bool = True
    place: object = None
    room: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        return self.tensor.shape

    @property
    def strides(self) -> tuple[int, ...]:
        """Its strides, elements."""
        return self.tensor.strides

    @property
    def dtype(self) -> str:
        """Its element type."""
        return self.tensor.dtype

    @property
    def elements(self) -> int:
        """Elements as its shape says."""
        return prod(self.tensor.shape)

    @property
    def access(self) -> Access:
        """The bytes it holds, on its storage."""
        return Access(self.tensor.storage, held_bytes(self.tensor))


@dataclass(slots=True)
class Call:
    """One operator call below autograd.

    ``op`` as traces name it (``aten::mm``); ``args`` and ``keywords`` with every tensor replaced by its `Operand`;
    ``written``: the operands it changes in place; ``pointwise``: torch tags it as such.
    """

    op: str
    args: tuple[Any, ...]
    keywords: Mapping[str, Any]
    outputs: tuple[Operand, ...]
    written: tuple[Operand, ...] = ()
    pointwise: bool = False
    view: bool = False  # all it returns aliases what it was given, and nothing was written
    module: str | None = None
    node: str | None = None  # the autograd node that runs it
    names: Mapping[str, int] = field(default_factory=dict)  # argument name → position in the schema

    @property
    def base(self) -> str:
        """The operator without namespace, overload and the underscore of in-place forms."""
        bare = self.op.rsplit("::", 1)[-1]
        return bare[:-1] if bare.endswith("_") and not bare.endswith("__") else bare

    def operands(self) -> list[Operand]:
        """All tensors it was given, in order, those in lists included; on the GPU only."""
        return [item for item in tensors_in((self.args, dict(self.keywords))) if item.on_gpu]

    def argument(self, name: str, default: Any = None) -> Any:
        """An argument by its name in the operator's schema."""
        if name in self.keywords:
            return self.keywords[name]
        position = self.names.get(name)
        return self.args[position] if position is not None and position < len(self.args) else default


def tensors_in(value: Any) -> Iterator[Operand]:
    """All operands in nested tuples, lists and dicts."""
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from tensors_in(item)


def is_dense(item: Operand) -> bool:
    """Whether the elements fill their memory without gaps, in whatever order of the axes."""
    expected = 1
    for stride, size in sorted(zip(item.strides, item.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def contiguous_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a tensor of this shape whose rows lie one behind the other."""
    strides = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def elements(tensor: Tensor) -> int:
    """Distinct elements in memory; an expanded (stride 0) or overlapping view holds fewer than its shape says."""
    total = prod(tensor.shape)
    if not total:
        return 0
    distinct = extent = 1
    for size, stride in zip(tensor.shape, tensor.strides, strict=True):
        if stride:
            distinct *= size
            extent += (size - 1) * abs(stride)
    return min(distinct, extent)


def held_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor's distinct elements."""
    width = itemsize(tensor.dtype)
    return elements(tensor) * (width or 1)


def touched(operands: Iterable[Operand]) -> tuple[Access, ...]:
    """What one kernel touches of its operands, one entry a storage: different views add up, at most to the whole."""
    views: dict[int, dict[object, int]] = {}
    rooms: dict[int, int | None] = {}
    for item in operands:
        size = held_bytes(item.tensor)
        if size:
            storage = item.tensor.storage
            views.setdefault(storage, {})[item.place, item.shape, item.strides] = size
            rooms[storage] = item.room
    sums = {storage: sum(sizes.values()) for storage, sizes in views.items()}
    return tuple(Access(storage, min(size, rooms[storage] or size)) for storage, size in sums.items())


def merged(accesses: Iterable[Access]) -> tuple[Access, ...]:
    """Accesses of one kernel, one a storage; of two views of a storage the larger counts."""
    found: dict[int, int] = {}
    for access in accesses:
        if access.bytes:
            found[access.storage] = max(found.get(access.storage, 0), access.bytes)
    return tuple(Access(storage, size) for storage, size in found.items())
