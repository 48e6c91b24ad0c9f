"""Matrix products: 2·m·n·k FLOPs; both operands and the added matrix read, the result written.

Formula as in ``torch.utils.flop_counter`` (``mm_flop``, ``addmm_flop``, ``bmm_flop``, ``baddbmm_flop``,
``_scaled_mm_flop``); the additions of a bias or of beta·C are not counted.
"""

from __future__ import annotations

from foretrace.knowledge.costs.call import Call, Cost, GemmShape, Operand, Unknown, numel
from foretrace.knowledge.dtypes import Dtype

__all__ = ["FORMULAS", "layout"]


def _contiguous(shape: list[int], strides: list[int]) -> bool:
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != expected:
            return False
        expected *= size
    return True


def _letter(matrix: Operand) -> str | None:
    """``N`` for a row-major operand, ``T`` for a transposed view, after ATen's ``prepare_matrix_for_cublas``.

    A dimension of size 1 is read as row-major, as ATen does; an operand with neither unit stride is copied
    to row-major first.
    """
    if matrix.strides is None or len(matrix.shape) < 2:
        return None
    rows, columns = matrix.shape[-2:]
    row_stride, column_stride = matrix.strides[-2:]
    if _contiguous([rows, columns], [row_stride, column_stride]):
        return "N"
    if row_stride == 1 and column_stride >= max(1, rows):
        return "T"
    return "N"


def layout(a: Operand, b: Operand) -> str | None:
    """The cuBLAS layout letters of ``a @ b``: torch's second operand comes first (column-major view)."""
    first, second = _letter(b), _letter(a)
    return None if first is None or second is None else first + second


def _product(call: Call, a: Operand, b: Operand, extra: int, bias: bool, out: Dtype | None = None) -> Cost:
    """``a [.., m, k] @ b [.., k, n]`` with equal batch dimensions, plus ``extra`` bytes read."""
    if len(a.shape) != len(b.shape) or len(a.shape) < 2 or a.shape[-1] != b.shape[-2]:
        raise Unknown(f"the operand shapes of {call.name} do not form a product: {a.shape} and {b.shape}")
    if a.shape[:-2] != b.shape[:-2]:
        raise Unknown(f"the batch sizes of {call.name} differ: {a.shape} and {b.shape}")
    (m, k), n, batch = a.shape[-2:], b.shape[-1], numel(a.shape[:-2])
    gemm = GemmShape(m, n, k, batch, a.dtype.name, layout(a, b), bias)
    written = batch * m * n * (out or a.dtype).itemsize
    return Cost(gemm.flops, a.bytes + b.bytes + extra + written, [gemm])


def _mm(call: Call) -> Cost:
    return _product(call, call.need(0), call.need(1), 0, False)


def _addmm(call: Call) -> Cost:
    """``beta·self + alpha·(mat1 @ mat2)``; beta 0 means that ``self`` is never read."""
    added = call.need(0)
    read = 0 if call.number(3) == 0.0 else added.bytes
    return _product(call, call.need(1), call.need(2), read, read > 0)


def _addbmm(call: Call) -> Cost:
    added, a, b = call.need(0), call.need(1), call.need(2)
    cost = _product(call, a, b, 0, True)
    return Cost(cost.flops, a.bytes + b.bytes + added.bytes + added.result_bytes, cost.gemms)


def _linear(call: Call) -> Cost:
    x, weight, bias = call.need(0), call.need(1), call.tensor(2)
    if not x.shape or len(weight.shape) != 2 or x.shape[-1] != weight.shape[1]:
        raise Unknown(f"the shapes of {call.name} do not fit: {x.shape} and {weight.shape}")
    m, (n, k) = numel(x.shape[:-1]), weight.shape
    turned = None if weight.strides is None else Operand([k, n], weight.dtype, weight.strides[::-1])
    flat = None if x.strides is None else Operand([m, k], x.dtype, [k, 1])
    letters = layout(flat, turned) if flat is not None and turned is not None else None
    gemm = GemmShape(m, n, k, 1, x.dtype.name, letters, bias is not None)
    read = x.bytes + weight.bytes + (bias.bytes if bias is not None else 0)
    return Cost(gemm.flops, read + m * n * x.dtype.itemsize, [gemm])


