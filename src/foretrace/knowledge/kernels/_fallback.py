"""What any identifier spells out: element types, architecture, tile and head dimension, where no grammar read them.

Asked last, for the families whose names follow no full grammar. A field is filled when exactly one part of the
identifier names it; parts that compete stay unknown, as they are written. Only spellings with one meaning in the names
of CUDA, ROCm and Triton libraries are listed: ``half`` may be an English word, ``int4`` a vector of
four integers, ``s8`` a number of stages.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import DTYPES, Found, word_set
from .cpp import CppName

__all__ = ["fill"]

# An identifier is read up to here; longer ones repeat themselves.
_LONGEST = 2_000

_TYPES = {
    spelling: DTYPES.get(spelling, spelling)
    for spelling in word_set(
        "bf16 bfloat16 fp16 f16 float16 fp32 f32 float32 tf32 fp64 f64 float64 fp8 e4m3 e5m2 e2m1 fp4 mxfp4 nvfp4"
        " int8 i8 uint8"
    )
} | {
    "f8": "fp8",
    "float8": "fp8",
    "mxfp8": "mxfp8",
    "f4": "fp4",
    "e4m3fn": "fp8_e4m3",
    "e4m3fnuz": "fp8_e4m3fnuz",
    "e5m2fnuz": "fp8_e5m2fnuz",
    "fp8e4m3": "fp8_e4m3",
    "fp8e5m2": "fp8_e5m2",
}
# A general word and the precise ones it may stand beside: `fp8_e4m3` is one type, not two.
_GENERAL = {"fp8": ("fp8_", "mxfp8"), "fp4": ("fp4_", "mxfp4", "nvfp4")}

_PIECES = re.compile(r"[A-Za-z0-9]+")
# Where a word begins inside a piece: `per1x32Fp4`, `QkvBf16`; `BF16` and `BFloat16` stay one word each.
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# The type of the operands written before the operation: `f4gemm`, `fp8gemm`, `i8mm`.
_PREFIX = re.compile(r"([a-z]{1,4}\d{1,2})(?:gemm|gemv|mm|fmha|conv)$", re.IGNORECASE)
_ARCHITECTURE = re.compile(r"(?:sm_?(\d{2,3}[af]?)|(gfx[0-9a-f]{1,4}))$", re.IGNORECASE)
_SHAPE = re.compile(r"(\d{1,4})x(\d{1,4})(?:x(\d{1,4}))?$")
_HEAD = re.compile(r"(hd|d|hdim|headdim|headsize)(\d{2,4})$", re.IGNORECASE)
_PRODUCTS = ("gemm", "attention", "convolution")
_RESULT = ("out", "output")
# Kinds and words in whose names a shape is no tile: windows of pooling and resampling, sizes of transforms.
_TILED = (*_PRODUCTS, "other")
_TRANSFORM = re.compile(r"fft|winograd", re.IGNORECASE)
_HEAD_FIELDS = ("head_dim", "largest_head_dim")


def fill(parsed: CppName, found: Found) -> None:
    """Complete ``found`` from the identifier of ``parsed``; what stays ambiguous is added to its unknown parts."""
    if found.complete:
        return
    decoded = found.decoded
    types: dict[str, str] = {}
    architectures: dict[str, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    heads: dict[str, int] = {}
    written: dict[str, str] = {}
    words = _words(parsed.base[:_LONGEST])
    # A namespace is shared by kernels of several types and shapes, but built for one architecture.
    words += [entry for entry in _words(parsed.scope[-_LONGEST:]) if _ARCHITECTURE.match(entry[1])]
    products = found.kind in _PRODUCTS
    tiled = found.kind in _TILED and not _TRANSFORM.search(parsed.base[:_LONGEST])
    for at, (piece, word) in enumerate(words):
        if (dtype := _TYPES.get(word.lower())) or (
            (prefix := _PREFIX.match(word)) and (dtype := _TYPES.get(prefix[1].lower()))
        ):
            around = [neighbour.lower() for _, neighbour in words[max(at - 1, 0) : at + 2]]
            converted = not products and (
                (at and (around[0] == "to" or around[0].startswith("quant"))) or around[-1].startswith("quant")
            )
            result = around[-1] in _RESULT or (at and around[0] in _RESULT)
            (written if converted or result else types).setdefault(dtype, word)
        elif arch := _ARCHITECTURE.match(word):
            architectures.setdefault((f"sm{arch[1]}" if arch[1] else arch[2]).lower(), word)
        elif shape := _SHAPE.match(word):
            shapes.setdefault(piece, tuple(int(number) for number in shape.groups() if number))
        elif (
            (head := _HEAD.match(word))
            and int(head[2]) % 8 == 0
            and (head[1].lower() != "d" or found.kind == "attention")
        ):
            heads.setdefault(word, int(head[2]))
    unknown = [
        *_written(written, decoded),
        *_types(types, decoded),
        *_one("arch", {word: arch for arch, word in architectures.items()}, decoded),
        *(_tile(shapes, decoded) if tiled else shapes),
    ]
    if not any(field in decoded for field in _HEAD_FIELDS):
        unknown += _one("head_dim", heads, decoded)
    listed = " ".join(found.unknown)
    found.unknown = [*found.unknown, *(part for part in unknown if part not in listed)]


def _words(identifier: str) -> list[tuple[str, str]]:
    """The words of an identifier with the piece between underscores each stands in."""
    return [
        (piece, word)
        for piece in _PIECES.findall(identifier)
        for word in ([piece] if piece.lower() in _TYPES else _CAMEL.split(piece))
    ]


def _written(types: dict[str, str], decoded: dict[str, Any]) -> list[str]:
    """The type a conversion writes: `cast_to_fp8`, `fp8_quant`."""
    if len(types) != 1 or "out_dtype" in decoded:
        return [word for dtype, word in types.items() if dtype != decoded.get("out_dtype")]
    decoded["out_dtype"] = next(iter(types))
    return []


def _types(types: dict[str, str], decoded: dict[str, Any]) -> list[str]:
    known = {str(value) for key, value in decoded.items() if key == "dtype" or key.endswith("_dtype")}
    for general, precise in _GENERAL.items():
        if general in types and any(name.startswith(precise) for name in (*types, *known) if name != general):
            del types[general]
    left = {dtype: word for dtype, word in types.items() if dtype not in known}
    if len(left) == 1 and len(types) == 1 and "dtype" not in decoded:
        decoded["dtype"] = next(iter(left))
        return []
    return list(left.values())


def _one(field: str, candidates: dict[str, Any], decoded: dict[str, Any]) -> list[str]:
    if field in decoded:
        return [word for word, value in candidates.items() if value != decoded[field]]
    if len(set(candidates.values())) == 1:
        decoded[field] = next(iter(candidates.values()))
        return []
    return list(candidates)


def _tile(shapes: dict[str, tuple[int, ...]], decoded: dict[str, Any]) -> list[str]:
    """A tile's edges are multiples of 8: that tells it from clusters, scaling blocks and filter sizes."""
    said = {str(value) for value in decoded.values()}
    left = {word: shape for word, shape in shapes.items() if not any(word.startswith(value) for value in said if value)}
    tiles = {word: shape for word, shape in left.items() if all(edge and edge % 8 == 0 for edge in shape)}
    if len(tiles) == 1 and not any(field in decoded for field in ("tile", "block_shape")):
        word, shape = tiles.popitem()
        decoded["tile"] = f"{shape[0]}x{shape[1]}"
        if len(shape) == 3:
            decoded["tile_k"] = shape[2]
        del left[word]
    return list(left)
