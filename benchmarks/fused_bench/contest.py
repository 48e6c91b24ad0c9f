"""Timing those who are right against each other: GPU time by events and by graph replay, wall and host time, memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from foretrace.errors import CaptureError
from foretrace.timing import HostClock, interleave, iqr, median, median_interval
from foretrace.timing.graphs import capture_graph
from fused_bench.device import Device
from fused_bench.load import Load, Reading
from fused_bench.prepare import Prepared, said

__all__ = ["CONFIDENCE", "Rounds", "capture", "host_cost", "memory", "summary", "time_calls", "wall"]

CONFIDENCE = 0.95
# The GPU's clocks settle within some tenths of a second of load.
_WARM_S = 0.3


class Rounds:
    """How long to time: at least ``least`` rounds, more up to ``most`` while ``budget_s`` lasts.

    Six samples are the fewest with a 95 % interval of their median; the default is above that.
    """

    def __init__(self, least: int = 9, most: int = 60, budget_s: float = 2.0, warm_s: float = _WARM_S) -> None:
        self.least, self.most, self.budget_s, self.warm_s = least, most, budget_s, warm_s


def summary(samples_us: Sequence[float]) -> dict[str, Any]:
    """Median, spread, interval and the raw samples, µs."""
    interval = median_interval(samples_us, CONFIDENCE)
    spread = iqr(samples_us)
    return {
        "median_us": round(median(samples_us), 3),
        "iqr_us": None if spread is None else round(spread, 3),
        "interval_us": None if interval is None else [round(end, 3) for end in interval],
        "samples_us": [round(sample, 3) for sample in samples_us],
    }


def time_calls(
    calls: Mapping[str, Callable[[], object]],
    device: Device,
    rounds: Rounds,
    *,
    flush: bool = True,
    read: Callable[[], Reading] | None = None,
) -> tuple[dict[str, dict[str, Any]], dict[str, Any] | None]:
    """Time calls in turns whose order changes, the L2 flushed before each outside what is timed.

    Returns the summary of each, and how the GPU ran meanwhile.
    """
    if not calls:
        return {}, None
    _warm(calls, device, rounds.warm_s)
    with Load(read) as load:
        timings = interleave(
            calls,
            clock=device.clock,
            warmup=2,
            runs=rounds.least,
            budget_s=rounds.budget_s,
            max_runs=max(rounds.most, rounds.least),
            before=device.flush if flush else None,
        )
    return {name: summary(timing.samples_us) for name, timing in timings.items()}, load.summary()


def capture(prepared: Sequence[Prepared], device: Device) -> dict[str, Callable[[], object]]:
    """CUDA graphs of one step each; who cannot be captured gets the reason in its result. Nothing on a CPU."""
    replays: dict[str, Callable[[], object]] = {}
    for one in prepared:
        if one.step is None:
            continue
        one.result["graph"] = None
        if not device.is_gpu:
            one.result["graph_reason"] = "there are no CUDA graphs on a CPU"
            continue
        try:
            replays[one.name], _ = capture_graph(one.step, device.name)
        except (CaptureError, RuntimeError) as error:
            one.result["graph_reason"] = said(error)
    return replays


def wall(
    calls: Mapping[str, Callable[[], object]], device: Device, rounds: Rounds, iterations: int = 50
) -> dict[str, dict[str, Any]]:
    """µs of an iteration as a training loop sees it: ``iterations`` back to back, then one synchronisation.

    No flush and no pause, so whichever is slower, host or GPU, sets the pace. Loops are interleaved like calls.
    """
    if not calls:
        return {}

    def loop(call: Callable[[], object]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(iterations):
                call()

        return run

    timings = interleave(
        {name: loop(call) for name, call in calls.items()},
        clock=HostClock(synchronize=device.synchronize),
        warmup=1,
        runs=rounds.least,
        budget_s=rounds.budget_s,
        max_runs=max(rounds.most, rounds.least),
    )
    return {
        name: {**summary([sample / iterations for sample in timing.samples_us]), "iterations": iterations}
        for name, timing in timings.items()
    }


def host_cost(
    calls: Mapping[str, Callable[[], object]], device: Device, rounds: Rounds, iterations: int = 100
) -> dict[str, dict[str, Any]]:
    """µs of host time a call costs: how soon it returns, with a GPU that never makes it wait.

    Meaningful for small shapes only, whose GPU work is shorter than the host's: the queue of launches must not fill.
    """
    samples: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for number in range(rounds.least):
        names = list(calls) if number % 2 == 0 else list(reversed(list(calls)))
        for name in names:
            call = calls[name]
            device.synchronize()
            start = time.perf_counter_ns()
            for _ in range(iterations):
                call()
            samples[name].append((time.perf_counter_ns() - start) / 1e3 / iterations)
            device.synchronize()
    return {name: {**summary(found), "iterations": iterations} for name, found in samples.items()}


def memory(prepared: Sequence[Prepared], device: Device) -> None:
    """Put into each result the peak of one step above operands and weights, gradients and output included."""
    for one in prepared:
        if one.step is None:
            continue
        try:
            one.step()
            one.drop_gradients()
            one.result["peak_bytes"] = device.peak_bytes(one.step)
            one.drop_gradients()
        except Exception as error:  # running out of memory is an answer too
            one.result.update(peak_bytes=None, peak_reason=said(error))


def _warm(calls: Mapping[str, Callable[[], object]], device: Device, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        for call in calls.values():
            call()
        device.synchronize()
        if time.monotonic() >= end:
            return
