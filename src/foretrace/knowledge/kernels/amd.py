"""AMD's libraries: Tensile (rocBLAS, hipBLASLt), MIOpen and Composable Kernel.

Tensile, ``Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT64x16x128_MI16x16x1_…``: the index order of A and B gives
the layout (``Ailk``: i first, not transposed; ``Alik``: transposed; ``Bljk``: not transposed; ``Bjlk``: transposed),
the letters after it the types, ``MT`` the tile of i, j and the k-tile, ``MI`` the matrix instruction. In C[i, j] the
index i is the one that is contiguous in memory, hence torch's n. Source: Tensile's ``KernelWriterNaming`` and
parameter documentation.

MIOpen's ``igemm_{fwd,bwd,wrw}_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32_…``: direction, generation, memory format, type,
block tile. Source: MIOpen's dynamic implicit GEMM kernel naming (ROCm MIOpen repository).
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from .cpp import CppName, split_arguments

__all__ = ["match"]

_TENSILE = re.compile(r"(?P<custom>Custom_)?Cijk_(?P<a>A[ijkl]+)_(?P<b>B[ijkl]+)_(?P<rest>.*)$", re.DOTALL)
_TYPES = {
    "B": "bf16",
    "H": "fp16",
    "S": "fp32",
    "D": "fp64",
    "I": "int32",
    "I8": "int8",
    "C": "complex64",
    "Z": "complex128",
    "F8": "fp8_e4m3",
    "B8": "fp8_e5m2",
    "X": "tf32",
}
_TYPE_TOKEN = re.compile(r"(?:F8|B8|I8|[BHSDICZX])+$")
_TYPE_LETTER = re.compile(r"F8|B8|I8|[BHSDICZX]")
_NUMBERED = re.compile(r"(MT|MI|ISA|GSU|SK|WG|GRVWA|GRVWB|VW|PGR|PLR|DU)(\d[\dx_a-f]*)$")
_GLOBAL_SPLIT = re.compile(r"GSU(\d+)$")
_IGEMM = re.compile(r"igemm_(fwd|bwd|wrw)_(gtcx?\d*|v\d\w*?)_(\w+)$")
_CK_ELEMENT = re.compile(r"std::bfloat16_t|_Float16|unsigned short|bhalf_t|half_t")
# After the elementwise operations: (specialization or prefetch stages), threads a block, m, n and k of the block.
_CK_BLOCKS = re.compile(r"PassThrough, (?:\([\w:]+\)\d+, |1, )?(64|128|256|512), (\d+), (\d+), (\d+),")
_DIRECTIONS = {
    "fwd": "forward",
    "bwd": "backward data",
    "wrw": "backward weight",
    "bwd_data": "backward data",
    "bwd_weight": "backward weight",
}
_TRANSPOSE = re.compile(r"(?:batched_)?transpose_(?!conv)\w+")
# batched_transpose_64x32_pack_4x2_ediv_2x1_half: tile, elements packed, elements a thread takes along each side.
_TRANSPOSE_SHAPES = re.compile(r"transpose_(\d+x\d+)(?:_pack_(\d+x\d+))?(?:_ediv_(\d+x\d+))?_[a-z]+$")
_MIOPEN = re.compile(
    r"(?:MIOpen|miopen|gfx9\w*_f\dx\d|naive_conv|SubTensorOp|Im2d2Col|Im3d2Col|Im2Col|Col2Im|Col2d2Im|mloPooling|mlo|gridwise_convolution"
    r"|gcnAsm|ConvFwd|ConvBwd|Op[1-5]d?Tensor|OpTensor|ScalarOp|ActivationFwd|ActivationBwd|Conv_Winograd|sp3AsmConv"
    r"|miopenSp3AsmConv|conv_|cast_tensor|transpose_|batched_transpose|igemm_|GridwiseBatch|BatchNorm|kernel_grouped_conv"
    r"|elementWiseRNN|LSTMFwd|LSTMBwd|Reduce_|winograd)"
)


def match(parsed: CppName) -> Found | None:
    """Decode a name of AMD's libraries, or ``None``."""
    text = parsed.text
    if tensile := _TENSILE.match(text):
        return _tensile(tensile)
    if parsed.qualified.startswith(("ck::", "ck_tile::")):
        return _composable(parsed)
    return _miopen(parsed)


