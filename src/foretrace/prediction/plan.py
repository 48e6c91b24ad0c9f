"""What the GPU would run for one item of work: the predictor's answer, row by row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Planned"]


@dataclass(frozen=True, slots=True)
class Planned:
    """One row the GPU would run for an item of work: a kernel, a memset or a copy."""

    row: Literal["kernel", "memset", "memcpy"]
    name: str  # predicted name; a real library name where a table knows it
    kind: str  # kernel kind of the report
    us: float  # predicted duration, µs
    low_us: float  # interval (about 80 %: where the middle eight of ten measured calls lie)
    high_us: float
    flops: int | None
    bytes: int | None  # logical bytes
    grid: tuple[int, int, int] | None = None
    basis: str | None = (
        None  # what the time rests on, in words ("measured neighbours on this GPU", "datasheet roofline")
    )
