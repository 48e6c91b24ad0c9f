"""What a comparison of two traces rests on: thresholds with their reasons, and which work can become one kernel."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.knowledge.copying import FEEDS_GRAPH

__all__ = [
    "DRIFT",
    "EXACT_CELLS",
    "FARTHEST_BYTES",
    "FEWEST_QUARTILES",
    "NEAR_PLACES",
    "NEAR_ROWS",
    "PARTS_NAMED",
    "PREDICTED_SHARE",
    "RELATED_GPU_SHARE",
    "RELATED_OPERATOR_SHARE",
    "RELATED_PRODUCT_SHARE",
    "SAME_FLOPS",
    "absorbs",
    "accumulates",
    "contains",
    "copy_reason",
    "is_part",
]

# From five samples on quartiles say where a median lies; two to four have only their extremes.
FEWEST_QUARTILES = 5

# Two traces are related when kernels paired on a name, a path or equal work take this share of both steps' GPU time,
# or when this share of their operator calls stand in equal call paths. A forward pass inside a training step of the
# same model has about a third of its time; different models share some dispatch chains (linear → addmm) by chance.
RELATED_GPU_SHARE = 0.20
RELATED_OPERATOR_SHARE = 0.30

# Without GPU rows, also when matrix products of equal size hold this share of both steps' FLOPs in products: compiled
# code on a CPU has no other rows in common with the eager program. A forward pass is a third of a training step, and so
# half of the two together.
RELATED_PRODUCT_SHARE = 0.50

# Sums of FLOPs that differ by less than this are the same work: only operators whose cost is not modelled differ.
SAME_FLOPS = 0.01

# Kernels of one name take this much longer or shorter from recording to recording without anybody saying so.
DRIFT = 0.005

# The share of measured calls that a predicted row's interval is meant to hold (docs/concepts/prediction.md).
PREDICTED_SHARE = 0.80

# How many pairs a part may stand away from the fused kernel it went into. A compiler runs a fused kernel when its last
# operand is ready, so its parts lie before it; the distance is about half a transformer layer.
NEAR_PLACES = 12
# The same in rows, where little was paired.
NEAR_ROWS = 24

# Fusing saves what travels between parts, and leaves a fifth of it or more; a kernel that moves less than one in so
# many of a row's bytes does not do that row's work.
FARTHEST_BYTES = 100

# A fused kernel's parts are named one by one up to this many; a line holds no more.
PARTS_NAMED = 6

# Cells of the table that aligns two sequences exactly (one bit each, 0.4 s at this size); longer ones are first cut
# into pieces at equal fractions.
EXACT_CELLS = 20_000_000_000

_POINTWISE = frozenset({"elementwise", "fused", "reduction", "normalization", "softmax", "copy", "memcpy", "memset"})
# What kinds of kernels may have gone into one kernel of a kind, when only their place says so. ``elementwise`` is
# missing: by definition it does the work of one operator.
_ABSORBED_BY: dict[str, frozenset[str]] = {
    "fused": _POINTWISE,
    "reduction": _POINTWISE,
    "normalization": _POINTWISE,
    "softmax": _POINTWISE,
    "optimizer": _POINTWISE | {"optimizer"},
    "attention": _POINTWISE | {"gemm", "sort", "embedding", "other"},
}


def absorbs(kind: str, others: list[str]) -> bool:
    """Whether one kernel of a kind may do the work of several others."""
    allowed = _ABSORBED_BY.get(kind)
    return allowed is not None and len(others) > 1 and all(other in allowed for other in others)


_ACTIVATIONS = frozenset({"gelu", "silu", "relu", "sigmoid"})
# Fused kernels name their parts as ATen does (Inductor: the operators before decomposition); the kernel of an eager
# program hangs on an inner operator of another name. Part → names of the operators that launch it.
_PART_OF: dict[str, frozenset[str]] = {
    "_to_copy": frozenset({"copy_", "to", "_to_copy"}),
    "to": frozenset({"copy_", "to", "_to_copy"}),
    "clone": frozenset({"copy_", "clone", "contiguous"}),
    "copy": frozenset({"copy_", "_foreach_copy_"}),
    "native_layer_norm": frozenset({"native_layer_norm", "layer_norm"}),
    "_fused_rms_norm": frozenset({"_fused_rms_norm", "rms_norm"}),
    "softmax": frozenset({"_softmax", "softmax"}),
    "log_softmax": frozenset({"_log_softmax", "log_softmax"}),
    "native_dropout": frozenset({"native_dropout", "dropout", "bernoulli_"}),
    "full": frozenset({"fill_", "full", "zero_"}),
    "zeros": frozenset({"zero_", "fill_"}),
    "ones": frozenset({"fill_"}),
    "masked_fill": frozenset({"masked_fill_", "masked_fill"}),
    "embedding": frozenset({"embedding", "index_select"}),
    # foretrace's fused modules; the last two where a name does not say which activation.
    "mm": frozenset({"mm", "addmm"}),
    "gelu_tanh": frozenset({"gelu"}),
    "gelu_tanh_backward": frozenset({"gelu_backward"}),
    "relu_backward": frozenset({"threshold_backward"}),
    "activation": _ACTIVATIONS,
    "activation_backward": frozenset({"threshold_backward", *(f"{name}_backward" for name in _ACTIVATIONS)}),
}


def is_part(part: str, op: str | None) -> bool:
    """Whether the kernel that an operator launches does what a fused kernel names as its part.

    In-place operators do the same work as the others (``add_`` and ``add``).
    """
    if op is None:
        return False
    name = op.rpartition("::")[2]
    return name in (part, f"{part}_") or name in _PART_OF.get(part, ()) or f"{name}_" == part


def contains(parts: Sequence[str], others: Sequence[str]) -> bool:
    """Whether a fused kernel that names ``parts`` does all that a fused kernel with the parts ``others`` does.

    A backward of an activation evaluates the activation anew where a gradient beside its own needs it.
    """
    return all(any(is_part(part, other) or is_part(part, f"{other}_backward") for part in parts) for other in others)


# Products whose result is added to what is given: a matrix, a bias, or the output itself.
_ACCUMULATING = frozenset({"addmm", "addbmm", "baddbmm"})


def accumulates(op: str | None) -> bool:
    """Whether a product's operator adds its result to something, itself or through the kernel's beta."""
    return op is not None and op.rpartition("::")[2].removesuffix("_") in _ACCUMULATING


_SEED = "addmm fills its result with the bias first and lets the GEMM add to it (beta = 1): the bias is not fused"
_GRAPH_INPUT = "a CUDA graph reads its inputs from fixed places, so they are copied there before each replay"


def copy_reason(op: str | None, *, memcpy: bool, graphs: bool) -> str | None:
    """Why a copy is there, by the operator that makes it; ``graphs``: whether the trace replays CUDA graphs."""
    if op == "aten::addmm" and memcpy:
        return _SEED
    if graphs and op in FEEDS_GRAPH:
        return _GRAPH_INPUT
    return None
