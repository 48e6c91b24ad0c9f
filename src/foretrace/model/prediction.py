"""What a predicted trace says of its own making: the part of a report that a recording does not have.

A predicted timeline carries it as the top-level key ``foretrace`` of its file, so that whoever reads the file later
knows that nothing in it was measured. Times are µs, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

__all__ = ["METADATA_KEY", "PredictedGroup", "PredictedRow", "PredictionInfo", "is_predicted", "read_prediction"]

METADATA_KEY = "foretrace"


class PredictedRow(msgspec.Struct, kw_only=True):
    """One predicted kernel, memset or copy; ``event`` is its position in the timeline's ``traceEvents``.

    ``low_us`` and ``high_us`` hold about 80 % of measured calls. ``flops`` and ``bytes`` are what the program's shapes
    ask for, ``floor_us`` the time in which the datasheet's rates would do it. ``basis``: what the time rests on.
    """

    event: int
    row: Literal["kernel", "memset", "memcpy"]
    name: str
    kind: str
    op: str
    shape: str | None
    us: float
    low_us: float
    high_us: float
    flops: int | None
    bytes: int | None
    floor_us: float | None
    bound: Literal["compute", "memory", "latency", "unknown"]
    basis: str | None


class PredictedGroup(msgspec.Struct, kw_only=True):
    """All predicted rows of one operator, kind and shape; times and amounts of all of them together, a step.

    ``calls`` counts operator calls; one may take several rows. ``bound`` is that of the longest row.
    """

    row: Literal["kernel", "memset", "memcpy"]
    kind: str
    op: str
    shape: str | None
    calls: int
    us: float
    low_us: float
    high_us: float
    share: float  # of the GPU time, 0..1
    flops: int | None
    bytes: int | None
    bound: Literal["compute", "memory", "latency", "unknown"]
    kernels: int | None = None  # rows of these calls: more than calls where a library takes helper kernels


class PredictionInfo(msgspec.Struct, kw_only=True):
    """A predicted step as a whole.

    ``gpu_busy_us`` is the sum of the rows, its ends the sums of theirs (all errors on one side at once). ``cpu_us`` is
    the time to dispatch the step. ``flops`` and ``bytes`` sum up the rows that have them. ``compute_floor_us``: the
    FLOPs at the datasheet's peak rates; ``memory_floor_us``: the bytes at its bandwidth; ``peaks`` names the rates.
    ``unknown``: operators that no rule knows (in the numbers as one pass over their operands) and work that was not
    followed, each with the reason; where there is any, the numbers are a lower bound. ``basis``: what the times rest
    on, most time first.
    """

    predicted: bool
    version: str
    program: str
    gpu: str
    variant: str
    mode: str
    gpu_busy_us: float
    gpu_busy_low_us: float
    gpu_busy_high_us: float
    cpu_us: float
    flops: int | None
    bytes: int | None
    compute_floor_us: float | None
    memory_floor_us: float | None
    peaks: list[str]
    basis: list[str]
    unknown: dict[str, str]
    notes: list[str]
    kernels: int
    memsets: int
    memcpys: int
    groups: list[PredictedGroup]  # most time first
    rows: list[PredictedRow]  # in the order they run
    modelled: list[str] = []  # sizes and types of the inputs and parameters, in words


def is_predicted(meta: Mapping[str, Any]) -> bool:
    """Whether the top-level keys of a trace say that it was predicted, not recorded."""
    said = meta.get(METADATA_KEY)
    return isinstance(said, Mapping) and said.get("predicted") is True


def read_prediction(meta: Mapping[str, Any]) -> PredictionInfo | None:
    """What a predicted trace says of its making; None for a recording, and where a later hand has damaged it."""
    if not is_predicted(meta):
        return None
    try:
        return msgspec.convert(meta[METADATA_KEY], PredictionInfo)
    except msgspec.ValidationError:
        return None
