"""cuBLAS's ``nvjet`` GEMM kernels (CUDA 12.8 and later, Hopper and Blackwell).

``nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_bias_TNT``: element types, tile, k-tile × stages, cluster, flags, layout.

How the fields were established: 1218 different names recorded on an H200 (torch 2.11, CUDA 13.0) against the shapes,
strides and types of the GEMMs that launched them, grid sizes included. The first number of the tile runs along
torch's n and the second along its m, whatever the layout letters (141 of 141 launches in which the grid tells the two
apart); the first number of the cluster runs along n too. The first two layout letters are cuBLAS's transposition of
its A and B (column-major, so its A is torch's second operand; 424 of 424). Letters of the element types are matched
with the tensors: five letters are A, B, C, compute, D; three are operands, compute, D. The meaning of ``bz`` and of
``h``/``v`` is not known.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found

__all__ = ["match"]

_NAME = re.compile(
    r"nvjet(?:_(?P<arch>sm\d+[a-z]?))?_(?P<types>[a-z]{3,6})_(?P<m>\d+)x(?P<n>\d+)_(?P<k>\d+)x(?P<stages>\d+)"
    r"(?P<rest>(?:_[A-Za-z0-9]+)*)$"
)
_LAYOUT = re.compile(r"[NT]{2,3}$")
_CLUSTER = re.compile(r"\d+x\d+(?:x\d+)?$")
_LETTER = {"t": "bf16", "h": "fp16", "s": "fp32", "d": "fp64", "q": "fp8_e4m3", "r": "fp8_e5m2"}
_EPILOGUE = re.compile(r"(dgelu|drelu|gelu|relu|silu|aux|bias|bgrad)")


def match(text: str) -> Found | None:
    """Decode an nvjet name; ``tile_m`` and ``tile_n`` are along torch's m and n."""
    if not text.startswith("nvjet"):
        return None
    found = _NAME.match(text)
    if not found:
        return Found("gemm", "nvjet", text.replace("_", " "), {}, [text.removeprefix("nvjet").lstrip("_")])
    first, second = int(found["m"]), int(found["n"])
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    if found["arch"]:
        decoded["arch"] = found["arch"]
    _types(found["types"], decoded, unknown)
    decoded |= {
        "tile": f"{first}x{second}",
        "tile_m": second,
        "tile_n": first,
        "tile_k": int(found["k"]),
        "stages": int(found["stages"]),
    }
    tokens = found["rest"].split("_")[1:]
    if tokens and _LAYOUT.match(tokens[-1]):
        letters = tokens.pop()
        decoded["layout"] = letters[:2]
        if len(letters) == 3:
            decoded["output_layout"] = letters[2]
    if tokens and _CLUSTER.match(tokens[0]):
        decoded["cluster"] = tokens.pop(0)
    epilogue: list[str] = []
    for token in tokens:
        parts = _EPILOGUE.findall(token.lower())
        if token.lower().startswith("coop"):
            decoded["schedule"] = "cooperative"
            decoded["schedule_name"] = token
        elif token == "splitK":
            decoded["splitk"] = True
        elif token == "2cta":
            decoded["cta_pair"] = True
        elif token.startswith("algo"):
            decoded["algorithm"] = token
        elif parts and "".join(parts) == token.lower():
            # cuBLASLt applies the bias before the activation, whatever the order in the name.
            epilogue += sorted(parts, key=lambda part: part != "bias")
        else:
            unknown.append(token)
    if epilogue:
        decoded["epilogue"] = epilogue
    short = f"nvjet {decoded['tile']} {found['k']}x{found['stages']}"
    # TNT and NNT are different binaries of one tile: without the operands' letters two rows would look the same.
    short += f" {decoded['layout']}" if "layout" in decoded else ""
    short += "".join(" " + word for word in epilogue) + (" splitK" if decoded.get("splitk") else "")
    return Found("gemm", "nvjet", short, decoded, unknown)


def _types(letters: str, decoded: dict[str, Any], unknown: list[str]) -> None:
    """Element types by their letters; a letter that is not known makes the whole group unknown."""
    types = [_LETTER.get(letter) for letter in letters]
    if None in types or len(types) not in (3, 5):
        unknown.append(letters)
        return
    if len(types) == 3:
        decoded |= {"dtype": types[0], "acc_dtype": types[1], "out_dtype": types[2]}
    else:
        a, b, c, compute, d = types
        decoded |= {"dtype": a, "a_dtype": a, "b_dtype": b, "c_dtype": c, "acc_dtype": compute, "out_dtype": d}
