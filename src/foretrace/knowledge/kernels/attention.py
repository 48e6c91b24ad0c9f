"""Attention kernels: FlashAttention 1 to 4, memory-efficient attention, cuDNN's, TensorRT-LLM's, Triton's.

Composable Kernel's are read in ``amd.py``; what libraries call attention in plain words is left to ``words.py``.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from .cpp import CppName, balanced, split_arguments
from .words import words_of

__all__ = ["match"]

# cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1_cga1x1x1_kernel0_0
_CUDNN = re.compile(r"cudnn_\w*?(sdpa|flash|fmha|mha|attention)\w*")
# fmha_cutlassF_bf16_aligned_64x64_rf_sm80 (PyTorch's generated entry points of CUTLASS memory-efficient attention)
_EFFICIENT = re.compile(r"fmha_cutlass([FB])_(f16|bf16|f32)_(aligned|notaligned)_(\d+x\d+)(\w*)")
# fmhaSm100aKernel_QkvE4m3OBfloat16H64PagedKvCausalP16VarSeqQ128Kv128PersistentContext (TensorRT-LLM generated)
_TRTLLM = re.compile(r"(?:\w*_)?fmhaSm(\d+\w?)Kernel_(\w+)")
# fmha_v2_flash_attention_bf16_64_128_S_qkv_128_causal_sm90_kernel (TensorRT-LLM): types, rows of Q and of K and V a
# step, sequence length (S: any), order of the operands, head dimension (of V after x).
_FMHA_V2 = re.compile(
    r"fmha_v2(?:_flash_attention)?_(?P<types>[a-z]\w*?)_(?P<q>\d+)_(?P<kv>\d+)_(?P<length>S|\d+)_"
    r"(?P<operands>[a-z]+(?:_[a-z]+)*)_(?P<head>\d+)(?:x(?P<head_v>\d+))?(?P<rest>(?:_\w+)?)$"
)
_FMHA_V2_FLAGS = {
    "causal": "causal",
    "alibi": "alibi",
    "softcapping": "softcap",
    "ws": "warp_specialized",
    "tma": "tma",
}
# FlashInfer's KernelTraits<MaskMode, rows of Q, MMAs along q, kv, head dimension of QK (16 elements each), …>
_FLASHINFER = re.compile(r"KernelTraits<\s*\([\w:]*MaskMode\)(\d+)(?:,\s*(\d+)u?)(?:,\s*\d+u?){2},\s*(\d+)u?")
_FLASH_TRAITS = re.compile(
    r"(?:Flash_(?:fwd|bwd)_kernel_traits|Flash_kernel_traits)(?:_\w{1,20})?<\s*(\d+),\s*(\d+),\s*(\d+)"
)
_FLASH3 = re.compile(r"flash::(Flash\w+|CollectiveMainloop\w+|\w+Sm\d+)")
_SM = re.compile(r"\bSm(\d+)|_sm_?(\d{2,3})")
_SM_OF_PART = re.compile(r"(?<=[a-z])Sm(\d{2,3})()")
_CUTE = re.compile(r"C<(\d+)>")
_CUTE_TUPLE = re.compile(r"tuple<((?:[^<>]|C<\d+>)*)>")
_FLASH = re.compile(r"(?:^|::|_|<)(?:pytorch_)?[Ff]lash(?:_|::|Attn|Fwd|Bwd|\d)")
_ELEMENT = re.compile(r"(?:cutlass::|::)?\b(bfloat16_t|half_t|float_e4m3_t|__nv_bfloat16|__half|BFloat16|Half)\b")
_WORDS = re.compile(
    r"flash_(?:fwd|bwd|attn)|flash_attention|fmha|paged_attention|unified_attention|sage_|AttentionKernel|"
    r"AttentionBackwardKernel|masked_multihead_attention|mha_|sparse_attention|FlashAttn|flashAttn|FlashMLA|flash_mla|"
    r"BatchPrefill|BatchDecode|SinglePrefill|SingleDecode|(?:Prefill|Decode)With\w{0,20}KV|PersistentVariableLength|MergeState|reduce_segments$|_bwd_dq_kernel|"
    r"_bwd_dkv|bwd_kernel_dk_dv|bwd_kernel_dq|_fwd_kernel_stage|_fwd_grouped_kernel_stage|xqa|kernel_mha|merge_attn_states|"
    r"dot_do_o|flash_fprop|flash_bprop|ring_attention|FMHA|fmhaKernel|_fwd_kernel_flash|flex_attention|"
    r"^bwd_preprocess|^bwd_kernel_fuse|_attn_fwd|_attn_bwd|attn_fwd|attn_bwd|compute_dot_do_o|convert_dq|fmha_reduce|decode_attention|qk_int_sv|qk_int8_sv"
)
_CAUSAL = re.compile(r"(?:^|_)(non?_?)?causal(?:_|$)", re.IGNORECASE)
# AITER: how fp32 is rounded to bf16.
_ROUNDING = {"rtne": "to nearest even", "rtna": "to nearest, ties away", "rtz": "toward zero"}
# AITER's assembly kernels, fmha_fwd_hd128_bf16_causal_rtne: every token is a property.
_ASSEMBLY = re.compile(r"fmha_(?:fwd|bwd)_")
_ASSEMBLY_TOKEN = re.compile(
    r"(?:fmha|fwd|bwd|kernel|causal|non?causal|rtne|rtna|rtz|h?d\d+|gfx\w+|fp8|\d+x\d+(?:x\d+)?|)$"
)
_BACKWARD = re.compile(r"bwd|[Bb]ackward|bprop|Bwd|dot_do_o|convert_dq|dkv|cutlassB")


def match(parsed: CppName) -> Found | None:
    """Decode an attention kernel's name, or ``None``."""
    text = parsed.text
    head = text[:1500]
    if found := _EFFICIENT.search(parsed.base):
        return _efficient(found)
    if _CUDNN.match(parsed.base):
        return _cudnn(parsed.base)
    if found := _TRTLLM.match(parsed.base):
        return _trtllm(found)
    if found := _FMHA_V2.match(parsed.base[:400]):
        return _fmha_v2(found)
    if (
        not _WORDS.search(parsed.qualified)
        and not (parsed.base in ("device_kernel", "Kernel", "Kernel2", "kernel") and _WORDS.search(head))
        and "flash::" not in head[:400]
    ):
        return None
    if _FLASH.search(parsed.qualified[:80]) or "flash::" in head[:600]:
        return _flash(parsed, head)
    if "AttentionKernel<" in head or "AttentionBackwardKernel<" in head:
        return _efficient_template(head)
    return _named(parsed, head)


