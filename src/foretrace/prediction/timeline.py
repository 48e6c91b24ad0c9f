"""The predicted timeline: one step of a program as the profiler would have recorded it, had there been a GPU.

A simulated CPU walks the dispatch tree: an operator costs its dispatch time, half of it before what it calls and half
after; a launch costs the launch call. The GPU is one stream: a row starts when its launch has arrived and the row
before it has ended. Time is kept in whole nanoseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from foretrace.knowledge.dtypes import dtype
from foretrace.knowledge.gpus import Gpu
from foretrace.knowledge.kernels import decode
from foretrace.knowledge.kineto import step_name
from foretrace.knowledge.launching import HANDOVER_US, START_LATENCY_US, launch_call
from foretrace.prediction.plan import Planned
from foretrace.prediction.work import Operator, Program, Tensor, Work

__all__ = ["Timeline", "kineto_type", "lay_out"]

# The clock of the file starts here, ns: at zero a time would look as if it had not been recorded.
_BASE_NS = 1_000_000_000
_PID = 1
_MAIN, _AUTOGRAD = 1, 2  # threads: the program's own, and the one on which autograd runs the backward pass
_DEVICE, _STREAM = 0, 7  # PyTorch's current stream has this number in every CUDA trace
_STEP = step_name(0)


@dataclass
class Timeline:
    """One predicted step. ``rows``: position in ``events`` of each planned row, in the order of the plan.

    ``cpu_us``: the CPU time to dispatch the step, µs. ``meta``: the file's other top-level keys.
    """

    events: list[dict[str, Any]]
    rows: list[int]
    cpu_us: float
    meta: dict[str, Any]


def lay_out(
    program: Program,
    gpu: Gpu,
    plans: Sequence[Sequence[Planned]],
    *,
    host_us: Callable[[Operator], float],
    launch_us: float,
) -> Timeline:
    """Lay a program's planned rows out in time, launched by its operators, as events of a Kineto trace.

    ``plans`` holds the rows of each item of ``program.work()``, in its order. ``host_us`` gives the CPU time of one
    operator itself, ``launch_us`` that of one launch call. Raises ``ValueError`` where ``plans`` and the program's
    work differ in number.
    """
    work = sum(len(node.work) for node in _walk(program.roots))
    if work != len(plans):
        raise ValueError(f"the program has {work} items of work and the plan {len(plans)}")
    layout = _Layout(gpu, iter(plans), host_us, _ns(launch_us))
    cpu_ns = layout.step(program.roots)
    return Timeline(layout.named(program.name), layout.rows, cpu_ns / 1000, _metadata(gpu))


def kineto_type(name: str) -> str:
    """An element type as the profiler writes it into ``Input type``: ``bf16`` is ``c10::BFloat16``."""
    found = dtype(name)
    if found is None or found.kind == "bool":
        return name
    return found.spellings[0] if found.spellings else name


def _ns(us: float) -> int:
    return max(1, round(us * 1000))


def _walk(roots: Sequence[Operator]) -> Iterator[Operator]:
    pending = list(reversed(roots))
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.children))


@dataclass
class _Layout:
    """The walk in progress; all times in ns."""

    gpu: Gpu
    plans: Iterator[Sequence[Planned]]
    host_us: Callable[[Operator], float]
    launch_ns: int
    now: int = _BASE_NS
    stream_free: int = 0
    events: list[dict[str, Any]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    _correlation: int = 0
    _external: int = 0

    def step(self, roots: Sequence[Operator]) -> int:
        """The whole step, under its annotation; returns the CPU time it takes."""
        frame = self._host("user_annotation", _STEP, _MAIN, {})
        arrows = _Arrows(self)
        for root in roots:
            self._operator(root, _AUTOGRAD if root.phase == "backward" else _MAIN, arrows)
        self._close(frame, _BASE_NS)
        arrows.draw()
        return self.now - _BASE_NS

    def named(self, program: str) -> list[dict[str, Any]]:
        """The events, with the names of processes and threads behind them."""
        labels = [
            ("process_name", _PID, 0, {"name": program}),
            ("process_labels", _PID, 0, {"labels": "CPU (predicted)"}),
            ("process_sort_index", _PID, 0, {"sort_index": _PID}),
            ("thread_name", _PID, _MAIN, {"name": "dispatch (predicted)"}),
            ("thread_name", _PID, _AUTOGRAD, {"name": "autograd (predicted)"}),
            ("process_name", _DEVICE, 0, {"name": f"{self.gpu.name}, predicted"}),
            ("process_labels", _DEVICE, 0, {"labels": "GPU 0 (predicted)"}),
            ("process_sort_index", _DEVICE, 0, {"sort_index": 5_000_000}),
            ("thread_name", _DEVICE, _STREAM, {"name": f"stream {_STREAM}"}),
        ]
        return self.events + [
            {"name": name, "ph": "M", "ts": _BASE_NS / 1000, "pid": pid, "tid": tid, "args": args}
            for name, pid, tid, args in labels
        ]

    def _operator(self, node: Operator, thread: int, arrows: _Arrows) -> None:
        start = self.now
        self._external += 1
        own = self._external
        if node.annotation:
            event = self._host("user_annotation", node.name, thread, {"External id": own})
            first_row, before, after = len(self.rows), 0, 0
        else:
            event = self._host("cpu_op", node.name, thread, {"External id": own, **_operands(node)})
            arrows.note(node, thread, start)
            cost = _ns(self.host_us(node))
            before = cost // 2
            after = cost - before
            first_row = -1
        self.now += before
        for child in node.children:
            self._operator(child, thread, arrows)
        for work in node.work:
            self._work(work, node, own, thread)
        self.now += after
        self._close(event, start)
        if first_row >= 0:
            self._mirror(node.name, own, first_row)

    def _work(self, work: Work, node: Operator, external: int, thread: int) -> None:
        """The launches of one item; where an operator inside the node asks for them, below a row of its own."""
        start, inner = self.now, None
        if work.op != node.name and "::" in work.op:
            self._external += 1
            external = self._external
            inner = self._host("cpu_op", work.op, thread, {"External id": external})
        for planned in next(self.plans):
            self._launch(planned, work.op, external, thread)
        if inner is not None:
            self._close(inner, start)

    def _launch(self, planned: Planned, op: str, external: int, thread: int) -> None:
        self._correlation += 1
        correlation = self._correlation
        family = decode(planned.name, op=op).family
        name, category = launch_call(planned.row, family, self.gpu.vendor)
        start = self.now
        ids = {"External id": external, "correlation": correlation}
        call = self._host(category, name, thread, ids)
        self.now += self.launch_ns
        self._close(call, start)
        self.arrow("s", correlation, _PID, thread, start)
        begins = self.now + _ns(START_LATENCY_US)
        if begins <= self.stream_free:
            begins = self.stream_free + _ns(HANDOVER_US)
        duration = _ns(planned.us)
        self.stream_free = begins + duration
        args = {**ids, "device": _DEVICE, "context": 1, "stream": _STREAM, **_row_args(planned)}
        categories = {"kernel": "kernel", "memset": "gpu_memset", "memcpy": "gpu_memcpy"}
        self.rows.append(len(self.events))
        row = self._event(categories[planned.row], planned.name, _DEVICE, _STREAM, begins, args)
        row["dur"] = duration / 1000
        self.arrow("f", correlation, _DEVICE, _STREAM, begins)

    def _mirror(self, name: str, external: int, first_row: int) -> None:
        """The span of an annotation's GPU work on the stream, as the profiler draws it."""
        rows = [self.events[at] for at in self.rows[first_row:]]
        if not rows:
            return
        begin, end = rows[0]["ts"], rows[-1]["ts"] + rows[-1]["dur"]
        event = self._event("gpu_user_annotation", name, _DEVICE, _STREAM, 0, {"External id": external})
        event["ts"], event["dur"] = begin, round(end - begin, 3)

    def _host(self, category: str, name: str, thread: int, args: dict[str, Any]) -> dict[str, Any]:
        return self._event(category, name, _PID, thread, self.now, args)

    def _event(self, category: str, name: str, pid: int, tid: int, start: int, args: Any) -> dict[str, Any]:
        event = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid}
        event |= {"ts": start / 1000, "dur": 0.0, "args": args}
        self.events.append(event)
        return event

    def _close(self, event: dict[str, Any], start: int) -> None:
        event["dur"] = (self.now - start) / 1000

    def arrow(self, phase: str, number: int, pid: int, tid: int, at: int, category: str = "ac2g") -> None:
        """One end of an arrow between two rows: from a launch to its kernel, from forward to backward."""
        event = {"ph": phase, "id": number, "pid": pid, "tid": tid, "ts": at / 1000, "cat": category, "name": category}
        self.events.append(event | ({"bp": "e"} if phase == "f" else {}))


