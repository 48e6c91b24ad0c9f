"""What a trace's allocator rows say: the part of a report that needs ``profile_memory`` (``foretrace run --memory``).

Sizes are bytes as the allocator counts them, so rounded up to its blocks. ``allocated`` is what tensors hold,
``reserved`` what the allocator took from the device. What is not known is ``None``; ``missing`` says why, under the
field's name.
"""

from __future__ import annotations

import msgspec

__all__ = ["Allocating", "DeviceMemory", "Intermediate", "Intermediates", "StepMemory", "TraceMemory"]


class Allocating(msgspec.Struct, kw_only=True):
    """What one operator allocated, calls of one kind together; most bytes first where they are listed."""

    op: str | None  # the operator whose result it is (not the aten::empty inside it); None: outside of operators
    within: str | None  # the operator that the program called, where it is another one
    phase: str | None  # forward | backward | optimizer
    modules: list[str]  # nn.Module frames around it (with_stack), most bytes first, three at most
    allocations: int
    bytes: int


class Intermediate(msgspec.Struct, kw_only=True):
    """Tensors of a step that only elementwise operators read: a kernel that does their work too need not write them."""

    role: str  # gate | up | activated | pre-activation | product | elementwise
    op: str
    read_by: list[str]
    tensors: int
    bytes: int
    kept_bytes: int  # of those that the backward pass reads: a fused kernel keeps them too, or computes them anew
    event: int  # the operator that wrote the first of them


class Intermediates(msgspec.Struct, kw_only=True):
    """The intermediates of one step that fusing would avoid, an inference from shapes and order.

    ``peak_without_bytes``: the step's peak without those that are not kept, all else as it is; a bound, since a kernel
    that is put in their place may need memory of its own.
    """

    tensors: list[Intermediate]
    bytes: int
    kept_bytes: int
    peak_without_bytes: int | None


class StepMemory(msgspec.Struct, kw_only=True):
    """One step on one device."""

    step: int
    label: str
    start_bytes: int | None  # allocated when the step began
    end_bytes: int | None  # and when it ended; the difference is what the step added
    peak_bytes: int | None
    peak_event: int | None  # the allocator row that reached it; None where the step began at its peak
    peak_start_us: float | None
    peak_op: str | None
    peak_within: str | None
    allocations: int
    allocated_bytes: int  # over all allocations of the step, freed again or not
    frees: int
    freed_bytes: int
    reserved_bytes: int | None  # when the step ended
    reserved_grown_bytes: int | None  # what the allocator took from the device inside the step
    largest: list[Allocating]  # every allocation of the step: their bytes are allocated_bytes
    alive_at_peak: list[Allocating]  # all that were recorded: with held_before_bytes they are peak_bytes
    held_before_bytes: int | None  # alive at the peak and allocated before the recording: of unknown operators
    intermediates: Intermediates | None = None
    missing: dict[str, str] = {}


class DeviceMemory(msgspec.Struct, kw_only=True):
    """One device's allocator, as one process saw it."""

    device: str  # cpu | cuda:0 | …
    process: int | str | None  # where the trace holds several
    rows: int
    steps: list[StepMemory]
    missing: dict[str, str] = {}


class TraceMemory(msgspec.Struct, kw_only=True):
    """The allocators of a trace, devices before the CPU."""

    devices: list[DeviceMemory]
