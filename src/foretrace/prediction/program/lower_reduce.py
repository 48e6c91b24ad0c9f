"""Reductions: one kernel a call, and the memset before it where several blocks share a result."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.lowering.reductions import Reduction, shares_results
from foretrace.prediction.program.operands import Call, Operand, touched
from foretrace.prediction.work import Access, Work

__all__ = ["REDUCTIONS", "lower_reduction"]

_REDUCTIONS = """
    sum nansum mean prod amax amin max min any all argmax argmin norm linalg_vector_norm var std var_mean std_mean
    logsumexp count_nonzero aminmax median
    """
REDUCTIONS = frozenset(_REDUCTIONS.split())


def lower_reduction(call: Call, gpu: Gpu | None, fresh: Callable[[], int]) -> list[Work]:
    """The kernel of one reduction. A maximum of two tensors is no reduction: it is pointwise in torch's own tags."""
    x = call.operands()[0]
    results = [item for item in call.outputs if item.on_gpu] or list(call.written)
    result = results[0]
    inputs = x.elements // max(result.elements, 1)
    if not x.elements:
        return []
    found = []
    shape = _geometry(x, _reduced_dims(call, x))
    if shape is not None and shares_results(shape, gpu):
        counters = Access(fresh(), 4 * max(1, result.elements))
        found.append(Work("memset", call.op, result.dtype, (), (counters,), max(1, result.elements)))
    work = Work(
        kind="reduction",
        op=call.op,
        dtype=x.dtype,
        reads=(x.access,),
        writes=touched(results),
        elements=x.elements,
        reduced=inputs,
        vectorised=shape is None or (shape.inner and shape.contiguous),
    )
    return [*found, work]


def _reduced_dims(call: Call, x: Operand) -> set[int]:
    dims = call.argument("dim")
    if isinstance(dims, int):
        dims = (dims,)
    if not isinstance(dims, tuple) or not dims:
        return set(range(len(x.shape)))
    return {dim % max(len(x.shape), 1) for dim in dims if isinstance(dim, int)}


def _geometry(x: Operand, reduced: set[int]) -> Reduction | None:
    """How the iterator sees it once dimensions are sorted by stride and neighbours are joined."""
    dims = [
        (stride, size, index in reduced)
        for index, (size, stride) in enumerate(zip(x.shape, x.strides, strict=True))
        if size > 1
    ]
    if not dims:
        return None
    inner_of = {
        flag: min((stride for stride, _, is_reduced in dims if is_reduced == flag), default=None)
        for flag in (True, False)
    }
    nearest_in, nearest_out = inner_of[True], inner_of[False]
    if nearest_in is None:
        return None
    inner = nearest_out is None or nearest_in < nearest_out
    joined: list[tuple[int, int, bool]] = []
    for stride, size, flag in sorted(dims):
        if joined and joined[-1][2] == flag and joined[-1][0] * joined[-1][1] == stride:
            joined[-1] = (joined[-1][0], joined[-1][1] * size, flag)
        else:
            joined.append((stride, size, flag))
    nearest = nearest_in if inner else nearest_out
    return Reduction(
        outputs=prod(size for _, size, flag in dims if not flag),
        inputs=prod(size for _, size, flag in dims if flag),
        inner=inner,
        contiguous=nearest == 1,
        flat=len(joined) == 1,
    )
