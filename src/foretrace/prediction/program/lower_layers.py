"""Operators of layers that are several kernels, or one that is no plain pass: norms, embeddings, losses, attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretrace.knowledge.costs import op_cost
from foretrace.knowledge.lowering.attention import AUXILIARY
from foretrace.knowledge.lowering.eager import EMBEDDING_SORT_FROM, LOSSES, SORTED_EMBEDDING, layer_norm_kernels
from foretrace.prediction.program.lower_gemm import lower_convolution
from foretrace.prediction.program.lower_moves import Fresh, Rule, plain
from foretrace.prediction.program.operands import Call, Operand, tensors_in, touched
from foretrace.prediction.work import Access, Work

__all__ = ["LAYERS"]


def _softmax(call: Call, _: Fresh) -> list[Work]:
    """One kernel; how long its rows are decides whether it keeps them on the chip between its passes."""
    result = call.outputs[0]
    dim = call.argument("dim", -1)
    row = result.shape[dim] if result.shape and isinstance(dim, int) else 1
    return [replace(plain(call, "softmax"), reduced=max(row, 1))]


def _layer_norm(call: Call, _: Fresh) -> list[Work]:
    x = call.args[0]
    row = call.args[1][-1] if call.args[1] else 1
    for size in call.args[1][:-1]:
        row *= size
    main = replace(plain(call, "normalization"), reduced=row)
    if layer_norm_kernels(row, x.dtype) == 1:
        return [main]
    moments = tuple(item.access for item in call.outputs[1:])
    first = replace(main, reads=(x.access,), writes=moments)
    return [first, replace(main, reads=(*main.reads, *moments), writes=(call.outputs[0].access,), reduced=1)]


def _norm_backward(call: Call, _: Fresh) -> list[Work]:
    """The gradient of the input, then those of weight and bias together."""
    gradient, x = call.args[0], call.args[1]
    row = 1
    for size in call.args[2]:
        row *= size
    outputs = [item for item in call.outputs if item.on_gpu and item.elements]
    of_input = [item for item in outputs if item.shape == x.shape]
    of_weights = [item for item in outputs if item.shape != x.shape]
    base = replace(plain(call, "normalization"), reduced=row)
    found = []
    if of_input:
        found.append(replace(base, writes=touched(of_input)))
    if of_weights:
        statistics = [item for item in call.operands() if item.elements <= x.elements // row]
        reads = touched((gradient, x, *statistics))
        writes = touched(of_weights)
        found.append(replace(base, reads=reads, writes=writes, reduced=x.elements // row, vectorised=False))
    return found


def _embedding(call: Call, _: Fresh) -> list[Work]:
    table, indices = (item for item in tensors_in(call.args) if item.on_gpu)
    target = call.outputs[0]
    kind = "copy" if len(target.shape) > 1 else "embedding"
    reads = (Access(table.tensor.storage, min(table.access.bytes, target.access.bytes)), indices.access)
    return [Work(kind, "aten::embedding", target.dtype, reads, (target.access,), target.elements)]


def _embedding_backward(call: Call, fresh: Fresh) -> list[Work]:
    gradient, indices = call.args[0], call.args[1]
    target = call.outputs[0]
    fill = Work("elementwise", "aten::fill_", target.dtype, (), (target.access,), target.elements)
    count = indices.elements
    touched = Access(target.tensor.storage, min(target.access.bytes, gradient.access.bytes))
    main = Work("embedding", call.op, target.dtype, (gradient.access, indices.access), (touched,), gradient.elements)
    if count <= EMBEDDING_SORT_FROM:
        return [fill, main]
    keys = Access(fresh(), count * 8)
    small = replace(main, reads=(keys,), writes=(keys,), elements=count)
    arange = replace(small, kind="elementwise", op="aten::arange", reads=())
    before, after = ([replace(small, kind=kind) for kind in kinds] for kinds in SORTED_EMBEDDING)
    partial = Access(fresh(), gradient.elements * 4)
    after[-2] = replace(main, writes=(partial,), note="how many segments the indices form is not known")
    after[-1] = replace(main, reads=(partial, keys))
    return [arange, *before, fill, *after]


def _loss_backward(call: Call, _: Fresh) -> list[Work]:
    target = call.outputs[0]
    labels = call.args[2]
    fill = Work("elementwise", "aten::fill_", target.dtype, (), (target.access,), target.elements)
    touched = Access(target.tensor.storage, labels.elements * (target.access.bytes // max(target.elements, 1)))
    main = Work("elementwise", call.op, target.dtype, (labels.access,), (touched,), labels.elements)
    return [fill, main]


def _loss_forward(call: Call, _: Fresh) -> list[Work]:
    scores, labels = call.args[0], call.args[1]
    gathered = Access(scores.tensor.storage, labels.elements * (scores.access.bytes // max(scores.elements, 1)))
    writes = touched(call.outputs)
    work = Work("reduction", call.op, scores.dtype, (gathered, labels.access), writes, labels.elements)
    return [replace(work, reduced=labels.elements)]


def _pairwise_loss(call: Call, fresh: Fresh) -> list[Work]:
    first = call.operands()[0]
    passed = Access(fresh(), first.access.bytes)
    is_reduced = call.outputs[0].shape != first.shape
    main = replace(plain(call, "elementwise"), writes=(passed,) if is_reduced else touched(call.outputs))
    found = [main] * LOSSES[call.base]
    if is_reduced:
        found.append(
            replace(main, kind="reduction", reads=(passed,), writes=touched(call.outputs), reduced=first.elements)
        )
    return found


def _attention(call: Call, fresh: Fresh) -> list[Work]:
    cost = _cost(call)
    main = replace(plain(call, "attention"), flops=cost.flops, note=cost.reason or cost.note)
    heads = [item.shape[1] for item in call.operands() if len(item.shape) == 4]
    grouped = f"{call.base}+grouped" if len(set(heads)) > 1 else call.base
    recipe = AUXILIARY.get(grouped) or AUXILIARY[call.base]
    counter = Access(fresh(), 4)
    found = []
    for item in recipe:
        if item == "*":
            found.append(main)
        elif item == "memset":
            found.append(replace(main, flops=None, kind="memset", reads=(), writes=(counter,), elements=1))
        else:
            found.append(_beside(call, main, recipe, len(found), fresh))
    return found


def _beside(call: Call, main: Work, recipe: tuple[str, ...], position: int, fresh: Fresh) -> Work:
    """A kernel beside the main one of a backward pass, by its place.

    Before it, gradient and result become one number a row. After it, the gradient of the queries leaves its fp32 sums;
    with grouped heads, those of keys and values are added over a group.
    """
    gradient, query, key = call.operands()[:3]
    whole, part = query.access.bytes, key.access.bytes
    after = position - recipe.index("*")
    reads: tuple[Access, ...]
    if after < 0:
        rows = gradient.elements // max(gradient.shape[-1], 1)
        reads, writes = (gradient.access, Access(fresh(), whole)), (Access(fresh(), rows * 4),)
    elif after == 1:
        reads, writes = (Access(fresh(), query.elements * 4),), (Access(fresh(), whole),)
    else:
        reads, writes = (Access(fresh(), whole),), (Access(fresh(), part),)
    return replace(main, flops=None, note=None, reads=reads, writes=writes, vectorised=True)


def _convolution(call: Call, _: Fresh) -> list[Work]:
    return lower_convolution(call, _cost(call))


def _cost(call: Call) -> Any:
    tensors = [item if isinstance(item, Operand) else None for item in call.args]
    return op_cost(
        call.op,
        shapes=[list(item.shape) if item is not None else [] for item in tensors],
        dtypes=[item.dtype if item is not None else "Scalar" for item in tensors],
        strides=[list(item.strides) if item is not None else [] for item in tensors],
        concrete=["" if isinstance(item, Operand) else _written(item) for item in call.args],
        outputs=[list(item.shape) for item in call.outputs],
    )


def _written(value: Any) -> str:
    return str(list(value)) if isinstance(value, tuple) else "" if value is None else str(value)


_SOFTMAX = "_softmax _log_softmax _safe_softmax _softmax_backward_data _log_softmax_backward_data"
LAYERS: Mapping[str, Rule] = {
    **dict.fromkeys(_SOFTMAX.split(), _softmax),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), _layer_norm),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), _norm_backward),
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _loss_forward),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _loss_backward),
    **dict.fromkeys((name.partition("+")[0] for name in AUXILIARY), _attention),
    **dict.fromkeys(LOSSES, _pairwise_loss),
    **dict.fromkeys(("convolution", "convolution_backward", "cudnn_convolution"), _convolution),
}
