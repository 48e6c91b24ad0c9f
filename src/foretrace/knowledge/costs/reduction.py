"""Reductions, scans, softmax, losses, sorting: the input read once, the (smaller) result written once.

Argument positions are those of ATen's ``native_functions.yaml``.
"""

from __future__ import annotations

from math import prod

from foretrace.knowledge.costs.call import Call, Cost, Operand, Unknown
from foretrace.knowledge.dtypes import Dtype, dtype

__all__ = ["FORMULAS"]

# operator → position of its dim argument, whether indices come with the values
_REDUCTIONS = {
    "sum": 1, "nansum": 1, "mean": 1, "nanmean": 1, "amax": 1, "amin": 1, "prod": 1, "all": 1, "any": 1,
    "var": 1, "std": 1, "var_mean": 1, "std_mean": 1, "logsumexp": 1, "count_nonzero": 1, "argmax": 1,
    "argmin": 1, "max": 1, "min": 1, "median": 1, "nanmedian": 1, "mode": 1, "norm": 2,
    "linalg_vector_norm": 2, "aminmax": 1,
}  # fmt: skip
_LENGTHWISE = frozenset({"max", "min", "median", "nanmedian", "mode"})  # (values, int64 indices) with a dim


def _int64() -> Dtype:
    found = dtype("int64")
    assert found is not None
    return found


_INT64 = _int64().itemsize


def _kept(call: Call, x: Operand, position: int) -> int:
    """Elements that remain; raises where the trace does not hold the dims."""
    kind = call.dtypes[position] if position < len(call) else ""
    if call.base in _LENGTHWISE and position >= len(call):
        return 1
    if position >= len(call) or kind == "":
        # No dim argument, or it is None: everything is reduced. Old traces also write "" for an unknown
        # list, but then they hold no concrete values at all.
        if position < len(call) and call.concrete is None and len(call) > 2:
            raise Unknown(f"the trace does not record the dims of {call.name}")
        return 1
    dims = call.integers(position)
    if dims is None:
        single = call.integer(position)
        if single is None:
            if call.base in ("sum", "mean", "prod", "all", "any") and len(call) <= position + 1:
                return 1  # the overload without dims; the second argument is dtype=
            raise Unknown(f"the trace does not record the dims of {call.name}")
        if call.base in ("sum", "mean", "nansum", "prod") and len(call) == 2:
            return 1  # sum(self, *, dtype): the number is a ScalarType
        dims = [single]
    if not dims:
        return 1
    rank = len(x.shape)
    reduced = {d + rank if d < 0 else d for d in dims}
    if any(not 0 <= d < max(rank, 1) for d in reduced):
        raise Unknown(f"the dims {dims} of {call.name} are outside its {rank}-dimensional input")
    return prod(size for d, size in enumerate(x.shape) if d not in reduced)


def _reduce(call: Call) -> Cost:
    x = call.need(0)
    base = call.base
    second = call.tensor(1)
    if base in ("max", "min") and second is not None and len(call) >= 2:
        return _elementwise_pair(x, second)
    position = _REDUCTIONS[base]
    explicit = _out(call, position)
    if explicit is not None:
        written = explicit.bytes
        if base in _LENGTHWISE and call.tensor(len(call) - 2) is not None:
            written += call.need(len(call) - 2).bytes
        return Cost(None, x.bytes + written)
    kept = _kept(call, x, position)
    return Cost(None, x.bytes + kept * _width(call, x, position))


def _width(call: Call, x: Operand, position: int) -> int:
    """Bytes of one result (values and, where they come along, indices)."""
    base = call.base
    if base in ("argmax", "argmin", "count_nonzero"):
        return _INT64
    if base in ("all", "any"):
        return 1
    wanted = None
    if base in ("sum", "nansum", "mean", "prod"):
        wanted = call.dtype_at(position if len(call) == 2 else position + 2)
    elif base == "linalg_vector_norm":
        wanted = call.dtype_at(position + 2)
    size = wanted.itemsize if wanted is not None else x.dtype.itemsize
    if wanted is None and base in ("sum", "nansum", "prod") and x.dtype.kind in ("int", "bool"):
        size = _INT64
    if base in ("var_mean", "std_mean", "aminmax"):
        return 2 * size
    if base in _LENGTHWISE and call.dtypes[1:2]:
        return size + _INT64
    return size


def _out(call: Call, position: int) -> Operand | None:
    for index in range(len(call) - 1, position, -1):
        found = call.tensor(index)
        if found is not None and found.numel:
            return found
    return None


def _elementwise_pair(a: Operand, b: Operand) -> Cost:
    larger = a if a.numel >= b.numel else b
    return Cost(None, a.bytes + b.bytes + larger.result_bytes)


