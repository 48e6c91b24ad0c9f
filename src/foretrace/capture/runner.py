"""Record one variant of a program: first call, unprofiled timing, then the profiled steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretrace.capture.backend import Backend
from foretrace.capture.files import Rows
from foretrace.capture.memory import NO_GPU, History
from foretrace.capture.plan import Plan
from foretrace.capture.recording import Recording
from foretrace.capture.variants import MODES, check_variant, compiles, graphs_compiled, make_step, replays_graphs
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, EmptyTraceError, ForetraceError, InputError
from foretrace.model.sidefile import Schedule, SideFile, Unprofiled, snapshot_path, write_side
from foretrace.timing import clock_for, measure
from foretrace.trace.writer import refuse_taken

__all__ = ["Outcome", "Request", "pick_device", "record_variant"]

# The unprofiled pass takes at least as many samples as there are active steps, and up to _MOST while it is
# quick.
_MOST = 100
_BUDGET_S = 1.0


@dataclass(frozen=True)
class Request:
    """What to record, apart from the variant."""

    workload: str
    make: Callable[[], Program]
    device: str
    mode: str = "forward"
    plan: Plan = field(default_factory=Plan)
    warm_calls: int = 3  # before the first step, so that lazy loading is not in the recording; 0: cold
    shapes: bool = True
    stacks: bool = False
    memory: bool = False
    seed: int = 0
    label: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    command: list[str] | None = None


@dataclass(frozen=True)
class Outcome:
    """A recording that was written."""

    path: Path
    rows: Rows
    side: SideFile


def pick_device(wanted: str | None) -> str:
    """Return the device to run on: what was asked for, or the GPU if there is one.

    Raises :class:`InputError` when the device is not known or not there; :class:`MissingExtraError` without
    torch.
    """
    from foretrace.capture.torch_backend import import_torch

    torch = import_torch()
    available = bool(torch.cuda.is_available())
    if wanted is None:
        return "cuda" if available else "cpu"
    kind, colon, number = wanted.partition(":")
    if kind not in ("cuda", "cpu") or (colon and not (number.isascii() and number.isdecimal())):
        raise InputError(f"--device {wanted} is not known; choose cpu, cuda, or cuda:1 and so on")
    if kind == "cpu":
        if number and int(number) != 0:
            raise InputError(f"--device {wanted}: torch knows one CPU, with all its cores; write --device cpu")
        return kind
    if kind == "cuda":
        if not available:
            raise InputError("--device cuda: torch finds no GPU here; `foretrace doctor` says why, or use cpu")
        if number and int(number) >= torch.cuda.device_count():
            raise InputError(f"--device {wanted}: there are {torch.cuda.device_count()} GPUs, counted from 0")
        if number:
            torch.cuda.set_device(int(number))
    return wanted


def record_variant(
    request: Request,
    variant: str,
    path: Path,
    *,
    force: bool = False,
    backend: Backend | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Outcome:
    """Build the program, time it without the profiler, record it, and write the trace with its side file.

    With ``request.memory`` on a GPU the allocator's history goes from before the program is built to the end of the
    recording. It costs time and turning it off forgets it, so the timing comes after the recording then.

    ``say`` gets one line of progress at a time. Raises what :func:`foretrace.profile` raises, and
    :class:`CaptureError` when the program itself fails.
    """
    if request.mode not in MODES:
        raise InputError(f"--mode {request.mode} is not known; choose from {', '.join(MODES)}")
    note = check_variant(variant, request.device.partition(":")[0])
    history = _history(request, path, force=force) if request.memory else None
    try:
        return _record(request, variant, path, history, note, force=force, backend=backend, say=say)
    finally:
        if history is not None:
            history.stop()


def _history(request: Request, path: Path, *, force: bool) -> History:
    """Begin the allocator's history, unless the program runs on a CPU."""
    import torch

    refuse_taken(snapshot_path(path), force=force)
    history = History(torch, "before the model was built")
    if not request.device.startswith("cuda"):
        history.why_not = NO_GPU
    history.start()
    return history


