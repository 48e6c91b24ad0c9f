"""What every family of kernel names shares: the result type, element types, and small text helpers."""

from __future__ import annotations

import re
from typing import Any

import msgspec

__all__ = ["DTYPES", "KINDS", "Decoded", "Found", "dtype_of", "instruction_shape", "shorten", "word_set"]

KINDS = (
    "gemm",
    "attention",
    "convolution",
    "normalization",
    "softmax",
    "reduction",
    "elementwise",
    "fused",
    "embedding",
    "sort",
    "copy",
    "communication",
    "optimizer",
    "other",
)

SHORT_NAME_LENGTH = 48


class Decoded(msgspec.Struct, frozen=True):
    """What a GPU kernel's name says.

    ``name`` is the name as given; ``short_name`` is at most 48 characters; ``kind`` is one of ``KINDS``; ``family`` is
    the library or generator whose grammar was used (``unknown`` when none); ``decoded`` holds the fields the name
    spells out; ``unknown`` the parts whose meaning is not known, as they are written.
    """

    name: str
    short_name: str
    kind: str
    family: str
    decoded: dict[str, Any]
    unknown: list[str]


class Found(msgspec.Struct):
    """A family's answer.

    ``weak`` says that the operator which launched the kernel may decide the kind instead; ``complete`` that the
    family's grammar accounts for every part of the identifier, so that nothing is to be read beside it.
    """

    kind: str
    family: str
    short: str
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    weak: bool = False
    complete: bool = False


# Spellings of element types in C++ templates, cuBLAS, CUTLASS, cuDNN, Triton and Tensile names.
DTYPES = {
    "float": "fp32",
    "f32": "fp32",
    "fp32": "fp32",
    "float32": "fp32",
    "double": "fp64",
    "f64": "fp64",
    "fp64": "fp64",
    "float64": "fp64",
    "half": "fp16",
    "__half": "fp16",
    "Half": "fp16",
    "half_t": "fp16",
    "_Float16": "fp16",
    "f16": "fp16",
    "fp16": "fp16",
    "float16": "fp16",
    "Float16": "fp16",
    "half2": "fp16",
    "__half2": "fp16",
    "BFloat16": "bf16",
    "bfloat16": "bf16",
    "bfloat16_t": "bf16",
    "nv_bfloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "__nv_bfloat162": "bf16",
    "__hip_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "bf16": "bf16",
    "Bfloat16": "bf16",
    "bhalf_t": "bf16",
    "tf32": "tf32",
    "tfloat32_t": "tf32",
    "Float8_e4m3fn": "fp8_e4m3",
    "Float8_e4m3fnuz": "fp8_e4m3fnuz",
    "Float8_e5m2": "fp8_e5m2",
    "Float8_e5m2fnuz": "fp8_e5m2fnuz",
    "__nv_fp8_e4m3": "fp8_e4m3",
    "__nv_fp8_e5m2": "fp8_e5m2",
    "float_e4m3_t": "fp8_e4m3",
    "float_e5m2_t": "fp8_e5m2",
    "e4m3": "fp8_e4m3",
    "e5m2": "fp8_e5m2",
    "fp8e4m3": "fp8_e4m3",
    "fp8e5m2": "fp8_e5m2",
    "fp8_e4m3": "fp8_e4m3",
    "fp8_e5m2": "fp8_e5m2",
    "float_e2m1_t": "fp4_e2m1",
    "e2m1": "fp4_e2m1",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
    "long": "int64",
    "long long": "int64",
    "int64_t": "int64",
    "i64": "int64",
    "int64": "int64",
    "int": "int32",
    "int32_t": "int32",
    "i32": "int32",
    "int32": "int32",
    "short": "int16",
    "int16_t": "int16",
    "int16": "int16",
    "signed char": "int8",
    "int8_t": "int8",
    "i8": "int8",
    "s8": "int8",
    "int8": "int8",
    "unsigned char": "uint8",
    "uint8_t": "uint8",
    "u8": "uint8",
    "uint8": "uint8",
    "unsigned short": "uint16",
    "unsigned int": "uint32",
    "unsigned long": "uint64",
    "unsigned long long": "uint64",
    "s4": "int4",
    "int4b_t": "int4",
    "bool": "bool",
    "cf32": "complex64",
    "cf64": "complex128",
}
_COMPLEX = {"fp32": "complex64", "fp64": "complex128", "fp16": "complex32"}

_QUALIFIER = re.compile(r"\b(?:const|volatile|__restrict__)\b|[*&]")


def dtype_of(text: str) -> str | None:
    """The element type a C++ type or a library's token names, or ``None`` when it names none."""
    if len(text) > 80:
        return None
    text = _QUALIFIER.sub("", text).strip()
    known = DTYPES.get(text)
    if known is not None:
        return known
    if "complex<" in text and text.endswith(">"):
        inner = dtype_of(text[text.index("complex<") + 8 : -1])
        return _COMPLEX.get(inner) if inner else None
    if "::" in text and "<" not in text:
        return DTYPES.get(text.rsplit("::", 1)[1])
    return None


# Digits of a matrix instruction as cuBLAS and CUTLASS run them together.
# Source: the mma and wmma shapes of the PTX ISA manual (mma.m8n8k4, m16n8k8, m16n8k16, wmma.m16n16k16 …).
_INSTRUCTIONS = {
    "884": "8x8x4",
    "8816": "8x8x16",
    "8832": "8x8x32",
    "88128": "8x8x128",
    "1684": "16x8x4",
    "1688": "16x8x8",
    "16816": "16x8x16",
    "16832": "16x8x32",
    "16864": "16x8x64",
    "168128": "16x8x128",
    "168256": "16x8x256",
    "161616": "16x16x16",
    "32816": "32x8x16",
    "83216": "8x32x16",
}


def instruction_shape(digits: str) -> str | None:
    """``16816`` is the instruction 16x8x16; ``None`` for digits that are no known shape."""
    return _INSTRUCTIONS.get(digits)


def shorten(text: str, length: int = SHORT_NAME_LENGTH) -> str:
    """``text`` on one line in at most ``length`` characters, with an ellipsis where it was cut."""
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def word_set(text: str) -> frozenset[str]:
    """The words of a table that is written as text."""
    return frozenset(text.split())