def _efficient(found: re.Match[str]) -> Found:
    direction = "forward" if found[1] == "F" else "backward"
    decoded: dict[str, Any] = {
        "direction": direction,
        "dtype": dtype_of(found[2]),
        "aligned": found[3] == "aligned",
        "tile": found[4],
    }
    unknown: list[str] = []
    for token in found[5].split("_"):
        if token.startswith("sm") and token[2:].isdigit():
            decoded["arch"] = token
        elif token == "dropout":
            decoded["dropout"] = True
        elif token.startswith("k") and token[1:].isdigit():
            decoded["largest_head_dim"] = int(token[1:])
        elif token in ("rf", "gmem"):
            decoded["accumulator_in"] = "registers" if token == "rf" else "global memory"
        elif token:
            unknown.append(token)
    word = "fwd" if direction == "forward" else "bwd"
    short = f"efficient attention {word} {found[4]}"
    return Found("attention", "efficient_attention", short, decoded, unknown, complete=True)


def _cudnn(base: str) -> Found:
    decoded: dict[str, Any] = {"direction": "backward" if "bprop" in base else "forward", "generated": True}
    unknown: list[str] = []
    tokens = base.split("_")
    silent = {"cudnn", "generated", "fort", "native", "sdpa", "flash", "fprop", "bprop", "kernel0", "oneshot", "mha"}
    skip = False
    for position, token in enumerate(tokens):
        if skip:
            skip = False
        elif token.startswith("sm") and token[2:].rstrip("af").isdigit():
            decoded["arch"] = token
        elif token == "knob":
            decoded["knob"] = tokens[position + 1] if position + 1 < len(tokens) else ""
            skip = True
        elif token.startswith("cga"):
            decoded["cluster"] = token[3:]
        elif re.fullmatch(r"\d+x\d+x\d+", token):
            if "tile" not in decoded:
                decoded["tile"] = token
            else:
                decoded["warps"] = token
        elif token == "f16":
            # bf16 inputs launch kernels of this name too (seen on an H200): it is no element type.
            decoded["precision_class"] = "16-bit"
        elif dtype := dtype_of(token):
            decoded["dtype"] = dtype
        elif token in ("wgmma", "mma", "hmma", "utcmma"):
            decoded["instruction"] = token
        elif token not in silent and not token.isdigit() and not token.startswith("kernel"):
            unknown.append(token)
    word = "bwd" if decoded["direction"] == "backward" else "fwd"
    short = f"cudnn flash {word} {decoded.get('tile', '')}"
    return Found("attention", "cudnn", short, decoded, unknown, complete=True)


