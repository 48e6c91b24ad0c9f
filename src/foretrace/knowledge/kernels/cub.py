"""Device-wide primitives of CUB, Thrust, rocPRIM and hipCUB: scan, reduce, sort, select."""

from __future__ import annotations

import re
from typing import Any

from ._base import Found, dtype_of
from .cpp import CppName

__all__ = ["match"]

_HEAD = re.compile(r"(?:\w+::)*?(cub|thrust|rocprim|hipcub|cuda_cub)(?:::|$)")
# First match decides. A scan is counted as a reduction (each element is a running reduction); selecting, partitioning
# and finding unique keys as sort, since they order elements by a predicate or key.
_RULES = tuple(
    (re.compile(pattern), kind, what)
    for pattern, kind, what in (
        (
            r"Onesweep|RadixSort|radix_sort|onesweep|sort_config|block_sort|merge_sort|MergeSort|SegmentedSort|segmented_radix"
            r"|transform_merge|BlockSort|sort_impl|DeviceMerge",
            "sort",
            "sort",
        ),
        (r"UniqueByKey|unique_by_key|Unique|unique", "sort", "unique"),
        (r"Partition|partition", "sort", "partition"),
        (r"Select|select_if|CompactInit|copy_if", "sort", "select"),
        (r"Histogram|histogram", "sort", "histogram"),
        (r"RunLengthEncode|run_length|Rle", "sort", "run-length encoding"),
        (r"ReduceByKey|reduce_by_key", "reduction", "reduce by key"),
        (r"SegmentedReduce|segmented_reduce", "reduction", "segmented reduce"),
        (r"Reduce|reduce", "reduction", "reduce"),
        (r"Scan|scan|lookback", "reduction", "scan"),
        (r"BatchMemcpy|batch_memcpy|copy|Copy|gather|scatter|Gather|Scatter", "copy", "copy"),
        (r"adjacent_difference|AdjacentDifference", "elementwise", "adjacent difference"),
        (r"fill|Fill|generate|sequence|tabulate|uninitialized", "elementwise", "fill"),
        (
            r"Transform|transform|for_each|ForEach|parallel_for|static_kernel|bulk_kernel|replace",
            "elementwise",
            "transform",
        ),
        (r"Search|search|find|Find", "sort", "search"),
        (r"EmptyKernel|init_|Init", "other", "set-up"),
    )
)


def match(parsed: CppName) -> Found | None:
    """Decode a CUB, Thrust or rocPRIM name, or ``None``."""
    head = _HEAD.match(parsed.qualified[:200])
    if not head:
        return None
    library = {"hipcub": "rocprim", "cuda_cub": "thrust"}.get(head[1], head[1])
    if library == "cub" and parsed.qualified.startswith("thrust"):
        library = "thrust"
    # The kernel's own name says most; a trampoline or agent launcher says it in its template arguments.
    for text in (parsed.base, parsed.template[:1500], parsed.qualified):
        for pattern, kind, what in _RULES:
            if pattern.search(text):
                return _found(parsed, library, kind, what)
    return Found("other", library, f"{library} {parsed.base}", {}, [parsed.base], weak=True)


def _found(parsed: CppName, library: str, kind: str, what: str) -> Found:
    decoded: dict[str, Any] = {"algorithm": what}
    for argument in parsed.arguments[:12]:
        if (dtype := dtype_of(argument)) and dtype not in ("bool", "uint32", "uint64"):
            decoded["dtype"] = dtype
            break
    name = parsed.base
    if name in ("trampoline_kernel", "kernel_agent", "_kernel_agent"):
        name = what
    return Found(kind, library, f"{library} {name}", decoded, [], weak=kind == "other")
