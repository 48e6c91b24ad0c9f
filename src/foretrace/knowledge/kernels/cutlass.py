"""CUTLASS: the names its generator writes (2.x and 3.x), and kernels named by their C++ templates.

Source of the field order: the CUTLASS library generator (``tools/library/scripts`` / ``python/cutlass_library`` of
the CUTLASS repository). In the 2.x GEMM names of cuBLAS the first number of the tile runs along torch's n and the
second along its m: measured on an H200 (60 of 60 launches in which the grid tells the two apart). For names in C++
templates, which any library may launch with any operand order, ``tile_m`` and ``tile_n`` are left out.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from ._tokens import CORE, read_core, read_tokens
from .cpp import CppName, balanced, split_arguments

__all__ = ["match"]

_GENERATED = re.compile(r"cutlass(?:3x)?_[A-Za-z0-9_]+")
_INSTRUCTION_3X = re.compile(r"(?:[a-z]{0,2})(\d+x\d+x\d+)(gemm|spgemm|bs\w*gemm|fprop|dgrad|wgrad|conv)\w*$")
_TILE_3X = re.compile(r"\d+x\d+x\d+$")
_SHAPE = re.compile(r"GemmShape<\s*(\d+),\s*(\d+),\s*(\d+)")
_CUTE = re.compile(r"(?:cute::)?(?:C<(\d+)|_(\d+))")
_ELEMENT = re.compile(
    r"(?:cutlass\w{0,40}::)?\b(bfloat16_t|half_t|tfloat32_t|float_e4m3_t|float_e5m2_t|float_e2m1_t|int8_t)\b"
)
_ARCH = re.compile(r"\bSm(\d+)|cutlass_(\d{2,3})_|enable_3x_kernel_for_sm(\d{2,3})|enable_sm(\d+)")
# The main loop names the architecture it is for; copies inside it may keep an older one's instructions.
_ARCH_OF_PART = re.compile(r"(?:Mainloop|Epilogue|Dispatch)Sm(\d{2,3})")
_LAYOUT = re.compile(r"layout::(RowMajor|ColumnMajor)\b")
# A stride of CUTLASS 3.x has the constant 1 in the mode that is contiguous; A's modes are m and k, B's n and k.
_STRIDE = re.compile(r"tuple<\s*(?:(?:cute::)?(?:C<1>|_1)\s*(,)|[\w ]+,\s*(?:cute::)?(?:C<1>|_1)\s*[,>])")
_CUTE_TUPLE = re.compile(r"(?:tuple|Shape)<((?:\s*(?:cute::)?(?:C<\d+>|_\d+),?)+)\s*>")
_SCHEDULES = (
    ("Pingpong", "pingpong"),
    ("Cooperative", "cooperative"),
    ("pingpong", "pingpong"),
    ("cooperative", "cooperative"),
    ("WarpSpecialized", "warp-specialized"),
    ("warpspecialized", "warp-specialized"),
)


def match(parsed: CppName) -> Found | None:
    """Decode a CUTLASS name, or ``None``."""
    text = parsed.text
    at = text.find("cutlass")
    if at < 0 or (at > 400 and "Gemm" not in text[:400]):
        return None
    generated = _GENERATED.search(text)
    while generated and not _looks_generated(generated.group()):
        generated = _GENERATED.search(text, generated.end())
    if generated:
        word = generated.group().removesuffix("_Params")
        return _version3(word) if word.startswith("cutlass3x") else _version2(word)
    if parsed.qualified.startswith("cutlass") or parsed.scope.startswith("cutlass") or "cutlass::gemm" in text[:600]:
        return _template(parsed)
    return None


def _looks_generated(word: str) -> bool:
    # `cutlass_cudnn_train` is a namespace: the word `cudnn` alone is no middle of a name.
    return any(token != "cudnn" and (CORE.match(token) or _INSTRUCTION_3X.match(token)) for token in word.split("_"))


def _version2(word: str) -> Found:
    tokens = word.split("_")[1:]
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    if tokens and tokens[0].isdigit():
        decoded["arch"] = f"sm{tokens.pop(0)}"
    before: list[str] = []
    core: re.Match[str] | None = None
    for at, token in enumerate(tokens):  # noqa: B007 - read after the loop
        core = CORE.match(token) if token != "cudnn" else None
        if core:
            break
        if token in ("tensorop", "simt"):
            decoded["unit"] = "tensor cores" if token == "tensorop" else "SIMT"
        elif token == "wmma":
            decoded["algorithm"] = "wmma"
        else:
            before.append(token)
    if core is None:  # not reached: the caller has seen a core
        return Found("gemm", "cutlass", word, decoded, tokens)
    unknown += [token for token in before if not dtype_of(token)]
    rest = tokens[at + 1 :]
    after = next((token for token in rest if dtype_of(token)), None)
    read_core(core, before, decoded, after)
    read_tokens([token for token in rest if token != after], decoded, unknown)
    operation = core["operation"]
    convolution = operation in ("fprop", "dgrad", "wgrad")
    if not convolution and "tile" in decoded:
        decoded["tile_n"], decoded["tile_m"] = (int(number) for number in decoded["tile"].split("x"))
    core_text = core.group()
    short = f"cutlass {core_text} {decoded.get('tile', '')}"
    if decoded.get("stages"):
        short += f" {decoded['tile_k']}x{decoded['stages']}"
    if decoded.get("layout"):
        short += f" {decoded['layout'].lower()}"
    return Found("convolution" if convolution else "gemm", "cutlass", short, decoded, unknown, complete=True)


def _version3(word: str) -> Found:
    tokens = word.split("_")[1:]
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    types: list[str] = []
    shapes: list[str] = []
    operation = "gemm"
    for token in tokens:
        if token.startswith("sm") and token[2:].rstrip("af").isdigit():
            decoded["arch"] = token
        elif token == "tensorop":
            decoded["unit"] = "tensor cores"
        elif instruction := _INSTRUCTION_3X.match(token):
            decoded["instruction"] = instruction[1]
            operation = instruction[2]
        elif _TILE_3X.match(token):
            shapes.append(token)
        elif dtype := dtype_of(token):
            types.append(dtype)
        elif token.isdigit() and shapes:
            if int(token):
                decoded["stages"] = int(token)
        elif re.fullmatch(r"[nt]{2,3}", token) and "layout" not in decoded:
            decoded["layout"] = token[:2].upper()
            if len(token) == 3:
                decoded["output_layout"] = token[2].upper()
        elif token.startswith("align") and token[5:].isdigit():
            decoded["align"] = int(token[5:])
        elif token in ("warpspecialized", "pingpong", "cooperative"):
            decoded["schedule"] = "warp-specialized" if token == "warpspecialized" else token
        elif token in ("bias", "relu", "gelu", "silu"):
            decoded.setdefault("epilogue", []).append(token)
        elif token in ("epi", "tma", "nosmem", "1sm", "2sm", "fastaccum", "streamk", "stream", "k"):
            decoded.setdefault("features", []).append(token)
        else:
            unknown.append(token)
    for key, dtype in zip(("a_dtype", "b_dtype", "acc_dtype", "c_dtype", "out_dtype"), types, strict=False):
        decoded[key] = dtype
    if types:
        decoded["dtype"] = types[0]
    if shapes:
        m, n, k = shapes[0].split("x")
        decoded["tile"], decoded["tile_k"] = f"{m}x{n}", int(k)
    if len(shapes) > 1:
        decoded["cluster"] = shapes[1].removesuffix("x1")
    kind = "convolution" if operation in ("fprop", "dgrad", "wgrad", "conv") else "gemm"
    short = f"cutlass3x {decoded.get('arch', '')} {decoded.get('tile', '')} {decoded.get('schedule', '')}"
    return Found(kind, "cutlass", short, decoded, unknown, complete=True)


def _template(parsed: CppName) -> Found:
    text = parsed.text
    decoded: dict[str, Any] = {}
    kind = "gemm"
    if "ImplicitGemmConvolution" in text or "::conv::" in text or "Conv2d" in text or "Conv3d" in text:
        kind = "convolution"
        for word, direction in (("Wgrad", "backward weight"), ("Dgrad", "backward data"), ("Fprop", "forward")):
            if word in text:
                decoded["direction"] = direction
                break
    if "ReduceSplitK" in text:
        decoded["role"] = "split-K reduction"
        decoded["splitk"] = True
    if arch := _ARCH.search(text) or _ARCH_OF_PART.search(text):
        digits = next(group for group in arch.groups() if group)
        decoded["arch"] = f"sm{digits}"
    shapes = _SHAPE.findall(text[:8000])
    if shapes:
        decoded["tile"], decoded["tile_k"] = f"{shapes[0][0]}x{shapes[0][1]}", int(shapes[0][2])
        if len(shapes) > 2:
            decoded["instruction"] = "x".join(shapes[2])
    _collective(text, decoded)
    if "tile" not in decoded and "GemmUniversal" in text:
        _shape_of_tuples(text, decoded)
    if kind == "gemm" and "operand_layouts" not in decoded and len(layouts := _LAYOUT.findall(text[:8000])) >= 2:
        decoded["operand_layouts"] = layouts[:2]
    for word, schedule in _SCHEDULES:
        if word in text:
            decoded.setdefault("schedule", schedule)
            break
    if "dtype" not in decoded and (element := _ELEMENT.search(text)):
        decoded["dtype"] = dtype_of(element[1])
    if "Grouped" in text or "grouped" in text:
        decoded["grouped"] = True
    operation = {"gemm": "gemm", "convolution": "conv"}[kind]
    short = f"cutlass {operation} {decoded.get('tile', '')} {decoded.get('schedule', '')}"
    if decoded.get("role"):
        short = f"cutlass {operation} {decoded['role']}"
    return Found(kind, "cutlass", short, decoded, [] if decoded else [parsed.text[:200]])


def _collective(text: str, decoded: dict[str, Any]) -> None:
    """CUTLASS 3.x: stages, cluster, tile and element types of the main loop's ``CollectiveMma``."""
    at = text.find("CollectiveMma<")
    if at < 0:
        return
    arguments = split_arguments(balanced(text, at + len("CollectiveMma")))
    if arguments:
        policy = split_arguments(balanced(arguments[0], arguments[0].find("<"))) if "<" in arguments[0] else []
        if policy and policy[0].isdigit():
            decoded["stages"] = int(policy[0])
        cluster = next((_numbers(part) for part in policy if "tuple" in part), [])
        if len(cluster) == 3:
            decoded["cluster"] = f"{cluster[0]}x{cluster[1]}"
    if len(arguments) > 1 and len(tile := _numbers(arguments[1])) == 3:
        decoded["tile"], decoded["tile_k"] = f"{tile[0]}x{tile[1]}", tile[2]
    for key, index in (("a_dtype", 2), ("b_dtype", 4)):
        if len(arguments) > index and (dtype := dtype_of(arguments[index])):
            decoded[key] = dtype
    if "a_dtype" in decoded:
        decoded["dtype"] = decoded["a_dtype"]
    strides = [_STRIDE.match(arguments[index].removeprefix("cute::")) for index in (3, 5) if len(arguments) > index]
    if len(strides) == 2 and all(strides):
        a, b = ("first" if stride and stride[1] else "second" for stride in strides)
        decoded["operand_layouts"] = [
            "ColumnMajor" if a == "first" else "RowMajor",
            "RowMajor" if b == "first" else "ColumnMajor",
        ]


def _shape_of_tuples(text: str, decoded: dict[str, Any]) -> None:
    """The tile of a kernel without a spelled-out main loop: the first constant shape whose edges are no cluster's."""
    for shape in _CUTE_TUPLE.finditer(text[:8000]):
        numbers = _numbers(shape[1])
        if len(numbers) == 3 and all(number and number % 8 == 0 for number in numbers):
            decoded["tile"], decoded["tile_k"] = f"{numbers[0]}x{numbers[1]}", numbers[2]
            return


def _numbers(text: str) -> list[int]:
    return [int(first or second) for first, second in _CUTE.findall(text)]
