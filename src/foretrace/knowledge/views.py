"""Which operators only describe memory and launch nothing.

Used for wording ("a view: no data moves"); whether an operator launched something is observed in the
trace, never looked up here. Source: the ``(a)`` alias annotations of ``native_functions.yaml`` for views,
and the factory functions without a fill for allocations.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["Effect", "effect", "is_metadata_only"]

Effect = Literal["view", "allocation", "query", "maybe"]

_VIEWS = """
    alias as_strided as_strided_ broadcast_tensors broadcast_to chunk conj detach detach_ diagonal
    dsplit expand expand_as hsplit imag lift lift_fresh matrix_H mH mT movedim moveaxis narrow numpy_T
    permute real resolve_conj resolve_neg select slice split split_with_sizes squeeze squeeze_ swapaxes
    swapdims t t_ tensor_split transpose transpose_ unbind unfold unsafe_chunk unsafe_split
    unsafe_split_with_sizes unsqueeze unsqueeze_ view view_as view_as_complex view_as_real vsplit _conj
    _neg_view _reshape_alias _unsafe_view unflatten_dense_tensors adjoint atleast_1d atleast_2d
    atleast_3d unflatten
"""
_ALLOCATIONS = """
    empty empty_like empty_permuted empty_quantized empty_strided new_empty new_empty_strided resize_
    resize_as_ set_ _efficientzerotensor
"""
_QUERIES = """
    result_type can_cast size stride numel dim sym_size sym_stride sym_numel sym_storage_offset
    is_contiguous is_complex is_floating_point is_same_size _has_compatible_shallow_copy_type
    _fused_sdp_choice output_nr _version is_leaf retains_grad requires_grad_ _assert_tensor_metadata
    is_pinned storage_offset
"""
# These return a view where strides or types allow it and copy otherwise.
_MAYBE = """
    contiguous flatten reshape reshape_as ravel to type_as _autocast_to_reduced_precision
    _autocast_to_full_precision cpu cuda dropout feature_dropout positive meshgrid
"""

_EFFECTS: dict[str, Effect] = {
    **dict.fromkeys(_VIEWS.split(), "view"),
    **dict.fromkeys(_ALLOCATIONS.split(), "allocation"),
    **dict.fromkeys(_QUERIES.split(), "query"),
    **dict.fromkeys(_MAYBE.split(), "maybe"),
}


def effect(op: str) -> Effect | None:
    """What an operator does instead of launching work.

    ``view``: new sizes and strides on the same storage. ``allocation``: memory without contents. ``query``:
    a question answered on the CPU. ``maybe``: a view where strides and types allow it, a copy otherwise.
    ``None``: an operator that computes. The ``aten::`` prefix is optional (``detach`` occurs bare).
    """
    return _EFFECTS.get(op.removeprefix("aten::"))


def is_metadata_only(op: str) -> bool:
    """Whether an operator launches nothing by definition; ``False`` for those that may copy."""
    return effect(op) in ("view", "allocation", "query")
