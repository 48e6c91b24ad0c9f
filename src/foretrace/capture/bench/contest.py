"""The whole bench: variants made ready, timed in turn, held against a float64 reference and the device's limits."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from foretrace.capture.bench.contestant import Contestant, captured, prepare
from foretrace.capture.bench.flushing import decide
from foretrace.capture.bench.limits import drifted, measure_again, measure_limits
from foretrace.capture.bench.load import under_load
from foretrace.capture.bench.outcome import compare, note_timing
from foretrace.capture.bench.reference import make_yardstick
from foretrace.capture.bench.sweep import sweep
from foretrace.capture.bench.tools import Tools, cold_caches, copy_of, quiet_compiler
from foretrace.capture.bench.work import count_work, hold_against
from foretrace.capture.surroundings import describe
from foretrace.capture.variants import MODES, step_of
from foretrace.capture.workloads import Program
from foretrace.errors import CaptureError, ForetraceError, InputError
from foretrace.model.bench import Bench, Limits, Work
from foretrace.model.sidefile import SideFile
from foretrace.timing import clock_for, interleave
from foretrace.timing.limits import Limit

__all__ = ["Request", "run_bench"]

# Without --rounds: at least as many, and more while the rounds stay within the budget.
_LEAST_ROUNDS = 10
_MOST_ROUNDS = 200
_BUDGET_S = 4.0


@dataclass(frozen=True)
class Request:
    """What to bench. ``rounds`` and ``flush``: ``None`` leaves the choice to foretrace."""

    workload: str
    make: Callable[[], Program]
    make_with: Callable[[Mapping[str, int]], Program]
    device: str
    variants: tuple[str, ...]
    mode: str = "forward"
    seed: int = 0
    rounds: int | None = None
    cuda_graph: bool = False
    flush: bool | None = None
    sweep: Mapping[str, list[int]] = field(default_factory=dict)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    command: list[str] | None = None


def run_bench(request: Request, *, tools: Tools | None = None, say: Callable[[str], None] = lambda _: None) -> Bench:
    """Time the variants and check them; a variant that fails or is wrong says so in its result.

    ``say`` gets one line of progress at a time. Raises :class:`InputError` for what cannot be asked, and
    :class:`CaptureError` when the program itself fails, or every variant.
    """
    tools = tools or Tools()
    if request.mode not in MODES:
        raise InputError(f"--mode {request.mode} is not known; choose from {', '.join(MODES)}")
    if request.rounds is not None and request.rounds < 1:
        raise InputError(f"--rounds must be at least 1, not {request.rounds}")
    if not request.variants:
        raise InputError("no variant was given to time")
    compiling = any(tools.compiles(variant) for variant in request.variants)
    caches = cold_caches() if compiling else contextlib.nullcontext(lambda: None)
    with caches as empty_caches, quiet_compiler():
        return _run(request, tools, say, empty_caches)


def _run(request: Request, tools: Tools, say: Callable[[str], None], empty_caches: Callable[[], None]) -> Bench:
    device, mode = request.device, request.mode
    start_us = _start(request, tools, say)
    contestants, work, limits, again = _ready(request, tools, say, empty_caches)
    calls = {item.result.name: item.call for item in contestants if item.call is not None}
    if not calls:
        raise CaptureError("; ".join(f"{item.result.name}: {item.result.reason}" for item in contestants))

    clock = tools.clock or clock_for(device)
    flush, flushing = decide(request.flush, device, work, list(calls.values()))
    say(f"timing {len(calls)} of {len(contestants)}, in turn")
    timings = interleave(
        calls,
        clock=clock,
        warmup=2,
        runs=request.rounds or _LEAST_ROUNDS,
        budget_s=0.0 if request.rounds else _BUDGET_S,
        max_runs=request.rounds or _MOST_ROUNDS,
        before=flush,
    )
    load = under_load(next(iter(calls.values())), device)
    measure_again(limits, again)
    hold_against(work, limits)

    results = [item.result for item in contestants]
    for result in results:
        if result.name in timings:
            note_timing(result, timings[result.name], work, compiled=tools.compiles(result.variant))
    compare(results)
    bench = Bench(
        command=request.command,
        workload=request.workload,
        parameters=dict(request.parameters),
        mode=mode,
        device=device,
        seed=request.seed,
        method=clock.method,
        rounds=len(next(iter(timings.values())).samples_us),
        variants=results,
        flush=flushing,
        limits=limits,
        work=work,
        load=load,
        compiler_start_us=start_us,
        warnings=[result.missing.pop("note") for result in results if "note" in result.missing],
    )
    bench.warnings += drifted(limits)
    if load.slowed_by:
        bench.warnings.append(f"the GPU's clocks were held down by {' and '.join(load.slowed_by)}")
    if request.sweep:
        del contestants, calls  # their memory is needed
        names = list(dict.fromkeys(request.variants))
        bench.sweep = sweep(request.sweep, request.make_with, names, mode, device, request.seed, tools, say)
    _describe(bench)
    return bench


def _ready(
    request: Request, tools: Tools, say: Callable[[str], None], empty_caches: Callable[[], None]
) -> tuple[list[Contestant], Work, Limits, list[Limit]]:
    """Everything up to the timing: the reference, the work, the variants, and the limits."""
    import torch

    device, mode = request.device, request.mode
    torch._dynamo.reset()  # once: the variants that follow must keep their graphs until the end
    torch.manual_seed(request.seed)
    # Without its annotation, which is for traces and costs host time in every call.
    master = replace(request.make(), annotation=None)
    _refuse_early(master, request, tools, say)
    say("checking against float64")
    yardstick = make_yardstick(master, mode, request.seed)
    work = count_work(master, step_of(master, master.function, mode), mode)
    plain: list[Contestant] = []
    for variant in request.variants:
        say(f"{variant}: compiling" if tools.compiles(variant) else f"{variant}: first calls")
        if tools.compiles(variant):
            empty_caches()  # none profits from what another compiled
        torch.manual_seed(request.seed)
        plain.append(prepare(lambda: copy_of(master), variant, mode, device, yardstick, tools))
    say("measuring the GEMM rate and the bandwidth")
    limits, again = measure_limits(device, work, tools.clock, wanted=tools.limits)
    if not request.cuda_graph:
        return plain, work, limits, again
    both = [item for one in plain for item in (one, captured(one, mode, device, yardstick, tools))]
    return both, work, limits, again


def _refuse_early(program: Program, request: Request, tools: Tools, say: Callable[[str], None]) -> None:
    """Raise :class:`InputError` where a variant has nothing to replace and none is left to hold against another."""
    device = request.device.partition(":")[0]
    refused: dict[str, str] = {}
    left = 0
    for variant in dict.fromkeys(request.variants):
        try:
            tools.check(variant, device)
        except ForetraceError:
            continue  # its result will say so
        reason = tools.refuses(program.function, variant)
        if reason is None:
            left += 1
            continue
        say(f"{variant}: {reason}")
        refused[variant] = reason
    if refused and left < 2:
        raise InputError("; ".join(refused.values()))


def _start(request: Request, tools: Tools, say: Callable[[str], None]) -> float | None:
    """Get the compiler ready, so that no variant's compile time holds what is done once; µs, or ``None``."""
    if not any(tools.compiles(variant) for variant in request.variants):
        return None
    say("starting the compiler")
    start = time.perf_counter_ns()
    try:
        tools.start_compiler(request.device)
    except Exception:  # the variants will say why they cannot be compiled
        return None
    return (time.perf_counter_ns() - start) / 1e3


def _describe(bench: Bench) -> None:
    side = SideFile(command=bench.command)
    describe(side)
    bench.created, bench.command = side.created, side.command
    bench.software, bench.machine, bench.gpus = side.software, side.machine, side.gpus
    bench.missing.update(side.missing)
    if bench.compiler_start_us is None:
        bench.missing["compiler_start_us"] = "nothing was compiled"
