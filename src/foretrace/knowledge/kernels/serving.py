"""GEMMs of serving libraries whose names hold numbers: DeepGEMM, Marlin, AITER, vLLM's skinny GEMM for ROCm.

Sources: the template parameter lists of the libraries' kernels. DeepGEMM changed its list from release to release, so
that only the positions that all releases of a kernel share are read; every other number stays unknown. DeepGEMM's
numbers carry the suffix ``u``, ids of scalar types the suffix ``l``.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import dtype_of
from .cpp import CppName

__all__ = ["read"]

_UNSIGNED = re.compile(r"(\d+)u?$")
_INTEGER = re.compile(r"-?\d+$")
# DeepGEMM, position among the unsigned template numbers: fixed sizes (0: given at run time), the block, the stages.
_DEEP_GEMM: tuple[tuple[re.Pattern[str], dict[str, int]], ...] = (
    (re.compile(r"fp8_gemm_kernel$"), {"n": 0, "k": 1, "block": 2}),
    (re.compile(r"sm\d+_fp8_gemm_1d1d_impl$"), {"m": 0, "n": 1, "k": 2, "groups": 3, "block": 4, "stages": 9}),
    (re.compile(r"sm90_bf16_gemm_impl$"), {"m": 0, "n": 1, "k": 2, "block": 3, "groups": 6, "stages": 10}),
)
# The first release's list has eleven parameters, and the stages are the seventh.
_FIRST_RELEASE = 11
# sm100's list of the 1D1D kernel has another order.
_OTHER_ORDER = re.compile(r"sm10\d_")
# f4gemm_bf16_per1x32Fp4_BpreShuffle_192x128: type of the operands, of the result, scaling, order of B in memory, tile.
_AITER = re.compile(r"(?P<type>[a-zA-Z]{1,2}\d{1,2})gemm_(?P<out>[a-z0-9]+)(?P<rest>(?:_\w+)?)$")
_OPERANDS = {"f4": "fp4", "fp4": "fp4", "f8": "fp8", "fp8": "fp8", "i8": "int8", "bf16": "bf16", "f16": "fp16"}
_SCALE = re.compile(r"per(\d+x\d+)(\w*)$")
_TILE = re.compile(r"(\d+)x(\d+)$")
# Marlin counts its tile in blocks of 16 by 16.
_MARLIN_BLOCK = 16


def read(library: str | None, parsed: CppName, decoded: dict[str, Any]) -> list[str]:
    """Add what the grammar of ``library`` finds to ``decoded``; the parts it does not know are returned."""
    if library == "deepgemm":
        return _deep_gemm(parsed, decoded)
    if library == "marlin" and parsed.base.startswith("Marlin"):
        return _marlin(parsed, decoded)
    if library == "aiter" and (found := _AITER.match(parsed.base[:400])):
        return _aiter(found, decoded)
    if parsed.base.startswith("wvSplitK"):
        return _skinny(parsed, decoded)
    return []


def _skinny(parsed: CppName, decoded: dict[str, Any]) -> list[str]:
    """``wvSplitK…<type, numbers>``; the quantized form writes its first type and multiplies the second."""
    types = [dtype for argument in parsed.arguments if (dtype := dtype_of(argument)) and dtype != "bool"]
    decoded["splitk"] = True
    if parsed.base.startswith("wvSplitKQ") and len(types) > 1:
        decoded["out_dtype"], decoded["dtype"] = types[:2]
    return [argument[:80] for argument in parsed.arguments if dtype_of(argument) is None]


def _deep_gemm(parsed: CppName, decoded: dict[str, Any]) -> list[str]:
    arguments = parsed.arguments
    unsigned = [(at, int(found[1])) for at, text in enumerate(arguments) if (found := _UNSIGNED.match(text))]
    places = next((places for name, places in _DEEP_GEMM if name.match(parsed.base)), {})
    if _OTHER_ORDER.match(parsed.base) or len(unsigned) <= max([*places.values(), places.get("block", 0) + 2]):
        places = {}
    if places and places["block"] == 2 and len(arguments) == _FIRST_RELEASE:
        places = places | {"stages": 6}
    used: set[int] = set()
    for field, position in places.items():
        at, number = unsigned[position]
        used.add(at)
        if field == "block":
            used |= {unsigned[position + 1][0], unsigned[position + 2][0]}
            decoded["tile"], decoded["tile_k"] = f"{number}x{unsigned[position + 1][1]}", unsigned[position + 2][1]
        elif number:
            decoded[field if len(field) > 1 else f"fixed_{field}"] = number
    return [argument[:80] for at, argument in enumerate(arguments) if at not in used and dtype_of(argument) is None]


def _marlin(parsed: CppName, decoded: dict[str, Any]) -> list[str]:
    arguments = [argument for argument in parsed.arguments if dtype_of(argument) is None]
    integers = [at for at, argument in enumerate(arguments) if _INTEGER.match(argument)]
    numbers = [int(arguments[at][:9]) for at in integers]
    if len(numbers) > 1 and numbers[0] in (2, 3, 4, 8) and numbers[1] >= 64 and numbers[1] % 32 == 0:
        # Before scalar types had ids the width of a weight stood first.
        decoded["weight_bits"] = numbers.pop(0)
        del arguments[integers.pop(0)]
        integers = [at - 1 for at in integers]
    if len(numbers) < 5 or numbers[0] < 64 or numbers[0] % 32:
        return [argument[:80] for argument in arguments]
    threads, m, n, k, stages = numbers[:5]
    first, last = integers[0], integers[4]
    # A flag between block and stages says that the block has 8 rows instead of 16.
    rows = 8 if "true" in arguments[first:last] else m * _MARLIN_BLOCK
    decoded |= {"threads": threads, "tile": f"{rows}x{n * _MARLIN_BLOCK}", "tile_k": k * _MARLIN_BLOCK}
    decoded["stages"] = stages
    rest = arguments[last + 1 :]
    groups = [argument for argument in rest if _INTEGER.match(argument)]
    if len(groups) == 1 and int(groups[0][:9]) > 0:
        decoded["group_size"] = int(groups[0][:9]) * _MARLIN_BLOCK
        rest.remove(groups[0])
    return [argument[:80] for argument in (*arguments[:first], *rest)]


def _aiter(found: re.Match[str], decoded: dict[str, Any]) -> list[str]:
    operands, out = _OPERANDS.get(found["type"].lower()), dtype_of(found["out"])
    unknown = [] if out else [found["out"]]
    if operands:
        decoded["dtype"] = operands
    else:
        unknown.append(found["type"])
    if out:
        decoded["out_dtype"] = out
    for token in found["rest"].split("_"):
        if scale := _SCALE.match(token):
            decoded["scale_block"] = scale[1]
        elif token.lower() in ("bpreshuffle", "bshuffle"):
            decoded["b_shuffled"] = True
        elif token.lower() == "splitk":
            decoded["splitk"] = True
        elif token and not (_TILE.match(token) or token == "kernel"):
            unknown.append(token)
    return unknown
