"""What operators read and what they hand on: the shapes and types of their results.

A trace records what an operator takes, not what it returns. For the operators below the result follows from
the operands; the signatures are those of ATen's ``native_functions.yaml``, the type rules those of torch's
promotion (`foretrace.knowledge.dtypes.promote`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

import msgspec

from foretrace.knowledge.costs.call import Call, Operand
from foretrace.knowledge.costs.gemm import broadcast
from foretrace.knowledge.costs.pointwise import OPERANDS
from foretrace.knowledge.dtypes import promote

__all__ = [
    "Tensor",
    "Transfer",
    "accumulates_gradient",
    "is_activation",
    "is_fill",
    "is_pointwise",
    "is_product",
    "transfer",
]


class Tensor(msgspec.Struct, frozen=True):
    """What identifies a tensor in a trace: ``elements``, size of the last dimension, element type.

    ``dtype`` is None where the row does not say it (members of tensor lists).
    """

    elements: int
    last: int
    dtype: str | None
    itemsize: int | None

    @property
    def bytes(self) -> int:
        """Bytes of the elements; 0 where the type is not known."""
        return self.elements * (self.itemsize or 0)


class Transfer(msgspec.Struct, frozen=True):
    """What one operator call reads and what it returns; ``result`` is None where it does not follow."""

    reads: tuple[Tensor, ...]
    result: Tensor | None
    vectors: tuple[int, ...] = ()  # sizes of the operands that are one row, broadcast over all others


_BOOLEAN = re.compile(r"(is\w+|eq|ne|l[te]|g[te]|(greater|less)(_equal)?|not_equal|logical_\w+|signbit)$")
_SELF_TYPED = frozenset({"masked_fill", "native_dropout_backward", "_masked_scale"})
# Matrix products: positions of the two factors.
_PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "addmm_activation": (1, 2)}
_PRODUCTS["_addmm_activation"] = (1, 2)
# The result has the shape and type of the first operand.
_LIKE_FIRST_NAMES = """
    softmax _softmax log_softmax _log_softmax native_layer_norm layer_norm native_batch_norm cudnn_batch_norm
    miopen_batch_norm _fused_rms_norm rms_norm native_group_norm native_dropout _efficient_attention_forward
    _flash_attention_forward _cudnn_attention_forward _scaled_dot_product_flash_attention
    _scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention
"""
_LIKE_FIRST = frozenset(_LIKE_FIRST_NAMES.split())
_FILLS = frozenset({"fill", "zero"})
# torch.nn's activations without a second tensor.
_ACTIVATION_NAMES = """
    relu relu6 hardtanh hardswish hardsigmoid leaky_relu elu selu celu gelu silu mish softplus sigmoid tanh
"""
_ACTIVATIONS = frozenset(_ACTIVATION_NAMES.split())


def is_pointwise(op: str) -> bool:
    """Whether an operator works element by element (``aten::`` and in-place underscore optional)."""
    base = op.removeprefix("aten::")
    return base in OPERANDS or base.removesuffix("_") in OPERANDS or base.removesuffix("_") in _FILLS


def is_activation(op: str) -> bool:
    """Whether an operator is an activation function of one tensor (``aten::gelu``, ``relu_``)."""
    return op.removeprefix("aten::").removesuffix("_") in _ACTIVATIONS


def is_product(op: str) -> bool:
    """Whether an operator is a matrix product whose result follows from its operands (``aten::addmm``)."""
    return op.removeprefix("aten::") in _PRODUCTS


def accumulates_gradient(node: str) -> bool:
    """Whether an autograd node adds into a parameter's ``.grad``, where the backward pass ends."""
    return node.endswith("AccumulateGrad")


def is_fill(op: str) -> bool:
    """Whether an operator writes a constant (``aten::zero_``, ``aten::fill_``, ``aten::zeros``)."""
    base = op.removeprefix("aten::").removesuffix("_").removesuffix("_like").removeprefix("new_")
    return base in _FILLS or base in ("zeros", "ones", "full")


