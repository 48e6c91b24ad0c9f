"""Turns what torch runs into rows as the profiler writes them, with torch's own count beside each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from foretrace.knowledge.costs import Cost, op_cost
from foretrace.knowledge.dtypes import _TABLE

CPP_NAME = {"float32": "float", "float64": "double", "int64": "long int", "int32": "int", "bool": "bool"}
CODE = {getattr(torch, d.torch): d.code for d in _TABLE if hasattr(torch, d.torch)}


class Row:
    """One operator call: its Kineto arguments, what foretrace says, what torch did."""

    def __init__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        self.op = f"aten::{func._schema.name.removeprefix('aten::')}"
        values = list(args)
        for argument in func._schema.arguments[len(args) :]:
            values.append(kwargs.get(argument.name, argument.default_value))
        self.values = values
        self.inputs = [v for v in tree_leaves(values) if isinstance(v, torch.Tensor)]
        self.results = [v for v in tree_leaves(out) if isinstance(v, torch.Tensor)]
        self.arguments = _kineto(values)
        self.cost: Cost = op_cost(self.op, **self.arguments)
        counter = flop_registry.get(func._overloadpacket)
        self.torch_flops = counter(*args, **kwargs, out_val=out) if counter is not None else None

    @property
    def bytes_touched(self) -> int:
        """Distinct elements of every input, and every result: the definition, by brute force."""
        read = sum(_distinct(t) * t.element_size() for t in self.inputs)
        return read + sum(t.numel() * t.element_size() for t in self.results)


def _distinct(tensor: torch.Tensor) -> int:
    index = torch.zeros(1, dtype=torch.long)
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        index = (index[:, None] + torch.arange(size)[None, :] * stride).flatten().unique()
    return int(index.numel()) if tensor.numel() else 0


def _kineto(values: list[Any]) -> dict[str, Any]:
    shapes: list[Any] = []
    dtypes: list[str] = []
    strides: list[Any] = []
    concrete: list[str] = []
    for value in values:
        shape: Any = []
        stride: Any = []
        kind, text = "", ""
        if isinstance(value, torch.Tensor):
            name = str(value.dtype).removeprefix("torch.")
            kind = CPP_NAME.get(name, {"bfloat16": "c10::BFloat16", "float16": "c10::Half"}.get(name, name))
            shape, stride = list(value.shape), list(value.stride())
        elif isinstance(value, list | tuple) and value and isinstance(value[0], torch.Tensor):
            kind = "TensorList"
            shape, stride = [list(t.shape) for t in value], [list(t.stride()) for t in value]
        elif isinstance(value, list | tuple):
            kind, text = "ScalarList", "[" + ", ".join(map(str, value)) + "]"
        elif isinstance(value, torch.dtype):
            kind, text = "Scalar", str(CODE[value])
        elif isinstance(value, bool | int | float):
            kind, text = "Scalar", str(value)
        shapes.append(shape)
        dtypes.append(kind)
        strides.append(stride)
        concrete.append(text)
    return {"shapes": shapes, "dtypes": dtypes, "strides": strides, "concrete": concrete}


class _Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.rows.append(Row(func, args, kwargs or {}, out))
        return out


def record(function: Callable[[], Any]) -> list[Row]:
    """The rows of the operators that a function runs (below autograd, where kernels are launched)."""
    with _Recorder() as recorder:
        function()
    return recorder.rows


@pytest.fixture
def rows() -> Callable[[Callable[[], Any]], list[Row]]:
    """``rows(function)`` → the operator rows of what it runs."""
    return record


@pytest.fixture
def one_row() -> Callable[[Callable[[], Any], str], Row]:
    """``one_row(function, "aten::mm")`` → the only row of that operator."""

    def only(function: Callable[[], Any], op: str) -> Row:
        (row,) = [r for r in record(function) if r.op == op]
        return row

    return only