def _trtllm(found: re.Match[str]) -> Found:
    rest = found[2][:200]
    decoded: dict[str, Any] = {"arch": "sm" + found[1], "direction": "forward"}
    if types := re.match(r"Qkv([A-Z][A-Za-z]*\d?m?\d?)O([A-Z][A-Za-z]*?\d*m?\d?)H", rest):
        decoded["dtype"], out = dtype_of(types[1].lower()) or dtype_of(types[1]), types[2]
        if dtype := dtype_of(out.lower()) or dtype_of(out):
            decoded["out_dtype"] = dtype
    if head := re.search(r"H(\d+)", rest):
        decoded["head_dim"] = int(head[1])
    if "Causal" in rest:
        decoded["causal"] = True
    if "Paged" in rest:
        decoded["paged"] = True
    if "Sliding" in rest:
        decoded["sliding_window"] = True
    if tile := re.search(r"Q(\d+)Kv(\d+)", rest):
        decoded["tile"] = f"{tile[1]}x{tile[2]}"
    if "Persistent" in rest:
        decoded["persistent"] = True
    phase = "context" if "Context" in rest else "generation" if "Generation" in rest else ""
    if phase:
        decoded["phase"] = phase
    return Found("attention", "trtllm", f"trtllm fmha {phase} {decoded.get('tile', '')}", decoded, complete=True)


def _fmha_v2(found: re.Match[str]) -> Found:
    decoded: dict[str, Any] = {
        "direction": "forward",
        "tile": f"{found['q']}x{found['kv']}",
        "head_dim": int(found["head"]),
        "operands": found["operands"],
    }
    if found["head_v"]:
        decoded["head_dim_v"] = int(found["head_v"])
    unknown: list[str] = []
    for key, token in zip(("dtype", "acc_dtype", "out_dtype"), found["types"].split("_"), strict=False):
        if dtype := dtype_of(token):
            decoded[key] = dtype
        else:
            unknown.append(token)
    for token in found["rest"].split("_"):
        if token.startswith("sm") and token[2:].rstrip("af").isdigit():
            decoded["arch"] = token
        elif token in _FMHA_V2_FLAGS:
            decoded[_FMHA_V2_FLAGS[token]] = True
        elif token not in ("", "kernel"):
            unknown.append(token)
    return Found("attention", "trtllm", f"trtllm fmha_v2 {decoded['tile']}", decoded, unknown, complete=True)


def _main_loop(head: str, decoded: dict[str, Any]) -> None:
    """FlashAttention 3: ``CollectiveMainloop…<…, TileShape, …, Element, accumulator, arch, Is_causal, …>``.

    The tile is the last constant shape of three edges, its third edge the head dimension; the first flag after the
    architecture says whether the kernel is causal. Source: FlashAttention's ``hopper`` folder, launch templates.
    """
    at = head.find("CollectiveMainloop")
    opening = head.find("<", at)
    if at < 0 or opening < 0:
        return
    arguments = split_arguments(balanced(head, opening))
    shapes = [numbers for part in arguments if "tuple<" in part and len(numbers := _CUTE.findall(part)) == 3]
    if shapes and int(shapes[-1][2]) % 8 == 0:
        decoded["tile"] = "x".join(shapes[-1])
        decoded["head_dim"] = int(shapes[-1][2])
    arch = next((position for position, part in enumerate(arguments) if re.search(r"arch::Sm\d+$", part)), None)
    if arch is None:
        return
    decoded["arch"] = "sm" + arguments[arch].rpartition("Sm")[2]
    if arguments[arch + 1 : arch + 2] in (["true"], ["false"]):
        decoded["causal"] = arguments[arch + 1] == "true"


