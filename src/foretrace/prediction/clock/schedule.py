"""The clock's answer: for each item of a program's work, the rows a GPU would run and for how long."""

from __future__ import annotations

from dataclasses import replace
from math import exp

from foretrace.knowledge.calibration.margins import MEASURED, MEMSET, MODEL_ONLY, REDUCTION, STAND_IN
from foretrace.knowledge.calibration.stand_ins import ATTENTION_CAUSAL, attention_as, generated_as, measured_as
from foretrace.knowledge.dispatching import LAUNCH_US, row_us
from foretrace.knowledge.dtypes import itemsize
from foretrace.knowledge.gpus.datasheet import Gpu
from foretrace.knowledge.kernels.predicted import spell
from foretrace.prediction.clock.cache import missing_shares
from foretrace.prediction.clock.epilogue import fused_row
from foretrace.prediction.clock.few_rows import weight_gradient_row
from foretrace.prediction.clock.library import product_rows
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.memory import memory_us
from foretrace.prediction.clock.points import attention_point
from foretrace.prediction.clock.products import attention_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Operator, Program, Work

__all__ = ["host_us", "launch_us", "machine", "schedule"]

# An operand that brings in less than this share of what is written is expanded, not read.
_EXPANDED = 0.25
_MACHINES: dict[str, Machine] = {}


def machine(gpu: Gpu) -> Machine:
    """The constants of a GPU; made once, since a calibration takes a moment to read."""
    found = _MACHINES.get(gpu.name)
    if found is None or found.gpu != gpu:
        found = _MACHINES[gpu.name] = Machine(gpu)
    return found


def schedule(program: Program, gpu: Gpu) -> list[list[Planned]]:
    """The rows of each item of ``program.work()``, in its order, in a step that repeats itself.

    Raises ``KeyError`` where the datasheet has no rate for the element type of a product.
    """
    clock = machine(gpu)
    items = program.items()
    missing = missing_shares([work for _, work in items], clock.cache_bytes)
    return [_rows(operator, work, share, clock) for (operator, work), share in zip(items, missing, strict=True)]


def _as_multiplied(work: Work, clock: Machine) -> Work:
    """The work by the type that multiplies: cuDNN's convolutions take TF32 for fp32 where a GPU has it, by default.

    Matrix products do not: of ``torch.backends`` ``cudnn.allow_tf32`` is True, and ``cuda.matmul.allow_tf32`` False.
    """
    tf32 = clock.gpu.vendor == "NVIDIA" and "tf32" in clock.gpu.peak_tflops
    if work.kind == "convolution" and work.dtype == "fp32" and tf32:
        return replace(work, dtype="tf32")
    return work


def _rows(operator: Operator, work: Work, missing: float, clock: Machine) -> list[Planned]:
    work = _as_multiplied(work, clock)
    if work.op == "foretrace::weight_gradient":
        return [weight_gradient_row(work, clock)]
    # What foretrace's decode kernel for the second product has to do is no epilogue, and it is one kernel, too.
    if work.product is not None and (work.epilogue or work.op == "foretrace::project"):
        return [fused_row(work, missing, clock)]
    if work.product is not None:
        return product_rows(work, missing, clock)
    moved = sum(access.bytes for access in (*work.reads, *work.writes))
    if work.kind in ("attention", "convolution") and work.flops:
        us, width, basis = _arithmetic_us(operator, work, moved, missing, clock)
    else:
        us, width, basis = _memory_bound_us(operator, work, moved, missing, clock)
    row = "memset" if work.kind == "memset" else "memcpy" if work.kind == "memcpy" else "kernel"
    return [
        Planned(
            row=row,  # type: ignore[arg-type]  # one of the three
            name=_name(work, row),
            kind=work.kind,
            us=us,
            low_us=us * exp(-width),
            high_us=us * exp(width),
            flops=work.flops,
            bytes=moved or None,
            basis=basis,
        )
    ]


