"""The clock's answer: for each item of a program's work, the rows a GPU would run and for how long."""

from __future__ import annotations

from math import exp

from foretrace.knowledge.calibration.stand_ins import ATTENTION_CAUSAL, generated_as, measured_as
from foretrace.knowledge.dispatching import LAUNCH_US, row_us
from foretrace.knowledge.dtypes import itemsize
from foretrace.knowledge.gpus.datasheet import Gpu
from foretrace.knowledge.kernels.predicted import spell
from foretrace.prediction.clock.cache import missing_shares
from foretrace.prediction.clock.library import product_rows
from foretrace.prediction.clock.machine import Machine
from foretrace.prediction.clock.memory import memory_us
from foretrace.prediction.clock.points import attention_point, memory_point
from foretrace.prediction.clock.products import attention_us
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Operator, Program, Work

__all__ = ["host_us", "launch_us", "machine", "schedule"]

_MACHINES: dict[str, Machine] = {}


def machine(gpu: Gpu) -> Machine:
    """The constants of a GPU; made once, since a calibration takes a moment to read."""
    found = _MACHINES.get(gpu.name)
    if found is None or found.gpu != gpu:
        found = _MACHINES[gpu.name] = Machine(gpu)
    return found


# Half-widths of the interval that eight of ten calls stay in, as logarithms: from the calibration's own programs.
_MEASURED = 0.08
_STAND_IN = 0.15
_OTHER_GPU = 0.25
# An operand that brings in less than this share of what is written is expanded, not read.
_EXPANDED = 0.25


def schedule(program: Program, gpu: Gpu) -> list[list[Planned]]:
    """The rows of each item of ``program.work()``, in its order, in a step that repeats itself.

    Raises ``KeyError`` where the datasheet has no rate for the element type of a product.
    """
    clock = machine(gpu)
    items = list(_items(program))
    missing = missing_shares([work for _, work in items], clock.cache_bytes)
    return [_rows(operator, work, share, clock) for (operator, work), share in zip(items, missing, strict=True)]


def _items(program: Program) -> list[tuple[Operator, Work]]:
    found: list[tuple[Operator, Work]] = []
    pending = list(reversed(program.roots))
    while pending:
        node = pending.pop()
        found.extend((node, work) for work in node.work)
        pending.extend(reversed(node.children))
    return found


def _rows(operator: Operator, work: Work, missing: float, clock: Machine) -> list[Planned]:
    if work.product is not None:
        return product_rows(work, missing, clock)
    moved = sum(access.bytes for access in (*work.reads, *work.writes))
    if work.kind in ("attention", "convolution") and work.flops:
        us, width, basis = _arithmetic_us(operator, work, moved, clock)
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
    if work.kind == "reduction" and not work.generated:
        # An expanded operand is walked in full, though little of it is there: a gradient of ones, summed.
        moved = max(moved, work.elements * (itemsize(work.dtype) or 1))
    cold, warm = (memory_us(clock.memory, moved, warm=is_warm) for is_warm in (False, True))
    group = clock.group(name)
    width, basis = _STAND_IN, "a latency and the memory bandwidth"
    if group is not None:
        reduced = 1 if work.generated else work.reduced
        near = group.near(memory_point(moved, reduced, strided=not work.vectorised and reduced > 1))
        cold, warm = cold * exp(near.cold), warm * exp(near.warm)
        basis = f"bandwidth, corrected by measured calls of the {clock.calibration.gpu}"
        if work.op.removeprefix("aten::") in name and not work.generated:
            width = _MEASURED
    if not clock.calibration.exact:
        width, basis = _OTHER_GPU, f"{basis}, scaled by the datasheets"
    return warm + missing * (cold - warm), width, basis


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
        tanh=any("tanh" in argument for argument in operator.concrete),
    )


def _arithmetic_us(operator: Operator, work: Work, moved: int, clock: Machine) -> tuple[float, float, str]:
    """Attention and convolutions: the model of a product of as many FLOPs, corrected by measured attention."""
    assert work.flops is not None
    rates = clock.product_rates(work.dtype)
    us = attention_us(rates, work.flops)
    backward = "backward" in work.op
    element = "fp32" if work.dtype == "fp32" else "bf16"
    group = clock.group(f"attention {'backward ' if backward else ''}{element}") if work.kind == "attention" else None
    if group is None:
        return us, _OTHER_GPU, "the sustained rate of matrix products"
    place = ATTENTION_CAUSAL.get(work.op)
    causal = place is not None and operator.concrete[place : place + 1] == ("True",)
    near = group.near(attention_point(work.flops, moved, causal=causal))
    width = _STAND_IN if clock.calibration.exact else _OTHER_GPU
    return (
        us * exp(near.warm),
        width,
        f"the sustained rate, corrected by measured attention of the {clock.calibration.gpu}",
    )


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
