"""One variant made ready to be timed: built, called until it is warm, its memory seen, its results checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from foretrace.capture.bench.reference import Yardstick, check, collect
from foretrace.capture.bench.tools import Tools, persistent_bytes, said, synchronize
from foretrace.capture.swaps import note_of
from foretrace.capture.variants import graphs_compiled, leaves_of, step_of
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, ForetraceError
from foretrace.model.bench import Result
from foretrace.timing.graphs import capture_graph

__all__ = ["Contestant", "captured", "prepare"]

# The first call compiles; with CUDA graphs the second records and the third replays for the first time.
_WARM_CALLS = 3


@dataclass
class Contestant:
    """A variant and its step; ``call`` is ``None`` when it failed."""

    result: Result
    call: Callable[[], Any] | None = None
    program: Program | None = None


def prepare(
    make: Callable[[], Program], variant: str, mode: str, device: str, yardstick: Yardstick, tools: Tools
) -> Contestant:
    """Build a variant on a program of its own; what fails is told in the result, not raised."""
    result = Result(name=variant, variant=variant, state="failed")
    try:
        note = tools.check(variant, device.partition(":")[0])
        program = make()
        function = tools.transform(program.function, variant)
        notes = [text for text in (note, note_of(function)) if text is not None]
        if notes:
            result.missing["note"] = "; ".join(notes)
        step = step_of(program, function, mode, graphs=tools.replays_graphs(variant))
        before = graphs_compiled() or 0
        peaks = []
        value = None
        for _ in range(_WARM_CALLS):
            value = None  # the outputs of the call before must not count as memory of this one
            value, spent, peak = _watched(step, program, device)
            result.first_calls_us.append(spent)
            peaks.append(peak)
        _note_check(result, collect(value, program, mode), yardstick)
    except ForetraceError as error:
        result.reason = str(error)
        return Contestant(result)
    except (Exception, SystemExit) as error:
        result.reason = f"the program failed: {said(error)}"
        return Contestant(result)
    if tools.compiles(variant):
        result.graphs_compiled = (graphs_compiled() or 0) - before
    else:
        result.missing["graphs_compiled"] = "it is not compiled"
    _note_peak(result, peaks[1:])
    return Contestant(result, step, program)


def captured(plain: Contestant, mode: str, device: str, yardstick: Yardstick, tools: Tools) -> Contestant:
    """The same variant as the replay of a captured CUDA graph; what fails is told in the result."""
    variant = plain.result.variant
    result = Result(name=f"{variant} + graph", variant=variant, cuda_graph=True, state="failed")
    if plain.call is None or plain.program is None:
        result.reason = f"{variant} failed"
    elif not device.startswith("cuda"):
        result.reason = "CUDA graphs need a GPU"
    elif tools.replays_graphs(variant):
        result.reason = "it replays CUDA graphs by itself"
    else:
        program, step = plain.program, plain.call
        try:
            (replay, outputs), spent, peak = _watched(lambda: capture_graph(step, device), program, device)
            replay()
            _note_check(result, collect(outputs, program, mode), yardstick)
        except CaptureError as error:
            result.reason = str(error)
            return Contestant(result)
        except Exception as error:
            result.reason = f"its replay failed: {said(error)}"
            return Contestant(result)
        result.first_calls_us = [*plain.result.first_calls_us, spent]
        result.graphs_compiled = plain.result.graphs_compiled
        _note_peak(result, [peak])
        return Contestant(result, replay, program)
    return Contestant(result)


def _watched(call: Callable[[], Any], program: Program, device: str) -> tuple[Any, float, int | None]:
    """What a call returns, its host time until the device is done, µs, and its peak memory, bytes."""
    import torch

    on_gpu = device.startswith("cuda")
    before = 0
    for leaf in leaves_of(program):
        leaf.grad = None
    synchronize(device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(torch.device(device))
        before = torch.cuda.memory_allocated(torch.device(device))
    start = time.perf_counter_ns()
    value = call()
    synchronize(device)
    spent = (time.perf_counter_ns() - start) / 1e3
    if not on_gpu:
        return value, spent, None
    # Without what other variants hold: this one's inputs and parameters, and what the call added.
    added = int(torch.cuda.max_memory_allocated(torch.device(device))) - int(before)
    return value, spent, persistent_bytes(program) + added


def _note_peak(result: Result, peaks: list[int | None]) -> None:
    known = [peak for peak in peaks if peak is not None]
    if known:
        result.peak_memory_bytes = max(known)
    else:
        result.missing["peak_memory_bytes"] = "torch counts memory on GPUs only"


def _note_check(result: Result, results: dict[str, Any], yardstick: Yardstick) -> None:
    result.check = check(results, yardstick)
    states = {"passed": "ok", "wrong": "wrong", "unknown": "unchecked"}
    result.state = states[result.check.state]  # type: ignore[assignment]
    result.reason = result.check.reason
