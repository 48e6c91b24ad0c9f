"""Shapes one after the other through one module per variant: what each takes, and which ones compile anew."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from foretrace.capture.bench.tools import Tools, said, synchronize
from foretrace.capture.variants import graphs_compiled, step_of
from foretrace.capture.workloads import Program
from foretrace.errors import ForetraceError
from foretrace.model.bench import ShapeResult, Sweep, SweepTotal
from foretrace.timing import clock_for, measure

__all__ = ["sweep"]

_RUNS = 5
_BUDGET_S = 0.2


def sweep(
    axes: Mapping[str, list[int]],
    make_with: Callable[[Mapping[str, int]], Program],
    variants: list[str],
    mode: str,
    device: str,
    seed: int,
    tools: Tools,
    say: Callable[[str], None],
) -> Sweep:
    """Run every combination of the axes' sizes, the last axis fastest, through each variant.

    Each variant begins without any graph of another. The module is made for the first shape and kept as long as
    its parameters fit the next; only the inputs change, as they do in use. A variant that fails says so and ends.
    """
    shapes = [dict(zip(axes, sizes, strict=True)) for sizes in itertools.product(*axes.values())]
    rows: list[ShapeResult] = []
    totals: list[SweepTotal] = []
    for variant in variants:
        say(f"sweep of {len(shapes)} shapes: {variant}")
        total = SweepTotal(variant=variant)
        try:
            tools.check(variant, device.partition(":")[0])
            mine = _one(shapes, make_with, variant, mode, device, seed, tools, total)
        except ForetraceError as error:
            total.reason = str(error)
            mine = []
        except (Exception, SystemExit) as error:
            total.reason = f"the program failed: {said(error)}"
            mine = []
        rows += mine
        totals.append(total)
    return Sweep(axes={name: list(sizes) for name, sizes in axes.items()}, shapes=rows, totals=totals)


def _one(
    shapes: list[dict[str, int]],
    make_with: Callable[[Mapping[str, int]], Program],
    variant: str,
    mode: str,
    device: str,
    seed: int,
    tools: Tools,
    total: SweepTotal,
) -> list[ShapeResult]:
    import torch

    torch._dynamo.reset()
    compiles = tools.compiles(variant)
    base: Program | None = None
    function: Callable[..., Any] = lambda: None  # noqa: E731  (replaced at the first shape)
    rows = []
    modules = 0
    for shape in shapes:
        torch.manual_seed(seed)
        program = replace(make_with(shape), annotation=None)
        if base is None or not _same_parameters(base.function, program.function):
            base, modules = program, modules + 1
            function = tools.transform(base.function, variant)
        program = replace(program, function=base.function)
        step = step_of(program, function, mode, graphs=tools.replays_graphs(variant))
        before = graphs_compiled() or 0
        synchronize(device)
        start = time.perf_counter_ns()
        step()
        synchronize(device)
        first = (time.perf_counter_ns() - start) / 1e3
        timing = measure(
            step,
            clock=tools.clock or clock_for(device),
            warmup=2,
            runs=_RUNS,
            budget_s=_BUDGET_S,
        )
        row = ShapeResult(
            variant=variant,
            parameters=shape,
            first_call_us=first,
            median_us=timing.median_us,
            iqr_us=timing.iqr_us,
            runs=timing.runs,
        )
        if compiles:
            row.compiles = (graphs_compiled() or 0) - before
        else:
            row.missing["compiles"] = "it is not compiled"
        rows.append(row)
    if compiles:
        total.compiles = sum(row.compiles or 0 for row in rows)
        total.setup_us = sum(max(0.0, (row.first_call_us or 0.0) - (row.median_us or 0.0)) for row in rows)
        limit = _recompile_limit()
        if limit is not None and total.compiles >= limit:
            total.notes.append(f"torch compiles a function at most {limit} times; shapes beyond that run uncompiled")
    if modules > 1:
        total.notes.append(f"the shapes need {modules} modules with parameters of their own, each compiled anew")
    return rows


def _same_parameters(a: Callable[..., Any], b: Callable[..., Any]) -> bool:
    """Whether one program can take the place of the other: no state, or parameters of the same shapes."""
    import torch

    if isinstance(a, torch.nn.Module) and isinstance(b, torch.nn.Module):
        first, second = a.state_dict(), b.state_dict()
        return {name: item.shape for name, item in first.items()} == {name: item.shape for name, item in second.items()}
    if isinstance(a, torch.nn.Module) or isinstance(b, torch.nn.Module):
        return False
    cells = [*(getattr(a, "__closure__", None) or ()), *(getattr(b, "__closure__", None) or ())]
    return not any(isinstance(cell.cell_contents, torch.Tensor | torch.nn.Module) for cell in cells)


def _recompile_limit() -> int | None:
    import torch

    config = torch._dynamo.config
    found = getattr(config, "recompile_limit", None) or getattr(config, "cache_size_limit", None)  # newer, older name
    return int(found) if found else None
