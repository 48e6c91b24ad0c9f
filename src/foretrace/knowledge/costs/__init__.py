"""What operators cost: FLOPs of their products, least bytes they move, from one row of a trace.

One file a class of operators, each a table ``FORMULAS`` from operator name to formula; adding an operator is
one function, one line in the table and one test.

    >>> cost = op_cost("aten::mm", shapes=[[8192, 768], [768, 3072]], dtypes=["c10::BFloat16"] * 2)
    >>> cost.flops, cost.bytes
    (38654705664, 67633152)

The cost is that of the named operator alone. A trace nests operators (``aten::linear`` calls
``aten::addmm``), so whoever sums costs takes them from the operators that launched the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from foretrace.knowledge.costs import (
    attention,
    convolution,
    fused,
    gemm,
    memory,
    normalization,
    pointwise,
    reduction,
)
from foretrace.knowledge.costs.call import Call, Cost, GemmShape, Unknown
from foretrace.knowledge.costs.triton import triton_cost
from foretrace.knowledge.views import effect

__all__ = ["Cost", "GemmShape", "has_formula", "op_cost", "triton_cost"]

_FORMULAS: dict[str, Callable[[Call], Cost]] = {}
for _table in (
    memory.FORMULAS,
    reduction.FORMULAS,
    normalization.FORMULAS,
    pointwise.FORMULAS,
    attention.FORMULAS,
    convolution.FORMULAS,
    gemm.FORMULAS,
    fused.FORMULAS,
):
    _FORMULAS.update(_table)

# They launch nothing themselves: their children in the trace are counted.
_COMPOSITE = """
    einsum tensordot cross_entropy_loss nll_loss nll_loss_nd nll_loss2d dropout slice_backward select_backward
    embedding_backward constant_pad_nd pad binary_cross_entropy_with_logits linalg_norm flatten_dense_tensors
    value_selecting_reduction_backward gather_backward max_pool2d max_pool1d max_pool3d adaptive_avg_pool2d
    group_norm instance_norm _scaled_dot_product_attention_math multi_head_attention_forward lstm gru rnn_tanh
    tile hstack vstack dstack one_hot interpolate kl_div l1_loss cosine_similarity cdist pairwise_distance
    index_backward index_select_backward sum_to_size norm_except_dim _weight_norm linear_backward
    diagonal_backward trace_backward
"""
_COMPOSITES = frozenset(_COMPOSITE.split())


def has_formula(op: str) -> bool:
    """Whether there is a formula for this operator (its row may still say too little)."""
    return _lookup(op) is not None


def _lookup(op: str) -> Callable[[Call], Cost] | None:
    bare = op.removeprefix("aten::")
    found = _FORMULAS.get(bare)
    if found is None:
        found = _FORMULAS.get(bare.split(".", 1)[0].removesuffix("_"))
    return found


def op_cost(
    op: str,
    *,
    shapes: Sequence[Any],
    dtypes: Sequence[str],
    strides: Sequence[Any] | None = None,
    concrete: Sequence[str] | None = None,
    outputs: Sequence[Any] | None = None,
    list_itemsize: int | None = None,
) -> Cost:
    """The cost of one operator call.

    ``op`` as traces name it (``aten::mm``). ``shapes``, ``dtypes``, ``strides``, ``concrete`` are Kineto's
    ``Input Dims`` (nested for tensor lists), ``Input type``, ``Input Strides`` (elements) and ``Concrete
    Inputs``; older traces lack the last two, and then what depends on them is ``None``. ``outputs``: shapes
    of the results, where known. ``list_itemsize``: bytes an element of tensor-list members, which no trace
    records but a kernel name or a neighbouring row may tell.

    Never raises: what cannot be known is ``None`` with a ``reason``.
    """
    try:
        call = Call(op, shapes, dtypes, strides, concrete, outputs, list_itemsize)
        formula = _FORMULAS.get(call.base) or _lookup(op)
        if formula is None:
            return Cost(reason=_why_not(op, call.base))
        return formula(call)
    except Unknown as why:
        return Cost(reason=str(why))
    except Exception as problem:
        return Cost(reason=f"the row of {op} cannot be read ({type(problem).__name__})")


def _why_not(op: str, base: str) -> str:
    kind = effect(op)
    if kind == "view":
        return f"{op} is a view: it changes sizes and strides, no data moves"
    if kind in ("allocation", "query"):
        return f"{op} moves no data"
    if base in _COMPOSITES or op in fused.LAYERS:
        return f"{op} is made of other operators, which are counted"
    if op.startswith("autograd::engine::") or op.split("::")[-1].rstrip("0123456789").endswith("Backward"):
        return f"{op} is a node of the backward graph; the operators it calls are counted"
    if op.startswith(("c10d::", "nccl:", "record_param_comms", "_c10d_functional::")):
        return f"{op} communicates; what it moves depends on the algorithm and the number of ranks"
    return f"no cost formula for {op}"
