"""One operator call as a trace describes it, and the result type of the cost formulas."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec

from foretrace.knowledge.dtypes import Dtype, dtype, from_code, is_tensor_list

__all__ = ["Call", "Cost", "GemmShape", "Operand", "Unknown", "numel"]


class GemmShape(msgspec.Struct, frozen=True):
    """One matrix product: ``batch`` times ``[m, k] @ [k, n]`` in torch's row-major order.

    ``layout`` is spelled as in cuBLAS kernel names: column-major, so the first letter belongs to torch's
    *second* operand and the second letter to its first; ``N`` means that operand is row-major in torch,
    ``T`` that it is a transposed view. ``nn.Linear`` (``x @ w.T``) is ``TN``. ``None`` where the trace has no
    strides. ``bias``: whether a bias is added in the same operator.
    """

    m: int
    n: int
    k: int
    batch: int = 1
    dtype: str | None = None
    layout: str | None = None
    bias: bool = False

    @property
    def flops(self) -> int:
        """Floating-point operations: a multiply and an add for every (m, n, k)."""
        return 2 * self.batch * self.m * self.n * self.k


class Cost(msgspec.Struct, frozen=True):
    """What an operator has to do at least.

    ``flops``: operations of its matrix products; ``None`` for operators without one (pointwise work is not
    counted) and where shapes are unknown. ``bytes``: least logical traffic, every operand read once and
    every result written once. ``reason``: why something is ``None``. ``note``: how a figure is to be read
    (causal attention counted in full, a fused kernel's operand inferred).
    """

    flops: int | None = None
    bytes: int | None = None
    gemms: list[GemmShape] = []
    reason: str | None = None
    note: str | None = None


class Unknown(Exception):  # noqa: N818 - not an error: a formula saying that the row does not hold enough
    """Raised by a formula when the row does not say enough; its text becomes the ``reason``."""


class Operand:
    """One tensor argument: ``shape``, ``dtype``, ``strides`` (elements, ``None`` if not recorded)."""

    __slots__ = ("dtype", "numel", "shape", "strides")

    def __init__(self, shape: list[int], dtype: Dtype, strides: list[int] | None) -> None:
        self.shape: list[int] = shape
        self.dtype = dtype
        self.strides = strides
        self.numel = prod(shape)

    @property
    def elements(self) -> int:
        """Distinct elements in memory; an expanded (stride 0) or overlapping view holds fewer."""
        strides = self.strides
        if strides is None or not self.numel:
            return self.numel
        distinct = extent = 1
        for size, stride in zip(self.shape, strides, strict=True):
            if stride:
                distinct *= size
                extent += (size - 1) * abs(stride)
        return min(distinct, extent)

    @property
    def bytes(self) -> int:
        """Bytes of the distinct elements."""
        return self.elements * self.dtype.itemsize

    @property
    def result_bytes(self) -> int:
        """Bytes of a fresh dense tensor of this shape and type."""
        return self.numel * self.dtype.itemsize


def numel(shape: Sequence[int]) -> int:
    """Elements of a tensor of this shape."""
    return prod(shape)


def _sizes(value: Any) -> list[int] | None:
    """A list of non-negative ints, or ``None`` when it is anything else (a tensor list, garbage)."""
    if not isinstance(value, list | tuple):
        return None
    for size in value:
        if type(size) is not int or size < 0:
            return None
    return value if isinstance(value, list) else list(value)


def _valid_strides(value: Any, dims: int) -> list[int] | None:
    if not isinstance(value, list | tuple) or len(value) != dims:
        return None
    for stride in value:
        if type(stride) is not int:
            return None
    return value if isinstance(value, list) else list(value)


class Call:
    """The arguments of one operator row; every accessor answers ``None`` rather than guess."""

    __slots__ = (
        "base",
        "concrete",
        "dtypes",
        "inplace",
        "list_itemsize",
        "name",
        "outputs",
        "shapes",
        "strides",
    )

    def __init__(
        self,
        op: str,
        shapes: Sequence[Any],
        dtypes: Sequence[str],
        strides: Sequence[Any] | None,
        concrete: Sequence[str] | None,
        outputs: Sequence[Any] | None = None,
        list_itemsize: int | None = None,
    ) -> None:
        self.name = op
        bare = op.removeprefix("aten::")
        bare = bare.split(".", 1)[0]  # an overload name, where a tool writes one
        self.inplace = bare.endswith("_") and not bare.endswith("__")
        self.base = bare[:-1] if self.inplace else bare
        self.shapes = shapes
        self.dtypes = dtypes
        self.strides = strides
        self.concrete = concrete
        self.outputs = outputs
        self.list_itemsize = list_itemsize

    def __len__(self) -> int:
        return min(len(self.shapes), len(self.dtypes))

    def tensor(self, index: int) -> Operand | None:
        """The tensor at an argument position; ``None`` if there is none (a scalar, absent, unreadable)."""
        if index >= len(self.dtypes) or index >= len(self.shapes):
            return None
        kind = dtype(self.dtypes[index])
        if kind is None:
            return None
        shape = _sizes(self.shapes[index])
        if shape is None:
            return None
        strides = None
        if self.strides is not None and index < len(self.strides):
            strides = _valid_strides(self.strides[index], len(shape))
        return Operand(shape, kind, strides)

    def need(self, index: int, what: str = "operand") -> Operand:
        """The tensor at a position that the formula cannot do without."""
        found = self.tensor(index)
        if found is None:
            raise Unknown(f"the trace does not record the {what} of {self.name} (record_shapes=True records it)")
        return found

    def tensors(self, count: int) -> list[Operand]:
        """The tensors among the first ``count`` arguments."""
        return [t for t in map(self.tensor, range(count)) if t is not None]

    def tensors_at(self, positions: Sequence[int]) -> list[Operand]:
        """The tensors among the arguments at these positions."""
        return [t for t in map(self.tensor, positions) if t is not None]

    def tensor_list(self, index: int) -> list[list[int]]:
        """The shapes of a tensor-list argument; raises `Unknown` where the profiler left them out."""
        shapes = self.shapes[index] if index < len(self.shapes) else None
        kind = self.dtypes[index] if index < len(self.dtypes) else None
        if not is_tensor_list(kind):
            raise Unknown(f"argument {index} of {self.name} is not recorded as a list of tensors")
        if not isinstance(shapes, list | tuple) or not shapes:
            # torch/csrc/profiler: lists of more than 30 tensors are recorded without their members.
            raise Unknown(f"the profiler records no member shapes of a long tensor list ({self.name})")
        members = []
        for shape in shapes:
            sizes = _sizes(shape)
            if sizes is None:
                raise Unknown(f"a member of {self.name}'s tensor list has no readable shape")
            members.append(sizes)
        return members

    def list_bytes_per_element(self) -> int:
        """Bytes an element of tensor-list members; a row does not hold it, the caller may know it."""
        if self.list_itemsize is None:
            raise Unknown(f"the profiler records no element type of tensor lists ({self.name})")
        return self.list_itemsize

    def text(self, index: int) -> str | None:
        """The concrete value of a scalar argument as the trace writes it; ``None`` if empty or unrecorded."""
        if self.concrete is None or index >= len(self.concrete):
            return None
        value = self.concrete[index]
        if not isinstance(value, str):
            return None
        value = value.strip()
        return value or None

    def integer(self, index: int) -> int | None:
        """A scalar argument as int."""
        value = self.text(index)
        if value is None:
            return None
        try:
            return int(value)
        except ValueError:
            try:
                number = float(value)
            except ValueError:
                return None
            return int(number) if number.is_integer() else None

    def number(self, index: int) -> float | None:
        """A scalar argument as float."""
        value = self.text(index)
        try:
            return None if value is None else float(value)
        except ValueError:
            return None

    def boolean(self, index: int) -> bool | None:
        """A scalar argument as bool (``True``/``False``, older traces ``1``/``0``)."""
        return {"True": True, "true": True, "1": True, "False": False, "false": False, "0": False}.get(
            self.text(index) or ""
        )

    def integers(self, index: int) -> list[int] | None:
        """A list argument, ``[1, 2]``, as ints."""
        value = self.text(index)
        if value is None or not value.startswith("[") or not value.endswith("]"):
            return None
        inner = value[1:-1].strip()
        if not inner:
            return []
        try:
            return [int(part) for part in inner.split(",")]
        except ValueError:
            return None

    def booleans(self, index: int) -> list[bool] | None:
        """A mask argument, ``[True, False]``, as bools."""
        value = self.text(index)
        if value is None or not value.startswith("["):
            return None
        parts = [part.strip().lower() for part in value.strip("[]").split(",") if part.strip()]
        table = {"true": True, "1": True, "false": False, "0": False}
        if any(part not in table for part in parts):
            return None
        return [table[part] for part in parts]

    def dtype_at(self, index: int) -> Dtype | None:
        """A ``dtype=`` argument, which traces hold as its enumerator's number."""
        value = self.text(index)
        return None if value is None else from_code(value)

    def output(self, index: int = 0) -> list[int] | None:
        """The shape of a result where the caller knows it."""
        if self.outputs is None or index >= len(self.outputs):
            return None
        return _sizes(self.outputs[index])
