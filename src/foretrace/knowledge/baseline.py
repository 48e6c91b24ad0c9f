"""What a test's committed baseline counts, what of it may not grow, and how a test measures a step.

Sources: ``native_functions.yaml`` (which operators do the work of others in one call), the documentation of
``torch.Tensor.item`` and ``torch.nonzero`` (which operators read the GPU's results on the host), and PyTorch's CUDA
notes on asynchronous execution.
"""

from __future__ import annotations

from collections.abc import Container

from foretrace.knowledge.compiled import code_name, is_compile_row
from foretrace.knowledge.copying import COPYING, is_scalar_read
from foretrace.knowledge.views import effect

__all__ = [
    "FUSED_OPERATORS",
    "GPU_QUANTITIES",
    "MOST_TIMED_RUNS",
    "REASONS",
    "RECORDED_STEPS",
    "TIMED_RUNS",
    "TIMING_BUDGET_S",
    "WARM_STEPS",
    "guarded",
    "is_generated",
    "kind_of",
    "operator_name",
    "reason_of",
    "taken_apart",
    "waits",
]

# A measured test: turns that warm up, turns that are timed without the profiler (more while they are quick), and turns
# that are recorded after one more that starts the profiler.
WARM_STEPS = 3
TIMED_RUNS = 5
MOST_TIMED_RUNS = 30
TIMING_BUDGET_S = 0.2
RECORDED_STEPS = 3

# Calls to the GPU's API, which nobody makes on a machine without one, and the peak of the GPU's allocator.
GPU_QUANTITIES = frozenset(
    {
        "launches",
        "kernel_launches",
        "graph_launches",
        "occupancy_queries",
        "synchronizations",
        "peak_memory_bytes",
    }
)

# An operator that does the work of several → those it is taken apart into; alternatives stand in one set.
FUSED_OPERATORS: dict[str, tuple[frozenset[str], ...]] = {
    "aten::addmm": (frozenset({"aten::mm"}), frozenset({"aten::add", "aten::add_"})),
    "aten::_addmm_activation": (
        frozenset({"aten::addmm", "aten::mm"}),
        frozenset({"aten::gelu", "aten::gelu_", "aten::relu", "aten::relu_", "aten::clamp_min", "aten::clamp_min_"}),
    ),
    "aten::baddbmm": (frozenset({"aten::bmm"}), frozenset({"aten::add", "aten::add_"})),
    "aten::addmv": (frozenset({"aten::mv"}), frozenset({"aten::add", "aten::add_"})),
    "aten::addcmul": (frozenset({"aten::mul", "aten::mul_"}), frozenset({"aten::add", "aten::add_"})),
    "aten::scaled_dot_product_attention": (
        frozenset({"aten::bmm", "aten::matmul"}),
        frozenset({"aten::softmax", "aten::_softmax"}),
    ),
    "aten::native_layer_norm": (frozenset({"aten::mean", "aten::var", "aten::var_mean"}), frozenset({"aten::sub"})),
    "aten::_fused_rms_norm": (frozenset({"aten::mean"}), frozenset({"aten::rsqrt"})),
}

# Their results have as many elements as the values are, so the host must know the values.
_SIZED_BY_VALUES = frozenset(
    {"aten::nonzero", "aten::masked_select", "aten::_unique2", "aten::unique_dim", "aten::unique_consecutive"}
)
_BOOKKEEPING = ("autograd::", "torch::autograd::")  # rows of autograd around the operators that do the work

# Why a change matters.
REASONS = {
    "waits": "it reads a value on the host, and on a GPU the program waits there until all work before it is done",
    "copies": "it copies a tensor: memory is read and written once more, on a GPU by a kernel of its own",
    "epilogue": "the product's result goes to memory and comes back for the rest, on a GPU in a kernel of its own",
    "fusion": "what one kernel kept in registers now goes through memory between the kernels",
}


def guarded(operator: str) -> bool:
    """Whether an operator may not become more: it computes or copies. Views, allocations and queries may."""
    if operator.startswith(_BOOKKEEPING) or not ("::" in operator or is_generated(operator)):
        return False
    return effect(operator) in (None, "maybe")


def kind_of(operator: str) -> str | None:
    """``pointwise``, ``reduction``, ``product`` …: operators of one kind do the same amount of work; None: of no kind.

    Copies, reads and fills are of no kind: one is no more a stand-in for another than for nothing.
    """
    from foretrace.knowledge.costs import attention, convolution, gemm, normalization, pointwise, reduction

    base = operator.removeprefix("aten::")
    if waits(operator) or effect(operator) is not None or operator in COPYING:
        return None
    tables = {
        "pointwise": pointwise.FORMULAS,
        "reduction": reduction.FORMULAS,
        "normalization": normalization.FORMULAS,
        "attention": attention.FORMULAS,
        "convolution": convolution.FORMULAS,
        "product": gemm.FORMULAS,
    }
    names = (base, base.removesuffix("_"))
    return next((kind for kind, table in tables.items() if any(name in table for name in names)), None)


def is_generated(operator: str) -> bool:
    """Whether the operator is a kernel that Inductor wrote, under the kernel's own name."""
    return operator.startswith("triton_")


def waits(operator: str) -> bool:
    """Whether an operator makes the host wait for the GPU's results (``tensor.item()``)."""
    return is_scalar_read(operator) or operator in _SIZED_BY_VALUES


def operator_name(name: str) -> str | None:
    """The name without what changes from one process to the next; None for rows of torch.compile's way of calling."""
    return None if is_compile_row(name) else code_name(name)


def reason_of(operator: str, inside: frozenset[str] = frozenset()) -> str | None:
    """Why it matters that an operator came, with those inside it. None where it goes unsaid."""
    if any(waits(name) for name in (operator, *inside)):
        return REASONS["waits"]
    copies = operator in COPYING or (effect(operator) == "maybe" and bool(inside & COPYING))
    return REASONS["copies"] if copies else None


def taken_apart(operator: str, ran: Container[str]) -> list[str]:
    """The operators among ``ran`` that do the work of a fused one in several calls; empty where one of them lacks."""
    parts = [next((name for name in sorted(part) if name in ran), None) for part in FUSED_OPERATORS.get(operator, ())]
    return [] if None in parts else [name for name in parts if name is not None]
