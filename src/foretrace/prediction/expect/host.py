"""Quantities of the CPU side: compilations, graph breaks, views, and the allocator's peak."""

from __future__ import annotations

import numpy as np

from foretrace.analysis.context import whole
from foretrace.knowledge.expectations import unknown_because
from foretrace.knowledge.kineto import RowKind, compiled_region, is_compiling
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
    context = subject.context
    trace, step = context.trace, context.attribution.step
    host = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    if not len(host):
        return unknown(unknown_because("no_operators"))
    compiling = np.array([is_compiling(name) for name in trace.names] or [False])
    rows = host[compiling[trace.name_id[host]] & (step[host] == view.step.index)].tolist()
    outer = [row for row in rows if not any(compiling[trace.name_id[up]] for up in trace.forest.ancestors(row))]
    if outer:
        return Seen(len(outer), rows=tuple(outer))
    # Without rows of the compiler: a frame that ran as one compilation before and as another one in this step.
    seen: dict[str, set[str]] = {}
    new: list[int] = []
    for row, frame, number in _regions(subject):
        known = seen.setdefault(frame, set())
        if known and number not in known and int(step[row]) == view.step.index:
            new.append(row)
        known.add(number)
    return Seen(len(new), rows=tuple(new))


def graph_breaks(subject: Subject, view: View) -> Seen:
    """Compiled frames that run in the step beyond the first one."""
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    regions = [r for r in _regions(subject) if int(subject.context.attribution.step[r[0]]) == view.step.index]
    if not regions:
        return unknown(unknown_because("no_compiled"))
    if all(frame == "?" for _, frame, _ in regions):
        return unknown(unknown_because("no_regions"))
    first: dict[str, int] = {}
    for row, frame, _ in regions:
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
    return Seen(best, rows=(at,)) if at >= 0 else unknown(unknown_because("no_memory"))


def _regions(subject: Subject) -> list[tuple[int, str, str]]:
    """Calls of compiled code in order of start: row, frame and compilation (``?`` where torch wrote no id)."""
    assert subject.context is not None
    trace = subject.context.trace
    ids = [compiled_region(name) for name in trace.names]
    named = np.array([i is not None for i in ids] or [False])
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    rows = rows[named[trace.name_id[rows]]]
    found = []
    for row in rows[np.argsort(trace.start[rows], kind="stable")].tolist():
        frame, _, number = (ids[trace.name_id[row]] or "?").partition("/")
        found.append((row, frame, number))
    return found