def _softmax(call: Call) -> Cost:
    """Input read, result written; ``half_to_float`` makes the result fp32. A ``dtype=`` converts."""
    x = call.need(0)
    width = x.dtype.itemsize
    if call.base.startswith("_"):
        if call.boolean(2):
            width = 4
    else:
        wanted = call.dtype_at(2)
        width = wanted.itemsize if wanted is not None else width
    return Cost(None, x.bytes + x.numel * width)


def _softmax_backward(call: Call) -> Cost:
    """``(grad, output, dim, input_dtype)``."""
    grad, out = call.need(0), call.need(1)
    wanted = call.dtype_at(3)
    width = wanted.itemsize if wanted is not None else grad.dtype.itemsize
    return Cost(None, grad.bytes + out.bytes + out.numel * width)


def _scan(call: Call) -> Cost:
    """``cumsum`` and its like write as much as they read; integer sums become int64; max/min add indices."""
    x = call.need(0)
    wanted = call.dtype_at(2)
    width = wanted.itemsize if wanted is not None else x.dtype.itemsize
    if wanted is None and call.base in ("cumsum", "cumprod") and x.dtype.kind in ("int", "bool"):
        width = _INT64
    if call.base in ("cummax", "cummin"):
        width += _INT64
    return Cost(None, x.bytes + x.numel * width)


def _sort(call: Call) -> Cost:
    x = call.need(0)
    indices = 0 if call.base == "msort" else x.numel * _INT64
    values = 0 if call.base == "argsort" else x.result_bytes
    return Cost(None, x.bytes + values + indices)


def _topk(call: Call) -> Cost:
    """``topk(self, k, dim)`` and ``kthvalue(self, k, dim)``: values and int64 indices."""
    x = call.need(0)
    count = call.integer(1)
    if count is None:
        raise Unknown(f"the trace does not record k of {call.name}")
    dim = call.integer(2)
    dim = -1 if dim is None else dim
    if not x.shape or not -len(x.shape) <= dim < len(x.shape) or not x.shape[dim]:
        raise Unknown(f"dim {dim} of {call.name} is outside its input")
    results = x.numel // x.shape[dim] * (count if call.base == "topk" else 1)
    return Cost(None, x.bytes + results * (x.dtype.itemsize + _INT64))


def _nll(call: Call) -> Cost:
    """One log-probability a target is read, not the whole table; reduction 0 keeps them apart."""
    x, target = call.need(0), call.need(1)
    weight = call.tensor(2)
    read = target.bytes + target.numel * x.dtype.itemsize + (weight.bytes if weight is not None else 0)
    reduction = call.integer(3)
    written = target.numel * x.dtype.itemsize if reduction == 0 else 2 * x.dtype.itemsize
    return Cost(None, read + written)


def _nll_backward(call: Call) -> Cost:
    """``(grad, self, target, …)``: its own kernel writes one value a target; the zero fill is another's."""
    grad, x, target = call.need(0), call.need(1), call.need(2)
    return Cost(
        None,
        grad.bytes + target.bytes + target.numel * x.dtype.itemsize,
        note="without the zero fill of the gradient, which is an operator of its own",
    )


def _loss(call: Call) -> Cost:
    """``mse_loss(self, target, reduction)`` and its like."""
    x, target = call.need(0), call.need(1)
    position = 3 if call.base.startswith("binary") else 2
    weight = call.tensor(2) if position == 3 else None
    reduction = call.integer(position)
    written = x.result_bytes if reduction == 0 else x.dtype.itemsize
    if reduction is None:
        raise Unknown(f"the trace does not record the reduction of {call.name}")
    return Cost(None, x.bytes + target.bytes + (weight.bytes if weight is not None else 0) + written)


def _loss_backward(call: Call) -> Cost:
    """``(grad, self, target, …)``: a gradient as large as the input."""
    grad, x, target = call.need(0), call.need(1), call.need(2)
    return Cost(None, grad.bytes + x.bytes + target.bytes + x.result_bytes)


FORMULAS = {
    **dict.fromkeys(_REDUCTIONS, _reduce),
    **dict.fromkeys(("softmax", "log_softmax", "_softmax", "_log_softmax", "_safe_softmax"), _softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax_backward),
    **dict.fromkeys(("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp"), _scan),
    **dict.fromkeys(("sort", "argsort", "msort"), _sort),
    **dict.fromkeys(("topk", "kthvalue"), _topk),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_backward),
    **dict.fromkeys(
        ("mse_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy", "soft_margin_loss"), _loss
    ),
    **dict.fromkeys(
        ("mse_loss_backward", "smooth_l1_loss_backward", "huber_loss_backward",
         "binary_cross_entropy_backward", "soft_margin_loss_backward"),
        _loss_backward,
    ),
}  # fmt: skip