@dataclass
class _Arrows:
    """Forward operators and the backward nodes they made, by autograd's sequence number."""

    layout: _Layout
    forward: dict[int, tuple[int, int]] = field(default_factory=dict)  # number → thread and start of the last one
    backward: dict[int, tuple[int, int]] = field(default_factory=dict)  # number → of the first one

    def note(self, node: Operator, thread: int, start: int) -> None:
        if node.sequence is None:
            return
        if thread == _AUTOGRAD:
            self.backward.setdefault(node.sequence, (thread, start))
        elif node.phase != "backward":
            self.forward[node.sequence] = (thread, start)

    def draw(self) -> None:
        for number, (thread, start) in self.backward.items():
            if number in self.forward:
                self.layout.arrow("s", number, _PID, *self.forward[number], "fwdbwd")
                self.layout.arrow("f", number, _PID, thread, start, "fwdbwd")


def _operands(node: Operator) -> dict[str, Any]:
    """An operator's arguments as the profiler records them: what is no tensor has no shape."""
    args: dict[str, Any] = {}
    if node.inputs:
        written = node.concrete or ("",) * len(node.inputs)
        pairs = list(zip_longest(node.inputs, written, fillvalue=None))
        args["Input type"] = [_type(tensor, scalar) for tensor, scalar in pairs]
        args["Input Strides"] = [[] if tensor is None else list(tensor.strides) for tensor, _ in pairs]
        args["Input Dims"] = [[] if tensor is None else list(tensor.shape) for tensor, _ in pairs]
    if node.concrete:
        args["Concrete Inputs"] = list(node.concrete)
    if node.sequence is not None:
        args["Sequence number"] = node.sequence
    if node.module is not None:
        args["Module Hierarchy"] = node.module
    return args