def transfer(
    op: str,
    *,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    strides: Sequence[Any] | None = None,
    concrete: Sequence[str] | None = None,
) -> Transfer:
    """What a call reads and returns, from the row's ``Input Dims`` and ``Input type``; never raises."""
    call = Call(op, shapes, dtypes, strides, concrete)
    base = call.base
    if base == "copy":
        source, target = call.tensor(1), call.tensor(0)
        return Transfer(_all([source]), _of(target))
    if base in _FILLS:
        return Transfer((), _of(call.tensor(0)))
    if base in OPERANDS:
        return _pointwise(call)
    if base in _PRODUCTS:
        return _product(call, *_PRODUCTS[base])
    if base in ("cat", "concat"):
        return _cat(call)
    everything = _all([call.tensor(i) for i in range(len(call))]) + _members(shapes)
    return Transfer(everything, _of(call.tensor(0)) if base in _LIKE_FIRST else None)


def _pointwise(call: Call) -> Transfer:
    operands = call.tensors(OPERANDS[call.base])
    reads = _all(operands)
    if not operands:
        return Transfer((), None)
    if call.inplace:
        result = _of(operands[0])
    else:
        shape = broadcast([t.shape for t in operands])
        if call.base == "where":
            typed = operands[1:] or operands
        else:
            typed = operands[:1] if call.base in _SELF_TYPED else operands
        kind = promote([(t.dtype, len(t.shape)) for t in typed])
        if shape is None or kind is None:
            return Transfer(reads, None)
        boolean = _BOOLEAN.match(call.base) is not None
        result = Tensor(
            prod(shape),
            shape[-1] if shape else 1,
            "bool" if boolean else kind.name,
            1 if boolean else kind.itemsize,
        )
    most = max(t.numel for t in operands)
    vectors = tuple(t.numel for t in operands if t.shape and t.numel == t.shape[-1] and t.numel < most)
    return Transfer(reads, result, vectors)


def _product(call: Call, first: int, second: int) -> Transfer:
    a, b = call.tensor(first), call.tensor(second)
    reads = _all([call.tensor(i) for i in range(second + 1)])
    if a is None or b is None or len(a.shape) < 2 or len(b.shape) < 2:
        return Transfer(reads, None)
    elements = prod(a.shape[:-1]) * b.shape[-1]
    return Transfer(reads, Tensor(elements, b.shape[-1], a.dtype.name, a.dtype.itemsize))


def _cat(call: Call) -> Transfer:
    """``cat(tensors, dim)``; empty members of any shape are passed over, as torch does."""
    members = _members(call.shapes[:1])
    full = [m for m in call.shapes[0] if _is_shape(m) and 0 not in m] if members else []
    dim = call.integer(1)
    if not full or dim is None:
        return Transfer(members, None)
    last = full[0][-1]
    if dim in (-1, len(full[0]) - 1):
        last = sum(member[-1] for member in full)
    return Transfer(members, Tensor(sum(prod(member) for member in full), last, None, None))


def _of(operand: Operand | None) -> Tensor | None:
    if operand is None or not operand.shape:
        return None
    # An expanded operand (stride 0) is the smaller tensor behind it.
    expanded = bool(operand.strides) and operand.strides is not None and operand.strides[-1] == 0
    last = 1 if expanded else operand.shape[-1]
    return Tensor(operand.elements, last, operand.dtype.name, operand.dtype.itemsize)


def _all(operands: Sequence[Operand | None]) -> tuple[Tensor, ...]:
    """The operands that have dimensions; numbers are no tensors that another kernel would hand over."""
    found = [_of(operand) for operand in operands]
    return tuple(t for t in found if t is not None)


def _members(shapes: Sequence[Any]) -> tuple[Tensor, ...]:
    """Members of tensor lists; their type is not recorded."""
    found = []
    for entry in shapes:
        if isinstance(entry, list) and entry and all(isinstance(member, list) for member in entry):
            for member in entry:
                if _is_shape(member):
                    found.append(Tensor(prod(member), member[-1], None, None))
    return tuple(found)


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(type(size) is int for size in value)