def _record(
    request: Request,
    variant: str,
    path: Path,
    history: History | None,
    note: str | None,
    *,
    force: bool,
    backend: Backend | None,
    say: Callable[[str], None],
) -> Outcome:
    import torch

    torch.manual_seed(request.seed)
    step = make_step(request.make(), variant, request.mode, say)
    side = SideFile(
        command=request.command,
        workload=request.workload,
        parameters=dict(request.parameters),
        variant=variant,
        mode=request.mode,
        device=request.device,
        seed=request.seed,
        label=request.label,
    )
    if note is not None:
        say(note)
        side.warnings.append(note)
    recording = Recording(
        path,
        wait=request.plan.wait,
        warmup=request.plan.warmup,
        active=request.plan.active,
        shapes=request.shapes,
        stacks=request.stacks,
        memory=request.memory,
        force=force,
        backend=backend,
    )
    recording.side = side
    recording.history = history
    timed_last = history is not None and history.why_not is None and request.warm_calls > 0
    side.schedule = Schedule(
        wait=request.plan.wait,
        warmup=request.plan.warmup,
        active=request.plan.active,
        warm_calls=request.warm_calls,
    )
    if replays_graphs(variant) and request.device.startswith("cuda"):
        _keep_cupti(torch.version.cuda)
    graphs_before = graphs_compiled()
    if request.warm_calls > 0:
        if compiles(variant):
            say(f"{variant}: compiling")
        side.first_call_us = _first_call(step, request, variant)
        graphs_before = graphs_compiled()
        with _failure_said(variant):
            for _ in range(request.warm_calls - 1):
                step()
            if timed_last:
                side.missing["unprofiled"] = "the program was to be timed after the recording, which did not end well"
            else:
                _time_unprofiled(step, request, side)
    else:
        side.missing["first_call_us"] = "a cold recording: the first call is step 0 of the schedule"
        side.missing["unprofiled"] = "a cold recording: timing the steps first would warm them up"
    graphs_after = graphs_compiled()
    _count_recompiles(side, request, variant, graphs_before, graphs_after)
    with recording as p:
        for _ in p.steps():
            with _failure_said(variant):
                step()
    if timed_last:
        _time_last(step, request, variant, recording)
    outcome = Outcome(recording.path, recording.rows, recording.side)
    if request.device.startswith("cuda") and not outcome.rows.kernels:
        raise EmptyTraceError(
            f"the workload ran on the GPU and {outcome.path} holds no kernel; `foretrace doctor` finds out why"
        )
    return outcome


def _count_recompiles(side: SideFile, request: Request, variant: str, before: int | None, after: int | None) -> None:
    if not compiles(variant):
        side.missing["recompiles"] = "eager code is not compiled"
    elif request.warm_calls == 0 or before is None or after is None:
        side.missing["recompiles"] = "compilation was not watched from its start"
    else:
        side.recompiles = after - before


def _time_last(step: Callable[[], Any], request: Request, variant: str, recording: Recording) -> None:
    """Time the program when the recording is over and the allocator's history is off; complete the side file."""
    side = recording.side
    with _failure_said(variant):
        _time_unprofiled(step, request, side)
    side.missing.pop("unprofiled", None)
    if side.memory is not None:
        side.memory.timing = (
            "the unprofiled timing ran after the recording, with the history off; first_call_us was taken with it on"
        )
    write_side(recording.path, side)


def _keep_cupti(cuda: str | None) -> None:
    """Before CUDA 12.6, replaying a graph after CUPTI was torn down and set up again crashes the process.

    torch.profiler takes this precaution itself only where graphs are switched on globally, not for one
    ``mode=`` (torch/profiler/profiler.py, start_trace).
    """
    if cuda is not None and tuple(int(part) for part in cuda.split(".")[:2]) < (12, 6):
        os.environ.setdefault("DISABLE_CUPTI_LAZY_REINIT", "1")
        os.environ.setdefault("TEARDOWN_CUPTI", "0")


def _first_call(step: Callable[[], Any], request: Request, variant: str) -> float:
    """Make the first call and return its duration, compilation and lazy loading included, µs."""
    start = time.perf_counter_ns()
    with _failure_said(variant):
        step()
        _synchronize(request.device)
    return (time.perf_counter_ns() - start) / 1e3


@contextmanager
def _failure_said(variant: str) -> Iterator[None]:
    """Turn what the program raises into a :class:`CaptureError` of one sentence."""
    try:
        yield
    except ForetraceError:
        raise
    except (Exception, SystemExit) as error:
        # Compilers put pages of advice after the sentence that matters.
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        raise CaptureError(f"the program failed ({variant}): {type(error).__name__}: {said}") from error


def _time_unprofiled(step: Callable[[], Any], request: Request, side: SideFile) -> None:
    import torch

    on_gpu = request.device.startswith("cuda")
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    else:
        side.missing["peak_memory_bytes"] = "torch counts memory on GPUs only"
    timing = measure(
        step,
        clock=clock_for(request.device),
        warmup=1,
        runs=request.plan.active,
        budget_s=_BUDGET_S,
        max_runs=max(_MOST, request.plan.active),
    )
    side.unprofiled = Unprofiled(
        median_us=timing.median_us,
        iqr_us=timing.iqr_us,
        runs=timing.runs,
        method=timing.method,
        samples_us=list(timing.samples_us),
        warmup=timing.warmup,
    )
    if timing.iqr_us is None:
        side.missing["unprofiled.iqr_us"] = "one sample has no spread"
    if on_gpu:
        side.peak_memory_bytes = int(torch.cuda.max_memory_allocated())


def _synchronize(device: str) -> None:
    if device.startswith("cuda"):
        import torch

        torch.cuda.synchronize()
