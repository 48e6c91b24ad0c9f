"""Copies, fills, indexing, joining, pooling and list ("foreach", fused optimizer) operators.

Nothing here multiplies; all that counts is what moves. Argument positions are those of
``native_functions.yaml``.
"""

from __future__ import annotations

from foretrace.knowledge.costs.call import Call, Cost, Operand, Unknown, numel
from foretrace.knowledge.dtypes import dtype, from_code, is_tensor_list

__all__ = ["FORMULAS"]


def _copy(call: Call) -> Cost:
    """``copy_(dst, src)``: the source read, the destination written but not read."""
    destination, source = call.need(0), call.need(1)
    return Cost(None, source.bytes + destination.bytes)


def _clone(call: Call) -> Cost:
    """A fresh copy; ``contiguous`` and ``reshape`` cost this only where they have to copy."""
    x = call.need(0)
    note = None if call.base == "clone" else "if it copies; a view moves nothing"
    return Cost(None, x.bytes + x.result_bytes, note=note)


def _convert(call: Call) -> Cost:
    """``to(self, dtype, …)`` and ``_to_copy(self, dtype, …)``."""
    x = call.need(0)
    wanted = call.dtype_at(1)
    if call.base == "to" and wanted is None:  # to(self, other), to(self, device, dtype)
        other = call.tensor(1)
        wanted = other.dtype if other is not None else call.dtype_at(2)
    if call.base == "type_as":
        other = call.tensor(1)
        wanted = other.dtype if other is not None else None
    if call.concrete is None and wanted is None:
        raise Unknown(f"the trace does not record the type that {call.name} converts to")
    width = wanted.itemsize if wanted is not None else x.dtype.itemsize
    note = None if call.base == "_to_copy" else "if it converts; otherwise nothing moves"
    return Cost(None, x.bytes + x.numel * width, note=note)


def _fill(call: Call) -> Cost:
    """Writes the tensor without reading it."""
    return Cost(None, call.need(0).bytes)


def _scalar(call: Call) -> Cost:
    """``item``: one element comes to the CPU."""
    return Cost(None, call.need(0).dtype.itemsize)


