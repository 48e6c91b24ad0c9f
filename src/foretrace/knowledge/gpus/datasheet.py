"""What a datasheet says about one GPU."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["MB", "Gpu"]

MB = 2**20


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One device (of AMD's dual-die parts: one die, which is what a program sees as a device).

    ``sms``: multiprocessors (AMD: compute units). ``memory_gb`` as sold. ``memory_bandwidth_gbps``: 10⁹ B/s.
    ``l2_bytes``: L2 cache, of all dies together (AMD: without the Infinity Cache behind it). ``peak_tflops``:
    dense rates in 10¹² operations a second; keys ``fp64``, ``fp32`` (vector units), ``fp64_tensor``,
    ``fp32_tensor`` (AMD matrix cores), ``tf32``, ``fp16``, ``bf16``, ``fp8``, ``int8``, ``fp4`` (tensor or
    matrix cores, FP32 or INT32 accumulation). ``names``: patterns of the names drivers write, in lower case,
    vendor prefix removed, punctuation as spaces; ``aliases``: patterns of what users type.
    """

    name: str
    short: str
    vendor: Literal["NVIDIA", "AMD"]
    arch: str
    compute_capability: str | None
    sms: int
    memory_gb: int
    memory_bandwidth_gbps: float
    l2_bytes: int
    peak_tflops: dict[str, float]
    source: str
    names: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    note: str | None = None
