"""Kernels that move or fill memory, and the plain pass over all operands that most operators are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from foretrace.knowledge.lowering.eager import CAT_BATCH
from foretrace.prediction.program.operands import Call, Operand, is_dense, tensors_in, touched
from foretrace.prediction.work import Access, Work

__all__ = ["MOVES", "Fresh", "Rule", "copy_work", "crosses", "plain", "transfer"]

# A number for storage that only the library sees.
Fresh = Callable[[], int]
Rule = Callable[[Call, Fresh], list[Work]]

# Operators that overwrite what they change in place and do not read it.
_OVERWRITING = frozenset({"copy", "fill", "zero", "normal", "uniform", "random", "exponential", "bernoulli", "arange"})


def plain(call: Call, kind: str, *, note: str | None = None) -> Work:
    """One kernel that reads every operand once and writes every result (and every operand changed in place) once."""
    results = [item for item in (*call.outputs, *call.written) if item.on_gpu]
    written = {item.tensor.storage for item in results}
    only_written = written - _read_storages(call)
    reads = touched(item for item in call.operands() if item.tensor.storage not in only_written)
    writes = touched(results)
    main = max(results or call.operands(), key=lambda item: item.elements)
    return Work(
        kind=kind,
        op=call.op,
        dtype=main.dtype,
        reads=reads,
        writes=writes,
        elements=max(item.elements for item in (*results, *call.operands())),
        vectorised=_vectorised(call, main),
        note=note,
        crossed=any(crosses(item, main) for item in (*call.operands(), *results)),
    )


def _read_storages(call: Call) -> set[int]:
    """What a call reads: its operands, but not those it only overwrites."""
    # An operator of autograd's calls its result grad_input.
    overwritten = call.base in _OVERWRITING or not call.keywords.keys().isdisjoint(("out", "grad_input"))
    read = [item.tensor.storage for item in call.operands()]
    if overwritten:
        skipped = {item.tensor.storage for item in call.written}
        read = [storage for storage in read if storage not in skipped]
    return set(read)


def _vectorised(call: Call, main: Operand) -> bool:
    """Whether eager's wide loads apply: all operands lie in memory as the result does, none is broadcast."""
    return all(
        item.elements <= 1 or (item.shape == main.shape and _order(item) == _order(main))
        for item in (*call.operands(), *call.outputs)
        if not (item.elements <= 1 < main.elements and not item.shape)
    ) and is_dense(main)


def crosses(item: Operand, main: Operand) -> bool:
    """Whether a tensor of the same shape strides through memory along the dimension where ``main`` is contiguous."""
    if item.shape != main.shape or 1 not in _order(item):
        return False
    along = [
        stride for size, stride, own in zip(main.shape, item.strides, main.strides, strict=True) if size > 1 == own
    ]
    return bool(along) and along[-1] > 1


def _order(item: Operand) -> tuple[int, ...]:
    return tuple(stride for size, stride in zip(item.shape, item.strides, strict=True) if size > 1)


def transfer(call: Call) -> list[Work] | None:
    """A copy between the CPU and the GPU; ``None`` for every other call."""
    if call.base not in ("copy", "_to_copy"):
        return None
    tensors = list(tensors_in(call.args))
    target = tensors[0] if call.base == "copy" else (call.outputs[0] if call.outputs else None)
    source = tensors[-1] if tensors else None
    if target is None or source is None or target.on_gpu == source.on_gpu or not source.elements:
        return None
    kept = (source.access,) if source.on_gpu else ()
    written = (target.access,) if target.on_gpu else ()
    return [Work("memcpy", "aten::copy_", target.dtype, kept, written, target.elements, note=None)]


def copy_work(op: str, target: Operand, source: Operand) -> Work:
    """A copy on the GPU: the copy engine's where both lie in memory alike, otherwise a kernel."""
    same = target.dtype == source.dtype and is_dense(target) and _order(target) == _order(source)
    same = same and target.shape == source.shape
    return Work(
        kind="memcpy" if same else "copy",
        op=op,
        dtype=target.dtype,
        reads=(source.access,),
        writes=(target.access,),
        elements=target.elements,
        vectorised=is_dense(target) and target.shape == source.shape and _order(target) == _order(source),
        crossed=crosses(source, target),
    )


def _copy(call: Call, _: Fresh) -> list[Work]:
    target, source = call.args[0], call.args[1]
    return [copy_work("aten::copy_", target, source)] if target.elements else []


def _clone(call: Call, _: Fresh) -> list[Work]:
    source, target = call.args[0], call.outputs[0]
    return [copy_work("aten::copy_", target, source)] if target.elements else []


def _fill(call: Call, _: Fresh) -> list[Work]:
    target = (*call.written, *call.outputs)[0]
    if not target.elements:
        return []
    return [Work("elementwise", "aten::fill_", target.dtype, (), (target.access,), target.elements)]


def _filled_then_copied(call: Call, _: Fresh) -> list[Work]:
    """Zeros, and the operand copied into a part of them: the gradient of a slice, a padded tensor."""
    target, part = call.outputs[0], call.operands()[0]
    fill = Work("elementwise", "aten::fill_", target.dtype, (), (target.access,), target.elements)
    touched = Access(target.tensor.storage, min(part.access.bytes, target.access.bytes))
    copied = Work("copy", "aten::copy_", target.dtype, (part.access,), (touched,), part.elements, vectorised=False)
    return [fill, copied] if part.elements else [fill]


def _power(call: Call, fresh: Fresh) -> list[Work]:
    """The powers zero and one are a fill and a copy (aten/src/ATen/native/Pow.cpp)."""
    exponent = call.argument("exponent")
    if exponent == 1 and call.outputs:
        return [copy_work("aten::copy_", call.outputs[0], call.operands()[0])]
    return _fill(call, fresh) if exponent == 0 else [plain(call, "elementwise")]


def _cat(call: Call, _: Fresh) -> list[Work]:
    parts = [item for item in tensors_in(call.args) if item.on_gpu and item.elements]
    target = call.outputs[0]
    return [
        Work(
            "copy",
            call.op,
            target.dtype,
            touched(parts[start : start + CAT_BATCH]),
            (Access(target.tensor.storage, sum(item.access.bytes for item in parts[start : start + CAT_BATCH])),),
            sum(item.elements for item in parts[start : start + CAT_BATCH]),
            vectorised=all(is_dense(item) for item in parts[start : start + CAT_BATCH]),
        )
        for start in range(0, len(parts), CAT_BATCH)
    ]


def _nothing(*_: object) -> list[Work]:
    return []


def _scalar_read(call: Call, _: Fresh) -> list[Work]:
    x = call.operands()
    return [Work("memcpy", call.op, x[0].dtype, (x[0].access,), (), 1)] if x else []


_FILLS = """
    fill zero ones_like zeros_like full_like zeros ones full new_zeros new_ones new_full scalar_tensor
"""
MOVES: Mapping[str, Rule] = {
    "copy": _copy,
    **dict.fromkeys(("clone", "_to_copy", "contiguous"), _clone),
    **dict.fromkeys(_FILLS.split(), _fill),
    **dict.fromkeys(("slice_backward", "select_backward", "constant_pad_nd"), _filled_then_copied),
    "pow": _power,
    **dict.fromkeys(("cat", "stack", "_cat"), _cat),
    "_local_scalar_dense": _scalar_read,
    "_unsafe_view": _nothing,
    "lift_fresh": _nothing,
}
