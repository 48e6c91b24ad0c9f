"""Liger-Kernel's Triton kernels (``src/liger_kernel/ops`` of Liger 0.3 to 0.8), by their function names."""

from __future__ import annotations

from typing import Any

from ._base import Found
from .cpp import CppName
from .triton import signature_free

__all__ = ["match"]

# Name without the trailing `_kernel`: kind, the operators of PyTorch it stands for, direction.
_KERNELS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "_geglu_tanh_forward": ("fused", ("gelu", "mul"), "forward"),
    "_geglu_tanh_backward": ("fused", ("gelu", "mul"), "backward"),
    "_geglu_exact_forward": ("fused", ("gelu", "mul"), "forward"),
    "_geglu_exact_backward": ("fused", ("gelu", "mul"), "backward"),
    "_swiglu_forward": ("fused", ("silu", "mul"), "forward"),
    "_swiglu_backward": ("fused", ("silu", "mul"), "backward"),
    "_rms_norm_forward": ("normalization", ("rms_norm",), "forward"),
    "_rms_norm_backward": ("normalization", ("rms_norm",), "backward"),
    "_block_rms_norm_forward": ("normalization", ("rms_norm",), "forward"),
    "_block_rms_norm_backward": ("normalization", ("rms_norm",), "backward"),
    "_fused_add_rms_norm_forward": ("normalization", ("add", "rms_norm"), "forward"),
    "_fused_add_rms_norm_backward": ("normalization", ("add", "rms_norm"), "backward"),
    "_poly_norm_forward": ("normalization", ("poly_norm",), "forward"),
    "_poly_norm_backward": ("normalization", ("poly_norm",), "backward"),
    "_layer_norm_forward": ("normalization", ("layer_norm",), "forward"),
    "_layer_norm_backward": ("normalization", ("layer_norm",), "backward"),
    "_group_norm_forward": ("normalization", ("group_norm",), "forward"),
    "_group_norm_backward": ("normalization", ("group_norm",), "backward"),
    "_triton_rope": ("fused", ("rotary_embedding",), ""),
    "_triton_qwen2vl_mrope": ("fused", ("rotary_embedding",), ""),
    "_triton_llama4_rope": ("fused", ("rotary_embedding",), ""),
    "liger_cross_entropy": ("softmax", ("log_softmax", "nll_loss"), ""),
    "_jsd": ("reduction", ("jsd",), ""),
    "_kldiv_kernel_forward": ("reduction", ("kl_div",), "forward"),
    "_kldiv_kernel_backward": ("elementwise", ("kl_div",), "backward"),
    "_tv_distance": ("reduction", ("tv_distance",), ""),
    "_selective_log_softmax": ("softmax", ("log_softmax", "gather"), ""),
    "_grpo_loss_fwd": ("softmax", ("log_softmax", "grpo_loss"), "forward"),
    "_grpo_loss_bwd": ("softmax", ("log_softmax", "grpo_loss"), "backward"),
    "_sparsemax_forward": ("softmax", ("sparsemax",), "forward"),
    "_sparsemax_backward": ("softmax", ("sparsemax",), "backward"),
    "_softmax_single_block_forward": ("softmax", ("softmax",), "forward"),
    "_softmax_multi_block_forward": ("softmax", ("softmax",), "forward"),
    "_softmax_single_block_backward": ("softmax", ("softmax",), "backward"),
    "_softmax_multi_block_backward": ("softmax", ("softmax",), "backward"),
    "_dyt_fwd": ("fused", ("tanh", "mul", "add"), "forward"),
    "_dyt_bwd": ("fused", ("tanh", "mul", "add"), "backward"),
    "_fused_neighborhood_attention_qk": ("attention", ("neighborhood_attention",), "forward"),
    "_fused_neighborhood_attention_av": ("attention", ("neighborhood_attention",), "forward"),
    "embedding_forward": ("embedding", ("embedding",), "forward"),
    "embedding_backward": ("embedding", ("embedding_dense_backward",), "backward"),
    "_mask_fwd": ("elementwise", ("masked_fill",), "forward"),
    "_mask_bwd": ("elementwise", ("masked_fill",), "backward"),
    "element_mul": ("elementwise", ("mul",), ""),
}


def match(parsed: CppName) -> Found | None:
    """Decode the name of a kernel of Liger, or ``None``."""
    name = signature_free(parsed.text)
    if "<" in name or "(" in name:
        return None
    entry = _KERNELS.get(name.removesuffix("_kernel")) or _KERNELS.get(name)
    if entry is None:
        return None
    kind, operators, direction = entry
    decoded: dict[str, Any] = {"ops": list(operators), "view_ops": []}
    if direction:
        decoded["direction"] = direction
    return Found(kind, "liger", "liger " + name.removesuffix("_kernel").strip("_"), decoded)
