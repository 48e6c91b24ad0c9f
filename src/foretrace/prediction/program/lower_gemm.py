"""Matrix products and convolutions: the library call, and the copies ATen makes so that the library can be called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from foretrace.knowledge.costs import Cost, op_cost
from foretrace.prediction.program.lower_moves import crosses
from foretrace.prediction.program.operands import Call, Operand, contiguous_strides, is_dense, merged, touched
from foretrace.prediction.work import Access, Product, Tensor, Work

__all__ = ["GEMMS", "lower_convolution", "lower_gemm"]

# operator → positions of the two factors, and of the matrix or vector that is added
GEMMS: dict[str, tuple[int, int, int | None]] = {
    "mm": (0, 1, None),
    "bmm": (0, 1, None),
    "addmm": (1, 2, 0),
    "_addmm_activation": (1, 2, 0),
    "baddbmm": (1, 2, 0),
    "mv": (0, 1, None),
    "dot": (0, 1, None),
    "vdot": (0, 1, None),
    "addmv": (1, 2, 0),
    "_int_mm": (0, 1, None),
    "_scaled_mm": (0, 1, None),
}
# Products whose factors have another element type than the result.
_OF_FACTORS = frozenset({"_int_mm", "_scaled_mm"})


def lower_gemm(call: Call, fresh: Callable[[], int]) -> list[Work]:
    """The product of one call, after the copies of operands that cuBLAS cannot read and of a matrix to add to.

    Source of the conditions: ``aten/src/ATen/native/cuda/Blas.cpp`` (``prepare_matrix_for_cublas``,
    ``prepare_batch_matrix_for_cublas``, ``addmm_out_cuda_impl``).
    """
    first, second, third = GEMMS[call.base]
    result = call.outputs[0] if call.outputs else call.written[0]
    if not call.args[first].elements or not call.args[second].elements:  # nothing to multiply: the result is filled
        fill = Work("elementwise", "aten::fill_", result.dtype, (), (result.access,), result.elements)
        return [fill] if result.elements else []
    found: list[Work] = []
    factors = []
    for position in (first, second):
        factor = call.args[position]
        if not _readable(factor):
            copied = _contiguous(factor, fresh())
            found.append(_copy(copied, factor))
            factor = copied
        factors.append(factor)
    added = call.args[third] if third is not None else None
    bias = accumulate = False
    if isinstance(added, Operand) and _scale(call) != 0:
        vector = len(added.shape) == 1 and added.shape[0] == result.shape[-1] and added.strides[0] == 1
        # The library adds a bias vector itself; anything else is copied into the result, which the product adds to.
        bias = vector and call.base in ("addmm", "_addmm_activation") and _scale(call) == 1
        accumulate = not bias
        if accumulate and added.tensor.storage != result.tensor.storage:
            found.append(_copy(result, added))
    cost = op_cost(
        "aten::bmm"
        if len(factors[0].shape) == 3
        else "aten::mm"
        if len(factors[1].shape) == 2
        else f"aten::{call.base}",
        shapes=[list(item.shape) for item in factors],
        dtypes=[item.dtype for item in factors],
        strides=[list(item.strides) for item in factors],
    )
    reads = [item.access for item in factors]
    if bias and isinstance(added, Operand):
        reads.append(added.access)
    if accumulate:
        reads.append(result.access)
    product = None
    if cost.gemms:
        shape = cost.gemms[0]
        product = Product(shape.m, shape.n, shape.k, shape.batch, shape.layout or "NN", bias, accumulate)
    found.append(
        Work(
            kind="gemm",
            op=call.op,
            dtype=factors[0].dtype if call.base in _OF_FACTORS or result.dtype == "fp32" else result.dtype,
            reads=merged(iter(reads)),
            writes=(result.access,),
            elements=result.elements,
            reduced=factors[0].shape[-1] if factors[0].shape else 1,
            flops=cost.flops,
            product=product,
            note=cost.reason,
        )
    )
    return found


def lower_convolution(call: Call, cost: Cost) -> list[Work]:
    """One convolution, or the two of its backward pass, each as one item; a bias is a kernel of its own."""
    results = [item for item in call.outputs if item.on_gpu and item.elements]
    reads = touched(call.operands())
    note = "layout conversions around cuDNN's kernels are not predicted"
    found = []
    share = len([item for item in results if len(item.shape) > 1]) or 1
    for result in results:
        kind = "convolution" if len(result.shape) > 1 else "reduction"
        flops = cost.flops // share if cost.flops is not None and kind == "convolution" else None
        found.append(
            Work(kind, call.op, result.dtype, reads, (result.access,), result.elements, flops=flops, note=note)
        )
    if call.base != "convolution_backward" and isinstance(call.args[2], Operand) and results:
        result = results[0]
        bias = (result.access, call.args[2].access)
        found.append(Work("elementwise", "aten::add_", result.dtype, bias, (result.access,), result.elements))
    return found


def _scale(call: Call) -> float:
    """``beta``, the factor of what is added."""
    value = call.argument("beta", 1)
    return float(value) if isinstance(value, (int, float)) else 1.0


def _readable(item: Operand) -> bool:
    """Whether cuBLAS can read a matrix where it lies: one dimension with stride 1, the other at least as far apart."""
    if len(item.shape) < 2:
        return True
    rows, columns = item.shape[-2:]
    down, along = item.strides[-2:]
    if len(item.shape) == 2 and is_dense(item):
        return True
    by_rows = along == 1 and down >= max(1, columns)
    by_columns = down == 1 and along >= max(1, rows)
    return by_rows or by_columns


def _contiguous(item: Operand, storage: int) -> Operand:
    return replace(item, tensor=Tensor(item.shape, contiguous_strides(item.shape), item.dtype, storage))


def _copy(target: Operand, source: Operand) -> Work:
    same = target.shape == source.shape and target.strides == source.strides and is_dense(target)
    read = source.access
    return Work(
        kind="memcpy" if same else "copy",
        op="aten::copy_",
        dtype=target.dtype,
        reads=(read,),
        writes=(Access(target.tensor.storage, target.access.bytes),),
        elements=prod(target.shape),
        vectorised=same,
        crossed=crosses(source, target),
    )
