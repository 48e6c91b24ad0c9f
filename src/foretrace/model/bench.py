"""What ``foretrace bench`` found: several variants of one program, timed against each other and a limit.

Times are microseconds (``*_us``), sizes bytes, rates TFLOP/s and GB/s (10¹² and 10⁹ a second). What could not be
measured is ``None``; the reason is in ``missing`` of the same object, under the field's name. Fields may be added
within ``foretrace.bench/1``, never changed or removed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.model.sidefile import GpuState, Machine, Software

__all__ = [
    "SCHEMA",
    "Bench",
    "Check",
    "CopyRate",
    "Flushing",
    "GemmRate",
    "Limits",
    "Load",
    "PaysAfter",
    "Ratio",
    "Result",
    "ShapeResult",
    "Sweep",
    "SweepTotal",
    "TensorError",
    "Work",
]

SCHEMA: Literal["foretrace.bench/1"] = "foretrace.bench/1"


class GemmRate(msgspec.Struct, kw_only=True):
    """A square product of ``size`` rows, measured in this run. ``tflops`` is from the best sample."""

    dtype: str
    size: int
    flops: int
    tflops: float
    best_us: float
    median_us: float
    runs: int
    end_tflops: float | None = None  # measured again when the variants were done


class CopyRate(msgspec.Struct, kw_only=True):
    """A copy of ``size`` bytes from one buffer to another; ``bytes`` counts them read and written."""

    size: int
    bytes: int
    gbps: float
    best_us: float
    median_us: float
    runs: int
    end_gbps: float | None = None


class Limits(msgspec.Struct, kw_only=True):
    """What this device did at its best in this run."""

    gemm: list[GemmRate] = []
    copy: CopyRate | None = None
    missing: dict[str, str] = {}


class Work(msgspec.Struct, kw_only=True):
    """What one step has to do at least, whatever the variant.

    ``flops``: operations of the matrix products of the eager program. ``bytes_read``: operands that exist before the
    step (inputs, parameters), as far as they are used; ``bytes_written``: outputs, or in training the gradients.
    ``floor_us``: the longer of FLOPs at the measured GEMM rate and bytes at the measured bandwidth.
    """

    flops: int | None = None
    flops_by_dtype: dict[str, int] = {}
    bytes_read: int | None = None
    bytes_written: int | None = None
    compute_us: float | None = None
    memory_us: float | None = None
    floor_us: float | None = None
    floor_by: Literal["compute", "memory"] | None = None
    notes: list[str] = []
    missing: dict[str, str] = {}


class Flushing(msgspec.Struct, kw_only=True):
    """Whether the L2 cache was emptied before each call, and why (not)."""

    on: bool
    reason: str
    bytes: int | None = None


class Load(msgspec.Struct, kw_only=True):
    """The GPU while it ran the first variant: clocks in MHz, power in watts, what held the clocks down."""

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    slowed_by: list[str] | None = None
    missing: dict[str, str] = {}


class TensorError(msgspec.Struct, kw_only=True):
    """One output or gradient against the float64 reference.

    ``relative_error``: norm of the difference over norm of the reference. ``max_error_ulps``: the largest difference
    in units of the element type's spacing at the largest reference value. For integers: the share of wrong elements.
    """

    name: str
    dtype: str
    relative_error: float | None
    max_error_ulps: float | None
    eager_relative_error: float | None
    wrong: str | None = None  # why it does not pass


class Check(msgspec.Struct, kw_only=True):
    """Outputs (and gradients) of a variant against a float64 reference of the same weights and inputs."""

    state: Literal["passed", "wrong", "unknown"]
    reason: str | None = None
    relative_error: float | None = None  # the worst of the tensors
    max_error_ulps: float | None = None
    tensors: list[TensorError] = []


class Ratio(msgspec.Struct, kw_only=True):
    """Time over the first variant's time in the same round: the median, and its 95 % interval."""

    median: float
    low: float | None = None
    high: float | None = None


class PaysAfter(msgspec.Struct, kw_only=True):
    """After how many calls the time spent on compiling is won back; ``low`` and ``high`` from the ratio's interval."""

    state: Literal["after", "never", "unknown"]
    calls: int | None = None
    low: int | None = None
    high: int | None = None
    reason: str | None = None


class Result(msgspec.Struct, kw_only=True):
    """One variant. ``samples_us[i]`` is of round i, the same round for all variants."""

    name: str
    variant: str
    cuda_graph: bool = False  # the replay of a CUDA graph that bench captured
    state: Literal["ok", "wrong", "unchecked", "failed"]
    reason: str | None = None
    median_us: float | None = None
    interval_us: tuple[float, float] | None = None  # 95 %, of the median
    min_us: float | None = None
    iqr_us: float | None = None
    ratio: Ratio | None = None
    difference: Literal["first", "faster", "slower", "none", "unknown"] = "unknown"
    of_floor: float | None = None  # median over the floor
    peak_memory_bytes: int | None = None  # inputs, parameters and whatever a step allocates
    check: Check | None = None
    first_calls_us: list[float] = []  # host time of the first calls, each waited for
    setup_us: float | None = None  # what the first calls took above the median: compiling, tuning, capturing
    graphs_compiled: int | None = None
    pays_after: PaysAfter | None = None
    samples_us: list[float] = []
    missing: dict[str, str] = {}


class ShapeResult(msgspec.Struct, kw_only=True):
    """One variant at one shape of a sweep."""

    variant: str
    parameters: dict[str, int]
    compiles: int | None = None  # graphs torch.compile made for this shape
    first_call_us: float | None = None
    median_us: float | None = None
    iqr_us: float | None = None
    runs: int | None = None
    missing: dict[str, str] = {}


class SweepTotal(msgspec.Struct, kw_only=True):
    """One variant over a whole sweep."""

    variant: str
    compiles: int | None = None
    setup_us: float | None = None  # what all first calls took above their shapes' medians
    notes: list[str] = []
    reason: str | None = None  # why it failed


class Sweep(msgspec.Struct, kw_only=True):
    """Shapes one after the other through one module per variant; each variant apart from the others."""

    axes: dict[str, list[int]]
    shapes: list[ShapeResult]
    totals: list[SweepTotal]


class Bench(msgspec.Struct, kw_only=True):
    """The document ``foretrace.bench/1``. Ratios are to ``variants[0]``, the first that was asked for."""

    schema: Literal["foretrace.bench/1"] = SCHEMA
    created: str | None = None  # ISO 8601, UTC
    command: list[str] | None = None
    workload: str
    parameters: dict[str, Any]
    mode: str
    device: str
    seed: int
    method: str  # "cuda_events" (GPU time from event to event) | "perf_counter" (host time)
    rounds: int
    variants: list[Result]
    flush: Flushing
    limits: Limits
    work: Work
    load: Load
    compiler_start_us: float | None = None  # compiling something trivial before all variants; in no setup_us
    sweep: Sweep | None = None
    software: Software = msgspec.field(default_factory=Software)
    machine: Machine = msgspec.field(default_factory=Machine)
    gpus: list[GpuState] = []
    warnings: list[str] = []
    missing: dict[str, str] = {}
