"""FLOPs and bytes of kernels: what their operator must do, given to the kernel that does it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from math import prod

from foretrace.analysis.context import Context
from foretrace.knowledge.costs import Cost, GemmShape, op_cost, triton_cost
from foretrace.knowledge.dtypes import dtype, itemsize
from foretrace.knowledge.kernels import GENERATED, Decoded
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.limits import COMPUTE_KINDS, MAIN_KERNEL_SHARE
from foretrace.model.prediction import PredictedRow, read_prediction

__all__ = ["KernelCost", "KernelCosts"]

# An operator whose own cost is unknown may be a wrapper's inner half: look this far up for one that is known.
_LOOK_UP = 3


@dataclass(frozen=True)
class KernelCost:
    """What one kernel does; ``reason`` says why something is unknown."""

    flops: int | None
    bytes: int | None
    gemm: GemmShape | None
    op_row: int
    reason: str | None
    dtype: str | None = None  # of the operator's first floating-point operand


_SEVERAL = "the operator launches several kernels; its bytes belong to all of them together"
_NOTHING = KernelCost(None, None, None, -1, "the trace ties no operator to this kernel")


@dataclass(eq=False)
class KernelCosts:
    """Costs of kernels by row, computed on demand and kept."""

    context: Context
    _kept: dict[int, KernelCost] = field(default_factory=dict, init=False)
    _by_operands: dict[tuple[str, bytes], Cost] = field(default_factory=dict, init=False)

    def of(self, row: int) -> KernelCost:
        """Cost of a kernel row."""
        kept = self._kept.get(row)
        if kept is None:
            costs = self._costs(row)
            dtypes = {op: self._operand_dtype(op) for op in {cost.op_row for cost in costs.values()}}
            for sibling, cost in costs.items():
                known = self._or_predicted(sibling, _within_64_bits(cost))
                self._kept[sibling] = replace(known, dtype=dtypes[cost.op_row])
            kept = self._kept[row]
        return kept

    def _or_predicted(self, row: int, cost: KernelCost) -> KernelCost:
        """A predicted trace knows of its kernels what operands leave open: which a generated one writes in place."""
        planned = self._planned.get(int(self.context.trace.event[row]))
        if planned is None or cost.flops is not None or cost.bytes is not None:
            return cost
        if planned.flops is planned.bytes is None:
            return cost  # nothing is learned, and the reason stays
        return replace(cost, flops=planned.flops, bytes=planned.bytes, reason=None)

    @cached_property
    def _planned(self) -> dict[int, PredictedRow]:
        info = read_prediction(self.context.trace.meta)
        return {} if info is None else {row.event: row for row in info.rows}

    def _operand_dtype(self, op: int) -> str | None:
        if op < 0:
            return None
        found = (dtype(spelling) for spelling in self.context.operands(op)["dtypes"])
        return next((d.name for d in found if d is not None and d.kind == "float"), None)

    def _costs(self, row: int) -> dict[int, KernelCost]:
        """Costs of a kernel and of the others its operator launched, shared out once for all of them."""
        op = int(self.context.attribution.op[row])
        if op < 0:
            return {row: _NOTHING}
        siblings = self.context.kernels_of_op.get(op, [row])
        cost = self.of_operator(op)
        if cost.flops is None and cost.bytes is None:
            for up in islice(self.context.trace.forest.ancestors(op), _LOOK_UP):
                if self.context.trace.kind[up] != RowKind.OPERATOR or self._below.get(up) != siblings:
                    break
                above = self.of_operator(up)
                if above.flops is not None or above.bytes is not None:
                    op, cost = up, above
                    break
        return self._shares(op, cost, siblings)

    def _shares(self, op: int, cost: Cost, siblings: list[int]) -> dict[int, KernelCost]:
        """The parts of an operator's cost that fall to its kernels."""
        gemm = cost.gemms[0] if len(cost.gemms) == 1 else None
        whole = KernelCost(cost.flops, cost.bytes, gemm, op, cost.reason)
        if len(siblings) == 1:
            return {siblings[0]: whole}
        main = [s for s in siblings if self._does_the_product(s)]
        if not main and cost.flops is None:
            chunks = self._chunks(cost, siblings)
            return {s: KernelCost(None, b, None, op, cost.reason or _SEVERAL) for s, b in chunks.items()}
        shares = dict.fromkeys(siblings, KernelCost(None, None, None, op, "a helper kernel of its operator"))
        if not main:
            # All are named after their part in it (a matrix-vector product and the sum of its splits).
            products = [s for s in siblings if self.context.decoded(s).kind in COMPUTE_KINDS]
            main = sorted(products, key=lambda s: -int(self.context.trace.duration[s]))[:1]
        if len(main) == 1:
            # Helpers (a split-K reduction, a layout change) move bytes of their own: the operator's least bytes
            # are a lower bound for the main kernel.
            shares[main[0]] = whole
        elif len(cost.gemms) == len(main):
            # One product a kernel, in the order they are issued.
            for row, shape in zip(main, cost.gemms, strict=True):
                flops = 2 * shape.m * shape.n * shape.k * shape.batch
                shares[row] = KernelCost(flops, None, shape, op, cost.reason)
        elif main:
            duration = self.context.trace.duration[main].tolist()
            if max(duration) >= MAIN_KERNEL_SHARE * sum(duration):
                shares[main[duration.index(max(duration))]] = whole
            else:
                spread = KernelCost(None, None, None, op, "the operator's FLOPs are spread over several kernels")
                shares.update(dict.fromkeys(main, spread))
        return shares

    def _chunks(self, cost: Cost, siblings: list[int]) -> dict[int, int | None]:
        """The bytes of several launches of one kernel, by their shares of the blocks.

        ``multi_tensor_apply`` and ``cat`` cut their lists into launches whose blocks do equal work, but for the last.
        """
        trace = self.context.trace
        unknown: dict[int, int | None] = dict.fromkeys(siblings)
        if cost.bytes is None or len(set(trace.name_id[siblings].tolist())) > 1:
            return unknown
        blocks = [self._blocks(s) for s in siblings]
        if min(blocks) <= 0:
            return unknown
        return {s: round(cost.bytes * n / sum(blocks)) for s, n in zip(siblings, blocks, strict=True)}

    def _blocks(self, row: int) -> int:
        grid = self.context.trace.args(row).get("grid")
        return prod(grid) if isinstance(grid, list) and all(isinstance(n, int) for n in grid) else 0

    def _does_the_product(self, row: int) -> bool:
        """Whether a kernel is a product itself; ``role`` marks helpers such as a split-K reduction."""
        decoded = self.context.decoded(row)
        return decoded.kind in COMPUTE_KINDS and "role" not in decoded.decoded

    def of_operator(self, op: int) -> Cost:
        """Cost of an operator row from its recorded operands."""
        trace = self.context.trace
        name = trace.name(op)
        operands = self.context.operands(op)
        key = (name, repr(operands).encode())
        kept = self._by_operands.get(key)
        if kept is not None:
            return kept
        kernels = self.context.kernels_of_op.get(op, [])
        decoded = self.context.decoded(kernels[0]) if kernels else None
        cost = None
        if decoded is not None and len(kernels) == 1 and decoded.family in GENERATED:
            ops = [str(o) for o in decoded.decoded.get("ops") or []]
            settings = trace.args(op).get("kernel_kwargs")
            cost = triton_cost(
                trace.name(kernels[0]),
                ops=ops,
                kernel_kwargs=settings if isinstance(settings, str) else None,
                **operands,
            )
        if cost is None or (cost.bytes is None and cost.flops is None):
            # The trace records no element type for the members of a tensor list; the kernel's name often does.
            of_name = op_cost(name, list_itemsize=_element_bytes(decoded), **operands)
            if cost is None or of_name.bytes is not None or of_name.flops is not None:
                cost = of_name  # else the generated kernel's own reason says more
        self._by_operands[key] = cost
        return cost

    @cached_property
    def _below(self) -> dict[int, list[int]]:
        """Row → kernel rows launched anywhere below it, in the order ``kernels_of_op`` keeps."""
        below: dict[int, list[int]] = {}
        forest = self.context.trace.forest
        for inner, rows in self.context.kernels_of_op.items():
            for up in [inner, *forest.ancestors(inner)]:
                below.setdefault(up, []).extend(rows)
        for rows in below.values():
            rows.sort()
        return below


def _within_64_bits(cost: KernelCost) -> KernelCost:
    """Sizes beyond 64 bits are no program's; they say that the recorded shapes are wrong."""
    if max(cost.flops or 0, cost.bytes or 0) < 2**63:
        return cost
    return KernelCost(None, None, None, cost.op_row, "the recorded shapes give sizes beyond 64 bits")


def _element_bytes(decoded: Decoded | None) -> int | None:
    """Bytes an element of what a kernel works on, from its name."""
    if decoded is None:
        return None
    known = decoded.decoded.get("element_bytes")
    return known if isinstance(known, int) else itemsize(decoded.decoded.get("dtype"))
