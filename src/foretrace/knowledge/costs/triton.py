"""Bytes of Inductor's generated Triton kernels, from the name and the argument list of the trace row.

A row lists the kernel's pointers in Inductor's order (``torch/_inductor/codegen/common.py``, ``KernelArgs``):
first those read and written in place (``in_out_ptr``), then those read (``in_ptr``), then those written
(``out_ptr``), then sizes. It does not say where one group ends. What is known of any kernel settles most
cases:

1. Every kernel writes something, and a pointwise kernel writes a tensor of its whole iteration space
   (``xnumel``, times ``ynumel`` in two dimensions). A smaller tensor is a broadcast operand and is read.
2. If the first tensor is not of full size, no large one is updated in place: everything listed is touched
   once.
3. If the first is of full size and the last is not, there is no separate result: the first is read and
   written, so it counts twice though it is listed once.
4. If both are, ``_unsafe_view`` decides where it can: it only ever views the two-dimensional result of a
   matrix product, and results have the shape after it; a two-dimensional last tensor among higher ones is
   therefore a product that is read, and there is no separate result (unless one tensor is all that the
   operators take).
5. Else the operators of a pointwise kernel are counted: joined in one tree they take
   ``1 + Σ(operands − 1)`` tensors. As many as are listed: none is left for a separate result, it is written
   in place. One more: that is the result. This takes every operator of the name once and every binary one
   between two tensors, and says so.
6. A forward normalisation with a result of its own (its last tensor is full) sums up to four tensors anew
   rather than storing their sum in place (``realize_reads_threshold`` of ``torch/_inductor/config.py``).

Whatever remains is ``None``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import prod
from typing import Any

from foretrace.knowledge.costs.call import Call, Cost, GemmShape, Operand, Unknown
from foretrace.knowledge.costs.gemm import layout
from foretrace.knowledge.costs.pointwise import OPERANDS
from foretrace.knowledge.views import effect

__all__ = ["triton_cost"]

_NAME = re.compile(r"^triton_(poi|per|red|tem|for|mix|spl)_fused_")

_CREATION = frozenset(
    ("full", "zeros", "ones", "zeros_like", "ones_like", "full_like", "arange", "scalar_tensor", "iota")
)
_GATHERING = frozenset(("embedding", "index", "index_select", "gather"))
# Operators whose fused form takes a broadcast bias beside the product that a library kernel left.
_BIASED = frozenset(("addmm", "convolution", "linear"))
_PRODUCTS = frozenset(("mm", "bmm", "_scaled_mm"))
# One tensor in: conversions and copies; powers and reversed subtractions, whose other operand is a number in
# all but odd cases (``x ** 2``, ``1 - x``).
_UNARY = frozenset(("_to_copy", "clone", "copy", "lift_fresh_copy", "pow", "rsub"))
_READS_THRESHOLD = 4  # torch/_inductor/config.py, realize_reads_threshold


def triton_cost(
    name: str,
    *,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    strides: Sequence[Any] | None = None,
    concrete: Sequence[str] | None = None,
    ops: Sequence[str],
    kernel_kwargs: str | None = None,
) -> Cost:
    """The cost of a generated kernel ``triton_{poi,per,red,tem}_fused_<ops>_<n>``.

    ``shapes``, ``dtypes``, ``strides``, ``concrete`` as in `op_cost`, of the row that carries the kernel's
    name (Inductor writes one around each launch). ``ops``: the fused operators, decoded from the name, in its
    order. ``kernel_kwargs``: the row's field of that name (``"XBLOCK=1024"``), which tells one from two
    dimensions. ``note`` names the rule that decided. Never raises: what cannot be decided is ``None`` with a
    ``reason``.
    """
    try:
        match = _NAME.match(name)
        if match is None:
            return Cost(reason=f"{name} is not Inductor's; its name does not say which arguments are written")
        call = Call(name, shapes, dtypes, strides, concrete)
        tensors = call.tensors(len(call))
        if not tensors:
            return Cost(reason=f"the trace does not record the arguments of {name} (record_shapes=True does)")
        real = [op for op in ops if effect(op) not in ("view", "allocation")]
        kind = match[1]
        if kind == "tem":
            return _template(call, tensors, real)
        sizes = _sizes(call)
        if kind == "poi":
            return _pointwise(name, tensors, sizes, real, list(ops), kernel_kwargs)
        if kind in ("per", "red"):
            return _rowwise(name, tensors, sizes, real)
        return Cost(reason=f"{name} joins independent kernels; the row does not say which arguments are written")
    except Unknown as why:
        return Cost(reason=str(why))
    except Exception as problem:
        return Cost(reason=f"the row of {name} cannot be read ({type(problem).__name__})")


def _sizes(call: Call) -> list[int]:
    """The kernel's trailing size arguments, in order."""
    sizes: list[int] = []
    for index in range(len(call) - 1, -1, -1):
        if call.tensor(index) is not None:
            break
        value = call.integer(index)
        if value is not None and value > 0:
            sizes.insert(0, value)
    return sizes


def _total(tensors: list[Operand], sizes: list[int], kernel_kwargs: str | None) -> int | None:
    """Points of a pointwise kernel's iteration space."""
    if kernel_kwargs:
        blocks = len(set(re.findall(r"\b([XYZ])BLOCK\b", kernel_kwargs)))
        if 0 < blocks <= len(sizes):
            return prod(sizes[-blocks:])
    present = {t.numel for t in tensors}
    for count in range(1, min(3, len(sizes)) + 1):
        if prod(sizes[-count:]) in present:
            return prod(sizes[-count:])
    return None if sizes else max(present)  # no sizes recorded: the largest tensor


