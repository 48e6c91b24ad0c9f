"""The time model's constants for one GPU: datasheet rates times the shares of them that were measured."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from foretrace.knowledge.calibration import Calibration, calibration_for
from foretrace.knowledge.dtypes import dtype as find_dtype
from foretrace.knowledge.gpus import peak_for
from foretrace.knowledge.gpus.datasheet import Gpu
from foretrace.prediction.clock.memory import MemoryRates
from foretrace.prediction.clock.neighbours import Measured
from foretrace.prediction.clock.points import product_group, product_points
from foretrace.prediction.clock.products import ProductRates

__all__ = ["Machine"]

_SHARE_OF_PEAK = ("tflops", "cache_tbps")
_SHARE_OF_MEMORY = ("cold_tbps", "warm_tbps", "split_tbps")
# Element types whose products were fitted; others take the constants of the nearest.
_FITTED = {"bf16": "bf16", "fp16": "bf16", "fp32": "fp32"}


class Machine:
    """One GPU as the clock sees it."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.calibration: Calibration = calibration_for(gpu)
        # Kernels and their efficiency carry over between GPUs of one architecture; absolute times do not.
        self.related = self.calibration.exact or gpu.arch == self.calibration.constants.get("arch")
        self._memory_tbps = gpu.memory_bandwidth_gbps / 1e3
        shares = self.calibration.constants["memory"]
        self.memory = MemoryRates(
            shares["latency_us"],
            shares["cold_tbps"] * self._memory_tbps,
            shares["warm_tbps"] * self._memory_tbps,
        )
        self.cache_bytes = self.calibration.constants["cache_share"] * gpu.l2_bytes
        self.group = lru_cache(maxsize=None)(self._group)
        self.product_rates = lru_cache(maxsize=None)(self._product_rates)

    def _product_rates(self, dtype: str) -> ProductRates:
        """The constants for products of one element type."""
        shares = self.calibration.constants["products"][_FITTED.get(dtype, "bf16")]
        units = dtype not in ("fp32", "fp64")
        peak = peak_for(self.gpu, dtype, units) or peak_for(self.gpu, dtype, not units)
        if peak is None:
            raise KeyError(dtype)
        values = dict(shares)
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
        try:
            features = stored.array(name, "features").astype(np.float64)
        except KeyError:
            width, layout = name.split()
            flags = stored.array(name, "flags")
            features = product_points(
                stored.array(name, "sizes").astype(np.float64),
                layout,
                bias=flags & 1 != 0,
                dtype="bf16" if width == "16-bit" else width,
                fp16=flags & 2 != 0,
            )
            pattern = stored.array(name, "pattern").astype(np.int64)
            return Measured(features, cold, warm, pattern, stored.array(name, "extra").astype(np.float64))
        nothing = np.zeros(len(cold))
        return Measured(features, cold, warm, nothing.astype(np.int64), nothing)

    def product_group(self, dtype: str, layout: str) -> Measured | None:
        """The measured products of one element width and layout."""
        return self.group(product_group(dtype, layout))
