"""A profiler that stands in for torch's: it records what a test says ran, by the clock a test turns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretrace.capture.backend import GpuUse, Settings


@dataclass
class FakeBackend:
    """Stage a machine: what else profiles, whether there is a GPU, and how the profiler misbehaves."""

    foreign: str | None = None
    caution: list[str] = field(default_factory=list)
    gpu: GpuUse = field(default_factory=lambda: GpuUse(available=False, requested=False, used=False))
    kernels_are_lost: bool = False
    launches_are_lost: bool = False
    export: Callable[[Path, str], None] = lambda path, text: path.write_text(text) and None
    now_ns: int = 0
    sessions: list[FakeSession] = field(default_factory=list)

    def clock_ns(self) -> int:
        return self.now_ns

    def foreign_profiler(self) -> str | None:
        return self.foreign

    def cautions(self) -> list[str]:
        return self.caution

    def session(self, settings: Settings) -> FakeSession:
        self.sessions.append(FakeSession(self, settings))
        return self.sessions[-1]

    # what a test's program does

    def operator(self, microseconds: float = 1.0) -> None:
        """An operator on the CPU."""
        self._row("cpu_op", "aten::add", microseconds)

    def kernel(self, microseconds: float = 1.0) -> None:
        """An operator that launches a kernel."""
        self.operator(microseconds)
        if not self.launches_are_lost:
            self._row("cuda_runtime", "cudaLaunchKernel", 0.0)
        if not self.kernels_are_lost:
            self._row("kernel", "add_kernel", 0.0)

    def _row(self, category: str, name: str, microseconds: float) -> None:
        for session in self.sessions:
            session.see(category, name)
        self.now_ns += int(microseconds * 1e3)


class FakeSession:
    """Keeps rows while its plan is in an active step."""

    def __init__(self, backend: FakeBackend, settings: Settings) -> None:
        self.backend = backend
        self.settings = settings
        self.activities = ["CPU"]
        self.cautions: list[str] = []
        self.calls: list[str] = []
        self.rows: list[dict[str, Any]] = []
        self.step_number = 0
        self.running = False
        self.error_on_stop: Exception | None = None

    @property
    def recording(self) -> bool:
        plan = self.settings.plan
        return self.running and (plan is None or plan.phase(self.step_number) == "active")

    def see(self, category: str, name: str) -> None:
        if self.recording:
            event = {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": len(self.rows), "dur": 1}
            self.rows.append(event)

    def start(self) -> None:
        self.calls.append("start")
        self.running = True

    def step(self) -> None:
        self.calls.append("step")
        self.see("user_annotation", f"ProfilerStep#{self.step_number}")
        self.step_number += 1

    @contextmanager
    def mark(self, number: int) -> Iterator[None]:
        yield
        self.see("user_annotation", f"ProfilerStep#{number}")

    def stop(self) -> None:
        self.calls.append("stop")
        self.running = False
        if self.error_on_stop is not None:
            raise self.error_on_stop

    def export(self, path: Path) -> None:
        self.calls.append("export")
        self.backend.export(path, json.dumps({"schemaVersion": 1, "traceEvents": self.rows}))

    def gpu_use(self) -> GpuUse:
        return self.backend.gpu
