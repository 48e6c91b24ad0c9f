"""Which measured operator an unmeasured one behaves like: bytes are what counts, and how they lie in memory."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ATTENTION_CAUSAL", "attention_as", "generated_as", "measured_as"]

# Operators under the name they were measured by. Others fall to their kind.
_SAME = frozenset(
    [
        *("gelu", "silu", "relu", "exp", "mul", "add", "add_", "gelu_backward", "silu_backward", "where", "fill_"),
        *("embedding", "cat", "softmax", "log_softmax", "layer_norm", "rms_norm", "sum", "mean", "amax"),
    ]
)
_ALIKE = {
    "native_layer_norm": "layer_norm",
    "_fused_rms_norm": "rms_norm",
    "_softmax": "softmax",
    "_log_softmax": "log_softmax",
    "_softmax_backward_data": "softmax",
    "_log_softmax_backward_data": "softmax",
    "index_select": "embedding",
    "zero_": "fill_",
    "mul_": "add_",
    "sub": "add",
    "div": "mul",
    "amin": "amax",
    "max": "amax",
    "min": "amax",
    "sigmoid": "exp",
    "tanh": "gelu",
}
_EXPONENTIAL = frozenset({"gelu", "silu", "sigmoid", "tanh", "exp", "erf", "softplus", "mish", "pow"})
# Operands read (two or more are alike), whether with an exponential → the measured operator.
_STREAMS = {
    (0, False): "fill_",
    (0, True): "fill_",
    (1, False): "relu",
    (1, True): "gelu tanh",
    (2, False): "mul",
    (2, True): "gelu_backward",
}
_BY_KIND = {
    "reduction": "sum",
    "softmax": "softmax",
    "normalization": "layer_norm",
    "embedding": "embedding",
}
# Operators that only move data and were measured as themselves.
_MOVES = frozenset({"cat", "embedding"})
# Operators that were measured with a number for their second operand as well.
_WITH_SCALAR = frozenset({"add", "mul"})
# ATen's pointwise kernel for operands that are broadcast or lie otherwise in memory than the result.
_EVERY_ADDRESS = "add broadcast"
# Source and target type of a copy → the measured one; 16-bit types are alike.
_CONVERSIONS = {
    **{(half, "fp32"): "bf16 to fp32 bf16" for half in ("bf16", "fp16")},
    **{("fp32", half): "fp32 to bf16 fp32" for half in ("bf16", "fp16")},
}
# Two-byte types behave like bf16, all others like fp32.
_TYPES = {"fp16": "bf16", "bf16": "bf16", "int16": "bf16"}

# Position of `is_causal` among an attention operator's arguments (aten/src/ATen/native/native_functions.yaml).
ATTENTION_CAUSAL = {
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_cudnn_attention_backward": 14,
    "aten::_scaled_dot_product_efficient_attention_backward": 11,
    "aten::_scaled_dot_product_flash_attention_backward": 11,
}


def measured_as(
    op: str,
    kind: str,
    dtype: str,
    *,
    source: str | None = None,
    reads: int = 0,
    expanded: bool = False,
    strided: bool = False,
    crossed: bool = False,
    tanh: bool = False,
) -> str:
    """The group of the calibration that stands for an operator of ATen.

    ``source``: the element type of what it reads, where that is another one than ``dtype``; ``reads``: operands it
    reads; ``expanded``: it reads far less than it writes; ``strided``: its operands do not all lie in memory as the
    result does, so that its kernel computes every address; ``crossed``: another dimension of them is contiguous;
    ``tanh``: GELU in its tanh form.
    """
    element = _TYPES.get(dtype, "fp32")
    if kind in ("memset", "memcpy"):
        return f"{kind} {element}"
    bare = op.removeprefix("aten::")
    known = _ALIKE.get(bare, bare if bare in _SAME else _BY_KIND.get(kind))
    if known == "gelu" and tanh:
        known = "gelu tanh"
    if (known in _MOVES and not (known == "cat" and strided)) or (
        known is not None and kind not in ("copy", "elementwise")
    ):
        return f"aten::{known} {element}"
    if crossed:
        return f"aten::copy_ transposed {element}"
    if expanded and reads and kind == "copy":
        return f"aten::copy_ expanded {element}"
    if strided and reads and kind in ("copy", "elementwise"):
        return f"aten::{_EVERY_ADDRESS} {element}"
    if kind == "copy" and source is not None and (source, dtype) in _CONVERSIONS:
        return f"aten::copy_ {_CONVERSIONS[source, dtype]}"
    if kind == "copy" or known is None:
        return f"aten::{_STREAMS[min(reads, 2), False]} {element}"
    if reads == 1 and known in _WITH_SCALAR:
        known = f"{known} scalar"
    return f"aten::{known} {element}"


def generated_as(parts: Sequence[str], dtype: str, *, reads: int) -> str:
    """The group that stands for a compiler's kernel, which streams through its operands whatever it computes.

    A long reduction is cut into kernels of its own, and an exponential among the ``parts`` costs as it does in ATen.
    """
    costly = any(part.removesuffix("_backward") in _EXPONENTIAL for part in parts)
    return f"aten::{_STREAMS[min(reads, 2), costly]} {_TYPES.get(dtype, 'fp32')}"


def attention_as(op: str, dtype: str) -> str:
    """The group of the calibration that stands for an attention operator of ATen."""
    return f"attention {'backward ' if 'backward' in op else ''}{_TYPES.get(dtype, 'fp32')}"
