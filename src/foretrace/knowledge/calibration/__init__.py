"""Measured calls of one GPU: what the predictor's time model is corrected by, and its fitted constants.

``h200.json`` holds the constants, as shares of datasheet rates where that makes sense, so that they mean something on
a GPU nobody measured; ``h200.npz`` the measured calls. Both are written by ``benchmarks/predictor/calibrate.py`` from
traces of an H200 (``source`` in the JSON says which); nothing in them is edited by hand.

Arrays of ``h200.npz``, by group (``16-bit TN``: matrix products of one element width and layout):
``sizes`` m, n, k, batch; ``flags`` 1 with bias, 2 fp16; ``cold`` and ``warm`` logarithms of measured over modelled time
with operands in memory and in L2; ``pattern`` index into ``patterns``, the kernel names launched; ``extra`` share of
the time after the main kernel. Other groups are memory-bound operators (``aten::mul bf16``) with ``features``.
"""

from __future__ import annotations

import json
from functools import lru_cache
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretrace.knowledge.gpus.datasheet import Gpu

__all__ = ["Calibration", "calibration_for"]

# GPU (short name) → file stem; the second is for GPUs nobody measured.
_FILES = {"H200": "h200"}
_NEAREST = "h200"


class Calibration:
    """One calibration. ``exact``: it was made on this very GPU."""

    def __init__(self, stem: str, *, exact: bool) -> None:
        folder = resources.files("foretrace.knowledge.calibration")
        self.constants: dict[str, Any] = json.loads(folder.joinpath(f"{stem}.json").read_text())
        self.exact = exact
        self.gpu: str = self.constants["gpu"]
        self.source: str = self.constants["source"]
        with resources.as_file(folder.joinpath(f"{stem}.npz")) as path, np.load(path) as stored:
            self._arrays: dict[str, NDArray[Any]] = {name: stored[name] for name in stored.files}
        self.patterns: list[tuple[str, ...]] = [tuple(p) for p in json.loads(self._arrays["patterns"].tobytes())]
        self.groups = frozenset(name.rpartition("/")[0] for name in self._arrays if "/" in name)

    def has_products(self, group: str) -> bool:
        """Whether a group's calls are matrix products, kept as sizes, and not points of their own."""
        return f"{group}/sizes" in self._arrays

    def array(self, group: str, name: str) -> NDArray[Any]:
        """One array of a group; raises ``KeyError`` where the group does not have it."""
        return self._arrays[f"{group}/{name}"]


@lru_cache(maxsize=4)
def _load(stem: str, exact: bool) -> Calibration:
    return Calibration(stem, exact=exact)


def calibration_for(gpu: Gpu) -> Calibration:
    """The calibration of this GPU, or the one that stands in for a GPU nobody measured."""
    stem = _FILES.get(gpu.short)
    return _load(stem or _NEAREST, stem is not None)
