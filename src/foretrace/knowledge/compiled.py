"""The rows torch.compile writes around the code it generated, and what shows how far it is.

Source: the labels of ``torch._dynamo`` and ``torch._functorch`` as they stand in traces (see ``kineto.py``).
"""

from __future__ import annotations

import re
from functools import lru_cache

from foretrace.knowledge.kineto import COMPILE_WRAPPERS, FX_GRAPH_CALL, compiled_region, fx_graph

__all__ = ["PROGRESS_BARS", "code_name", "compile_row_label", "is_compile_row"]

# The package whose bars its compiler shows; one of their threads redraws them (torch/_inductor, torch/_dynamo).
PROGRESS_BARS = "tqdm"

# Inductor numbers the kernels of a graph in the order it writes them (torch/_inductor/codegen/triton.py): the number
# of a kernel changes when another one comes before it.
_NUMBERED = re.compile(r"(triton_\w*?[a-z]\w*)_\d+\Z")


@lru_cache(maxsize=4096)
def is_compile_row(name: str) -> bool:
    """Whether a CPU row belongs to torch.compile's way of calling code, not to the program's own call path."""
    return name in COMPILE_WRAPPERS or compiled_region(name) is not None or fx_graph(name) is not None


def compile_row_label(name: str) -> str:
    """The row without what differs from run to run: the hash of a graph's code, the number of a region."""
    if fx_graph(name) is not None:
        return FX_GRAPH_CALL
    return name.partition(":")[0] if compiled_region(name) is not None else name


@lru_cache(maxsize=4096)
def code_name(name: str) -> str:
    """A kernel's name without the number Inductor gave it: ``triton_poi_fused_gelu_mul_0`` → ``…_gelu_mul``."""
    found = _NUMBERED.match(name)
    return found.group(1) if found else name
