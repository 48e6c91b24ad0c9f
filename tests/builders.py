"""``TraceBuilder``: small synthetic Kineto traces that read like a timeline.

Times are microseconds since the builder's ``base_us``. Typical use::

    build = TraceBuilder()
    build.step(1, 0, 100)
    build.op("aten::mm", 10, 30, shapes=[[64, 32], [32, 16]], dtypes=["float", "float"])
    mm = build.launch(20, 5)                              # the correlation id
    build.kernel("sgemm", 50, 12, launch=mm)
    trace = build.trace()

Every method returns what the next one needs: ``launch`` and friends a correlation id, the others the position of
the event in ``traceEvents``.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from foretrace.trace import Trace
from foretrace.trace.load import parse

__all__ = ["TraceBuilder"]


class TraceBuilder:
    """Collects events; ``dict()``, ``bytes()``, ``write()`` and ``trace()`` hand them out."""

    def __init__(
        self,
        *,
        gpu: str | None = "NVIDIA H200",
        pid: int = 100,
        thread: int = 100,
        base_us: float = 1_000_000.0,
        meta: dict[str, Any] | None = None,
    ) -> None:
        self.pid = pid
        self.thread = thread
        self.base_us = base_us
        self.events: list[dict[str, Any]] = []
        self.meta: dict[str, Any] = {"schemaVersion": 1}
        if gpu is not None:
            properties = {"id": 0, "name": gpu, "computeMajor": 9, "computeMinor": 0, "numSms": 132}
            self.meta["deviceProperties"] = [properties]
        self.meta.update(meta or {})
        self._correlation = 0
        self._external = 0

    # CPU rows

    def step(self, number: int, start: float, duration: float, **extra: Any) -> int:
        """A ``ProfilerStep#N`` annotation."""
        return self.annotation(f"ProfilerStep#{number}", start, duration, **extra)

    def annotation(self, name: str, start: float, duration: float, **extra: Any) -> int:
        """A ``record_function`` block."""
        return self._complete("user_annotation", name, start, duration, self._next_external(), extra)

    def op(
        self,
        name: str,
        start: float,
        duration: float,
        *,
        shapes: list[Any] | None = None,
        dtypes: list[str] | None = None,
        strides: list[Any] | None = None,
        concrete: list[str] | None = None,
        sequence: int | None = None,
        args: dict[str, Any] | None = None,
        **extra: Any,
    ) -> int:
        """An operator; launches and kernels made after it carry its external id."""
        recorded: dict[str, Any] = self._next_external()
        for key, value in (
            ("Input Dims", shapes),
            ("Input type", dtypes),
            ("Input Strides", strides),
            ("Concrete Inputs", concrete),
            ("Sequence number", sequence),
        ):
            if value is not None:
                recorded[key] = value
        return self._complete("cpu_op", name, start, duration, {**recorded, **(args or {})}, extra)

    def python(self, name: str, start: float, duration: float, **extra: Any) -> int:
        """A Python frame or ``nn.Module: …`` row (``with_stack``)."""
        return self._complete("python_function", name, start, duration, {}, extra)

    def call(
        self,
        name: str,
        start: float,
        duration: float = 5.0,
        *,
        correlation: int | None = None,
        category: str = "cuda_runtime",
        args: dict[str, Any] | None = None,
        **extra: Any,
    ) -> int:
        """Any runtime or driver call; returns its correlation id."""
        if correlation is None:
            self._correlation += 1
            correlation = self._correlation
        recorded = {"External id": self._external, "correlation": correlation, **(args or {})}
        self._complete(category, name, start, duration, recorded, extra)
        return correlation

    def launch(self, start: float, duration: float = 5.0, *, name: str = "cudaLaunchKernel", **options: Any) -> int:
        """A kernel launch; returns its correlation id."""
        return self.call(name, start, duration, **options)

    def overhead(self, start: float, duration: float, name: str = "Activity Buffer Request") -> int:
        """A row of the profiler's own work."""
        return self._complete("overhead", name, start, duration, {}, {"pid": -1, "tid": 0})

    # GPU rows

    def kernel(
        self,
        name: str,
        start: float,
        duration: float,
        *,
        launch: int | None = None,
        stream: int = 7,
        device: int = 0,
        grid: list[int] | None = None,
        block: list[int] | None = None,
        args: dict[str, Any] | None = None,
        **extra: Any,
    ) -> int:
        """A kernel row; ``launch`` is the correlation id of its launch."""
        recorded = {"grid": grid or [1, 1, 1], "block": block or [128, 1, 1], **(args or {})}
        return self._gpu("kernel", name, start, duration, launch, stream, device, recorded, extra)

    def memcpy(
        self,
        start: float,
        duration: float,
        *,
        name: str = "Memcpy DtoD (Device -> Device)",
        bytes: int = 1024,
        launch: int | None = None,
        stream: int = 7,
        device: int = 0,
        **extra: Any,
    ) -> int:
        """A copy on a stream."""
        recorded = {"bytes": bytes}
        return self._gpu("gpu_memcpy", name, start, duration, launch, stream, device, recorded, extra)

    def memset(
        self,
        start: float,
        duration: float,
        *,
        bytes: int = 4,
        launch: int | None = None,
        stream: int = 7,
        device: int = 0,
        **extra: Any,
    ) -> int:
        """A memset on a stream."""
        recorded = {"bytes": bytes}
        return self._gpu("gpu_memset", "Memset (Device)", start, duration, launch, stream, device, recorded, extra)

    def gpu_annotation(self, name: str, start: float, duration: float, *, stream: int = 7) -> int:
        """An annotation mirrored on a stream; not GPU work."""
        return self._gpu("gpu_user_annotation", name, start, duration, None, stream, 0, {}, {})

    # Anything

    def event(self, **fields: Any) -> int:
        """An event exactly as given (``ts`` on the file's own clock)."""
        self.events.append(fields)
        return len(self.events) - 1

    def flow(self, category: str, number: int, begin: bool, at: float, *, tid: int | None = None) -> int:
        """One end of an arrow: ``ac2g``, ``fwdbwd``, …"""
        return self.event(
            ph="s" if begin else "f",
            id=number,
            pid=self.pid,
            tid=self.thread if tid is None else tid,
            ts=self.base_us + at,
            cat=category,
            name=category,
        )

    # Hand out

    def dict(self) -> dict[str, Any]:
        """The document as Python data."""
        return {**self.meta, "traceEvents": self.events}

    def text(self, *, indent: int | None = None) -> bytes:
        """The document as JSON."""
        return json.dumps(self.dict(), indent=indent).encode()

    def write(self, path: Path) -> Path:
        """Write the document; a name that ends in ``.gz`` is compressed."""
        data = self.text()
        path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
        return path

    def trace(self) -> Trace:
        """The document as the reader sees it."""
        return parse(self.text(), path="synthetic.json")

    def _next_external(self) -> dict[str, Any]:
        self._external += 1
        return {"External id": self._external}

    def _complete(
        self,
        category: str,
        name: str,
        start: float,
        duration: float,
        args: dict[str, Any],
        extra: dict[str, Any],
    ) -> int:
        event = {"ph": "X", "cat": category, "name": name, "pid": self.pid, "tid": self.thread}
        event |= {"ts": round(self.base_us + start, 3), "dur": duration, "args": args}
        return self.event(**{**event, **extra})

    def _gpu(
        self,
        category: str,
        name: str,
        start: float,
        duration: float,
        launch: int | None,
        stream: int,
        device: int,
        args: dict[str, Any],
        extra: dict[str, Any],
    ) -> int:
        recorded: dict[str, Any] = {"device": device, "context": 1, "stream": stream, **args}
        if launch is not None:
            recorded["correlation"] = launch
        return self._complete(category, name, start, duration, recorded, {"pid": device, "tid": stream, **extra})