def _tensile(found: re.Match[str]) -> Found:
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    a, b = found["a"], found["b"]
    first = {"Ail": "N", "Ali": "T"}.get(a[:3])
    second = {"Blj": "N", "Bjl": "T"}.get(b[:3])
    if first and second:
        decoded["layout"] = first + second
    else:
        unknown.append(f"{a}_{b}")
    batched = "k" in a[1:] and "k" in b[1:]
    decoded["batched"] = batched
    tokens = found["rest"].split("_")
    _tensile_types(tokens, decoded, unknown)
    epilogue: list[str] = []
    for token in tokens:
        numbered = _NUMBERED.match(token)
        if numbered and numbered[1] == "MT":
            numbers = numbered[2].split("x")
            if len(numbers) == 3 and all(number.isdigit() for number in numbers):
                m, n, k = (int(number) for number in numbers)
                decoded |= {"tile": f"{m}x{n}", "tile_m": n, "tile_n": m, "tile_k": k}
        elif numbered and numbered[1] == "MI" and "instruction" not in decoded:
            decoded["instruction"] = numbered[2]
        elif numbered and numbered[1] == "ISA":
            decoded["arch"] = "gfx" + numbered[2]
        elif token == "Bias":
            # The kernel can add a bias; whether this launch does is an argument, not part of the name.
            decoded.setdefault("epilogue_supported", []).append("bias")
        elif split := _GLOBAL_SPLIT.match(token):
            decoded["splitk"] = int(split[1]) > 1 or None
        elif token.startswith("SK") and token[2:].isdigit() and int(token[2:]):
            decoded["schedule"] = "stream-K"
    decoded = {key: value for key, value in decoded.items() if value is not None}
    if epilogue:
        decoded["epilogue"] = epilogue
    short = f"Tensile {decoded.get('dtype', '')} {decoded.get('tile', '')}x{decoded.get('tile_k', '')}"
    short += f" {decoded.get('layout', '')}"
    return Found("gemm", "tensile", short, decoded, unknown)


def _tensile_types(tokens: list[str], decoded: dict[str, Any], unknown: list[str]) -> None:
    """The type letters: data, result, compute (``BBS``; ``S_B``/``B_BS`` in the newer order with blanks between)."""
    if not tokens:
        return
    head = tokens.pop(0)
    if not _TYPE_TOKEN.match(head):
        unknown.append(head)
        return
    letters = _TYPE_LETTER.findall(head)
    decoded["dtype"] = _TYPES.get(letters[0])
    if len(letters) == 3:
        decoded["out_dtype"], decoded["acc_dtype"] = _TYPES.get(letters[1]), _TYPES.get(letters[2])
    elif tokens and _TYPE_TOKEN.match(tokens[0]) and tokens[0] not in ("BH", "HH"):
        more = _TYPE_LETTER.findall(tokens.pop(0))
        if len(letters) == 1 and len(more) == 2:
            decoded["out_dtype"], decoded["acc_dtype"] = _TYPES.get(more[0]), _TYPES.get(more[1])
        else:
            # One letter after the data type: what the data are rounded to for the multiplication (`S_B`, `S_X`).
            unknown.append("_".join(["".join(letters), "".join(more)]))


def _composable(parsed: CppName) -> Found:
    text = parsed.text[:6000]
    head = text[:1200]
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    base = parsed.base
    if "Fmha" in head or "fmha" in head or "attention" in head.lower() or "Mha" in head:
        kind = "attention"
        decoded["direction"] = "backward" if "Bwd" in head or "bwd" in head else "forward"
    elif "norm" in head.lower()[:600]:
        kind = "normalization"
    elif "oftmax" in head[:600]:
        kind = "softmax"
    elif "conv" in base or "ConvF" in head or "Conv" in base or "bwd_weight" in base:
        kind = "convolution"
        for word, direction in (("bwd_weight", "backward weight"), ("bwd_data", "backward data"), ("fwd", "forward")):
            if word in base:
                decoded["direction"] = direction
                break
    elif "emm" in head or "gemm" in base:
        kind = "gemm"
    elif "educ" in head:
        kind = "reduction"
    elif "lementwise" in head or "permute" in base:
        kind = "copy" if "permute" in head.lower() or "PassThrough" in head else "elementwise"
    else:
        kind = "other"
        unknown.append(base)
    if layouts := re.findall(r"tensor_layout::gemm::(RowMajor|ColumnMajor)", head)[:2]:
        decoded["operand_layouts"] = layouts
    if element := _CK_ELEMENT.search(head):
        # CK's bhalf_t is an unsigned short, which is all that a mangled name keeps of it.
        decoded["dtype"] = "bf16" if element[0] in ("unsigned short", "bhalf_t") else dtype_of(element[0])
    if blocks := _CK_BLOCKS.search(text):
        decoded["tile"], decoded["tile_k"] = f"{blocks[2]}x{blocks[3]}", int(blocks[4])
    elif parsed.scope.startswith("ck_tile") and (shape := re.search(r"sequence<([\d, ]+)>", head)):
        decoded["block_shape"] = "x".join(split_arguments(shape[1]))
    what = base if base != "kentry" else (re.search(r"(?:<\d+, )?ck_tile::(\w+)", parsed.template) or [base, base])[1]
    return Found(kind, "composable_kernel", f"ck {what}", decoded, unknown, weak=kind == "other")


