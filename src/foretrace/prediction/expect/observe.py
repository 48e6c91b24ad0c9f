"""What a trace says of one quantity in one place: a number, or why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.analysis import intervals
from foretrace.analysis.health import why_not
from foretrace.analysis.pace import NEEDED_CHECKS
from foretrace.knowledge.expectations import unknown_because
from foretrace.knowledge.kernels import KINDS
from foretrace.knowledge.kineto import Call
from foretrace.knowledge.limits import COMPUTE_KINDS
from foretrace.model.report import Kernel, Transfer
from foretrace.model.sidefile import side_path
from foretrace.prediction.expect.host import graph_breaks, metadata_only, peak_memory, recompiles
from foretrace.prediction.expect.quantities import find, ratio_of
from foretrace.prediction.expect.seen import Seen, unknown
from foretrace.prediction.expect.subject import Subject, View

__all__ = ["distrusted", "observe", "untimed"]

_NAMED = 3


def observe(subject: Subject, view: View, name: str) -> Seen:
    """The value of a quantity that is a number (``kernel`` patterns and words are seen elsewhere)."""
    parts = ratio_of(name)
    if parts is not None:
        return _ratio(subject, view, *parts)
    quantity = find(name)
    assert quantity is not None
    why = distrusted(subject, gpu=quantity.gpu)
    if why is not None:
        return unknown(why)
    if view.absent is not None and name != "calls":
        return unknown(view.absent)
    if quantity.gpu and view.hidden is not None:
        return unknown(view.hidden)
    if name in KINDS:
        return _of_kernels([kernel for kernel in view.kernels if kernel.kind == name])
    if name.removesuffix("_us") in KINDS:
        chosen = [kernel for kernel in view.kernels if kernel.kind == name.removesuffix("_us")]
        return Seen(sum(kernel.duration_us for kernel in chosen), events=_events(chosen))
    return _SEEN[name](subject, view)


def distrusted(subject: Subject, *, gpu: bool) -> str | None:
    """Why nothing can be said of a quantity from this trace at all; None where something can."""
    report = subject.report
    bad = why_not(report.health, *NEEDED_CHECKS)
    if bad is not None:
        return unknown_because("health", detail=bad)
    return unknown_because("no_gpu") if gpu and not report.trace.has.gpu else None


def _ratio(subject: Subject, view: View, above: str, below: str) -> Seen:
    one, other = observe(subject, view, above), observe(subject, view, below)
    for seen in (one, other):
        if seen.value is None:
            return seen
    assert one.value is not None
    assert other.value is not None
    if not other.value:
        return unknown(unknown_because("zero_below", name=below))
    return Seen(one.value / other.value, events=one.events)


def _events(work: Iterable[Kernel | Transfer]) -> tuple[int, ...]:
    return tuple(item.event for item in work)


def _of_kernels(kernels: list[Kernel]) -> Seen:
    return Seen(len(kernels), events=_events(kernels))


def _kernels(_: Subject, view: View) -> Seen:
    return _of_kernels(view.kernels)


def _transfers(kind: str) -> Callable[[Subject, View], Seen]:
    def seen(_: Subject, view: View) -> Seen:
        if view.scope.region is not None and not view.rows:
            return unknown(unknown_because("no_trace"))
        chosen: list[Transfer] = [transfer for transfer in view.transfers if transfer.kind == kind]
        return Seen(len(chosen), events=_events(chosen))

    return seen


# Which calls each count is of, from their kinds and whether they enqueue work; arrays with one entry a call.
_CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "launches": lambda _, enqueues: enqueues,
    "kernel_launches": lambda kind, enqueues: enqueues & ~np.isin(kind, (Call.MEMCPY, Call.MEMSET)),
    "graph_launches": lambda kind, _: kind == Call.LAUNCH_GRAPH,
    "occupancy_queries": lambda kind, _: kind == Call.OCCUPANCY,
    "synchronizations": lambda kind, _: kind == Call.SYNCHRONIZE,
}
# Counts of calls that the report holds for whole steps.
_STEP_FIELDS = ("launches", "kernel_launches", "occupancy_queries", "synchronizations")


def _calls(name: str) -> Callable[[Subject, View], Seen]:
    def seen(subject: Subject, view: View) -> Seen:
        if subject.context is None:
            value = getattr(view.step, name) if name in _STEP_FIELDS and not view.scope.inner else None
            return Seen(value) if value is not None else unknown(unknown_because("no_trace"))
        if view.calls is None:
            return unknown(unknown_because("no_calls"))
        links = subject.context.trace.links
        inside = np.array(view.calls, dtype=np.int64)
        rows = inside[_CALLS[name](links.call[inside], links.enqueues[inside])].tolist()
        if name == "synchronizations":
            rows = [row for row in rows if row not in subject.context.profiler_syncs]
        return Seen(len(rows), events=tuple(subject.context.trace.event[rows].tolist()), rows=tuple(rows))

    return seen


def _scope_calls(subject: Subject, view: View) -> Seen:
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    if view.uncounted is not None:
        return unknown(view.uncounted)
    return Seen(len(view.rows), rows=tuple(view.rows))


def _gpu_busy(subject: Subject, view: View) -> Seen:
    work: list[Kernel | Transfer] = [*view.kernels, *view.transfers]
    events = _events(sorted(view.kernels, key=lambda kernel: -kernel.duration_us))
    if not view.scope.inner:
        return Seen(view.step.gpu_busy_us, events=events)
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    trace = subject.context.trace
    rows = [subject.row_of_event[item.event] for item in work]
    return Seen(intervals.union_ns(trace.start[rows], trace.end[rows]) / 1000 if rows else 0.0, events=events)


def _gpu_idle(_: Subject, view: View) -> Seen:
    return Seen(view.step.gpu_idle_us)


def _wall(subject: Subject, view: View) -> Seen:
    return _duration(subject, view) if view.scope.inner else Seen(view.step.wall_us)


def _period(_: Subject, view: View) -> Seen:
    return Seen(view.step.period_us)


def _cpu(subject: Subject, view: View) -> Seen:
    if view.scope.inner:
        return _duration(subject, view)
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    context = subject.context
    trace = context.trace
    mine = [row for row in context.operator_rows.tolist() if int(context.attribution.step[row]) == view.step.index]
    if not len(context.operator_rows):
        return unknown(unknown_because("no_operators"))
    operators = set(mine)
    outer = [row for row in mine if not any(up in operators for up in trace.forest.ancestors(row))]
    return Seen(int(trace.duration[outer].sum()) / 1000, rows=tuple(outer))


def _duration(subject: Subject, view: View) -> Seen:
    if subject.context is None:
        return unknown(unknown_because("no_trace"))
    total = int(subject.context.trace.duration[view.rows].sum()) / 1000
    return Seen(total, rows=tuple(view.rows))


def untimed(subject: Subject) -> str | None:
    """That the side file with the unprofiled timing is missing; None where it is there, or no file was read."""
    path = subject.report.trace.path
    if subject.context is None or subject.context.side is not None or path in ("", "-"):
        return None
    side = side_path(path)
    return None if side.exists() or not Path(path).is_file() else unknown_because("no_side", name=side.name)


def _unprofiled(subject: Subject, _: View) -> Seen:
    timing = subject.report.trace.unprofiled
    return Seen(timing.median_us) if timing is not None else unknown(untimed(subject) or unknown_because("no_timing"))


def _work(field: str) -> Callable[[Subject, View], Seen]:
    what = {"flops": "FLOPs", "bytes": "bytes"}[field]

    def seen(subject: Subject, view: View) -> Seen:
        # Pointwise kernels have no FLOPs: only those that multiply can lack them.
        chosen = [k for k in view.kernels if field == "bytes" or k.kind in COMPUTE_KINDS]
        # The second kernel of one product (a split-K reduction) has no FLOPs of its own.
        lacking = [k for k in chosen if getattr(k, field) is None and not k.decoded.get("role")]
        if lacking:
            if any(kernel.graph for kernel in lacking):
                return unknown(unknown_because("graph_work", count=sum(kernel.graph for kernel in lacking)))
            if not subject.report.trace.has.shapes:
                return unknown(unknown_because("no_shapes"))
            names = list(dict.fromkeys(kernel.short_name for kernel in lacking))
            shown = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            return unknown(unknown_because("uncounted", what=what, count=len(lacking), total=len(chosen), names=shown))
        return Seen(sum(getattr(kernel, field) or 0 for kernel in chosen), events=_events(chosen))

    return seen


_SEEN: dict[str, Callable[[Subject, View], Seen]] = {
    "kernels": _kernels,
    "memcpys": _transfers("memcpy"),
    "memsets": _transfers("memset"),
    **{name: _calls(name) for name in (*_STEP_FIELDS, "graph_launches")},
    "calls": _scope_calls,
    "metadata_only": metadata_only,
    "recompiles": recompiles,
    "graph_breaks": graph_breaks,
    "gpu_busy_us": _gpu_busy,
    "gpu_idle_us": _gpu_idle,
    "wall_us": _wall,
    "period_us": _period,
    "cpu_us": _cpu,
    "unprofiled_us": _unprofiled,
    "flops": _work("flops"),
    "bytes": _work("bytes"),
    "peak_memory_bytes": peak_memory,
}
