"""A prediction in numbers: its rows, what they add up to, and the expectation that follows."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from foretrace.analysis.roofline import arithmetic_peak, bound_of
from foretrace.knowledge.calibration.margins import OTHER_LAUNCH, SCATTER_US
from foretrace.knowledge.dispatching import HOST_MARGIN
from foretrace.knowledge.expectations import CLEAR_BOUND_SHARE
from foretrace.knowledge.gpus import Gpu, bandwidth_label
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.limits import COMPUTE_KINDS
from foretrace.knowledge.lowering.inductor import POINTWISE
from foretrace.model.expectations import Expectation
from foretrace.model.prediction import PredictedGroup, PredictedRow, PredictionInfo
from foretrace.model.report import Bound
from foretrace.model.words import share_of
from foretrace.prediction.expect import expect
from foretrace.prediction.plan import Planned
from foretrace.prediction.timeline import Timeline
from foretrace.prediction.work import Program, Work
from foretrace.version import __version__

__all__ = ["expectation_of", "summarise"]

# The normal distribution's two-sided quantiles: 95 % over 80 %.
_WIDER = 1.960 / 1.282


def summarise(program: Program, gpu: Gpu, plans: Sequence[Sequence[Planned]], timeline: Timeline) -> PredictionInfo:
    """Rows and totals of a program's planned rows, laid out as ``timeline``."""
    events = iter(timeline.rows)
    rows: list[PredictedRow] = []
    calls: list[int] = []  # of each row: which operator call it belongs to
    compute_us: list[float] = []
    memory_us: list[float] = []
    peaks: dict[str, None] = {}
    for (operator, work), plan in zip(program.items(), plans, strict=True):
        for planned in plan:
            rate = _peak(gpu, planned, work) if planned.flops else None
            by_flops = planned.flops / rate[0] / 1e6 if planned.flops and rate else None
            by_bytes = planned.bytes / gpu.memory_bandwidth_gbps / 1e3 if planned.bytes else None
            if by_flops is not None and rate is not None:
                compute_us.append(by_flops)
                peaks[rate[1]] = None
            if by_bytes is not None:
                memory_us.append(by_bytes)
            rows.append(_row(next(events), work, planned, by_flops, by_bytes))
            # An operator may ask others inside it for work, one call each.
            calls.append(id(operator) if work.op == operator.name else id(work))
    if memory_us:
        peaks[bandwidth_label(gpu)] = None
    return PredictionInfo(
        predicted=True,
        version=__version__,
        program=program.name,
        gpu=gpu.name,
        variant=program.variant,
        mode=program.mode,
        gpu_busy_us=sum(row.us for row in rows),
        gpu_busy_low_us=sum(row.low_us for row in rows),
        gpu_busy_high_us=sum(row.high_us for row in rows),
        cpu_us=timeline.cpu_us,
        flops=_known_sum(row.flops for row in rows),
        bytes=_known_sum(row.bytes for row in rows),
        compute_floor_us=sum(compute_us) if compute_us else None,
        memory_floor_us=sum(memory_us) if memory_us else None,
        peaks=list(peaks),
        basis=_bases(rows),
        unknown=dict(program.unknown),
        notes=[*program.notes, *dict.fromkeys(work.note for work in program.work() if work.note)],
        kernels=sum(row.row == "kernel" for row in rows),
        memsets=sum(row.row == "memset" for row in rows),
        memcpys=sum(row.row == "memcpy" for row in rows),
        groups=_groups(rows, calls),
        rows=rows,
        modelled=list(program.modelled),
    )


def expectation_of(info: PredictionInfo, bound: Bound) -> Expectation:
    """What a recording should hold: counts and FLOPs to be compared exactly, times within an interval.

    The rows' intervals are meant for 80 % of measured kernels; a file that gates a build must not fail every fifth
    time, so they are widened to 95 %, and to what recorded durations scatter in any case. A pointwise kernel that
    Inductor generates may run by either of two launch configurations, and the longer time counts. Memsets are a
    library's choice: they are left out, and the launches are a range that leaves room for one before each product.
    Where something was only guessed, counts are lower bounds and nothing else is expected.

    ``bound`` is the verdict on the predicted step. It is expected where it speaks of the kernels, and clearly, and no
    host is slow enough to decide instead; whether a step is overhead-bound a recording alone can rarely tell, because
    the profiler lengthens CPU time.
    """
    if info.unknown:
        return expect(kernels=(info.kernels, None), launches=(len(info.rows) - info.memsets, None))
    products = sum(row.kind == "gemm" and row.row == "kernel" for row in info.rows)
    certain = info.kernels + info.memcpys
    quantities: dict[str, Any] = {
        "kernels": info.kernels,
        "memcpys": info.memcpys,
        "launches": (certain, certain + info.memsets + products),
    }
    kinds = dict.fromkeys(row.kind for row in info.rows if row.row == "kernel")
    for kind in kinds:
        quantities[kind] = sum(row.kind == kind and row.row == "kernel" for row in info.rows)
    if info.rows:
        quantities["gpu_busy_us"] = _widened(info.rows)
    for kind in kinds:
        quantities[f"{kind}_us"] = _widened([row for row in info.rows if row.kind == kind and row.row == "kernel"])
    # Of several kernels of one operator only one has its FLOPs, and a recording does not tell which: nothing to check.
    # (The second kernel of one product says by its name that it has none.)
    counted = all(
        row.flops is not None or decode(row.name, op=row.op).decoded.get("role")
        for row in info.rows
        if row.kind in COMPUTE_KINDS and row.row == "kernel"
    )
    if info.flops is not None and counted:
        quantities["flops"] = info.flops
    if bound in ("compute", "memory") and _clear(info, bound):
        quantities["bound"] = bound
    return expect(**quantities)


