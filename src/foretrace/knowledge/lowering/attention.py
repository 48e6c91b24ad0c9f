"""Which implementation of scaled dot product attention PyTorch picks on a GPU, and the kernels each one launches.

Sources: ``aten/src/ATen/native/transformers/cuda/sdp_utils.cpp`` (the conditions, and the order in which
implementations are tried) and the H200 traces of foretrace (torch 2.11 picks cuDNN there, causal, grouped heads).
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["AUXILIARY", "AttentionCall", "choose_attention"]

# What an implementation launches besides its main kernel, in order; ``*`` stands for that kernel. Grouped heads add
# the two sums over a group that `_GROUPED` names.
AUXILIARY: dict[str, tuple[str, ...]] = {
    "_scaled_dot_product_flash_attention": ("*",),
    "_scaled_dot_product_flash_attention_backward": ("attention", "*", "attention"),
    "_scaled_dot_product_efficient_attention": ("*",),
    "_scaled_dot_product_efficient_attention_backward": ("*",),
    "_scaled_dot_product_cudnn_attention": ("memset", "*"),
    "_scaled_dot_product_cudnn_attention_backward": ("memset", "attention", "*", "attention"),
    "_scaled_dot_product_cudnn_attention_backward+grouped": ("memset", "attention", "*", *("attention",) * 3),
}

_HALF = frozenset({"fp16", "bf16"})
_FLASH_HEAD = 256
_CUDNN_HEAD = 128
# Hopper and data-centre Blackwell; consumer parts of the same generations are 9.x and 10.x with another minor number.
_CUDNN_PREFERRED = frozenset({"9.0", "10.0"})
# The first release seen to prefer cuDNN for good (2.5.0 did and 2.5.1 took it back).
_CUDNN_FROM = (2, 8)


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """The facts about one call that decide. ``head`` is the larger head dimension of queries, keys and values."""

    dtype: str
    head: int
    mask: bool
    dropout: bool
    rows_contiguous: bool  # the last dimension of all three has stride 1
    same_head: bool  # queries, keys and values have the same head dimension


def choose_attention(
    call: AttentionCall, compute_capability: str | None, torch_version: tuple[int, int], *, vendor: str | None = None
) -> tuple[str, str | None]:
    """``flash``, ``cudnn``, ``efficient`` or ``math``, and what about the choice is a guess.

    ``compute_capability`` as in "9.0"; ``None`` is taken for a recent data-centre GPU. There is no cuDNN on ``AMD``.
    """
    note = None if compute_capability is not None else "no GPU was named; attention is chosen as on Hopper"
    if vendor == "AMD":
        note = "on AMD, attention is taken to run as one flash or memory-efficient kernel (AOTriton)"
    capability = compute_capability or "9.0"
    if not call.rows_contiguous:
        return "math", note
    major = float(capability)
    half = call.dtype in _HALF and major >= 8.0
    fits_cudnn = half and call.head % 8 == 0 and call.head <= _CUDNN_HEAD
    if vendor != "AMD" and fits_cudnn and capability in _CUDNN_PREFERRED and torch_version >= _CUDNN_FROM:
        return "cudnn", note
    if half and not call.mask and call.same_head and call.head <= _FLASH_HEAD:
        return "flash", note
    if call.dtype in _HALF or call.dtype == "fp32":
        alignment = 8 if call.dtype in _HALF else 4
        if call.head % alignment == 0:
            return "efficient", note
    return "math", note
