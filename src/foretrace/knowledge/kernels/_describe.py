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
    "foretrace": "foretrace's fused modules (Triton)",
    "triton": "hand-written Triton",
    "tensile": "rocBLAS or hipBLASLt (Tensile)",
    "miopen": "MIOpen",
    "nccl": "NCCL",
    "rccl": "RCCL",
    "cub": "CUB",
    "predicted": "a library not named (foretrace's own prediction)",
    "memcpy": "the driver",
    "memset": "the driver",
}
_FIELDS = {
    "role": "role {}",
    "implementation": "implementation {}",
    "method": "by {} products",
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
    "stages": "{}",
    "cluster": "cluster {}",
    "cta_pair": "a pair of CTAs a tile",
    "schedule": "{} schedule",
    "instruction": "instruction {}",
    "layout": "layout {}",
    "align": "aligned to {}",
    "splitk": "split-K",
    "epilogue": "epilogue {}",
    "epilogue_supported": "can apply {} (the name does not show that it does)",
    "arch": "built for {}",
    "collective": "collective {}",
    "reduction op": "reduces by {}",
    "algorithm": "algorithm {}",
    "protocol": "protocol {}",
    "head_dim": "head dimension {}",
    "direction": "{}",
    "operand_layouts": "operands {}",
    "threads": "{} threads a block",
    "causal": "causal",
    "group_size": "weights scaled in groups of {}",
    "scale_block": "scaled in blocks of {}",
    "memory": "memory {}",
    "triton_kind": "{} template",
}

# Fields that are numbers of something.
_COUNTED = {"stages": "stage", "align": "element"}


def describe(d: Decoded) -> str:
    """One or two sentences that say in words what ``d`` holds; the unknown parts are named."""
    if d.family == "foretrace" and "operator" in d.decoded:
        return (
            f"{d.short_name}: an operator of foretrace's fused modules, no kernel; the kernels it launches are named "
            "foretrace_IMPLEMENTATION_STEP, or are the library's."
        )
    family = _FAMILY_WORDS.get(d.family, d.family if d.family != "unknown" else "")
    what = _KIND_WORDS.get(d.kind, d.kind)
    head = f"{d.short_name}: {what}" + (f" of {family}" if family else "")
    sentence = head
    after_list = False
    for key, form in _FIELDS.items():
        value = _value(key, d.decoded)
        if value is None or value is False or value == []:
            continue
        is_list = isinstance(value, list)
        # A list holds commas itself: what stands beside one is set off by a semicolon.
        sentence += "; " if is_list or after_list else ", "
        sentence += form.format(", ".join(map(str, value)) if is_list else value)
        after_list = is_list
    sentence += "."
    if d.unknown:
        sentence += " Not understood: " + ", ".join(part[:80] for part in d.unknown[:8])
        sentence += (f" and {len(d.unknown) - 8} more" if len(d.unknown) > 8 else "") + "."
    return sentence


def _value(key: str, decoded: dict[str, Any]) -> Any:
    """What is said of one decoded field."""
    value = decoded.get(key)
    if isinstance(value, tuple):
        return list(value)
    if key == "ops" and value:
        return [name for name in value if name not in (decoded.get("view_ops") or [])]
    if key in _COUNTED and value is not None:
        return f"{value} {_COUNTED[key]}" + ("" if value == 1 else "s")
    # Inductor calls hand-written sources with places to fill templates; the other kinds are named by their loops.
    return "Triton" if key == "triton_kind" and value == "template" else value
