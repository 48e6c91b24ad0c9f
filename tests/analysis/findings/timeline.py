"""Helpers of the tests of findings about the timeline: small programs as traces, and what is found in them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from builders import TraceBuilder
from foretrace import explain
from foretrace.model.report import Finding
from foretrace.model.sidefile import SideFile, Unprofiled

TRACES = Path(__file__).parents[2] / "data" / "traces"


def found(build: TraceBuilder, rule: str, *, unprofiled_us: float | None = None, **options) -> list[Finding]:
    """What a rule finds in a synthetic trace."""
    side = None
    if unprofiled_us is not None:
        side = SideFile(unprofiled=Unprofiled(median_us=unprofiled_us, iqr_us=1.0, runs=9, method="cuda_events"))
    return [f for f in explain(build.trace(), side=side, **options).findings if f.rule == rule]


def found_in(name: str, rule: str) -> list[Finding]:
    """What a rule finds in a real trace of tests/data."""
    return [f for f in _explained(name) if f.rule == rule]


@lru_cache
def _explained(name: str) -> list[Finding]:
    return explain(TRACES / f"{name}.json.gz").findings


def work(build: TraceBuilder, name: str, at: float, *, runs: float, after: float = 10.0, kernel: str = "some_kernel"):
    """An operator of 10 µs at ``at`` with one launch; its kernel starts ``after`` µs later and runs ``runs`` µs."""
    build.op(name, at, 10)
    launch = build.launch(at + 3, 5)
    build.kernel(kernel, at + after, runs, launch=launch)
    return launch
