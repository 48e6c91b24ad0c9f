"""cuBLAS's own GEMM and GEMV kernels up to Ampere, and the helpers it launches around a GEMM.

``ampere_fp16_s16816gemm_fp16_128x256_ldg8_relu_f2f_stages_64x3_tn``: architecture the code was written for, input
type, accumulator and instruction, output type, tile, flags, k-tile × stages, layout. The layout letters are cuBLAS's
(its A and B are column-major, torch's second and first operand). How the tile lies along torch's m and n was not
measured for these names, so ``tile_m`` and ``tile_n`` are left out.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from ._tokens import ARCHITECTURES, CORE, read_core, read_tokens
from .cpp import CppName

__all__ = ["match"]

# Kernels of cuBLAS and cuBLASLt that are C++ templates; what each is for.
_HELPERS = {
    "splitKreduce_kernel": ("gemm", "split-K reduction"),
    "dot_kernel": ("gemm", "dot product"),
    "reduce_1Block_kernel": ("gemm", "dot product, last step"),
    "scal_kernel": ("gemm", "scaling of the output by beta"),
    "scal_64addr_kernel": ("gemm", "scaling of the output by beta"),
    "scal_kernel_val": ("elementwise", "scaling of a vector"),
    "axpy_kernel_val": ("elementwise", "a·x + y"),
    "axpby_kernel_val": ("elementwise", "a·x + b·y"),
    "nrm2_kernel": ("reduction", "2-norm"),
    "asum_kernel": ("reduction", "sum of magnitudes"),
    "iamax_kernel": ("reduction", "index of the largest magnitude"),
    "copy_kernel": ("copy", "copy"),
    "transpose_kernel": ("copy", "transposition"),
    "transpose_readWrite_alignment_kernel": ("copy", "transposition"),
    "convertTensor_kernel": ("copy", "conversion of the element type"),
    "computeOffsetsKernel": ("gemm", "address table"),
    "trsm_left_kernel": ("gemm", "triangular solve"),
    "trsm_right_kernel": ("gemm", "triangular solve"),
    "epilogueImpl": ("gemm", "epilogue"),
    "globalKernel": ("gemm", "epilogue"),
    "epilogue_kernel": ("gemm", "epilogue"),
    "kernel": ("gemm", "matrix-vector product"),
}
_TEMPLATES = re.compile(
    r"(?:magma_)?(?:gemv|gemm|ger|trsv|trmv|symv|syrk|herk|trmm|trsm|trsmBatched|dot|hgemm|sgemm|dgemm|cgemm|zgemm)"
    r"[A-Za-z0-9]*(?:_[A-Za-z0-9]+)*$"
)
_SMALL = re.compile(r"gemmSN_([NT])([NT])|gemv2([NT])|gemv([NT])|sgemm_largek_lds64")
_SCOPES = ("cublasLt", "cublas", "internal::gemvx")


def match(parsed: CppName) -> Found | None:
    """Decode a cuBLAS name, or ``None``."""
    if "<" not in parsed.text and "(" not in parsed.text:
        return _legacy(parsed.text)
    return _template(parsed)


def _legacy(text: str) -> Found | None:
    tokens = text.split("_")
    arch_at = next((i for i, token in enumerate(tokens[:5]) if token in ARCHITECTURES), None)
    if arch_at is None:
        return None
    for at in range(arch_at + 1, min(len(tokens), arch_at + 5)):
        core = CORE.match(tokens[at])
        if core:
            break
    else:
        return None
    operation = core["operation"]
    decoded: dict[str, Any] = {"arch": tokens[arch_at]}
    unknown: list[str] = []
    after = tokens[at + 1] if at + 1 < len(tokens) else None
    read_core(core, tokens[arch_at + 1 : at], decoded, after)
    read_tokens(tokens[at + 1 + bool(after and dtype_of(after)) :], decoded, unknown)
    convolution = operation in ("cudnn", "fprop", "dgrad", "wgrad")
    family = "cudnn" if convolution or "cudnn" in tokens[: arch_at + 1] else "cublas"
    kind = "convolution" if convolution else "gemm"
    label = f"{tokens[at]} {decoded.get('tile', '')}"
    if decoded.get("stages"):
        label += f" {decoded['tile_k']}x{decoded['stages']}"
    if decoded.get("layout"):
        label += f" {decoded['layout'].lower()}"
    return Found(kind, family, f"{tokens[arch_at]} {label}", decoded, unknown, complete=True)


def _template(parsed: CppName) -> Found | None:
    base = parsed.base
    mentions = "cublas" in parsed.text[:2000] or base.startswith("sgemm_largek")
    if not mentions and not parsed.scope.startswith(_SCOPES):
        return None
    role: str | None
    if base == "kernel" and "gemvx" not in parsed.scope:
        return None
    if base in _HELPERS:
        kind, role = _HELPERS[base]
    elif _TEMPLATES.match(base):
        kind, role = "gemm", "matrix-vector product" if "gemv" in base else None
    elif mentions and "gemm" in base.lower():
        kind, role = "gemm", None
    else:
        return None
    decoded: dict[str, Any] = {}
    if role:
        decoded["role"] = role
    types = [dtype for argument in parsed.arguments if (dtype := dtype_of(argument)) and dtype not in ("bool", "int32")]
    tensors = [
        dtype
        for argument in parsed.arguments
        if argument.startswith("cublasGemvTensor") and (dtype := dtype_of(_inside(argument)))
    ]
    if tensors:
        decoded["dtype"] = tensors[0]
        if types:
            decoded["acc_dtype"] = types[0]
    elif types:
        decoded["dtype"] = types[0]
    if letters := _SMALL.match(base):
        found = [letter for letter in letters.groups() if letter]
        if len(found) == 2:
            decoded["layout"] = "".join(found)
        elif found:
            decoded["transposed"] = found[0] == "T"
    if "splitK" in base:
        decoded["splitk"] = True
    short = "gemv" if base == "kernel" else base.removesuffix("_kernel").removesuffix("_kernel_val")
    return Found(kind, "cublas", short, decoded, [])


def _inside(argument: str) -> str:
    opening = argument.find("<")
    return argument[opening + 1 :].rstrip("> ") if opening >= 0 else argument
