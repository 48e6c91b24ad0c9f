"""The ``xmma`` kernels of cuBLAS, cuDNN and TensorRT.

``sm90_xmma_gemm_bf16f32_bf16f32_f32_nt_n_tilesize128x128x64_…``: the first pair of types is input and output, the
second the type multiplied and the type accumulated, the third that of the epilogue. Established on an H200 from GEMMs
of known types (fp32 in, tf32 multiplied; fp64; complex). In the kernels without a warp-group size the first number of
the tile runs along torch's m (122 of 122 launches in which the grid tells it from n: sm80 fp32 and complex, sm90
fp64); for the warp-group kernels the grid does not tell, so their ``tile_m`` and ``tile_n`` are left out. The layout
letters are cuBLAS's (576 of 576).
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of

__all__ = ["match"]

_TYPE = r"(?:cf32|cf64|tf32|bf16|f16|f32|f64|e4m3|e5m2|i8|u8|i32|s8|s32)"
_PAIR = re.compile(rf"({_TYPE})({_TYPE})$")
_SINGLE = re.compile(rf"{_TYPE}$")
_TILE = re.compile(r"tilesize(\d+)x(\d+)x(\d+)$")
_NUMBERED = re.compile(r"(stage|warpsize|warpgroupsize|tensor|g|aligna|alignb|alignc|split[kK]?|slices?)(\d[\dx]*)$")
_LAYOUT = re.compile(r"[nt]{2}$")
_FORMAT = re.compile(r"(?:nhwc|nchw|ndhwc|ncdhw|nc\dhw\d|nhwckrsc|ndhwckrsc)[a-z]*$")
_DIRECTIONS = {"fprop": "forward", "dgrad": "backward data", "wgrad": "backward weight"}
_SILENT = frozenset(
    {"xmma", "execute", "kernel", "", "5x", "cudnn", "cublas", "trt", "infer", "train", "implicit", "gemm"}
)


def match(text: str) -> Found | None:
    """Decode an xmma name, or ``None``."""
    at = text.find("_xmma_")
    if at < 0 or at > 40 or "<" in text[:at]:
        return None
    arch = text[:at].rsplit("_", 1)[-1]
    tokens = text[at + 6 :].split("_")
    decoded: dict[str, Any] = {"arch": arch} if arch.startswith("sm") else {}
    unknown: list[str] = []
    pairs = 0
    direction = next((token for token in tokens[:4] if token in _DIRECTIONS), None)
    for position, token in enumerate(tokens):
        if pair := _PAIR.match(token):
            _types(pair, pairs, decoded)
            pairs += 1
        elif _SINGLE.match(token) and pairs:
            decoded.setdefault("epilogue_dtype", dtype_of(token))
        elif tile := _TILE.match(token):
            decoded["tile"] = f"{tile[1]}x{tile[2]}"
            decoded["tile_k"] = int(tile[3])
        elif numbered := _NUMBERED.match(token):
            _number(numbered[1], numbered[2], decoded)
        elif _LAYOUT.match(token) and "layout" not in decoded:
            decoded["layout"] = token.upper()
        elif token in ("n", "t") and "layout" in decoded and "output_layout" not in decoded:
            decoded["output_layout"] = token.upper()
        elif _FORMAT.match(token):
            decoded["tensor_format"] = "_".join([*str(decoded.get("tensor_format", "")).split(), token]).strip("_")
        elif token in _DIRECTIONS:
            decoded["direction"] = _DIRECTIONS[token]
        elif token == "indexed":
            decoded["algorithm"] = "indexed implicit GEMM"
        elif token in ("ffma", "dmma", "hmma"):
            decoded["unit"] = "SIMT" if token == "ffma" else "tensor cores"
        elif token == "segment" and tokens[position + 1 : position + 2] == ["k"]:
            decoded["segment_k"] = tokens[position + 2 : position + 3] == ["on"]
        elif token in ("k", "on", "off") and "segment_k" in decoded:
            continue
        elif token.lower() == "splitk" or (token == "split" and tokens[position + 1 : position + 2] == ["k"]):
            decoded["splitk"] = True
            if tokens[position : position + 3] == ["split", "k", "kernel"]:
                # Of the two kernels of a split product the second, which adds up what the first has written; the
                # first is named like a product that is not split.
                decoded["role"] = "split-K reduction"
        elif token == "k" and "splitk" in decoded:
            continue
        elif token in ("relu", "gelu", "bias"):
            decoded.setdefault("epilogue_supported", []).append(token)
        elif token == "sparse":
            decoded["sparse"] = True
        elif token not in _SILENT:
            unknown.append(token)
    measured = arch in ("sm80", "sm90") and "warps_per_group" not in decoded
    if direction is None and measured and "layout" in decoded and "tile" in decoded:
        decoded["tile_m"], decoded["tile_n"] = (int(number) for number in decoded["tile"].split("x"))
    kind = "convolution" if direction or "conv" in text[at:] else "gemm"
    family = "xmma"
    operation = direction or ("gemm" if kind == "gemm" else "conv")
    short = f"{arch} xmma {operation} {decoded.get('tile', '')}"
    if decoded.get("layout"):
        short += f" {decoded['layout'].lower()}"
    if "role" in decoded:
        short += f" {decoded['role']}"
    return Found(kind, family, short, decoded, unknown)


def _types(pair: re.Match[str], index: int, decoded: dict[str, Any]) -> None:
    first, second = dtype_of(pair[1]), dtype_of(pair[2])
    if index == 0:
        decoded["dtype"], decoded["out_dtype"] = first, second
    elif index == 1:
        if first != decoded.get("dtype"):
            # The data are stored in one type and multiplied in another: the multiplication is what sets the speed.
            decoded["stored_dtype"] = decoded.get("dtype")
            decoded["dtype"] = first if first == "tf32" else decoded.get("dtype")
        decoded["acc_dtype"] = second


def _number(word: str, number: str, decoded: dict[str, Any]) -> None:
    if word == "stage" and number.isdigit():
        decoded["stages"] = int(number)
    elif word == "warpsize":
        decoded["warps"] = number
    elif word == "warpgroupsize":
        decoded["warps_per_group"] = number
    elif word == "tensor":
        decoded["instruction"] = number
    elif word == "g" and number.isdigit():
        decoded["groups"] = int(number)
    elif word.startswith("align") and number.isdigit():
        decoded["align" if word == "aligna" else "align_" + word[-1]] = int(number)
    elif word.lower().startswith("split"):
        decoded["splitk"] = True
