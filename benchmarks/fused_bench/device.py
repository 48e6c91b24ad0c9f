"""The few things that differ between a GPU and a CPU here, so that every suite runs on both."""

from __future__ import annotations

import gc
import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from foretrace.timing import Clock, clock_for
from foretrace.timing.flush import Flush, l2_bytes

__all__ = ["Device"]

# As triton.testing.do_bench does: far more than the 50 MB (H100) or 60 MB (H200) of L2, and some 60 µs during which the
# host gets ahead of the GPU.
_FLUSH_BYTES = 256 << 20
_PACKAGES = ("torch", "triton", "liger-kernel", "quack-kernels", "nvidia-cutlass-dsl", "nvidia-cublas", "numpy")


class Device:
    """``name``: ``"cuda"``, ``"cuda:1"`` or ``"cpu"``. ``clock`` replaces the real one in tests."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.name = name
        self.is_gpu = torch.device(name).type == "cuda"
        self.clock = clock or clock_for(name)
        self._flush: Flush | None = None

    def l2_bytes(self) -> int:
        """Size of the cache that must not keep the weights; zero where there is none to speak of."""
        return (l2_bytes(self.name) or 0) if self.is_gpu else 0

    def flush(self) -> None:
        """Empty the L2; nothing on a CPU."""
        if not self.is_gpu:
            return
        if self._flush is None:
            self._flush = Flush(self.name, _FLUSH_BYTES // 2)  # overwrites twice what it is told
        self._flush()

    def synchronize(self) -> None:
        """Wait for the GPU."""
        if self.is_gpu:
            torch.cuda.synchronize(self.name)

    def poison(self, size: int) -> None:
        """Fill free memory that the allocator will hand out next with NaN: an element nobody writes will show.

        Bytes of ones are NaN in every floating-point format; several sizes, because the allocator keeps them apart.
        """
        if self.is_gpu:
            for part in (size, size // 4, size // 16):
                torch.full((max(part, 1),), -1, dtype=torch.int8, device=self.name)

    def release(self) -> None:
        """Give the GPU's memory back that nothing refers to any more."""
        if self.is_gpu:
            gc.collect()
            torch.cuda.empty_cache()

    def peak_bytes(self, call: Any) -> int | None:
        """Most memory allocated during ``call`` above what is allocated before it; ``None`` on a CPU, not measured."""
        if not self.is_gpu:
            return None
        gc.collect()
        self.synchronize()
        before = torch.cuda.memory_allocated(self.name)
        torch.cuda.reset_peak_memory_stats(self.name)
        call()
        self.synchronize()
        return int(torch.cuda.max_memory_allocated(self.name)) - before

    def describe(self) -> dict[str, Any]:
        """Machine and versions, without the machine's own name."""
        packages: dict[str, str | None] = {}
        for package in _PACKAGES:
            try:
                packages[package] = version(package)
            except PackageNotFoundError:
                packages[package] = None
        found: dict[str, Any] = {
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.machine()}",
            "cpu_cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
            "packages": packages,
            "gpu": None,
            "architecture": "cpu",
        }
        if self.is_gpu:
            properties: Any = torch.cuda.get_device_properties(torch.device(self.name))
            found["architecture"] = f"sm_{properties.major}{properties.minor}"
            found["gpu"] = {
                "name": properties.name,
                "memory_bytes": properties.total_memory,
                "multiprocessors": properties.multi_processor_count,
                "l2_bytes": getattr(properties, "L2_cache_size", None),
                "cuda": torch.version.cuda,
            }
        return found
