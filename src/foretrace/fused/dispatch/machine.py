"""The GPU of this process, as far as choices depend on it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from foretrace.fused.dispatch.environment import capability

__all__ = ["Gpu", "gpu_of", "may_measure"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """``index``: torch's number of it. ``name``: as its driver names it."""

    index: int
    name: str


@functools.cache
def gpu_of(architecture: str) -> Gpu | None:
    """Return the first GPU of this process that has the architecture; ``None``: there is none."""
    wanted = capability(architecture)
    if wanted is None:
        return None
    import torch

    if torch.version.hip or not torch.cuda.is_available():
        return None
    for index in range(torch.cuda.device_count()):
        if torch.cuda.get_device_capability(index) == wanted:
            return Gpu(index, str(torch.cuda.get_device_name(index)))
    return None


def may_measure() -> bool:
    """Whether kernels may be launched and waited for now: not while a graph is captured or a program compiled."""
    import torch

    return not (torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing())
