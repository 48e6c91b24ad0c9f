"""GPU datasheets: peak rates, bandwidth, cache, and the names devices go by.

All rates are dense. Where a datasheet prints rates with 2:4 sparsity, the table holds half of the printed
figure and ``source`` says so. GeForce and Quadro rates are those with FP32 accumulation, which is what
torch asks for; parts that are faster with FP16 accumulation say so in ``note``. A figure is in the table
only where the vendor prints it; a type that is missing is one the part does not have or the vendor does not
state.

To add a GPU: one entry with its datasheet in ``nvidia.py`` or ``amd.py``, one line in
``tests/knowledge/test_gpus.py``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from foretrace.knowledge.dtypes import dtype as _dtype
from foretrace.knowledge.gpus.amd import AMD
from foretrace.knowledge.gpus.datasheet import Gpu
from foretrace.knowledge.gpus.nvidia import NVIDIA

__all__ = ["Gpu", "all_gpus", "bandwidth_label", "find", "is_bandwidth", "peak_for"]

TABLE: tuple[Gpu, ...] = (*NVIDIA, *AMD)


def all_gpus() -> tuple[Gpu, ...]:
    """Every GPU in the table, in its order: NVIDIA data centre, NVIDIA workstation and GeForce, AMD."""
    return TABLE


@lru_cache(maxsize=256)
def find(
    name: str | None,
    *,
    sms: int | None = None,
    memory_bytes: int | None = None,
    compute_capability: str | None = None,
) -> Gpu | None:
    """The datasheet of a device.

    ``name`` is what a driver or trace writes (``NVIDIA H100 80GB HBM3``) or what a user types (``h100-sxm``,
    ``A100``). ``sms`` (multiprocessors, AMD: compute units), ``memory_bytes`` and ``compute_capability`` are
    what the trace says of the device; they choose between variants of one name, and a device that
    contradicts the datasheet (a MIG slice, a partitioned MI300X) has no entry. ``None`` where the device is
    not in the table or cannot be told apart from another one. A short name that covers several variants
    means the first one of the table (``A100``: SXM4 80 GB) unless the facts say otherwise.
    """
    if not name or not name.strip():
        return None
    key = _normalise(name)
    if re.search(r"\bmig\b", key):
        return None
    for hits in (
        [g for g in TABLE if any(re.fullmatch(p, key) for p in g.names)],
        [g for g in TABLE if any(re.fullmatch(p, key) for p in g.aliases)],
        [g for g in TABLE if _normalise(g.name) == key],  # what a predicted trace calls its device
    ):
        if hits:
            fitting = [g for g in hits if _fits(g, sms, memory_bytes, compute_capability)]
            return min(fitting, key=lambda g: abs(g.sms - (sms or g.sms)), default=None)
    if key in _GENERIC_NAMES and sms is not None and memory_bytes is not None:
        # The driver knows no product name: only the size of the device can decide, and only if one fits.
        fitting = [g for g in TABLE if g.vendor == "AMD" and _fits(g, sms, memory_bytes, compute_capability)]
        fitting = [g for g in fitting if g.sms == sms]
        return fitting[0] if len(fitting) == 1 else None
    return None


_GENERIC_NAMES = {"radeon graphics", "amd radeon graphics"}


def _normalise(name: str) -> str:
    text = re.sub(r"\((?:r|tm)\)|[®™]", "", name.lower())
    text = re.sub(r"[\s_/-]+", " ", text).strip()
    return re.sub(r"^(?:nvidia|tesla|amd instinct|instinct|amd) ", "", re.sub(r"^nvidia tesla ", "", text))


def _fits(gpu: Gpu, sms: int | None, memory_bytes: int | None, capability: str | None) -> bool:
    # Drivers report a tenth less than the box says (ECC, firmware), and boards of one name may differ by a
    # few multiprocessors; slices and partitions differ by far more.
    if sms and abs(sms - gpu.sms) > 0.08 * gpu.sms:
        return False
    if memory_bytes:
        size = memory_bytes / (gpu.memory_gb * 2**30)
        if not 0.86 <= size <= 1.03:
            return False
    # AMD's traces write the first digits of the gfx number as capability; only NVIDIA's is a datasheet fact.
    return not (capability and gpu.compute_capability and capability != gpu.compute_capability)


_KEY = {
    "fp16": "fp16",
    "bf16": "bf16",
    "fp8_e4m3fn": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_e4m3fnuz": "fp8",
    "fp8_e5m2fnuz": "fp8",
    "int8": "int8",
    "uint8": "int8",
    "fp4_e2m1": "fp4",
}


def peak_for(gpu: Gpu, dtype: str, tensor_cores: bool) -> tuple[float, str] | None:
    """The peak rate that products of this element type can reach, and a name for it.

    ``dtype`` in any spelling of `foretrace.knowledge.dtypes` or ``tf32``, ``fp8``, ``fp4``. With
    ``tensor_cores``, fp32 means TF32 (on AMD: the FP32 matrix rate, TF32 only when asked by that name) and
    fp64 the FP64 tensor rate. Returns TFLOP/s (TOP/s for int8) and a label such as ``"bf16 tensor, dense,
    H200 datasheet"``; ``None`` where the datasheet has no such rate. Without tensor cores only fp32 and fp64
    are known; 16-bit products on CUDA cores are held against nothing rather than against a guess.
    """
    found = _dtype(dtype)
    name = found.name if found is not None else dtype.strip().lower()
    unit = "tensor" if gpu.vendor == "NVIDIA" else "matrix"
    if tensor_cores:
        if name == "fp32":
            key = "tf32" if gpu.vendor == "NVIDIA" else "fp32_tensor"
        elif name == "fp64":
            key = "fp64_tensor"
        else:
            key = _KEY.get(name, name)
        label = f"{key.removesuffix('_tensor')} {unit}, dense, {gpu.short} datasheet"
    else:
        if name not in ("fp32", "fp64"):
            return None
        key = name
        label = f"{key} (no {unit} cores), {gpu.short} datasheet"
    rate = gpu.peak_tflops.get(key)
    return None if rate is None else (rate, label)


_BANDWIDTH = "memory bandwidth"


def bandwidth_label(gpu: Gpu) -> str:
    """The name of the rate that memory traffic is held against: ``"memory bandwidth, H200 … datasheet"``."""
    return f"{_BANDWIDTH}, {gpu.name} datasheet"


def is_bandwidth(label: str) -> bool:
    """Whether a peak's name is that of a memory bandwidth, and not one of `peak_for`."""
    return label.startswith(f"{_BANDWIDTH}, ")
