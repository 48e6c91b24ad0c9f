"""A decoded kernel in one or two sentences."""

from __future__ import annotations

from typing import Any

from ._base import Decoded

__all__ = ["describe"]

_KIND_WORDS = {
    "gemm": "a matrix multiplication",
    "attention": "attention",
    "convolution": "a convolution",
    "normalization": "a normalization",
    "softmax": "a softmax",
    "reduction": "a reduction",
    "elementwise": "an elementwise kernel",
    "fused": "a fused pointwise kernel",
    "embedding": "a table look-up",
    "sort": "sorting or selection",
    "copy": "a copy",
    "communication": "communication between GPUs",
    "optimizer": "an optimizer step",
    "other": "a kernel of unknown purpose",
}
_FAMILY_WORDS = {
    "nvjet": "cuBLAS (nvjet)",
    "cublas": "cuBLAS",
    "cutlass": "CUTLASS",
    "xmma": "cuBLAS or cuDNN (xmma)",
    "cudnn": "cuDNN",
    "aten": "PyTorch (ATen)",
    "inductor": "torch.compile (Inductor, Triton)",
    "triton": "hand-written Triton",
    "tensile": "rocBLAS or hipBLASLt (Tensile)",
    "miopen": "MIOpen",
    "nccl": "NCCL",
    "rccl": "RCCL",
    "cub": "CUB",
    "memcpy": "the driver",
    "memset": "the driver",
}
_FIELDS = {
    "role": "role {}",
    "ops": "operators {}",
    "view_ops": "views {}",
    "functor": "functor {}",
    "vector_width": "{} elements a thread and access",
    "dtype": "{}",
    "a_dtype": "A in {}",
    "b_dtype": "B in {}",
    "acc_dtype": "accumulates in {}",
    "out_dtype": "writes {}",
    "tile": "tile {}",
    "tile_k": "k-tile {}",
    "stages": "{} stages",
    "cluster": "cluster {}",
    "schedule": "{} schedule",
    "instruction": "instruction {}",
    "layout": "layout {}",
    "align": "aligned to {} elements",
    "splitk": "split-K",
    "epilogue": "epilogue {}",
    "arch": "built for {}",
    "collective": "collective {}",
    "reduction op": "reduces by {}",
    "algorithm": "algorithm {}",
    "protocol": "protocol {}",
    "head_dim": "head dimension {}",
    "direction": "{}",
    "causal": "causal",
    "memory": "memory {}",
    "triton_kind": "{} template",
}


def describe(d: Decoded) -> str:
    """One or two sentences that say in words what ``d`` holds; the unknown parts are named."""
    family = _FAMILY_WORDS.get(d.family, d.family if d.family != "unknown" else "")
    what = _KIND_WORDS.get(d.kind, d.kind)
    head = f"{d.short_name}: {what}" + (f" of {family}" if family else "")
    parts = [text for key, form in _FIELDS.items() if (text := _field(form, d.decoded.get(key)))]
    sentence = head + (", " + ", ".join(parts) if parts else "") + "."
    if d.unknown:
        sentence += " Not understood: " + ", ".join(part[:80] for part in d.unknown[:8])
        sentence += (f" and {len(d.unknown) - 8} more" if len(d.unknown) > 8 else "") + "."
    return sentence


def _field(form: str, value: Any) -> str:
    if value is None or value is False or value == []:
        return ""
    if isinstance(value, (list, tuple)):
        value = ", ".join(str(item) for item in value)
    return form.format(value)
