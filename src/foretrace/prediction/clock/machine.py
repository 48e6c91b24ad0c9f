"""The time model's constants for one GPU: datasheet rates times the shares of them that were measured."""

from __future__ import annotations

from functools import cache
from math import exp, hypot

import numpy as np

from foretrace.knowledge.calibration import Calibration, calibration_for
from foretrace.knowledge.calibration.margins import OTHER_GPU
from foretrace.knowledge.dtypes import dtype as find_dtype
from foretrace.knowledge.gpus import peak_for
from foretrace.knowledge.gpus.datasheet import Gpu
from foretrace.prediction.clock.memory import MemoryRates, memory_us
from foretrace.prediction.clock.neighbours import Measured
from foretrace.prediction.clock.points import dtype_and_layout, memory_point, product_group, product_points
from foretrace.prediction.clock.products import ProductRates

__all__ = ["Machine"]

_SHARE_OF_PEAK = ("tflops", "cache_tbps")
_SHARE_OF_MEMORY = ("cold_tbps", "warm_tbps", "split_tbps")
# The element type whose fitted constants stand for a wide one; all others take those of bf16.
_FITTED = {"fp32": "fp32", "fp64": "fp32"}


class Machine:
    """One GPU as the clock sees it.

    ``related``: kernels and their efficiency carry over from the GPU that was measured, since it is this one or of
    its architecture. ``cache_bytes``: the capacity with which the model of the L2 cache fits the measurements.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.calibration: Calibration = calibration_for(gpu)
        constants = self.calibration.constants
        self.related = self.calibration.exact or gpu.arch == constants["arch"]
        self._memory_tbps = gpu.memory_bandwidth_gbps / 1e3
        memory = constants["memory"]
        self.memory = MemoryRates(
            latency_us=memory["latency_us"],
            cold_tbps=memory["cold_tbps"] * self._memory_tbps,
            warm_tbps=memory["warm_tbps"] * self._memory_tbps,
        )
        self.cache_bytes = constants["cache_share"] * gpu.l2_bytes
        self.group = cache(self._group)
        self.product_rates = cache(self._product_rates)

    def half_width(self, width: float) -> float:
        """The half-width of an interval on this GPU, a logarithm; ``width``: on the GPU that was measured."""
        return width if self.calibration.exact else hypot(width, OTHER_GPU)

    def basis(self, words: str) -> str:
        """What a time rests on, in words, with what was done to carry it over to this GPU."""
        return words if self.calibration.exact else f"{words}, scaled by the datasheets"

    def memory_bound_us(self, name: str, moved: int, *, reduced: int = 1, strided: bool = False) -> tuple[float, float]:
        """µs of a memory-bound kernel, operands in memory and in the cache, corrected by a group's measured calls."""
        cold, warm = (memory_us(self.memory, moved, warm=is_warm) for is_warm in (False, True))
        group = self.group(name)
        if group is None:
            return cold, warm
        near = group.near(memory_point(moved, reduced, strided=strided))
        return cold * exp(near.cold), warm * exp(near.warm)

    def product_group(self, dtype: str, layout: str) -> Measured | None:
        """The measured products of one element width and layout."""
        return self.group(product_group(dtype, layout))

    def _product_rates(self, dtype: str) -> ProductRates:
        """The constants for products of one element type; raises ``KeyError`` where the datasheet has no rate."""
        tensor = dtype != "fp32"  # torch's default: TF32 is off
        peak = peak_for(self.gpu, dtype, tensor) or peak_for(self.gpu, dtype, not tensor)
        if peak is None:
            raise KeyError(dtype)
        values = dict(self.calibration.constants["products"][_FITTED.get(dtype, "bf16")])
        for name in _SHARE_OF_PEAK:
            values[name] *= peak[0]
        for name in _SHARE_OF_MEMORY:
            values[name] *= self._memory_tbps
        found = find_dtype(dtype)
        size = found.itemsize if found is not None else 2
        return ProductRates(multiprocessors=self.gpu.sms, element_bytes=size, **values)

    def _group(self, name: str) -> Measured | None:
        """The measured calls of a group, if there are any."""
        stored = self.calibration
        if name not in stored.groups:
            return None
        cold, warm = (stored.array(name, which).astype(np.float64) for which in ("cold", "warm"))
        if not stored.has_products(name):
            features = stored.array(name, "features").astype(np.float64)
            nothing = np.zeros(len(cold))
            return Measured(features, cold, warm, nothing.astype(np.int64), nothing)
        dtype, layout = dtype_and_layout(name)
        flags = stored.array(name, "flags")
        features = product_points(
            stored.array(name, "sizes").astype(np.float64),
            layout,
            bias=flags & 1 != 0,
            dtype=dtype,
            fp16=flags & 2 != 0,
        )
        pattern = stored.array(name, "pattern").astype(np.int64)
        return Measured(features, cold, warm, pattern, stored.array(name, "extra").astype(np.float64))
