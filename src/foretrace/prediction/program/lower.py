"""What an eager operator call launches on a GPU: one call becomes a list of `Work`, in launch order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.lowering.eager import FIXED, FOREACH_OPTIMIZERS
from foretrace.knowledge.views import is_metadata_only
from foretrace.prediction.program.lower_fused import FUSED
from foretrace.prediction.program.lower_gemm import GEMMS, lower_gemm
from foretrace.prediction.program.lower_layers import LAYERS
from foretrace.prediction.program.lower_lists import lower_foreach, lower_optimizer
from foretrace.prediction.program.lower_moves import MOVES, Fresh, Rule, plain, transfer
from foretrace.prediction.program.lower_reduce import REDUCTIONS, lower_reduction
from foretrace.prediction.program.operands import Call
from foretrace.prediction.work import Work

__all__ = ["Lowering", "lower"]


@dataclass(slots=True)
class Lowering:
    """What the rules need to know beyond the call, and where they say what they do not know."""

    gpu: Gpu | None = None
    unknown: dict[str, str] = field(default_factory=dict)
    fresh: Fresh = lambda: 0


def lower(call: Call, context: Lowering) -> list[Work]:
    """The work a call launches; nothing for views, allocations and questions, and for tensors of the CPU."""
    moved = transfer(call)
    if moved is not None:
        return moved
    operands = call.operands()
    results = [item for item in call.outputs if item.on_gpu]
    if not operands and not results:
        return []
    if call.view or is_metadata_only(call.op) or call.op == "aten::detach":
        return []
    written = [item for item in (*results, *call.written) if item.on_gpu]
    if not any(item.elements for item in written or operands):
        return []
    base = call.base
    rule = _RULES.get(base)
    if rule is not None:
        return rule(call, context.fresh)
    if base in GEMMS:
        return lower_gemm(call, context.fresh)
    if base in REDUCTIONS and not call.pointwise:
        return lower_reduction(call, context.gpu, context.fresh)
    if base in FOREACH_OPTIMIZERS:
        return lower_optimizer(call)
    if base.startswith("_foreach_"):
        return lower_foreach(call)
    if base in FIXED:
        return [plain(call, FIXED[base])]
    if call.pointwise:
        return [plain(call, "elementwise")]
    return _unknown(call, context)


def _several(kinds: Iterable[str]) -> Rule:
    note = "how many kernels this takes depends on sizes and library; a typical number is assumed"

    def rule(call: Call, _: Fresh) -> list[Work]:
        return [plain(call, kind, note=note) for kind in kinds]

    return rule


def _index_put(call: Call, fresh: Fresh) -> list[Work]:
    if call.argument("accumulate", False):
        return _several(("sort", "sort", "copy"))(call, fresh)
    return [plain(call, "copy")]


def _unknown(call: Call, context: Lowering) -> list[Work]:
    reason = "no rule says which kernels it launches; one pass over its operands is assumed"
    context.unknown.setdefault(call.op, reason)
    return [replace(plain(call, "other"), note=f"{call.op}: {reason}")]


_RULES: Mapping[str, Rule] = {
    **MOVES,
    **LAYERS,
    **FUSED,
    **dict.fromkeys(("index_put", "_index_put_impl", "_unsafe_index_put"), _index_put),
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), _several(("reduction",))),
    **dict.fromkeys(("sort", "argsort", "topk"), _several(("sort", "sort"))),
}