def _matmul(call: Call) -> Cost:
    """Vectors, matrices and broadcast batches, after the rules of ``torch.matmul``."""
    a, b = call.need(0), call.need(1)
    if not a.shape or not b.shape:
        raise Unknown(f"{call.name} of a scalar")
    a_shape = [1, *a.shape] if len(a.shape) == 1 else list(a.shape)
    b_shape = [*b.shape, 1] if len(b.shape) == 1 else list(b.shape)
    if a_shape[-1] != b_shape[-2]:
        raise Unknown(f"the operand shapes of {call.name} do not form a product: {a.shape} and {b.shape}")
    batch = broadcast([a_shape[:-2], b_shape[:-2]])
    if batch is None:
        raise Unknown(f"the batch sizes of {call.name} cannot be broadcast: {a.shape} and {b.shape}")
    (m, k), n, count = a_shape[-2:], b_shape[-1], numel(batch)
    if len(b.shape) <= 2 or numel(b.shape[:-2]) == 1:  # torch folds the batch of the first operand into its rows
        m, count = m * count, 1
    letters = layout(a, b) if len(a.shape) > 1 and len(b.shape) > 1 else None
    gemm = GemmShape(m, n, k, count, a.dtype.name, letters, False)
    return Cost(gemm.flops, a.bytes + b.bytes + count * m * n * a.dtype.itemsize, [gemm])


def broadcast(shapes: list[list[int]]) -> list[int] | None:
    """The common shape of several, ``None`` where they do not broadcast."""
    result: list[int] = []
    for place in range(1, max(map(len, shapes), default=0) + 1):
        size = 1
        for shape in shapes:
            if len(shape) >= place and shape[-place] != 1:
                if size not in (1, shape[-place]):
                    return None
                size = shape[-place]
        result.append(size)
    return result[::-1]


def _mv(call: Call) -> Cost:
    matrix, vector = call.need(0), call.need(1)
    if len(matrix.shape) != 2 or vector.shape != [matrix.shape[1]]:
        raise Unknown(f"the shapes of {call.name} do not fit: {matrix.shape} and {vector.shape}")
    m, k = matrix.shape
    gemm = GemmShape(m, 1, k, 1, matrix.dtype.name, None, False)
    return Cost(gemm.flops, matrix.bytes + vector.bytes + m * matrix.dtype.itemsize, [gemm])


def _addmv(call: Call) -> Cost:
    added, matrix, vector = call.need(0), call.need(1), call.need(2)
    if len(matrix.shape) != 2 or vector.shape != [matrix.shape[1]]:
        raise Unknown(f"the shapes of {call.name} do not fit: {matrix.shape} and {vector.shape}")
    m, k = matrix.shape
    read = 0 if call.number(3) == 0.0 else added.bytes
    gemm = GemmShape(m, 1, k, 1, matrix.dtype.name, None, read > 0)
    return Cost(gemm.flops, matrix.bytes + vector.bytes + read + m * matrix.dtype.itemsize, [gemm])


def _dot(call: Call) -> Cost:
    a, b = call.need(0), call.need(1)
    if len(a.shape) != 1 or a.shape != b.shape:
        raise Unknown(f"the shapes of {call.name} do not fit: {a.shape} and {b.shape}")
    gemm = GemmShape(1, 1, a.shape[0], 1, a.dtype.name, None, False)
    return Cost(gemm.flops, a.bytes + b.bytes + a.dtype.itemsize, [gemm])


def _outer_product(call: Call) -> Cost:
    """``self + vec1 ⊗ vec2`` (``addr``)."""
    added, u, v = call.need(0), call.need(1), call.need(2)
    gemm = GemmShape(u.numel, v.numel, 1, 1, u.dtype.name, None, True)
    return Cost(gemm.flops, added.bytes + u.bytes + v.bytes + u.numel * v.numel * u.dtype.itemsize, [gemm])


def _scaled_mm(call: Call) -> Cost:
    """``_scaled_mm(a, b, scale_a, scale_b, bias, scale_result, out_dtype, …)``.

    torch 2.4 and older have ``(a, b, bias, out_dtype, scale_a, scale_b, …)``. Without ``out_dtype`` the
    result has the type of ``a``.
    """
    a, b = call.need(0), call.need(1)
    old = len(call) > 4 and call.tensor(3) is None and call.tensor(4) is not None
    bias = call.tensor(2 if old else 4)
    extras = sum(t.bytes for t in call.tensors_at(range(2, 6)))
    packed = a.dtype.name == "fp4_e2m1"  # two values to a stored byte along k
    if packed:
        a, b = _unpacked(a, -1), _unpacked(b, -2)
        extras -= (a.numel + b.numel) // 2
    cost = _product(call, a, b, extras, bias is not None, call.dtype_at(3 if old else 6))
    if call.concrete is None:
        return Cost(cost.flops, None, cost.gemms, f"the trace does not record the result type of {call.name}")
    return Cost(cost.flops, cost.bytes, cost.gemms, note="two FP4 values a byte" if packed else None)


