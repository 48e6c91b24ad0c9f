"""The tokens that cuBLAS, cuDNN and CUTLASS 2.x names share, and their reading.

Source: the naming of the CUTLASS library generator and profiler, and the names cuBLAS and cuDNN have used since
CUDA 9. Tokens not listed here have no published meaning and stay unknown.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import dtype_of, instruction_shape, word_set

__all__ = ["ARCHITECTURES", "CORE", "read_core", "read_tokens"]

ARCHITECTURES = word_set("maxwell pascal volta turing ampere ada hopper blackwell kepler")

# The middle of a name: accumulator letter(s), matrix instruction, operation; `s16816gemm`, `scudnn`, `d884gemm`.
CORE = re.compile(
    r"(?P<letter>gc|gz|s|h|d|i|c|z)?(?P<shape>\d{3,6}|\d+x\d+x\d+)?"
    r"(?P<operation>gemm|cudnn|fprop|dgrad|wgrad|symm|syrk|herk|trmm|trsm|hemm)(?P<variant>[a-zA-Z]*)$"
)
_ACCUMULATE = {
    "s": "fp32",
    "h": "fp16",
    "d": "fp64",
    "i": "int32",
    "c": "complex64",
    "gc": "complex64",
    "z": "complex128",
    "gz": "complex128",
}
_TILE = re.compile(r"\d+x\d+(?:x\d+)?$")
_STAGES = re.compile(r"(\d+)x(\d+)$")
_LAYOUT = re.compile(r"[ntc]{2,3}$")
_ALIGN = re.compile(r"align(\d+)$")
_LOAD = re.compile(r"ld[gs](\d+)$")
_SLICED = re.compile(r"sliced(\d+x\d+)$")
_VERSION = re.compile(r"v\d+$")
# A cuBLAS or CUTLASS kernel whose name says `relu` *can* apply it: plain matrix products launch it as well
# (`cutlass_80_tensorop_f16_s16816gemm_relu_f16` under `aten::mm`), so it is no evidence of a fused activation.
_CAPABLE = frozenset({"relu", "gelu", "bias"})
_DIRECTIONS = {"fprop": "forward", "dgrad": "backward data", "wgrad": "backward weight"}
# Where the code was built into, not what it does.
_SILENT = frozenset({"", "kernel", "execute", "5x", "cublas", "cudnn", "trt", "infer", "train", "Params"})
_FORMATS = frozenset({"nhwc", "nchw", "ndhwc", "ncdhw", "nhwckrsc", "nc8hw8", "nc4hw4", "nc32hw32", "ncxhwx"})


def read_core(core: re.Match[str], before: list[str], decoded: dict[str, Any], after: str | None) -> None:
    """Types and instruction from the middle of a name and the type tokens around it.

    The type before the middle is the output's, the one after it the inputs'; each is left out where it is the
    accumulator's (``bf16_s16816gemm_bf16``, ``s16816gemm_bf16`` with fp32 output, ``sgemm``).
    """
    letter, shape, operation = core["letter"] or "", core["shape"], core["operation"]
    accumulate = _ACCUMULATE.get(letter)
    output = next((dtype for token in before if (dtype := dtype_of(token))), None)
    inputs = dtype_of(after) if after else None
    if inputs is None and letter == "s" and shape == "1688":
        # fp32 data through m16n8k8: that instruction takes tf32 (PTX ISA), the data stay fp32 in memory.
        inputs = "tf32"
        output = output or "fp32"
    inputs = inputs or {"i": None}.get(letter, accumulate)
    if inputs:
        decoded["dtype"] = inputs
    if accumulate and not accumulate.startswith("complex"):
        decoded["acc_dtype"] = accumulate
        decoded["out_dtype"] = output or accumulate
    if shape:
        decoded["instruction"] = shape if "x" in shape else instruction_shape(shape) or shape
    if operation in _DIRECTIONS:
        decoded["direction"] = _DIRECTIONS[operation]


def read_tokens(tokens: list[str], decoded: dict[str, Any], unknown: list[str]) -> None:
    """Tile, stages, layout, alignment and the rest, from the tokens after the middle of a name."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        following = tokens[position + 1] if position + 1 < len(tokens) else ""
        position += 1
        if not token:
            continue
        if token == "stages" and (stages := _STAGES.match(following)):
            decoded["tile_k"], decoded["stages"] = int(stages[1]), int(stages[2])
            position += 1
        elif _TILE.match(token):
            _read_tile(token, decoded, unknown)
        elif _LAYOUT.match(token) and "layout" not in decoded:
            decoded["layout"] = token[:2].upper()
            if len(token) == 3:
                decoded["output_layout"] = token[2].upper()
        elif align := _ALIGN.match(token):
            decoded["align"] = int(align[1])
        elif load := _LOAD.match(token):
            decoded["load_width"] = int(load[1])
        elif sliced := _SLICED.match(token):
            decoded["sliced"] = sliced[1]
        elif token.lower() in ("splitk", "splitkreduce", "parallelsplitk"):
            decoded["splitk"] = True
        elif token in _CAPABLE:
            decoded.setdefault("epilogue_supported", []).append(token)
        elif token in _FORMATS:
            decoded["tensor_format"] = token
        elif token in _DIRECTIONS:
            decoded["direction"] = _DIRECTIONS[token]
        elif token in ("winograd", "implicit", "optimized", "analytic", "indexed", "fft"):
            decoded["algorithm"] = " ".join([*str(decoded.get("algorithm", "")).split(), token])
        elif token in ("3dconv", "2dconv"):
            decoded["dimensions"] = int(token[0])
        elif dtype := dtype_of(token):
            decoded["dtype" if "dtype" not in decoded else "out_dtype"] = dtype
        elif _VERSION.match(token) or token in _SILENT:
            continue
        else:
            unknown.append(token)


def _read_tile(token: str, decoded: dict[str, Any], unknown: list[str]) -> None:
    numbers = token.split("x")
    if "tile" not in decoded:
        decoded["tile"] = "x".join(numbers[:2])
        if len(numbers) == 3:
            decoded["tile_k"] = int(numbers[2])
    elif len(numbers) == 2 and "stages" not in decoded:
        decoded["tile_k"], decoded["stages"] = int(numbers[0]), int(numbers[1])
    else:
        unknown.append(token)
