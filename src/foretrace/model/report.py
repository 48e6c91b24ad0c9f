"""The report: what foretrace knows about one trace, as plain data.

Every field that could not be measured is ``None`` (JSON ``null``), never zero. Times are microseconds
(``*_us``, float), sizes are bytes, rates are TFLOP/s (10¹² FLOP/s) and GB/s (10⁹ B/s), shares are 0..1.
Fields may be added within ``foretrace.report/1``, never changed or removed.

``event`` is the position of a row in the file's ``traceEvents`` array, so that any number can be looked up.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from foretrace.model.prediction import PredictionInfo
from foretrace.model.shown import Shown
from foretrace.model.trace_memory import TraceMemory

__all__ = [
    "ON_GPU",
    "SCHEMA",
    "WHOLE_TRACE",
    "Coverage",
    "Elementwise",
    "Evidence",
    "Finding",
    "Gap",
    "Gemm",
    "Gpu",
    "Group",
    "Has",
    "Health",
    "IdleCause",
    "Kernel",
    "Launcher",
    "Operator",
    "PhaseTime",
    "Report",
    "Step",
    "Timing",
    "TraceInfo",
    "Transfer",
    "Verdict",
]

SCHEMA: Literal["foretrace.report/1"] = "foretrace.report/1"
# The label of the one step of a trace that has no profiler steps.
WHOLE_TRACE = "whole trace"

Bound = Literal["overhead", "compute", "memory", "mixed", "unknown"]
KernelBound = Literal["compute", "memory", "latency", "unknown"]
Severity = Literal["info", "note", "warning"]
CheckState = Literal["ok", "suspect", "bad"]


class Gpu(msgspec.Struct, kw_only=True):
    """One device the trace names."""

    id: int
    name: str | None = None
    compute_capability: str | None = None  # "9.0"
    sms: int | None = None


class Has(msgspec.Struct, kw_only=True):
    """What the trace recorded; what it did not record cannot be reported."""

    shapes: bool
    stacks: bool
    gpu: bool
    memory: bool
    graphs: bool


class Timing(msgspec.Struct, kw_only=True):
    """Unprofiled timing of the same step, from the side file; µs."""

    median_us: float
    iqr_us: float | None
    runs: int
    method: str


class TraceInfo(msgspec.Struct, kw_only=True):
    """Where the numbers come from."""

    path: str
    format: str
    events: int
    gpus: list[Gpu]
    repairs: list[str]
    warnings: list[str]
    has: Has
    torch_version: str | None = None
    predicted: bool = False
    rank: int | None = None
    unprofiled: Timing | None = None


class IdleCause(msgspec.Struct, kw_only=True):
    """GPU idle time of a step that one cause explains."""

    cause: str  # synchronization | waiting_for_cpu | compile | graph | data_loading | launch_latency | unknown
    detail: str | None  # the operator, call or annotation the CPU was in
    us: float
    gaps: int


class PhaseTime(msgspec.Struct, kw_only=True):
    """GPU work one phase of a step launched."""

    phase: str  # forward | backward | optimizer | other (launched between or after them)
    gpu_us: float
    kernels: int


class Step(msgspec.Struct, kw_only=True):
    """One ProfilerStep, or the whole trace where it has none. Definitions: docs/concepts/steps.md."""

    index: int
    label: str
    wall_us: float
    period_us: float
    gpu_busy_us: float | None
    gpu_idle_us: float | None
    kernels: int | None
    memcpys: int | None
    memsets: int | None
    launches: int | None
    kernel_launches: int | None
    occupancy_queries: int | None
    synchronizations: int | None
    phases: list[PhaseTime] | None = None
    idle: list[IdleCause] = []
    start_us: float | None = None  # since the first event of the trace

    @property
    def busy_share(self) -> float | None:
        """Share of the period in which the GPU works, 0..1; None where that is not known.

        Idle time says it: busy time is not clipped to the step, so that its share of the period could pass 1.
        """
        if self.gpu_idle_us is None or self.period_us <= 0:
            return None
        return max(0.0, 1 - self.gpu_idle_us / self.period_us)


class Kernel(msgspec.Struct, kw_only=True):
    """One kernel row."""

    event: int
    name: str
    short_name: str
    kind: str
    decoded: dict[str, Any]
    step: int | None
    phase: str | None
    op: str | None
    op_path: list[str]
    module: str | None
    start_us: float
    duration_us: float
    stream: int | None
    grid: list[int] | None
    block: list[int] | None
    registers: int | None
    shared_memory_bytes: int | None
    flops: int | None
    bytes: int | None
    bound: KernelBound
    achieved_tflops: float | None
    achieved_gbps: float | None
    of_peak: float | None
    peak: str | None
    device: int | None = None
    graph: bool = False
    cache_assisted: bool = False


class Transfer(msgspec.Struct, kw_only=True):
    """One memcpy or memset row."""

    event: int
    name: str
    kind: Literal["memcpy", "memset"]
    direction: str | None
    bytes: int | None
    step: int | None
    op: str | None
    start_us: float
    duration_us: float
    stream: int | None
    device: int | None = None
    graph: bool = False


class Group(msgspec.Struct, kw_only=True):
    """All kernels of one name, most time first."""

    name: str
    short_name: str
    kind: str
    op: str | None
    calls: int
    total_us: float
    share: float
    median_us: float
    min_us: float
    bound: KernelBound
    calls_per_step: float | None = None
    of_peak: float | None = None  # at the median duration; None where the calls differ in FLOPs and bytes
    peak: str | None = None
    cache_assisted: bool = False


class Operator(msgspec.Struct, kw_only=True):
    """One row of the operator table; CPU and GPU time run in parallel and do not add up."""

    name: str
    calls: int
    cpu_us: float
    self_cpu_us: float
    gpu_us: float | None
    kernels: int | None
    metadata_only: bool
    self_gpu_us: float | None = None
    # What the CPU itself reached, in a trace without a GPU: FLOPs and least bytes over self CPU time.
    cpu_gflops: float | None = None
    cpu_gbps: float | None = None


# Kinds of a node of the dispatch chain that run on the GPU.
ON_GPU = ("kernel", "memcpy", "memset")


class Launcher(msgspec.Struct, kw_only=True):
    """A node of the folded dispatch chain of one step: equal neighbours are counted, not repeated."""

    name: str
    kind: str  # operator | annotation | launch | kernel | memcpy | memset | call
    count: int
    us: float | None
    children: list[Launcher]


class Gemm(msgspec.Struct, kw_only=True):
    """All matrix products of one shape and kernel."""

    m: int | None
    n: int | None
    k: int | None
    batch: int | None
    dtype: str | None
    layout: str | None
    tile: str | None
    op: str | None
    kernel: str
    epilogue: list[str]
    calls: int
    median_us: float
    min_us: float
    flops: int | None
    tflops: float | None
    of_peak: float | None
    peak: str | None
    events: list[int] = []  # the kernels


class Elementwise(msgspec.Struct, kw_only=True):
    """All pointwise, reduction or copy kernels of one name and size."""

    kernel: str
    short_name: str
    kind: str
    op: str | None
    parts: list[str]
    calls: int
    median_us: float
    min_us: float
    bytes: int | None
    gbps: float | None
    of_peak: float | None
    peak: str | None
    cache_assisted: bool = False


class Evidence(msgspec.Struct, kw_only=True):
    """A row a finding rests on."""

    event: int
    name: str
    start_us: float


class Finding(msgspec.Struct, kw_only=True):
    """One thing worth knowing, with the events that show it."""

    rule: str
    severity: Severity
    title: str
    explanation: str
    evidence: list[Evidence]
    source: str | None
    saving_us: float | None  # per step
    suggestion: str | None
    count: int = 1
    upper_bound: bool = False  # saving_us is the time of what would vanish, all else as it is: the most it can save


class Verdict(msgspec.Struct, kw_only=True):
    """What bounds the steps, and why we think so."""

    bound: Bound
    because: list[str]


class Coverage(msgspec.Struct, kw_only=True):
    """How much of the GPU kernel time the report accounts for; ``None`` without GPU work."""

    kernels_linked: float | None
    kernels_with_op: float | None
    flops_counted: float | None
    products_counted: float | None = None  # the same, of the time of gemm, attention and convolution kernels


class Health(msgspec.Struct, kw_only=True):
    """One check of whether the trace can be trusted."""

    check: str
    state: CheckState
    detail: str
    count: int | None = None


class Gap(msgspec.Struct, kw_only=True):
    """One stretch in which no stream of the step's devices ran anything."""

    step: int
    start_us: float
    duration_us: float
    cause: str
    detail: str | None


class Report(Shown, msgspec.Struct, kw_only=True):
    """Everything foretrace says about a trace; the JSON contract of the command line."""

    schema: Literal["foretrace.report/1"] = SCHEMA
    trace: TraceInfo
    steps: list[Step]
    kernels: list[Kernel]
    transfers: list[Transfer]
    groups: list[Group]
    operators: list[Operator]
    gemms: list[Gemm]
    elementwise: list[Elementwise]
    chain: list[Launcher]  # of the representative step
    gaps: list[Gap]  # the largest idle stretches, longest first
    findings: list[Finding]
    verdict: Verdict
    coverage: Coverage
    health: list[Health]
    prediction: PredictionInfo | None = None  # of a predicted trace: how sure, and what it rests on
    memory: TraceMemory | None = None  # None: no allocator rows were recorded (profile_memory)