def _unpacked(matrix: Operand, dim: int) -> Operand:
    shape = list(matrix.shape)
    if len(shape) < 2:
        raise Unknown("a packed FP4 operand needs two dimensions")
    shape[dim] *= 2
    return Operand(shape, matrix.dtype, None)


def _int_mm(call: Call) -> Cost:
    a, b = call.need(0), call.need(1)
    cost = _product(call, a, b, 0, False)
    written = 4 * numel(a.shape[:-2]) * a.shape[-2] * b.shape[-1]  # int8 products accumulate into int32
    return Cost(cost.flops, a.bytes + b.bytes + written, cost.gemms)


def _grouped_mm(call: Call) -> Cost:
    """``_grouped_mm(a, b, offs)``: groups along m (2-D by 3-D), k (2-D, 2-D), n (3-D, 2-D), or a batch."""
    a, b = call.need(0), call.need(1)
    scaled = "scaled" in call.base
    offsets = call.tensor(4 if scaled else 2)
    groups = offsets.numel if offsets is not None else 1
    out = (call.dtype_at(7) if scaled else call.dtype_at(4)) or a.dtype
    if scaled and call.concrete is None:
        raise Unknown(f"the trace does not record the result type of {call.name}")
    dims = (len(a.shape), len(b.shape))
    if dims == (2, 3) and a.shape[1] == b.shape[1]:
        gemm = GemmShape(a.shape[0], b.shape[2], a.shape[1], 1, a.dtype.name, layout(a, b))
        written = gemm.m * gemm.n
    elif dims == (2, 2) and a.shape[1] == b.shape[0]:
        gemm = GemmShape(a.shape[0], b.shape[1], a.shape[1], 1, a.dtype.name, layout(a, b))
        written = groups * gemm.m * gemm.n
    elif dims == (3, 2) and a.shape[2] == b.shape[0]:
        gemm = GemmShape(a.shape[1], b.shape[1], a.shape[2], 1, a.dtype.name, layout(a, b))
        written = gemm.m * gemm.n
    elif dims == (3, 3) and a.shape[2] == b.shape[1]:
        gemm = GemmShape(a.shape[1], b.shape[2], a.shape[2], a.shape[0], a.dtype.name, layout(a, b))
        written = gemm.batch * gemm.m * gemm.n
    else:
        raise Unknown(f"the operand shapes of {call.name} do not form grouped products: {a.shape}, {b.shape}")
    scales = sum(t.bytes for t in (call.tensor(2), call.tensor(3)) if t is not None) if scaled else 0
    total = a.bytes + b.bytes + scales + (offsets.bytes if offsets is not None else 0)
    note = f"{groups} groups counted as one product" if offsets is not None else None
    return Cost(gemm.flops, total + written * out.itemsize, [gemm], note=note)


def _int4_mm(call: Call) -> Cost:
    """``_weight_int4pack_mm(x [m, k], packed, group, scales_and_zeros [k/group, n, 2])``."""
    x, packed, scales = call.need(0), call.need(1), call.need(3)
    if len(x.shape) != 2 or len(scales.shape) != 3:
        raise Unknown(f"the shapes of {call.name} are not the documented ones")
    (m, k), n = x.shape, scales.shape[1]
    gemm = GemmShape(m, n, k, 1, x.dtype.name, None, False)
    return Cost(gemm.flops, x.bytes + packed.bytes + scales.bytes + m * n * x.dtype.itemsize, [gemm])


FORMULAS = {
    "mm": _mm,
    "bmm": _mm,
    "addmm": _addmm,
    "_addmm_activation": _addmm,
    "baddbmm": _addmm,
    "addbmm": _addbmm,
    "linear": _linear,
    "matmul": _matmul,
    "__matmul__": _matmul,
    "mv": _mv,
    "addmv": _addmv,
    "dot": _dot,
    "vdot": _dot,
    "inner": _dot,
    "addr": _outer_product,
    "_scaled_mm": _scaled_mm,
    "_int_mm": _int_mm,
    "_grouped_mm": _grouped_mm,
    "_scaled_grouped_mm": _grouped_mm,
    "_weight_int4pack_mm": _int4_mm,
}
