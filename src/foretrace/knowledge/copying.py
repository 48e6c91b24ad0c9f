"""Copies: which way they go, and whether the program asked for them.

Sources: CUPTI's memory kinds as Kineto writes them (``Memcpy HtoD (Pageable -> Device)``), and the operators of
ATen that copy because the program said so, as opposed to those that may return a view.
"""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.knowledge.kineto import memcpy_direction
from foretrace.knowledge.results import accumulates_gradient

__all__ = [
    "COPYING",
    "DDP_BUCKET_COPY",
    "DDP_REDUCER",
    "FEEDS_GRAPH",
    "SEEDED",
    "direction",
    "is_pageable",
    "is_scalar_read",
    "on_purpose",
]

# Operators whose own kernel copies a tensor.
COPYING = frozenset({"aten::copy_", "aten::clone", "aten::contiguous", "aten::_to_copy"})
# Operators that bring the inputs of a CUDA graph to their fixed places before a replay.
FEEDS_GRAPH = frozenset({"aten::copy_", "aten::_foreach_copy_"})
# Products with an addend: a copy inside one puts the addend where the result will be.
SEEDED = frozenset({"aten::addmm", "aten::_addmm_activation", "aten::baddbmm", "aten::addbmm", "aten::addmv"})

# DistributedDataParallel copies its reduced buckets back into the gradients (torch/csrc/distributed/c10d/reducer.cpp).
DDP_REDUCER = "torch.distributed.ddp.reducer::"
DDP_BUCKET_COPY = f"{DDP_REDUCER}copy_bucket_to_grad"

# The outermost operator says what the program asked for; these are requests to copy.
_REQUESTS = frozenset(
    {
        "aten::clone",
        "aten::contiguous",
        "aten::copy_",
        "aten::_foreach_copy_",
        "aten::to",
        "aten::cpu",
        "aten::cuda",
        "aten::detach_copy",
        "aten::narrow_copy",
        "aten::fill_",
        "aten::index_put_",
        "aten::lift_fresh",
        "aten::repeat",
        "aten::tile",
    }
)
_SCALAR_READS = frozenset({"aten::_local_scalar_dense", "aten::item", "aten::is_nonzero", "aten::equal"})


def direction(name: str) -> str | None:
    """``HtoD``, ``DtoH``, ``DtoD``, ``PtoP`` … of a copy row; None where the name does not say."""
    return memcpy_direction(name)


def is_pageable(name: str) -> bool | None:
    """Whether the host side of a copy is pageable memory; None where the name does not say."""
    if "Pageable" in name:
        return True
    return False if "Pinned" in name else None


def is_scalar_read(op: str) -> bool:
    """Whether a copy to the host only reads one value (``tensor.item()``), which is a matter of waiting."""
    return op in _SCALAR_READS


def on_purpose(path: Sequence[str]) -> bool:
    """Whether the program asked for a copy by name, given the operators around it, outermost first.

    Rows that are no operators of ATen (autograd nodes, custom functions) are looked through.
    """
    if any(accumulates_gradient(name) for name in path):
        return False
    return next((name for name in path if name.startswith("aten::")), "") in _REQUESTS