def _memory_bound_us(
    operator: Operator, work: Work, moved: int, missing: float, clock: Machine
) -> tuple[float, float, str]:
    """µs, half-width of the interval, and what both rest on."""
    name = _stand_in(operator, work)
    walked = moved
    passes = _passes(work)
    if passes:
        # An expanded operand is walked in full, though little of it is there: a gradient of ones, summed.
        walked = max(moved, passes * work.elements * (itemsize(work.dtype) or 1))
        missing *= moved / walked if walked else 1.0
    reduced = 1 if work.generated else work.reduced
    cold, warm = clock.memory_bound_us(name, walked, reduced=reduced, strided=not work.vectorised and reduced > 1)
    basis = "a latency and the memory bandwidth"
    if clock.group(name) is not None:
        basis = f"bandwidth, corrected by measured calls of the {clock.calibration.gpu}"
    return warm + missing * (cold - warm), clock.half_width(_margin(work, name)), clock.basis(basis)


def _passes(work: Work) -> int:
    """Times that a kernel walks its elements whatever is there of its operands: reads, and writes where it has any."""
    if work.generated:
        return 0
    if work.kind == "reduction":
        return 1
    return 2 if work.kind == "elementwise" and not work.vectorised and work.reads else 0


def _margin(work: Work, name: str) -> float:
    """The half-width for a memory-bound kernel on the GPU that was measured; ``name``: what its time was taken from."""
    if work.kind == "reduction":
        return REDUCTION
    if work.kind == "memset":
        return MEMSET
    return MEASURED if not work.generated and name.startswith(f"{work.op} ") else STAND_IN


def _stand_in(operator: Operator, work: Work) -> str:
    """The measured operator whose times stand for this one's."""
    if work.generated:
        return generated_as(work.parts, work.dtype, reads=len(work.reads))
    read, written = (sum(access.bytes for access in side) for side in (work.reads, work.writes))
    return measured_as(
        work.op,
        work.kind,
        work.dtype,
        reads=len(work.reads),
        expanded=read < _EXPANDED * written,
        strided=not work.vectorised,
        crossed=work.crossed,
        source=next((item.dtype for item in operator.inputs if item is not None and item.dtype != work.dtype), None),
        tanh=any("tanh" in argument for argument in operator.concrete),
    )


def _arithmetic_us(
    operator: Operator, work: Work, moved: int, missing: float, clock: Machine
) -> tuple[float, float, str]:
    """Attention and convolutions: the model of a product of as many FLOPs, corrected by measured attention.

    One that does little with what it reads (a depthwise convolution) takes as long as its bytes.
    """
    assert work.flops is not None
    cold, warm = (memory_us(clock.memory, moved, warm=is_warm) for is_warm in (False, True))
    us = max(attention_us(clock.product_rates(work.dtype), work.flops), warm + missing * (cold - warm))
    if work.kind == "convolution":  # whose result is as large as what it reads, and has to reach the memory
        us = max(us, memory_us(clock.memory, sum(access.bytes for access in work.writes), warm=False))
    group = clock.group(attention_as(work.op, work.dtype)) if work.kind == "attention" else None
    if group is None:
        return us, clock.half_width(MODEL_ONLY), clock.basis("the sustained rate of matrix products")
    place = ATTENTION_CAUSAL.get(work.op)
    causal = place is not None and operator.concrete[place : place + 1] == ("True",)
    near = group.near(attention_point(work.flops, moved, causal=causal))
    basis = f"the sustained rate, corrected by measured attention of the {clock.calibration.gpu}"
    return us * exp(near.warm), clock.half_width(STAND_IN), clock.basis(basis)


def _name(work: Work, row: str) -> str:
    if row == "memset":
        return "Memset (Device)"
    if row == "memcpy":
        return "Memcpy DtoD (Device -> Device)"
    if work.generated:
        return work.op
    return spell(work.kind, dtype=work.dtype, ops=(work.op.removeprefix("aten::"),))


def host_us(operator: Operator) -> float:
    """CPU time of one operator itself, µs, without its children and without launch calls."""
    return row_us(operator.name, launches=bool(operator.work))


def launch_us(gpu: Gpu) -> float:
    """CPU time of one launch call, µs; the same for every GPU."""
    del gpu
    return LAUNCH_US
