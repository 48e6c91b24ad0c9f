"""A profiler that writes a recorded trace as if it had just run: GPU expectations on machines without a GPU."""

from __future__ import annotations

import gzip
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from foretrace.capture.backend import GpuUse, Settings

TRACES = Path(__file__).parent / "data" / "traces"


class ReplayBackend:
    """Each recording is the next of ``traces`` (names in ``tests/data/traces``, or paths), the last one again."""

    def __init__(self, *traces: str, activities: tuple[str, ...] = ("CPU", "CUDA")) -> None:
        self.traces = list(traces)
        self.activities = list(activities)

    def clock_ns(self) -> int:
        return time.perf_counter_ns()

    def foreign_profiler(self) -> str | None:
        return None

    def cautions(self) -> list[str]:
        return []

    def session(self, _: Settings) -> ReplaySession:
        name = self.traces.pop(0) if len(self.traces) > 1 else self.traces[0]
        path = Path(name) if Path(name).is_absolute() else TRACES / f"{name}.json.gz"
        return ReplaySession(path, self.activities)


class ReplaySession:
    def __init__(self, path: Path, activities: list[str]) -> None:
        self.path = path
        self.activities = activities
        self.cautions: list[str] = []

    def start(self) -> None: ...

    def step(self) -> None: ...

    def mark(self, _: int) -> AbstractContextManager[object]:
        return nullcontext()

    def stop(self) -> None: ...

    def export(self, path: Path) -> None:
        content = self.path.read_bytes()
        path.write_bytes(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)

    def gpu_use(self) -> GpuUse:
        return GpuUse(available=True, requested=True, used=False)
