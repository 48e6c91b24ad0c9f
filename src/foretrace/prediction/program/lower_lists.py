"""Operators on lists of tensors (``_foreach_*``, fused optimizers): many tensors a kernel, several kernels a list."""

from __future__ import annotations

from dataclasses import replace

from foretrace.knowledge.lowering.eager import FOREACH_OPTIMIZERS, LIST_KERNELS, multi_tensor_launches
from foretrace.prediction.program.operands import Call, Operand
from foretrace.prediction.work import Access, Work

__all__ = ["lower_foreach", "lower_optimizer"]


def lower_foreach(call: Call) -> list[Work]:
    """The kernels of one ``_foreach_*`` operator."""
    return _lists(call, LIST_KERNELS.get(call.base, "elementwise"), None)


def lower_optimizer(call: Call) -> list[Work]:
    """The kernels of one fused optimizer step."""
    return _lists(call, "optimizer", FOREACH_OPTIMIZERS[call.base])


def _lists(call: Call, kind: str, depth: int | None) -> list[Work]:
    """Kernels over lists of tensors, walked together; each launch takes a bounded number of chunks."""
    lists = [
        [item for item in argument if isinstance(item, Operand)]
        for argument in call.args
        if isinstance(argument, tuple) and any(isinstance(item, Operand) for item in argument)
    ]
    lists = [items for items in lists if all(item.on_gpu for item in items)]
    if not lists:
        return []
    walked = lists[:depth] if depth is not None else lists
    results = list(call.outputs) if not call.written else []
    count = len(walked) + (1 if results and depth is None else 0)
    sizes = [item.elements for item in walked[0]]
    scalars = any(isinstance(a, tuple) and a and isinstance(a[0], (int, float)) for a in call.args)
    found = []
    for launch in multi_tensor_launches(sizes, count, scalars=scalars or depth is not None):
        reads, writes = [], []
        for index, part in launch:
            for position, items in enumerate(walked):
                if index >= len(items):
                    continue
                share = _share(items[index], part)
                if not (call.base == "_foreach_zero" or (call.base == "_foreach_copy" and position == 0)):
                    reads.append(share)
                if any(items[index].tensor.storage == item.tensor.storage for item in call.written):
                    writes.append(share)
            if results and kind != "reduction":
                writes.append(_share(results[index], part))
        found.append(
            Work(kind, call.op, walked[0][0].dtype, tuple(reads), tuple(writes), sum(part for _, part in launch))
        )
    if kind == "reduction":
        found.append(replace(found[-1], reads=(), writes=tuple(item.access for item in results), elements=len(sizes)))
    return found


def _share(item: Operand, elements: int) -> Access:
    return Access(item.tensor.storage, item.access.bytes * elements // max(item.elements, 1))