def _pointwise(
    name: str, tensors: list[Operand], sizes: list[int], real: list[str], ops: list[str], kwargs: str | None
) -> Cost:
    total = _total(tensors, sizes, kwargs)
    if total is None or not any(t.numel == total for t in tensors):
        return Cost(reason=f"no listed tensor has the size of {name}'s iteration space")
    touched = _touched(tensors, total, real)
    if touched is None:
        return Cost(reason=f"{name} reads a part of a larger tensor; the row does not say how much of it")
    first, last = tensors[0], tensors[-1]
    in_place = Cost(None, touched + first.bytes, note="the first tensor is read and written in place")
    separate = Cost(None, touched, note="every listed tensor is touched once")
    small = sum(t.numel < total for t in tensors)
    leaves = _leaves(real, small)
    if len(tensors) == 1:
        if real and _CREATION.issuperset(real):
            return separate
        if leaves == 1:
            return in_place
        return Cost(reason=f"the name of {name} does not say whether its only tensor is read")
    if first.numel != total:
        return separate
    if last.numel != total:
        return in_place
    if "_unsafe_view" in ops and leaves != 1 and len(last.shape) == 2 and len(first.shape) > 2:
        return in_place
    if last.dtype.kind == "bool" and first.dtype.kind != "bool":
        leaves = None  # a mask may be read, or saved beside the result
    assumed = "; counting each operator of the name once"
    if leaves == len(tensors):
        return Cost(None, in_place.bytes, note=f"{in_place.note}{assumed}")
    if leaves is not None and leaves + 1 == len(tensors):
        return Cost(None, separate.bytes, note=f"{separate.note}{assumed}")
    return Cost(reason=f"the row of {name} does not say whether its result is separate or written in place")


def _touched(tensors: list[Operand], total: int, real: list[str]) -> int | None:
    """Bytes of every listed tensor once; of a table only the rows gathered; ``None`` with other large ones."""
    touched = 0
    for t in tensors:
        if t.numel <= total:
            touched += t.bytes
        elif _GATHERING.intersection(real):
            touched += total * t.dtype.itemsize
        else:
            return None
    return touched


def _leaves(real: list[str], small: int) -> int | None:
    """Tensors the operators take when each occurs once in one tree; ``None`` where that cannot be told.

    ``small``: how many of the listed tensors are broadcast. A normalisation takes all of them (statistics,
    weight, bias). Operators that create values make it open which operands are tensors; a gradient beside
    other operators usually means that there are several results.
    """
    leaves = 1
    if len(real) > 1 and any(op.endswith("_backward") for op in real):
        return None
    normalizes = any(_is_norm(op) for op in real)
    for op in real:
        if op in _BIASED:
            leaves += small > 0
        elif op in _PRODUCTS or op in _UNARY or _is_norm(op) or op.startswith("_scaled_dot_product"):
            continue
        elif op in OPERANDS:
            leaves += OPERANDS[op] - 1
        else:
            return None
    return leaves + small if normalizes else leaves


def _is_norm(op: str) -> bool:
    return "_norm" in op and not op.endswith("_backward")


def _rowwise(name: str, tensors: list[Operand], sizes: list[int], real: list[str]) -> Cost:
    """Reductions: the iteration space is rows × row length; results are full tensors or one value a row."""
    if len(sizes) < 2:
        return Cost(reason=f"the trace does not record the sizes of {name}")
    rows, length = sizes[-2:]
    total = rows * length
    touched = _touched(tensors, total, real)
    if touched is None:
        return Cost(reason=f"{name} reads a part of a larger tensor; the row does not say how much of it")
    full = [t for t in tensors if t.numel == total]
    first, last = tensors[0], tensors[-1]
    separate = Cost(None, touched, note="every listed tensor is touched once")
    in_place = Cost(None, touched + first.bytes, note="the first tensor is read and written in place")
    undecided = Cost(reason=f"the row of {name} does not say whether its result is separate or written in place")
    if first.numel != total:
        return separate if full or len(tensors) > 1 else undecided
    normalizes = any("norm" in op or "softmax" in op or op == "rsqrt" for op in real)
    if len(full) == 1:
        if last.numel != rows:
            return in_place  # neither a full nor a one-a-row result is left
        return undecided if normalizes else separate
    backward = any(op.endswith(("_backward", "_backward_data")) for op in real)
    saved = any(t.numel == rows != length and t is not first for t in tensors)  # statistics, kept to train
    if last.numel == total and normalizes and not backward and not saved and "native_dropout" not in real:
        if len(full) - 1 <= _READS_THRESHOLD:
            return Cost(None, touched, note=f"{separate.note}; one result")
        return Cost(None, in_place.bytes, note=f"{in_place.note}; a second result is separate")
    return undecided


def _template(call: Call, tensors: list[Operand], real: list[str]) -> Cost:
    """``triton_tem_fused_mm_0`` and its like: both operands read, the result written."""
    if not {"mm", "bmm", "addmm", "baddbmm"}.intersection(real):
        return Cost(reason=f"{call.name} is a template without a matrix product in its name")
    for i, a in enumerate(tensors):
        for b in tensors[i + 1 :]:
            if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3) or a.shape[-1] != b.shape[-2]:
                continue
            wanted = [*a.shape[:-1], b.shape[-1]]
            if a.shape[:-2] == b.shape[:-2] and tensors[-1].shape == wanted:
                batch = a.shape[0] if len(a.shape) == 3 else 1
                gemm = GemmShape(wanted[-2], wanted[-1], a.shape[-1], batch, a.dtype.name, layout(a, b))
                return Cost(gemm.flops, sum(t.bytes for t in tensors), [gemm])
    return Cost(reason=f"the arguments of {call.name} do not form a matrix product")
