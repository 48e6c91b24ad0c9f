"""What the detectors about the CPU side share: rows of the steps, operators around a call, words for amounts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.context import stacks_recorded
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.health import trusted
from foretrace.analysis.pace import NEEDED_CHECKS, Pace, pace_of
from foretrace.knowledge.kineto import Call, RowKind, fx_graph
from foretrace.model.words import time

__all__ = [
    "calls_in_steps",
    "listed",
    "often",
    "operator_around",
    "pace",
    "per",
    "selected",
    "short",
    "steps_annotated",
    "times",
]

Int64 = NDArray[np.int64]

_NAME_LENGTH = 48


def pace(facts: Facts) -> Pace | None:
    """Who sets the pace of the steps; None without GPU work, or when the trace's idle times mean nothing."""
    if not trusted(facts.health, *NEEDED_CHECKS):
        return None
    side = facts.context.side
    unprofiled = side.unprofiled.median_us if side is not None and side.unprofiled is not None else None
    trace = facts.context.trace
    return pace_of(facts.steps, unprofiled, stacks_recorded(trace), trace.predicted)


def steps_annotated(facts: Facts) -> bool:
    """Whether the steps are the profiler's own, not the whole trace for want of any."""
    return facts.context.trace.steps[0].row >= 0


def selected(facts: Facts, rows: Int64) -> Int64:
    """Those of the CPU rows that start inside the steps the report speaks of."""
    return rows[np.isin(facts.context.attribution.step[rows], [s.index for s in facts.steps])]


def calls_in_steps(facts: Facts, *kinds: Call) -> Int64:
    """API calls of some kinds inside the steps, in order of start."""
    trace = facts.context.trace
    rows = selected(facts, np.flatnonzero(np.isin(trace.links.call, kinds)).astype(np.int64))
    return rows[np.argsort(trace.start[rows], kind="stable")]


def operator_around(facts: Facts, row: int) -> int:
    """The ATen operator a user would recognise around a call: the outermost of the unbroken ``aten::`` chain.

    ``aten::item`` for the copy inside its ``aten::_local_scalar_dense``. Python frames in between do not break the
    chain. An operator of another library is itself the answer; -1 without any.
    """
    trace = facts.context.trace
    best = -1
    for up in trace.forest.ancestors(row):
        if trace.kind[up] == RowKind.PYTHON:
            continue
        if trace.kind[up] != RowKind.OPERATOR:
            break
        if not trace.name(up).startswith("aten::"):
            return up if best < 0 else best
        best = up
    return best


def per(facts: Facts) -> str:
    """``a step``, or ``in this trace`` where the trace has no steps."""
    return "a step" if steps_annotated(facts) else "in this trace"


def often(facts: Facts, total: int) -> str:
    """How often something happens: ``3 times a step``, ``5 times in 2 steps``, ``once in this trace``."""
    steps = len(facts.context.working_steps)
    if not steps_annotated(facts) or total % steps == 0:
        count = total // steps
        return ("once" if count == 1 else f"{count:,} times") + " " + per(facts)
    return ("once" if total == 1 else f"{total:,} times") + f" in {steps} steps"


def times(count: int, word: str) -> str:
    """``1 call``, ``3 calls``."""
    return f"{count} {word}" if count == 1 else f"{count:,} {word}s"


def short(name: str, length: int = _NAME_LENGTH) -> str:
    """A row's name cut to what a title can hold; hashes of generated code to their first characters."""
    graph = fx_graph(name)
    if graph is not None:
        return f"CompiledFxGraph {graph[:8]}…"
    return name if len(name) <= length else name[: length - 1] + "…"


def listed(amounts: Iterable[tuple[str, float]], limit: int = 3) -> str:
    """The largest of named times in words: ``aten::linear 195 µs, aten::mm 64.3 µs``."""
    ranked: Sequence[tuple[str, float]] = sorted(amounts, key=lambda item: (-item[1], item[0]))
    said = [f"{short(name)} {time(us)}" for name, us in ranked[:limit]]
    if len(ranked) > limit:
        said.append(f"{len(ranked) - limit} more")
    return ", ".join(said)
