"""How gate and up lie in memory. Every packing becomes two views, so that kernels know only one form.

==============  =======================  ==========================
packing         what is stored           gate, up
==============  =======================  ==========================
separate        two tensors [N, K]       themselves
gate_up         one tensor W [2N, K]     W[:N], W[N:]
up_gate         one tensor W [2N, K]     W[N:], W[:N]
interleaved     one tensor W [2N, K]     W[0::2], W[1::2]
==============  =======================  ==========================

Biases follow, with one dimension less.
"""

from __future__ import annotations

from typing import Final, get_args, overload

from torch import Tensor

from foretrace.errors import InputError
from foretrace.fused.plan import Packing

__all__ = ["PACKINGS", "check_packing", "dense", "dense_rows", "packed", "split", "stacked"]

PACKINGS: Final[tuple[str, ...]] = get_args(Packing)


def check_packing(packing: str) -> None:
    """Raise :class:`InputError` unless ``packing`` is a known order of gate and up."""
    if packing not in PACKINGS:
        raise InputError(f"packing {packing!r} is not one of {', '.join(PACKINGS)}; pass one of these names")


@overload
def split(weight: Tensor, up: Tensor | None, packing: str) -> tuple[Tensor, Tensor]: ...
@overload
def split(weight: None, up: None, packing: str) -> tuple[None, None]: ...
@overload
def split(weight: Tensor | None, up: Tensor | None, packing: str) -> tuple[Tensor | None, Tensor | None]: ...
def split(weight: Tensor | None, up: Tensor | None, packing: str) -> tuple[Tensor | None, Tensor | None]:
    """Return the gate's and the up's view of weights or of biases; nothing is copied.

    ``separate``: ``weight`` and ``up`` as they are, either may be ``None``. Otherwise ``up`` is ``None`` and
    ``weight`` the stacked tensor, whose first dimension is even.
    """
    if packing == "separate" or weight is None:
        return weight, up
    if packing == "interleaved":
        return weight[0::2], weight[1::2]
    half = weight.shape[0] // 2
    if packing == "gate_up":
        return weight[:half], weight[half:]
    return weight[half:], weight[:half]


def dense_rows(weight: Tensor) -> Tensor:
    """Return a weight as kernels read it, rows without gaps or overlap: itself, or a copy of a transposed one."""
    row, column = weight.stride()
    if (column != 1 and weight.shape[1] > 1) or row < weight.shape[1]:
        return weight.contiguous()
    return weight


def dense(bias: Tensor | None) -> Tensor | None:
    """Return a bias without gaps, as kernels read it: itself, or a copy of a strided one."""
    return bias if bias is None or bias.stride(0) == 1 else bias.contiguous()


def stacked(gate: Tensor, up: Tensor) -> Tensor | None:
    """Return one contiguous [2N, …] view of both weights or biases, if up follows gate directly in the same memory.

    One product then serves both. ``None``: they lie elsewhere or have gaps, and nothing is copied to change that.
    """
    if gate.dtype != up.dtype or gate.shape != up.shape or not gate.is_contiguous() or not up.is_contiguous():
        return None
    if up.data_ptr() != gate.data_ptr() + gate.numel() * gate.element_size():
        return None
    # Two allocations may touch by chance; a tensor must stay inside one.
    if gate.untyped_storage().data_ptr() != up.untyped_storage().data_ptr():
        return None
    rows, *rest = gate.shape
    return gate.detach().as_strided((2 * rows, *rest), (rest[0], 1) if rest else (1,))


def packed(gate_first: Tensor, packing: str) -> tuple[Tensor, Tensor | None]:
    """Bring a gate-first tensor [2N, …] into a packing: the tensors a caller passed as gate and up.

    ``separate``: two views. ``gate_up``: the tensor itself. Otherwise a copy.
    """
    half = gate_first.shape[0] // 2
    if packing == "separate":
        return gate_first[:half], gate_first[half:]
    if packing == "gate_up":
        return gate_first, None
    result = gate_first.new_empty(gate_first.shape)
    gate, up = split(result, None, packing)
    gate.copy_(gate_first[:half])
    up.copy_(gate_first[half:])
    return result, None
