"""The seam between foretrace and the profiler it drives.

:class:`~foretrace.capture.recording.Recording` knows the profiler only through these two protocols. The real
one is :mod:`foretrace.capture.torch_backend`; tests put a fake in its place and so can stage every way in
which a profiler loses data.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from foretrace.capture.plan import Plan

__all__ = ["Backend", "GpuUse", "Session", "Settings", "default_backend"]


@dataclass(frozen=True)
class Settings:
    """What to record."""

    plan: Plan | None = None  # None: everything between start and stop
    shapes: bool = True
    stacks: bool = False
    memory: bool = False
    all_threads: bool = False  # operators of every thread, not only of the one that records


@dataclass(frozen=True)
class GpuUse:
    """What is known, without the profiler, about the GPU's use while it recorded."""

    available: bool  # a GPU can be used in this process
    requested: bool  # its activities were asked for
    used: bool  # allocations on the GPU, so something ran there


class Session(Protocol):
    """One profiler, used once: ``start``, any number of ``step``, ``stop``, ``export``."""

    activities: list[str]  # what it records: "CPU", "CUDA", …
    cautions: list[str]  # what of the settings this profiler cannot do, one sentence each

    def start(self) -> None:
        """Begin step 0."""

    def step(self) -> None:
        """End the current step and begin the next."""

    def mark(self, number: int) -> AbstractContextManager[object]:
        """Annotate what runs inside as step ``number``; for recordings without a plan."""

    def stop(self) -> None:
        """End the recording; after a step that completed the plan this has nothing left to do.

        Raises :class:`~foretrace.errors.ProfilerActiveError` when another profiler took the recording over.
        """

    def export(self, path: Path) -> None:
        """Write the trace as plain JSON to ``path``, whose folder exists."""

    def gpu_use(self) -> GpuUse:
        """What the GPU did between the first recorded step and the last, as far as it is known."""


class Backend(Protocol):
    """Makes sessions, and knows what else is going on in this process."""

    def foreign_profiler(self) -> str | None:
        """Describe a profiler that is already running or armed in this process; else ``None``."""

    def cautions(self) -> list[str]:
        """What already happened in this process that may spoil a recording, one sentence each."""

    def session(self, settings: Settings) -> Session:
        """Make a profiler; nothing is started yet.

        Raises :class:`~foretrace.errors.CaptureError` when this torch cannot record.
        """

    def clock_ns(self) -> int:
        """Host time for step durations."""


def default_backend() -> Backend:
    """Return the torch profiler; raises :class:`~foretrace.errors.MissingExtraError` without torch."""
    from foretrace.capture.torch_backend import TorchBackend

    return TorchBackend()
