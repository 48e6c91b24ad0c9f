"""The two clocks a call can be timed with: CUDA events on the GPU's own timeline, or the host's counter."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal, Protocol

__all__ = ["Clock", "CudaEventClock", "HostClock", "Method", "clock_for"]

Method = Literal["cuda_events", "perf_counter"]


class Clock(Protocol):
    """Marks points in time; durations can be read once :meth:`finish` was called."""

    method: Method

    def mark(self) -> Any:
        """Return an opaque mark for now."""

    def finish(self) -> None:
        """Wait until every mark has been reached."""

    def between_us(self, start: Any, end: Any) -> float:
        """Return the µs between two marks."""


class HostClock:
    """Host time. ``synchronize`` is called before every mark, so that queued GPU work is included."""

    method: Method = "perf_counter"

    def __init__(
        self,
        counter_ns: Callable[[], int] = time.perf_counter_ns,
        synchronize: Callable[[], None] | None = None,
    ) -> None:
        self._counter_ns = counter_ns
        self._synchronize = synchronize

    def mark(self) -> int:
        """Return the host's counter, ns."""
        if self._synchronize is not None:
            self._synchronize()
        return self._counter_ns()

    def finish(self) -> None:
        """Nothing to wait for."""

    def between_us(self, start: int, end: int) -> float:
        """Return the µs between two marks."""
        return (end - start) / 1e3


class CudaEventClock:
    """CUDA events on the current stream of ``device``.

    A pair of events around a call gives the GPU's time from the one to the other: the kernels and every pause
    between them. With the GPU behind the host that is GPU time alone; with the GPU waiting for the host it is
    the host's time, which is what a step then really takes. No call waits for another, so that the queue
    fills as it does in real use.
    """

    method: Method = "cuda_events"

    def __init__(self, device: Any = None) -> None:
        import torch

        self._cuda: Any = torch.cuda  # its stubs leave Event untyped
        self._device = torch.device("cuda") if device is None else torch.device(device)

    def mark(self) -> Any:
        """Record an event on the current stream and return it."""
        event = self._cuda.Event(enable_timing=True)
        event.record(self._cuda.current_stream(self._device))
        return event

    def finish(self) -> None:
        """Wait until the device has done everything queued so far."""
        self._cuda.synchronize(self._device)

    def between_us(self, start: Any, end: Any) -> float:
        """Return the µs between two events."""
        return float(start.elapsed_time(end)) * 1e3


def clock_for(device: str) -> Clock:
    """Return the clock for calls that run on ``device``: ``"cuda"``, ``"cuda:1"``, ``"cpu"``, …"""
    return CudaEventClock(device) if device.split(":")[0] == "cuda" else HostClock()
