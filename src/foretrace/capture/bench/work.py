"""What a step has to do at least: FLOPs of its products, bytes that must be read and written once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foretrace.capture.bench.tools import said
from foretrace.capture.variants import leaves_of
from foretrace.capture.workloads import Program
from foretrace.knowledge.costs import has_formula, op_cost
from foretrace.knowledge.costs.call import Operand
from foretrace.knowledge.dtypes import dtype as known_dtype
from foretrace.knowledge.views import effect
from foretrace.model.bench import Limits, Work
from foretrace.prediction.program.walk import tensors_of

__all__ = ["count_work", "hold_against"]

# They read only the rows that are asked for, of their first tensor.
_GATHERS = {"embedding", "index_select", "index", "gather", "take", "_embedding_bag", "_embedding_bag_forward_only"}


class _Tally:
    """Sums up what dispatched operators do."""

    def __init__(self) -> None:
        self.flops: dict[str, int] = {}
        self.unknown: dict[str, str] = {}  # operators that may hold products
        self.uncounted: set[str] = set()
        self._made: set[int] = set()  # storages that the step itself filled
        self._sizes: dict[int, int] = {}
        self._read: dict[int, dict[Any, int]] = {}  # storage → view → bytes
        self._written: dict[int, dict[Any, int]] = {}

    def add(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
        op = str(func._schema.name)
        if effect(op) in ("view", "query", "allocation"):
            if effect(op) == "allocation":
                self._made.update(_storage(tensor) for tensor in tensors_of(out))
            return
        values = [
            args[i] if i < len(args) else kwargs.get(argument.name) for i, argument in enumerate(func._schema.arguments)
        ]
        self._count_flops(op, values)
        self._note_traffic(op, func._schema.arguments, values, out)

    def _count_flops(self, op: str, values: list[Any]) -> None:
        import torch

        tensor = [value if isinstance(value, torch.Tensor) else None for value in values]
        cost = op_cost(
            op,
            shapes=[[] if t is None else list(t.shape) for t in tensor],
            dtypes=["" if t is None else str(t.dtype) for t in tensor],
            strides=[[] if t is None else list(t.stride()) for t in tensor],
            concrete=["" if isinstance(v, torch.Tensor) or v is None else str(v) for v in values],
        )
        if cost.flops:
            kind = next((t.dtype for t in tensor if t is not None and t.is_floating_point()), None)
            found = known_dtype(str(kind))
            name = found.name if found is not None else "other"
            self.flops[name] = self.flops.get(name, 0) + cost.flops
        elif not has_formula(op) and any(True for _ in tensors_of(values)):
            if op.startswith(("aten::", "prims::")):
                self.uncounted.add(op)
            else:
                self.unknown[op] = cost.reason or f"no cost formula for {op}"

    def _note_traffic(self, op: str, arguments: Any, values: list[Any], out: Any) -> None:
        results = list(tensors_of(out))
        gathers = op.removeprefix("aten::") in _GATHERS
        operands = [(argument, list(tensors_of(value))) for argument, value in zip(arguments, values, strict=True)]
        first = True
        for argument, tensors in operands:
            changed = argument.alias_info is not None and argument.alias_info.is_write
            for tensor in tensors:
                if _storage(tensor) in self._made:
                    continue
                size = _bytes(tensor)
                if gathers and first:
                    size = min(size, sum(map(_bytes, results)))
                if changed:
                    others = [_bytes(t) for a, ts in operands if a is not argument for t in ts]
                    self._note(self._written, tensor, min(size, max(others, default=size)))
                else:
                    self._note(self._read, tensor, size)
            first = first and not tensors
        outside = {_storage(tensor) for _, tensors in operands for tensor in tensors} - self._made
        self._made.update(_storage(tensor) for tensor in results if _storage(tensor) not in outside)

    def _note(self, where: dict[int, dict[Any, int]], tensor: Any, size: int) -> None:
        storage = _storage(tensor)
        self._sizes[storage] = int(tensor.untyped_storage().nbytes())
        view = (tensor.data_ptr(), tuple(tensor.shape), tuple(tensor.stride()))
        views = where.setdefault(storage, {})
        views[view] = max(size, views.get(view, 0))

    def _total(self, where: dict[int, dict[Any, int]]) -> int:
        return sum(min(sum(views.values()), self._sizes[storage]) for storage, views in where.items())

    @property
    def read(self) -> int:
        """Bytes of what existed before the step, each view once, no storage more than once."""
        return self._total(self._read)

    def written(self, results: list[Any]) -> int:
        """Bytes of results that the step made, and of what it changed in place."""
        made = {_storage(t): _bytes(t) for t in results if _storage(t) in self._made}
        return sum(made.values()) + self._total(self._written)


def _storage(tensor: Any) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _bytes(tensor: Any) -> int:
    kind = known_dtype(str(tensor.dtype))
    if kind is None:
        return int(tensor.numel() * tensor.element_size())
    return Operand(list(tensor.shape), kind, list(tensor.stride())).bytes


def count_work(program: Program, step: Callable[[], Any], mode: str) -> Work:
    """Run one eager step and count what its operators do; never raises.

    Read: tensors that the step did not make itself, as far as an operator uses them (an embedding's looked-up rows,
    not its table). Written: outputs, in training the gradients. Intermediates need not leave the chip.
    """
    from torch.utils._python_dispatch import TorchDispatchMode

    tally = _Tally()

    base: Any = TorchDispatchMode  # its stubs leave it untyped

    class Counter(base):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            tally.add(func, args, kwargs or {}, out)
            return out

    work = Work()
    try:
        with Counter():
            result = step()
        kept = [leaf.grad for leaf in leaves_of(program) if leaf.grad is not None] if mode == "train" else None
        work.bytes_read = tally.read
        work.bytes_written = tally.written(list(tensors_of(result)) if kept is None else kept)
    except Exception as error:
        why = f"the operators of a step could not be counted: {said(error)}"
        work.missing = dict.fromkeys(("flops", "bytes_read", "bytes_written", "floor_us"), why)
        return work
    work.flops_by_dtype = dict(sorted(tally.flops.items()))
    if tally.unknown:
        work.missing["flops"] = "; ".join(sorted(set(tally.unknown.values()))[:3])
        work.notes.append("the floor leaves out what is unknown, and so is lower than it should be")
    elif tally.flops:
        work.flops = sum(tally.flops.values())
    else:
        work.missing["flops"] = "the step has no matrix product, and pointwise work is not counted"
    if tally.uncounted:
        work.notes.append(f"operators without a cost formula: {', '.join(sorted(tally.uncounted)[:5])}")
    return work


def hold_against(work: Work, limits: Limits) -> None:
    """Fill in how long the work takes at the measured rates: the longer of the two is the floor."""
    rates = {rate.dtype: max(rate.tflops, rate.end_tflops or 0.0) for rate in limits.gemm}
    if work.flops_by_dtype and all(dtype in rates for dtype in work.flops_by_dtype):
        work.compute_us = sum(flops / (rates[dtype] * 1e6) for dtype, flops in work.flops_by_dtype.items())
    elif work.flops_by_dtype:
        work.missing["compute_us"] = limits.missing.get("gemm", "the GEMM rate was not measured")
    else:
        work.missing["compute_us"] = work.missing.get("flops", "no FLOPs were counted")
    if work.bytes_read is None or work.bytes_written is None:
        work.missing["memory_us"] = work.missing["bytes_read"]
    elif limits.copy is None:
        work.missing["memory_us"] = limits.missing.get("copy", "the bandwidth was not measured")
    else:
        gbps = max(limits.copy.gbps, limits.copy.end_gbps or 0.0)
        work.memory_us = (work.bytes_read + work.bytes_written) / (gbps * 1e3)
    if work.memory_us is None or (work.compute_us is None and work.flops_by_dtype):
        work.missing["floor_us"] = work.missing.get("memory_us") or work.missing["compute_us"]
        return
    work.floor_by = "compute" if (work.compute_us or 0.0) >= work.memory_us else "memory"
    work.floor_us = max(work.compute_us or 0.0, work.memory_us)
