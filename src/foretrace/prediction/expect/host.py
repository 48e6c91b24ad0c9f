"""Quantities of the CPU side: compilations, graph breaks, views, and the allocator's peak."""

from __future__ import annotations

import numpy as np

from foretrace.analysis.context import whole
from foretrace.knowledge.expectations import unknown_because
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.views import effect
from foretrace.prediction.expect.seen import Seen, unknown
from foretrace.prediction.expect.subject import Subject, View

__all__ = ["graph_breaks", "metadata_only", "peak_memory", "recompiles"]

# ``Device Type`` of Kineto's allocator rows (c10/core/DeviceType.h): 1 is CUDA and, in its builds, HIP.
_GPU_DEVICE = 1


def recompiles(subject: Subject, view: View) -> Seen:
    """Compilations in the step: rows of the compiler, else regions whose compilation is new in this trace.

    The first compilation of a cold trace counts too: the step holds compile time either way.
    """
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    if not len(subject.context.trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)):
        return unknown(unknown_because("no_operators"))
    outer = subject.compiled.compiling.get(view.step.index)
    # Without rows of the compiler: a frame that ran as one compilation before and as another one in this step.
    rows = outer or subject.compiled.renewed.get(view.step.index, [])
    return Seen(len(rows), rows=tuple(rows))


def graph_breaks(subject: Subject, view: View) -> Seen:
    """Compiled frames that run in the step beyond the first one."""
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    regions = subject.compiled.regions.get(view.step.index)
    if not regions:
        return unknown(unknown_because("no_compiled"))
    if all(frame == "?" for _, frame in regions):
        return unknown(unknown_because("no_regions"))
    first: dict[str, int] = {}
    for row, frame in regions:
        if frame != "?":
            first.setdefault(frame, row)
    rows = tuple(first.values())
    return Seen(len(first) - 1, rows=rows if len(rows) > 1 else ())


def metadata_only(subject: Subject, view: View) -> Seen:
    """Operators that changed only sizes and strides: views by definition, or as seen where they may copy."""
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    context = subject.context
    trace, step = context.trace, context.attribution.step
    operators = context.operator_rows
    if not len(operators):
        return unknown(unknown_because("no_operators"))
    if any(kernel.graph for kernel in view.kernels):
        return unknown(unknown_because("graph_hides_operators"))
    may = np.array([effect(name) in ("view", "maybe") for name in trace.names] or [False])
    rows = operators[may[trace.name_id[operators]] & (step[operators] == view.step.index)].tolist()
    if view.scope.inner:
        kept = set(view.rows)
        rows = [row for row in rows if row in kept or any(up in kept for up in trace.forest.ancestors(row))]
    launching = subject.launching
    quiet = tuple(row for row in rows if row not in launching)
    return Seen(len(quiet), rows=quiet)


def peak_memory(subject: Subject, view: View) -> Seen:
    """The most bytes that were allocated on a GPU at once while the view ran (its CPU time)."""
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    context = subject.context
    trace = context.trace
    rows = trace.rows(RowKind.MEMORY)
    if not len(rows):
        return unknown(unknown_because("no_memory"))
    spans = [(int(trace.start[row]), int(trace.end[row])) for row in view.rows]
    if not view.scope.inner:
        spans = [(s.start, s.end) for s in trace.steps if s.index == view.step.index]
    start = trace.start[rows]
    best, at = -1, -1
    for low, high in spans:
        for row in rows[(start >= low) & (start <= high)].tolist():
            args = trace.args(row)
            total = whole(args.get("Total Allocated"))
            if args.get("Device Type") == _GPU_DEVICE and total is not None and total > best:
                best, at = total, row
    if at >= 0:
        return Seen(best, rows=(at,))
    on_gpu = any(trace.args(row).get("Device Type") == _GPU_DEVICE for row in rows.tolist())
    return unknown(unknown_because("no_allocation" if on_gpu else "no_gpu_memory"))