def _flash(parsed: CppName, head: str) -> Found:
    decoded: dict[str, Any] = {"direction": "backward" if _BACKWARD.search(parsed.base + head[:300]) else "forward"}
    name = parsed.base
    if parsed.base in ("device_kernel", "Kernel", "Kernel2"):
        inner = _FLASH3.search(head)
        name = inner[1] if inner else parsed.base
    family = "flash_attention"
    if traits := _FLASH_TRAITS.search(head):
        decoded |= {"head_dim": int(traits[1]), "tile": f"{traits[2]}x{traits[3]}"}
    elif parsed.base == "device_kernel" and (shapes := _CUTE_TUPLE.findall(head)):
        # A main loop names its cluster before its tile; other kernels name the tile first.
        shape = shapes[1] if "CollectiveMainloop" in head and len(shapes) > 1 else shapes[0]
        if len(numbers := _CUTE.findall(shape)) >= 2:
            decoded["tile"] = "x".join(numbers[:3])
    _main_loop(head, decoded)
    if "arch" not in decoded and (sm := _SM.search(head) or _SM_OF_PART.search(head)):
        decoded["arch"] = f"sm{sm[1] or sm[2]}"
    if element := _ELEMENT.search(head):
        decoded["dtype"] = dtype_of(element[1])
    if parsed.base in ("flash_fwd_kernel", "flash_fwd_splitkv_kernel"):
        flags = [argument for argument in parsed.arguments if argument in ("true", "false")]
        # FlashAttention 2: <traits, Is_dropout, Is_causal, …>
        if parsed.base == "flash_fwd_kernel" and len(flags) > 1:
            decoded["dropout"], decoded["causal"] = flags[0] == "true", flags[1] == "true"
    if "causal" not in decoded and (causal := _CAUSAL.search(parsed.base[:400])):
        decoded["causal"] = not causal[1]
    if "splitkv" in parsed.base:
        decoded["splitk"] = True
    short = name.removesuffix("_kernel")
    if "head_dim" in decoded:
        short += f" d{decoded['head_dim']}"
    return Found("attention", family, short, decoded)


def _efficient_template(head: str) -> Found:
    backward = "AttentionBackwardKernel" in head
    decoded: dict[str, Any] = {"direction": "backward" if backward else "forward"}
    inside = head[head.find("Kernel<", head.find("Attention")) + 7 :]
    arguments = split_arguments(inside)
    if arguments:
        if dtype := dtype_of(arguments[0]):
            decoded["dtype"] = dtype
        if sm := _SM.search(head):
            decoded["arch"] = f"sm{sm[1] or sm[2]}"
        numbers = [argument for argument in arguments if argument.isdigit()]
        if len(numbers) >= 2:
            decoded["tile"] = f"{numbers[0]}x{numbers[1]}"
    word = "bwd" if backward else "fwd"
    return Found("attention", "efficient_attention", f"efficient attention {word}", decoded)


def _named(parsed: CppName, head: str) -> Found:
    base = parsed.base
    decoded: dict[str, Any] = {}
    if _BACKWARD.search(base):
        decoded["direction"] = "backward"
    elif re.search(r"fwd|[Ff]orward|decode|prefill", base):
        decoded["direction"] = "forward"
    for argument in parsed.arguments[:3]:
        if dtype := dtype_of(argument):
            decoded["dtype"] = dtype
            break
    else:
        if element := _ELEMENT.search(head):
            decoded["dtype"] = dtype_of(element[1])
    lowered = parsed.qualified.lower()
    family = next(
        (
            name
            for mark, name in (
                ("flashinfer", "flashinfer"),
                ("vllm", "vllm"),
                ("sage", "sage_attention"),
                ("aiter", "aiter"),
                ("cudnn", "cudnn"),
                ("tensorrt_llm", "trtllm"),
                ("xqa", "trtllm"),
                ("batchprefill", "flashinfer"),
                ("batchdecode", "flashinfer"),
                ("ll4mi", "vllm"),
                ("qk_int", "sage_attention"),
            )
            if mark in lowered
        ),
        "triton" if "<" not in parsed.text and "(" not in parsed.text else "attention",
    )
    if "paged" in lowered:
        decoded["paged"] = True
    if causal := _CAUSAL.search(base[:400]):
        decoded["causal"] = not causal[1]
    for token, mode in _ROUNDING.items():
        if base.endswith("_" + token):
            decoded["rounding"] = mode
    if traits := _FLASHINFER.search(head):
        decoded["head_dim"], decoded["tile_q"] = int(traits[3]) * 16, int(traits[2])
        # MaskMode: 0 none, 1 causal, 2 a mask given as a tensor.
        decoded["causal"] = traits[1] == "1"
    if "reduce" in words_of(base) or "merge" in words_of(base):
        decoded["role"] = "combination of partial results"
    unknown: list[str] = []
    if _ASSEMBLY.match(base):
        unknown = [token for token in base.split("_") if not _ASSEMBLY_TOKEN.match(token) and not dtype_of(token)]
    short = base if base not in ("device_kernel", "Kernel", "kernel") else "attention " + base
    return Found("attention", family, short.removesuffix("_kernel"), decoded, unknown)
