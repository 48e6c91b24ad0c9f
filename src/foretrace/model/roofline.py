"""A roofline plot as data: the roofs of a GPU's datasheet, and where each kernel of a report stands under them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["BANDWIDTH_STRIP", "NOT_PLOTTED", "PLANE", "LeftOut", "Roof", "RooflinePlot"]

# Where a kernel is drawn.
NOT_PLOTTED, PLANE, BANDWIDTH_STRIP = 0, 1, 2


@dataclass(frozen=True)
class Roof:
    """One rate of a datasheet, named as the kernels that are held against it name it; exactly one rate is set."""

    label: str
    tflops: float | None = None  # 10¹² operations a second
    gbps: float | None = None  # 10⁹ B/s of memory


@dataclass(frozen=True)
class LeftOut:
    """Kernels that have no place on the plot, and why."""

    reason: str
    kernels: int
    us: float
    kinds: tuple[str, ...]  # most time first


@dataclass(eq=False)
class RooflinePlot:
    """Where the kernels of a report stand; the arrays have one entry a kernel, in the report's order.

    Attributes:
        roofs: bandwidths first, then arithmetic peaks, each from the highest rate down.
        place: uint8; ``PLANE`` (FLOPs and bytes are known), ``BANDWIDTH_STRIP`` (only bytes are), ``NOT_PLOTTED``.
        intensity: float64, FLOP a byte; NaN where the kernel is not in the plane.
        left_out: what is not on the plot, most time first.
    """

    roofs: list[Roof]
    place: NDArray[np.uint8]
    intensity: NDArray[np.float64]
    left_out: list[LeftOut]

    @property
    def on_plane(self) -> int:
        """Kernels with a place under the roofs."""
        return int((self.place == PLANE).sum())

    @property
    def on_strip(self) -> int:
        """Kernels whose bytes alone are known."""
        return int((self.place == BANDWIDTH_STRIP).sum())
