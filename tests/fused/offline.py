"""Compile kernels for a GPU that is not there, and read what they take. To be used in a process of its own.

Triton asks its driver for little when it compiles: which architecture, which device. A stand-in answers; everything
up to the machine code is then real, ptxas included. Importing this imports Triton.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from foretrace.fused.kernels.descriptors import Descriptor

# Shared memory a block may use, bytes (CUDA C++ Programming Guide, compute capabilities).
SHARED_MEMORY = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}


class NoDevice:
    """Answers as a driver with one GPU of a compute capability (80: sm_80) would."""

    def __init__(self, capability: int) -> None:
        properties = {
            "max_shared_mem": SHARED_MEMORY[capability],
            "multiprocessor_count": 132,
            "max_num_regs": 65536,
            "warpSize": 32,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda device: properties)
        self.target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        # Triton keeps what it compiled per device: a number of its own for each architecture.
        return self.target.arch

    def get_current_stream(self, device: int | None = None) -> int:  # noqa: ARG002
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")


@dataclass(frozen=True)
class Resources:
    """Of one compiled kernel: registers a thread, bytes of local memory a thread (spills), bytes of shared memory."""

    name: str
    registers: int
    stack: int
    shared: int


class Offline:
    """Stands in for `foretrace.fused.kernels.launch.launcher`: compiles for one architecture instead of launching."""

    def __init__(self, capability: int) -> None:
        driver.set_active(NoDevice(capability))
        self.shared_memory = SHARED_MEMORY[capability]
        self.resources: list[Resources] = []

    def launcher(self, kernel: Any, **constants: Any) -> Compiler:
        constants.pop("pdl", None)  # how it is launched
        return Compiler(self, kernel, constants)


class Compiler:
    """A launcher that compiles, and remembers no launch."""

    def __init__(self, offline: Offline, kernel: Any, constants: dict[str, Any]) -> None:
        self.offline = offline
        self.kernel = kernel
        self.constants = {"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True, **constants}

    def __call__(self, grid: tuple[int, ...], *arguments: Any) -> None:
        plain = [one.triton if isinstance(one, Descriptor) else one for one in arguments]
        self.offline.resources.append(_resources(self.kernel.warmup(*plain, grid=grid, **self.constants)))

    def repetition(self, *_: Any) -> None:
        return None


def _resources(compiled: Any) -> Resources:
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        shown = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) .*LOCAL:(\d+)", shown)
    assert found is not None, shown
    registers, stack, local = (int(number) for number in found.groups())
    return Resources(compiled.metadata.name, registers, stack + local, compiled.metadata.shared)