def _miopen(parsed: CppName) -> Found | None:
    base = parsed.base
    if parsed.scope.startswith(("cudnn", "cask")):
        return None
    if _TRANSPOSE.match(base) and ("<" not in parsed.text):
        decoded: dict[str, Any] = {"role": "change of the tensor's memory layout"}
        if dtype := next((dtype for token in base.split("_") if (dtype := dtype_of(token))), None):
            decoded["dtype"] = dtype
        if shapes := _TRANSPOSE_SHAPES.search(base):
            decoded["tile"] = shapes[1]
            decoded |= {key: shapes[at] for key, at in (("pack", 2), ("elements_a_thread", 3)) if shapes[at]}
        return Found("copy", "miopen", base, decoded, complete=shapes is not None)
    if igemm := _IGEMM.match(base):
        return _igemm(igemm)
    if not _MIOPEN.match(base):
        return None
    decoded = {}
    lowered = base.lower()
    for word, direction in (("wrw", "backward weight"), ("bwd", "backward"), ("fwd", "forward")):
        if word in lowered:
            decoded["direction"] = direction
            break
    if "batchnorm" in lowered:
        kind = "normalization"
    elif "softmax" in lowered:
        kind = "softmax"
    elif "pooling" in lowered:
        kind = "reduction"
    elif "rnn" in lowered or "lstm" in lowered:
        kind = "fused"
    elif lowered.startswith(
        ("op1d", "op2d", "op3d", "op4d", "op5d", "optensor", "scalarop", "activ", "miopenactiv", "miopenneuron")
    ):
        kind = "elementwise"
    elif lowered.startswith("reduce_"):
        kind = "reduction"
    elif lowered.startswith("subtensorop"):
        # Sets, scales or converts a part of a tensor; MIOpen launches it around its convolutions.
        kind = "convolution"
        decoded["role"] = "set, scale or convert a tensor"
    elif lowered.startswith("cast_tensor"):
        kind = "copy"
    elif (
        "conv" in lowered
        or "2col" in lowered
        or "col2" in lowered
        or "winograd" in lowered
        or lowered.startswith(("gfx9", "igemm"))
    ):
        kind = "convolution"
    else:
        return None
    types = [dtype for argument in parsed.arguments[:3] if (dtype := dtype_of(argument))]
    if types:
        decoded["dtype"] = types[0]
    return Found(kind, "miopen", base, decoded, [], weak=lowered.startswith("subtensorop"))


def _igemm(found: re.Match[str]) -> Found:
    decoded: dict[str, Any] = {"direction": _DIRECTIONS[found[1]], "algorithm": "implicit GEMM", "generation": found[2]}
    unknown: list[str] = []
    for token in found[3].split("_"):
        if block := re.match(r"bt(\d+)x(\d+)x(\d+)$", token):
            decoded["tile"], decoded["tile_k"] = f"{block[1]}x{block[2]}", int(block[3])
        elif wave := re.match(r"wt(\d+x\d+x\d+)$", token):
            decoded["instruction"] = wave[1]
        elif token in ("nhwc", "nchw", "nchwc"):
            decoded["tensor_format"] = token
        elif "dtype" not in decoded and (dtype := dtype_of(token)):
            decoded["dtype"] = dtype
        elif token == "gkgs":
            decoded["splitk"] = True
        elif not re.match(r"(?:ws|wr|ta|tb)?\d+x\d+", token):
            unknown.append(token)
    short = f"igemm {found[1]} {decoded.get('tile', '')}"
    return Found("convolution", "miopen", short, decoded, unknown, complete=True)
