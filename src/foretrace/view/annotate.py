"""A copy of a trace with what foretrace says of it as further tracks, for the Perfetto UI.

A process "foretrace" is added, with threads "findings", "steps & verdict", "rooflines" and "predicted", and counters.
No event of the original is changed, moved or left out, and what is added is of a category of its own, which the reader
counts nowhere: the report of the copy is that of the original.

A counter of Perfetto holds its value until the next sample and cannot say "unknown". So shares of peak are slices, as
long as their kernel: where none is drawn, nothing is claimed. The counters beside them are called "(known kernels)": 0
says that no kernel of known share runs, not that the GPU reaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from foretrace.analysis.explained import explained
from foretrace.analysis.intervals import union_intervals
from foretrace.knowledge.gpus import is_bandwidth
from foretrace.knowledge.tracks import TRACK_CATEGORY
from foretrace.model.report import Finding, Kernel, Report, Step
from foretrace.model.words import UNKNOWN, count, share_of, time
from foretrace.trace.table import Trace
from foretrace.trace.writer import write_trace
from foretrace.view.annotate_predicted import predicted_slices
from foretrace.view.annotate_tracks import Slice, Tracks, held
from foretrace.view.beside import copy_side, refuse_target
from foretrace.view.raw import RawFile, open_raw

__all__ = ["write_annotated"]

_COMPUTE, _BANDWIDTH = "compute", "bandwidth"


def write_annotated(
    source: str | Path, target: str | Path, *, force: bool = False, predicted: str | Path | None = None
) -> Path:
    """Write a copy of a trace with findings, steps, rooflines and queues as tracks of their own; returns its path.

    Args:
        source: the trace; a damaged one is mended in the copy as the reader mends it. Tracks of an earlier call are
            replaced.
        target: the copy, packed where its name ends in ``.gz``. The side file of ``source`` is copied with it.
        force: replace files that exist.
        predicted: a predicted timeline of the same program, whose kernels are drawn beside the measured ones.

    Raises:
        TraceReadError: ``source`` or ``predicted`` cannot be read.
        InputError: ``predicted`` is no predicted timeline; the target must not or cannot be written.
    """
    source, target = Path(source), Path(target)
    refuse_target(source, target, force=force)
    read = explained(source)
    trace, side, report = read.trace, read.side, read.report
    raw = open_raw(trace, own=TRACK_CATEGORY)
    tracks = Tracks(trace, raw)
    if len(trace):
        row_of = dict(zip(trace.event.tolist(), range(len(trace)), strict=True))
        tracks.slices("findings", _findings(trace, report, row_of))
        tracks.slices("steps & verdict", _steps(trace, report))
        _rooflines(trace, report, row_of, tracks)
        for title, slices in predicted_slices(trace, report, side, predicted, row_of):
            tracks.slices(title, slices)
        _busy(trace, tracks)
        _queues(trace, tracks)
    meta = {str(key): value for key, value in trace.meta.items() if key != "traceEvents"}
    write_trace(target, _events(raw, tracks), meta, force=force)
    copy_side(source, target)
    return target


def _events(raw: RawFile, tracks: Tracks) -> Iterator[Any]:
    own = {*raw.own, *(mark.position for mark in raw.marks if mark.cat == TRACK_CATEGORY)}
    at = 0
    for batch in raw.batches():
        yield from batch if not own else (event for place, event in enumerate(batch, at) if place not in own)
        at += len(batch)
    yield from tracks.events()


def _findings(trace: Trace, report: Report, row_of: dict[int, int]) -> list[Slice]:
    """A slice for each row that a finding rests on; a finding without one is an instant at the beginning."""
    slices = []
    for finding in report.findings:
        args = _of_finding(finding)
        rows = [row_of[one.event] for one in finding.evidence if one.event in row_of]
        for number, row in enumerate(rows, 1):
            shown = {**args, "row": trace.name(row), "evidence": f"{number} of {len(rows)} rows shown"}
            slices.append(Slice(finding.title, int(trace.start[row]), int(trace.duration[row]), shown))
        if not rows:
            slices.append(Slice(finding.title, trace.origin, 0, args))
    return slices


def _of_finding(finding: Finding) -> dict[str, Any]:
    args: dict[str, Any] = {
        "rule": finding.rule,
        "severity": finding.severity,
        "explanation": finding.explanation,
        "suggestion": finding.suggestion,
        "source": finding.source,
        "count": finding.count,
    }
    if finding.saving_us is not None:
        most = " at most" if finding.upper_bound else ""
        args["saving"] = f"{time(finding.saving_us)} a step{most}"
    return {key: value for key, value in args.items() if value is not None}


def _steps(trace: Trace, report: Report) -> list[Slice]:
    verdict = {"verdict": report.verdict.bound, "because": report.verdict.because}
    slices = []
    for step in report.steps:
        span = trace.steps[step.index]
        said = "GPU busy unknown" if step.busy_share is None else f"GPU busy {share_of(step.busy_share)}"
        args = {**_of_step(step), **verdict}
        slices.append(Slice(f"{step.label}: {said}", span.start, round(step.period_us * 1000), args))
    return slices


def _of_step(step: Step) -> dict[str, Any]:
    args: dict[str, Any] = {
        "wall": time(step.wall_us),
        "period": time(step.period_us),
        "GPU busy (its own work)": time(step.gpu_busy_us),
        "GPU idle": time(step.gpu_idle_us),
    }
    for word in ("kernels", "memcpys", "memsets", "launches", "synchronizations"):
        value = getattr(step, word)
        args[word] = UNKNOWN if value is None else value
    if step.idle:
        cause = step.idle[0]
        args["largest cause of idle time"] = f"{time(cause.us)} {cause.cause}: {cause.detail or UNKNOWN}"
    return args


def _rooflines(trace: Trace, report: Report, row_of: dict[int, int], tracks: Tracks) -> None:
    """For each stream a thread of shares of peak, and a counter for each of the two peaks."""
    streams: dict[tuple[int | None, int | None], list[Kernel]] = {}
    for kernel in report.kernels:
        if kernel.of_peak is not None:
            streams.setdefault((kernel.device, kernel.stream), []).append(kernel)
    for (device, stream), kernels in sorted(
        streams.items(), key=lambda item: tuple(-1 if v is None else v for v in item[0])
    ):
        where = _where(device, stream)
        slices = []
        samples: dict[str, list[tuple[int, int, float]]] = {_COMPUTE: [], _BANDWIDTH: []}
        for kernel in kernels:
            row = row_of[kernel.event]
            start, duration = int(trace.start[row]), int(trace.duration[row])
            which = _BANDWIDTH if kernel.peak is not None and is_bandwidth(kernel.peak) else _COMPUTE
            slices.append(Slice(f"{share_of(kernel.of_peak)} of {which}", start, duration, _of_kernel(kernel)))
            samples[which].append((start, start + duration, round(100 * (kernel.of_peak or 0.0), 2)))
        tracks.slices(f"rooflines, {where}", slices)
        for which, spans in samples.items():
            if spans:
                tracks.counter(f"% of peak {which} (known kernels), {where}", "%", held(spans))


def _of_kernel(kernel: Kernel) -> dict[str, Any]:
    args: dict[str, Any] = {
        "kernel": kernel.short_name,
        "operator": kernel.op,
        "bound": kernel.bound,
        "peak": kernel.peak,
        "achieved TFLOP/s": None if kernel.achieved_tflops is None else round(kernel.achieved_tflops, 3),
        "achieved GB/s": None if kernel.achieved_gbps is None else round(kernel.achieved_gbps, 3),
        "FLOPs": kernel.flops,
        "least bytes": kernel.bytes,
    }
    return {key: value for key, value in args.items() if value is not None}


def _busy(trace: Trace, tracks: Tracks) -> None:
    """Of each device whether anything runs, from its first row to its last."""
    rows = trace.gpu_rows
    for device in np.unique(trace.device[rows]).tolist():
        own = rows[trace.device[rows] == device]
        starts, ends = union_intervals(trace.start[own], trace.end[own])
        samples = [*((int(end), 0.0) for end in ends), *((int(start), 1.0) for start in starts)]
        tracks.counter(f"{_where(device, None)} busy", "running", samples)


def _queues(trace: Trace, tracks: Tracks) -> None:
    """Of each stream how many rows are launched and have not started; one that starts before its launch never waits."""
    rows = trace.gpu_rows
    launch = trace.links.launch[rows]
    places = np.unique(np.stack([trace.device[rows], trace.stream[rows]]), axis=1).T.tolist() if len(rows) else []
    for device, stream in places:
        here = (trace.device[rows] == device) & (trace.stream[rows] == stream)
        own, calls = rows[here & (launch >= 0)], launch[here & (launch >= 0)]
        waits = trace.start[calls] < trace.start[own]
        own, calls = own[waits], calls[waits]
        if not len(own):
            continue
        moments = np.concatenate([trace.start[calls], trace.start[own]])
        change = np.repeat(np.array([1, -1]), len(own))
        order = np.argsort(moments, kind="stable")
        depth = np.cumsum(change[order])
        loose = int((here & (launch < 0)).sum())
        name = f"queue depth, {_where(device, stream)}"
        if loose:
            name += f" (without {count(loose, 'row')} of unknown launch)"
        tracks.counter(name, "rows", list(zip(moments[order].tolist(), depth.tolist(), strict=True)))


def _where(device: int | None, stream: int | None) -> str:
    gpu = "GPU" if device is None or device < 0 else f"GPU {device}"
    return gpu if stream is None or stream < 0 else f"{gpu} stream {stream}"