def _clear(info: PredictionInfo, bound: Bound) -> bool:
    """Whether a bound of the kernels has a margin: most of their time is of it, and no CPU is too slow for them."""
    kernels = [row for row in info.rows if row.row == "kernel"]
    total = sum(row.us for row in kernels)
    alike = sum(row.us for row in kernels if row.bound == bound)
    faster = HOST_MARGIN * info.cpu_us <= info.gpu_busy_low_us
    return faster and alike >= CLEAR_BOUND_SHARE * total


def _widened(rows: Sequence[PredictedRow]) -> tuple[float, float]:
    """The time of these rows together as an interval for 95 %, from theirs for 80 %, to the nanosecond outwards."""
    low, middle, high = (sum(getattr(row, name) for row in rows) for name in ("low_us", "us", "high_us"))
    # Of logarithms; what durations scatter counts where that is less.
    scatter = SCATTER_US * len(rows)
    low = max(0.0, min(middle * (low / middle) ** _WIDER, middle - scatter))
    high = max(middle * (high / middle) ** _WIDER, middle + scatter)
    # Beside the errors of the times themselves.
    high += sum((OTHER_LAUNCH - 1) * row.us for row in rows if row.op.startswith(POINTWISE))
    return math.floor(low * 1000) / 1000, math.ceil(high * 1000) / 1000


def _peak(gpu: Gpu, planned: Planned, work: Work) -> tuple[float, str] | None:
    """The rate a kernel is held against, that of the type it works on.

    The kernel may bear the name of a measured one of the other 16-bit type, which runs alike.
    """
    decoded = decode(planned.name, op=work.op)
    if {decoded.decoded.get("dtype"), work.dtype} == {"bf16", "fp16"}:
        decoded = msgspec.structs.replace(decoded, decoded={**decoded.decoded, "dtype": work.dtype})
    return arithmetic_peak(gpu, decoded, work.dtype)


def _known_sum(values: Iterable[int | None]) -> int | None:
    """The sum of those that are known; None where none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _row(event: int, work: Work, planned: Planned, compute_us: float | None, memory_us: float | None) -> PredictedRow:
    floors = [floor for floor in (compute_us, memory_us) if floor is not None]
    return PredictedRow(
        event=event,
        row=planned.row,
        name=planned.name,
        kind=planned.kind,
        op=work.op,
        shape=_shape(work) if planned.row == "kernel" else None,
        us=planned.us,
        # No kernel beats the peak rate, however far off the model may be; a cache can beat the memory's bandwidth.
        low_us=min(max(planned.low_us, compute_us or 0.0), planned.us),
        high_us=planned.high_us,
        flops=planned.flops,
        bytes=planned.bytes,
        floor_us=max(floors) if floors else None,
        bound=bound_of(compute_us, memory_us, planned.us),
        basis=planned.basis,
    )


def _shape(work: Work) -> str:
    """Sizes of a product in torch's order (M×N×K), with its layout; of other work the points it iterates over."""
    product = work.product
    if product is not None:
        batch = f"{product.batch}·" if product.batch > 1 else ""
        return f"{batch}{product.m}×{product.n}×{product.k} {product.layout}"
    if work.reduced > 1:
        return f"{work.elements // work.reduced}×{work.reduced}"
    return str(work.elements)


def _bases(rows: Sequence[PredictedRow]) -> list[str]:
    """What the times rest on, most time first, each with its share of the GPU time."""
    total = sum(row.us for row in rows)
    time: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        time[row.basis or "not stated"] += row.us
    ranked = sorted(time.items(), key=lambda item: (-item[1], item[0]))
    return [f"{basis} ({share_of(us / total)} of the GPU time)" for basis, us in ranked] if total else []


def _groups(rows: Sequence[PredictedRow], calls: Sequence[int]) -> list[PredictedGroup]:
    table: dict[tuple[object, ...], list[PredictedRow]] = {}
    called: defaultdict[tuple[object, ...], set[int]] = defaultdict(set)
    for row, call in zip(rows, calls, strict=True):
        key: tuple[object, ...] = (row.row, row.kind, row.op, row.shape)
        table.setdefault(key, []).append(row)
        called[key].add(call)
    total = sum(row.us for row in rows)
    groups = []
    for same, members in table.items():
        first, us = max(members, key=lambda row: row.us), sum(row.us for row in members)
        groups.append(
            PredictedGroup(
                row=first.row,
                kind=first.kind,
                op=first.op,
                shape=first.shape,
                calls=len(called[same]),
                kernels=len(members),
                us=us,
                low_us=sum(row.low_us for row in members),
                high_us=sum(row.high_us for row in members),
                share=us / total if total else 0.0,
                flops=_known_sum(row.flops for row in members),
                bytes=_known_sum(row.bytes for row in members),
                bound=first.bound,
            )
        )
    return sorted(groups, key=lambda group: -group.us)