def _arange(call: Call) -> Cost:
    """``(end)``, ``(start, end)`` or ``(start, end, step)``, then dtype and so on, or out."""
    out = next((t for t in map(call.tensor, range(len(call) - 1, -1, -1)) if t is not None), None)
    scalars = len(call) - (1 if out is not None else 4)
    numbers = [call.number(i) for i in range(max(scalars, 0))]
    if not 1 <= len(numbers) <= 3 or any(n is None for n in numbers):
        raise Unknown(f"the trace does not record the bounds of {call.name}")
    bounds = [n for n in numbers if n is not None]
    start, end = (0.0, bounds[0]) if len(bounds) == 1 else (bounds[0], bounds[1])
    step = bounds[2] if len(bounds) == 3 else 1.0
    if step == 0:
        raise Unknown(f"{call.name} has step 0")
    count = max(0, -int(-(end - start) // step))
    kind = out.dtype if out is not None else call.dtype_at(scalars)
    if kind is None:
        whole = all("." not in (call.text(i) or "") for i in range(scalars))
        kind = dtype("int64" if whole else "fp32")
    assert kind is not None
    return Cost(None, count * kind.itemsize)


def _factory(call: Call) -> Cost:
    """``zeros_like`` and its like are an allocation and a fill; the fill is an operator of its own."""
    raise Unknown(f"{call.name} allocates and calls a fill, which is counted")


def _cat(call: Call) -> Cost:
    """``cat(tensors, dim, out)``, ``stack``: everything read, everything written."""
    count = sum(map(numel, call.tensor_list(0)))
    out = next((t for t in map(call.tensor, range(1, len(call))) if t is not None), None)
    width = out.dtype.itemsize if out is not None else call.list_bytes_per_element()
    return Cost(None, 2 * count * width)


def _embedding(call: Call) -> Cost:
    """``embedding(weight, indices)``: rows gathered, not the table; repeated rows are read from it once."""
    table, indices = call.need(0), call.need(1)
    if len(table.shape) < 2:
        raise Unknown(f"the table of {call.name} has no rows")
    return _gathered(table, indices, indices.numel * numel(table.shape[1:]))


def _gathered(table: Operand, indices: Operand, count: int) -> Cost:
    width = table.dtype.itemsize
    return Cost(None, min(count, table.elements) * width + indices.bytes + count * width)


def _index_select(call: Call) -> Cost:
    """``index_select(self, dim, index)``."""
    x, dim, index = call.need(0), call.integer(1), call.need(2)
    if dim is None:
        # Rows along any dimension weigh the same when the tensor is one-dimensional.
        if len(x.shape) != 1:
            raise Unknown(f"the trace does not record the dim of {call.name}")
        dim = 0
    if not x.shape or not -len(x.shape) <= dim < len(x.shape) or not x.shape[dim]:
        raise Unknown(f"dim {dim} of {call.name} is outside its input")
    return _gathered(x, index, x.numel // x.shape[dim] * index.numel)


def _gather(call: Call) -> Cost:
    """``gather(self, dim, index)`` and ``take(self, index)``: one element an index."""
    x, index = call.need(0), call.need(1 if call.base == "take" else 2)
    return _gathered(x, index, index.numel)


def _index(call: Call) -> Cost:
    """``index(self, [indices])``; the profiler does not record the index tensors of most versions."""
    x = call.need(0)
    out = call.output()
    if out is not None:
        count, index_bytes = numel(out), 0
    elif len(call) > 1 and is_tensor_list(call.dtypes[1]):
        members = call.tensor_list(1)
        if len(members) != 1 or len(x.shape) < 1:
            raise Unknown(f"the trace does not say which dims {call.name} indexes")
        count = numel(members[0]) * numel(x.shape[1:])
        index_bytes = 8 * numel(members[0])
    else:
        raise Unknown(f"the profiler does not record the index tensors of {call.name}")
    width = x.dtype.itemsize
    note = "int64 indices along the first dimension assumed" if index_bytes else None
    return Cost(None, min(count, x.elements) * width + count * width + index_bytes, note=note)


def _index_put(call: Call) -> Cost:
    """``index_put_(self, [indices], values, accumulate)``: values read, their places written.

    Accumulating reads those places, too.
    """
    x, values = call.need(0), call.need(2)
    if len(values.shape) == 0:
        raise Unknown(f"the profiler does not record the index tensors of {call.name}")
    touched = min(values.numel, x.numel) * x.dtype.itemsize
    accumulate = call.boolean(3)
    return Cost(None, values.bytes + touched * (2 if accumulate else 1), note="without the index tensors")


def _scatter(call: Call) -> Cost:
    """``scatter(self, dim, index, src)`` and its adding relatives; out of place, ``self`` is copied first."""
    x, index, source = call.need(0), call.need(2), call.tensor(3)
    adds = call.base in ("scatter_add", "index_add", "scatter_reduce", "index_reduce") or len(call) > 4
    values = source if source is not None else index
    moved = min(values.numel, x.numel) * x.dtype.itemsize
    total = index.bytes + (source.bytes if source is not None else 0) + moved * (2 if adds else 1)
    if not call.inplace:
        total += x.bytes + x.result_bytes - moved
    return Cost(None, total)


def _index_fill(call: Call) -> Cost:
    x, dim, index = call.need(0), call.integer(1), call.need(2)
    if dim is None or not x.shape or not -len(x.shape) <= dim < len(x.shape) or not x.shape[dim]:
        raise Unknown(f"the trace does not record the dim of {call.name}")
    written = x.numel // x.shape[dim] * index.numel * x.dtype.itemsize
    return Cost(None, index.bytes + written + (0 if call.inplace else x.bytes + x.result_bytes - written))


def _embedding_backward(call: Call) -> Cost:
    """``embedding_dense_backward(grad, indices, rows, …)``: its zero fill is an operator of its own."""
    grad, indices, rows = call.need(0), call.need(1), call.integer(2)
    if rows is None or not grad.shape:
        raise Unknown(f"the trace does not record the table size of {call.name}")
    width = grad.shape[-1]
    touched = min(indices.numel, rows) * width * grad.dtype.itemsize
    return Cost(
        None,
        grad.bytes + indices.bytes + touched,
        note="without the zero fill, which is an operator of its own",
    )


def _repeat(call: Call) -> Cost:
    """``repeat(self, repeats)``: read once, written as often as asked."""
    x, repeats = call.need(0), call.integers(1)
    if repeats is None:
        raise Unknown(f"the trace does not record the repeats of {call.name}")
    return Cost(None, x.bytes + x.result_bytes * numel(repeats))


def _permuted(call: Call) -> Cost:
    """``flip``, ``roll``, ``rot90``: everything read, everything written."""
    x = call.need(0)
    return Cost(None, x.bytes + x.result_bytes)


def _pair(values: list[int] | None, default: list[int] | None) -> list[int] | None:
    if values is None or not values:
        return default
    return values * 2 if len(values) == 1 else values


def _pool(call: Call) -> Cost:
    """``max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil)`` and ``avg_pool2d``."""
    x = call.need(0)
    out = call.output()
    if out is None:
        kernel = _pair(call.integers(1), None)
        stride, padding = _pair(call.integers(2), kernel), _pair(call.integers(3), [0, 0])
        maximum = call.base.startswith("max")
        dilation = _pair(call.integers(4), [1, 1]) if maximum else [1, 1]
        ceil = call.boolean(5 if maximum else 4)
        if not kernel or not stride or not padding or not dilation or len(x.shape) < 2 or 0 in stride:
            raise Unknown(f"the trace does not record the window of {call.name}")
        out = list(x.shape[:-2])
        for i in range(2):
            room = x.shape[i - 2] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1
            steps = -(-room // stride[i]) if ceil else room // stride[i]
            out.append(max(steps + 1, 0))
    width = x.dtype.itemsize + (8 if "with_indices" in call.base else 0)
    return Cost(None, x.bytes + numel(out) * width)


def _pool_backward(call: Call) -> Cost:
    """Gradient (and indices) read, a gradient of the input's size written."""
    grad, x = call.need(0), call.need(1)
    indices = call.tensor(7) if "with_indices" in call.base else None
    return Cost(None, grad.bytes + (indices.bytes if indices is not None else 0) + x.result_bytes)


def _resize(call: Call) -> Cost:
    """``_adaptive_avg_pool2d(self, size)``, ``upsample_*(self, size, …)``."""
    x = call.need(0)
    out = call.output()
    size = call.integers(1)
    if out is None:
        if not size or len(x.shape) < len(size):
            raise Unknown(f"the trace does not record the output size of {call.name}")
        out = [*x.shape[: len(x.shape) - len(size)], *size]
    # Shrinking by nearest neighbour reads one input an output; others read everything.
    read = min(x.bytes, numel(out) * x.dtype.itemsize) if "nearest" in call.base else x.bytes
    return Cost(None, read + numel(out) * x.dtype.itemsize)


def _resize_backward(call: Call) -> Cost:
    grad = call.need(0)
    if "adaptive" in call.base:
        return Cost(None, grad.bytes + call.need(1).result_bytes)
    size = call.integers(2)
    if not size:
        raise Unknown(f"the trace does not record the input size of {call.name}")
    return Cost(None, grad.bytes + numel(size) * grad.dtype.itemsize)


def _multinomial(call: Call) -> Cost:
    x, count = call.need(0), call.integer(1)
    if count is None or not x.shape:
        raise Unknown(f"the trace does not record the sample count of {call.name}")
    return Cost(None, x.bytes + 8 * count * numel(x.shape[:-1]))


def _bucketize(call: Call) -> Cost:
    """``bucketize(x, boundaries)``, ``searchsorted(boundaries, x)``: indices out."""
    a, b = call.need(0), call.need(1)
    values = b if call.base == "searchsorted" else a
    return Cost(None, a.bytes + b.bytes + 8 * values.numel)


def _foreach(call: Call) -> Cost:
    """Every list read once, one list as long as the first written (itself, or a new one)."""
    lists = [i for i in range(len(call)) if is_tensor_list(call.dtypes[i])]
    if not lists:
        raise Unknown(f"the trace does not record the lists of {call.name}")
    counts = [sum(map(numel, call.tensor_list(i))) for i in lists]
    width = call.list_bytes_per_element()
    if call.base == "_foreach_copy":
        return Cost(None, (counts[0] + counts[-1]) * width)
    if call.base == "_foreach_zero":
        return Cost(None, counts[0] * width)
    if call.base in ("_foreach_norm", "_foreach_max"):
        return Cost(None, counts[0] * width + len(call.tensor_list(lists[0])) * width)
    return Cost(None, (sum(counts) + counts[0]) * width)


# optimizer → (lists read, lists written), by position; steps and learning rates are one element each
_OPTIMIZERS = {
    "_fused_adam": ((0, 1, 2, 3, 4), (0, 2, 3, 4)),
    "_fused_adamw": ((0, 1, 2, 3, 4), (0, 2, 3, 4)),
    "_fused_sgd": ((0, 1, 2), (0, 2)),
    "_fused_adagrad": ((0, 1, 2), (0, 2)),
}


def _optimizer(call: Call) -> Cost:
    """Parameters, gradients and moments read; parameters and moments written. Absent lists weigh nothing."""
    read, written = _OPTIMIZERS[call.base]
    width = call.list_bytes_per_element()
    sizes = [sum(map(numel, call.tensor_list(i))) for i in (0, 1)]
    for i in range(2, len(read)):
        shapes = call.shapes[i] if i < len(call.shapes) else []
        sizes.append(sum(map(numel, call.tensor_list(i))) if shapes else 0)
    moved = sum(sizes[i] for i in read) + sum(sizes[i] for i in written)
    return Cost(None, moved * width, note="all lists taken to have one element type")


def _quantize(call: Call) -> Cost:
    """``quantize_per_tensor``-like: read in one type, write one byte each."""
    x = call.need(0)
    kind = from_code(call.text(3))
    return Cost(None, x.bytes + x.numel * (kind.itemsize if kind is not None else 1))


_FOREACH = """
    abs acos add addcdiv addcmul ceil clamp_max clamp_min copy cos div erf exp expm1 floor frac lerp log log10
    log1p log2 max maximum minimum mul neg norm pow reciprocal round rsqrt sigmoid sign sin sqrt sub tan tanh
    trunc zero
"""

FORMULAS = {
    "copy": _copy,
    **dict.fromkeys(("clone", "contiguous", "reshape", "flatten", "lift_fresh_copy", "view_copy"), _clone),
    **dict.fromkeys(("to", "_to_copy", "type_as"), _convert),
    **dict.fromkeys(
        ("fill", "zero", "uniform", "normal", "random", "exponential", "bernoulli", "geometric", "cauchy",
         "log_normal", "fill_diagonal", "eye"),
        _fill,
    ),
    **dict.fromkeys(("item", "_local_scalar_dense"), _scalar),
    "arange": _arange,
    "range": _arange,
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "zeros", "ones", "full", "rand",
         "randn", "randint", "new_zeros", "new_ones", "new_full", "scalar_tensor"),
        _factory,
    ),
    **dict.fromkeys(("cat", "_cat", "concat", "stack", "_stack"), _cat),
    "embedding": _embedding,
    "index_select": _index_select,
    **dict.fromkeys(("gather", "take", "take_along_dim"), _gather),
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(
        ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy", "index_reduce"), _scatter
    ),
    "index_fill": _index_fill,
    "embedding_dense_backward": _embedding_backward,
    "repeat": _repeat,
    **dict.fromkeys(("flip", "roll", "rot90"), _permuted),
    **dict.fromkeys(("max_pool2d_with_indices", "avg_pool2d"), _pool),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "avg_pool2d_backward"), _pool_backward),
    **dict.fromkeys(
        ("_adaptive_avg_pool2d", "upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d",
         "upsample_bicubic2d", "upsample_nearest1d", "upsample_nearest3d", "upsample_linear1d"),
        _resize,
    ),
    **dict.fromkeys(
        ("_adaptive_avg_pool2d_backward", "upsample_nearest2d_backward", "upsample_bilinear2d_backward"),
        _resize_backward,
    ),
    "multinomial": _multinomial,
    **dict.fromkeys(("bucketize", "searchsorted"), _bucketize),
    **{f"_foreach_{name}": _foreach for name in _FOREACH.split()},
    **dict.fromkeys(_OPTIMIZERS, _optimizer),
    "quantize_per_tensor": _quantize,
}  # fmt: skip
