"""Whether to empty the L2 between calls: only where that makes repeats more like a program, not less."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from foretrace.capture.bench.tools import synchronize
from foretrace.errors import InputError
from foretrace.knowledge.benching import GPU_AHEAD_SHARE
from foretrace.model.bench import Flushing, Work
from foretrace.model.words import bytes_of
from foretrace.timing.flush import Flush, l2_bytes

__all__ = ["decide"]

_CALLS = 10


def decide(
    wanted: bool | None, device: str, work: Work, calls: list[Callable[[], Any]]
) -> tuple[Flush | None, Flushing]:
    """The flush to use and why; ``wanted``: what was asked for, ``None`` leaves it to us.

    In a program, other work comes between two calls of this one. Repeats find their data in the L2 when it fits,
    so then it is emptied; but emptying it takes the GPU a while in which the host runs ahead, so that calls paced by
    the host would look faster than they are. Raises :class:`InputError` where a flush is asked for without a GPU.
    """
    if not device.startswith("cuda"):
        if wanted:
            raise InputError("--flush-l2 needs a GPU: on a CPU foretrace times with warm caches")
        return None, Flushing(on=False, reason="on a CPU, calls are timed with warm caches")
    if wanted is False:
        return None, Flushing(on=False, reason="as asked for")
    size = l2_bytes(device)
    if size is None:
        if wanted:
            raise InputError("--flush-l2: the driver does not say how large the L2 is; leave the flag out")
        return None, Flushing(on=False, reason="the driver does not say how large the L2 is")
    if wanted:
        return _flush(device, size, "as asked for")
    if work.bytes_read is None or work.bytes_written is None:
        return None, Flushing(on=False, reason="it is not known whether the data fits into the L2")
    data = work.bytes_read + work.bytes_written
    held = f"inputs, parameters and outputs are {bytes_of(data)} and the L2 holds {bytes_of(size)}"
    if data > size:
        return None, Flushing(on=False, reason=f"{held}: a call does not find its data there anyhow")
    if not all(_gpu_sets_the_pace(call, device) for call in calls):
        return None, Flushing(on=False, reason="the host sets the pace; a flush would give it a head start and hide it")
    return _flush(device, size, f"{held}: repeats would find their data there, a program would not")


def _flush(device: str, size: int, reason: str) -> tuple[Flush, Flushing]:
    flush = Flush(device, size)
    return flush, Flushing(on=True, reason=reason, bytes=flush.bytes)


def _gpu_sets_the_pace(call: Callable[[], Any], device: str) -> bool:
    """Whether the host is done enqueueing long before the GPU is done."""
    call()
    synchronize(device)
    start = time.perf_counter()
    for _ in range(_CALLS):
        call()
    enqueued = time.perf_counter()
    synchronize(device)
    return enqueued - start <= GPU_AHEAD_SHARE * (time.perf_counter() - start)