def _type(tensor: Tensor | None, scalar: str | None) -> str:
    """What ``Input type`` says of an argument; one that is neither a tensor nor a known scalar is empty."""
    if tensor is not None:
        return kineto_type(tensor.dtype)
    return "" if not scalar else "ScalarList" if scalar.startswith("[") else "Scalar"


def _row_args(planned: Planned) -> dict[str, Any]:
    args: dict[str, Any] = {}
    if planned.row == "kernel" and planned.grid is not None:
        args["grid"] = list(planned.grid)
    if planned.row != "kernel" and planned.bytes is not None:
        args["bytes"] = planned.bytes
    args["predicted interval (us)"] = [round(planned.low_us, 3), round(planned.high_us, 3)]
    if planned.basis is not None:
        args["predicted from"] = planned.basis
    return args


def _metadata(gpu: Gpu) -> dict[str, Any]:
    properties: dict[str, Any] = {"id": _DEVICE, "name": gpu.name, "totalGlobalMem": gpu.memory_gb * 10**9}
    if gpu.compute_capability is not None:
        major, _, minor = gpu.compute_capability.partition(".")
        properties |= {"computeMajor": int(major), "computeMinor": int(minor)}
    properties["numSms"] = gpu.sms
    return {
        "schemaVersion": 1,
        "deviceProperties": [properties],
        "record_shapes": 1,
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 0,
    }
