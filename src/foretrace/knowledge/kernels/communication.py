"""Kernels that move data between GPUs, told by their family.

NCCL and RCCL (``ncclDevKernel_AllReduce_Sum_bf16_RING_LL``; source: NCCL's ``device/generate.py``, whose names are
collective, reduction, type, algorithm, protocol), DeepEP, NVSHMEM, multimem and symmetric-memory kernels of PyTorch,
custom all-reduce of vLLM, SGLang, TensorRT-LLM, FlashInfer and aiter, Ascend's HCCL, Gloo's reduction kernels.
"""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from .cpp import CppName
from .words import words_of

__all__ = ["match"]

_NCCL = re.compile(r"(?:(?P<library>nccl|rccl|msccl|mccl)\w*?(?:Dev)?Kernel\w*?)_(?P<rest>\w+)$", re.IGNORECASE)
_NCCL_BARE = re.compile(r"(?:nccl|rccl|msccl|mccl)(?:[A-Z:]|_?(?:[Dd]ev_?)?[Kk]ernel)")
_COLLECTIVES = {
    "allreduce": "all-reduce",
    "allgather": "all-gather",
    "allgatherv": "all-gather",
    "reducescatter": "reduce-scatter",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "sendrecv": "send/receive",
    "alltoall": "all-to-all",
    "alltoallpivot": "all-to-all",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "receive": "receive",
    "generic": "generic",
}
_ALGORITHMS = {
    "ring": "ring",
    "tree": "tree",
    "collnet": "CollNet",
    "collnetdirect": "CollNet direct",
    "collnetchain": "CollNet chain",
    "nvls": "NVLS",
    "nvlstree": "NVLS tree",
    "pat": "PAT",
}
_PROTOCOLS = {"ll": "LL", "ll128": "LL128", "simple": "simple"}
_REDUCTIONS = frozenset({"sum", "prod", "min", "max", "minmax", "premulsum", "sumpostdiv", "avg"})

# Families other than NCCL: pattern on the qualified name, family.
_FAMILIES = tuple(
    (re.compile(pattern), family)
    for pattern, family in (
        (
            r"(?:^|::)(?:deep_ep|ep::cuda|ep::internode|ep::intranode|ep::internode_ll|internode_ll|internode|intranode)::",
            "deepep",
        ),
        (r"(?:^|::|_)nvshmem\w*|nvshmemi?_", "nvshmem"),
        (r"^hcom_|^Hccl|^hccl|^aiv_all|^hcclAiv", "hccl"),
        (
            r"multimem_\w+|symm_mem|symmetric_memory|(?:one|two)_shot_all_reduce|barrier_kernel|stream_write_value"
            r"|intra_node_low_contention|symm_all_reduce|_one_shot_all_reduce|_two_shot_all_reduce|multimem_",
            "symmetric_memory",
        ),
        (
            r"cross_device_reduce_\w+|allreduce_fusion_kernel|lamport\w*|oneShotAllReduce|twoShotAllReduce|oneshot_?all_?reduce"
            r"|twoshot_?all_?reduce|moereduce_allreduce|trtllm_allreduce|userbuffers_|ub_\w*(?:allreduce|allgather)|quick_?reduce"
            r"|allreduce_prototype|mscclpp|reduce_scatter_cross_device|allgather_lastdim|all_?reduce_one_?stage|mnnvl\w*"
            r"|custom_ar::|allreduce_kernel|QuickReduce|(?:^|::)qr::",
            "custom_all_reduce",
        ),
        (r"^gloo::", "gloo"),
        (r"mori::|EpDispatch\w*|EpCombine\w*", "mori"),
        (r"pplx::|pplx_kernels", "pplx"),
    )
)
_COLLECTIVE_WORDS = (
    ("reducescatter", "reduce-scatter"),
    ("allreduce", "all-reduce"),
    ("crossdevicereduce", "all-reduce"),
    ("allgather", "all-gather"),
    ("alltoall", "all-to-all"),
    ("broadcast", "broadcast"),
    ("dispatch", "all-to-all"),
    ("combine", "all-to-all"),
    ("sendrecv", "send/receive"),
    ("barrier", "barrier"),
)


def match(parsed: CppName) -> Found | None:
    """Decode a communication kernel's name, or ``None`` when it is of no known communication family."""
    qualified = parsed.qualified
    if _NCCL_BARE.match(parsed.base[:24]):
        return _nccl(parsed)
    for pattern, family in _FAMILIES:
        if pattern.search(qualified[:300]):
            return _other(parsed, family)
    return None


def _nccl(parsed: CppName) -> Found:
    base = parsed.base
    decoded: dict[str, Any] = {}
    unknown: list[str] = []
    library = "rccl" if base.lower().startswith("rccl") else "nccl"
    found = _NCCL.match(base) if len(base) <= 300 else None
    if not found:
        return Found("communication", library, base, decoded, [base])
    for token in found["rest"].replace("int8_t", "int8").replace("uint8_t", "uint8").split("_"):
        word = token.lower()
        if "collective" not in decoded and word in _COLLECTIVES:
            decoded["collective"] = _COLLECTIVES[word]
        elif word in _REDUCTIONS:
            decoded["reduction op"] = word
        elif word in _ALGORITHMS:
            decoded["algorithm"] = _ALGORITHMS[word]
        elif word in _PROTOCOLS:
            decoded["protocol"] = _PROTOCOLS[word]
        elif dtype := dtype_of(token) or dtype_of(word):
            decoded["dtype"] = dtype
        elif word:
            unknown.append(token)
    parts = [decoded.get(key) for key in ("collective", "reduction op", "dtype", "algorithm", "protocol")]
    return Found(
        "communication", library, " ".join([library, *(str(part) for part in parts if part)]), decoded, unknown
    )


def _other(parsed: CppName, family: str) -> Found:
    decoded: dict[str, Any] = {}
    squeezed = "".join(words_of(parsed.base))
    for word, collective in _COLLECTIVE_WORDS:
        if word in squeezed:
            decoded["collective"] = collective
            break
    lowered = parsed.base.lower()
    for word, algorithm in (
        ("one_shot", "one-shot"),
        ("oneshot", "one-shot"),
        ("1stage", "one-shot"),
        ("two_shot", "two-shot"),
        ("twoshot", "two-shot"),
        ("2stage", "two-shot"),
        ("multimem", "multimem"),
        ("internode", "internode"),
        ("intranode", "intranode"),
    ):
        if word in lowered or (word in ("internode", "intranode") and word in parsed.scope):
            decoded["algorithm"] = algorithm
            break
    for argument in parsed.arguments[:6]:
        if (dtype := dtype_of(argument)) and dtype not in ("bool", "int32"):
            decoded["dtype"] = dtype
            break
    short = f"{family.replace('_', ' ')} {parsed.base.removesuffix('_kernel')}"
    return Found("communication", family, short, decoded)
