"""May these numbers be trusted, and how far.

Each check looks at one way in which recordings go wrong and says ``ok``, ``suspect`` or ``bad`` in one sentence. A
check that cannot apply (overlap of streams in a CPU-only trace) is left out. What rests on a bad check must say
``unknown``: ask ``why_not``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.health_gpu import gpu_checks
from foretrace.analysis.health_parts import ORDER, judged
from foretrace.analysis.health_slim import before_slimming, cut_checks, with_earlier
from foretrace.knowledge import thresholds
from foretrace.knowledge.formats import NANOSECONDS
from foretrace.knowledge.kineto import GPU_WORK, HOST_ROWS, RowKind, log_counts, step_number
from foretrace.model.report import Health
from foretrace.model.slim import slim_note
from foretrace.model.words import count as counted
from foretrace.trace import Trace
from foretrace.trace.steps import StepSpan

__all__ = ["check_health", "health_to_keep", "trusted", "why_not"]

_NEVER = 2**62  # ns; later than any time of a trace
# Words of repairs after which something of the recording is missing.
_LOSS = re.compile(r"cut off|skipped|damaged|dropped|missing|could not")


def check_health(trace: Trace, steps: Sequence[StepSpan] | None = None) -> list[Health]:
    """All checks that apply, bad ones first, then suspect ones, in a fixed order within each.

    ``steps`` are those whose numbers are wanted, all by default: of a slim trace that was cut through some of its
    steps, the others may be trusted. What was found when it was slimmed goes on to count.
    """
    if not len(trace):
        detail = "the recording is empty: it holds metadata of the profiler and not one event with a time"
        return [Health(check="empty", state="bad", detail=detail, count=0), *_repairs(trace)]
    checks = [*_repairs(trace), *cut_checks(trace, trace.steps if steps is None else steps), *_rows(trace)]
    checks += [*_times(trace), *_steps(trace), *_merged(trace), *_nesting(trace), *gpu_checks(trace), *_log(trace)]
    return sorted(with_earlier(trace, checks), key=lambda check: ORDER[check.state])


def health_to_keep(trace: Trace) -> list[Health]:
    """What a slim copy of a trace has to say of its health, as of the trace before it was slimmed."""
    return before_slimming(check_health(trace))


def why_not(health: Iterable[Health], *checks: str) -> str | None:
    """The sentence of the first bad check among ``checks`` (all if none is named), None when all may be trusted."""
    for one in health:
        if one.state == "bad" and (not checks or one.check in checks):
            return one.detail
    return None


def trusted(health: Iterable[Health], *checks: str) -> bool:
    """Whether none of ``checks`` (all if none is named) is bad."""
    return why_not(health, *checks) is None


def _repairs(trace: Trace) -> list[Health]:
    note = slim_note(trace.meta)
    earlier = note.repairs if note is not None else []
    repairs = [*earlier, *trace.repairs]
    if not repairs:
        return []
    state: Literal["ok", "suspect", "bad"] = "suspect" if any(map(_LOSS.search, repairs)) else "ok"
    if any("before the cut" in repair for repair in repairs):
        # Kineto writes all CPU rows before the GPU rows: what is missing is GPU work of every step, not the last step.
        state = "bad"
    said = [f"the file was mended while reading: {'; '.join(trace.repairs)}"] if trace.repairs else []
    said += [f"the trace was mended when it was slimmed: {'; '.join(earlier)}"] if earlier else []
    return [Health(check="repaired", state=state, detail=". ".join(said), count=len(repairs))]


def _rows(trace: Trace) -> list[Health]:
    """Rows the reader had to leave out or change."""
    checks = []
    _ = trace.correlation  # args that cannot be read are noticed when their ids are
    total = len(trace) + sum(trace.odd.get(why, 0) for why in ("without time", "duration beyond reason"))
    for why, name, detail in (
        ("without time", "rows_without_time", "{n} events have no usable time and were left out"),
        ("duration beyond reason", "durations_beyond_reason", "{n} events last centuries and were left out"),
        ("negative duration", "negative_durations", "{n} events end before they start; their duration counts as 0"),
        ("without duration", "rows_without_duration", "{n} events have no duration; their time is not in any sum"),
        ("begin or end without partner", "unpaired_rows", "{n} begin or end events have no partner and were left out"),
        ("args unreadable", "args_unreadable", "the details of {n} events cannot be read; they link to nothing"),
    ):
        count = trace.odd.get(why, 0)
        if count:
            state = thresholds.TIMELESS.state(count / total)
            checks.append(judged(name, state, detail.format(n=f"{count:,}"), count))
    return checks


def _times(trace: Trace) -> list[Health]:
    kind = trace.kind
    timed = np.isin(kind, (*HOST_ROWS, *GPU_WORK))
    if not timed.any():
        return []
    start, end = trace.start[timed], trace.end[timed]
    checks = []
    zero = _timeless(start, kind[timed])
    if zero:
        state = thresholds.TIMELESS.state(zero / len(start))
        moment = "time zero" if int(start.min()) == 0 else "the same moment as the first"
        text = f"{zero:,} of {len(start):,} rows start at {moment}: their times were not recorded"
        checks.append(judged("zero_timestamps", state, text, zero))
    if trace.in_nanoseconds:
        count = trace.odd[NANOSECONDS]
        text = "timestamps are nanoseconds although the format says microseconds; they were read as nanoseconds"
        checks.append(judged("timestamp_unit", "suspect", text, count))
    rows = trace.gpu_rows
    if len(rows) and not trace.predicted:  # a model has no wrong units, and a huge product may well take a second
        duration = trace.duration[rows]
        if int(np.median(duration)) > thresholds.LONG_KERNEL_NS:
            text = (
                "half of the GPU rows last longer than a second: durations look like nanoseconds read as microseconds"
            )
            checks.append(judged("duration_unit", "bad", text, int((duration > thresholds.LONG_KERNEL_NS).sum())))
        longest = _longer_than_trace(trace, rows, start, end)
        if longest >= 0:
            seconds = int(trace.duration[longest]) / 1e9
            text = f"one GPU row ({trace.name(longest)[:60]}) lasts {seconds:,.3g} s, longer than the recording"
            checks.append(judged("row_longer_than_trace", "bad", text, 1))
    return checks or [judged("timestamps", "ok", "all times are plausible", 0)]


def _timeless(start: NDArray[np.int64], kind: NDArray[np.uint8]) -> int:
    """How many rows have no time but the value of an empty field."""
    zero = int((start == 0).sum())
    if zero and int(start[start != 0].min(initial=_NEVER)) > thresholds.ZERO_TIME_AFTER_NS and zero < len(start):
        return zero
    first = start.min()
    same = start == first
    # Python frames are left out: all that were open when the recording began start with it.
    count = int((same & (kind != RowKind.PYTHON)).sum())
    if count < max(thresholds.TIMELESS_ROWS, thresholds.TIMELESS.bad * len(start)):
        return 0
    gap = int(start[~same].min(initial=_NEVER) - first)
    return count if gap > thresholds.TIMELESS_GAP_NS else 0


def _longer_than_trace(trace: Trace, rows: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]) -> int:
    """The longest GPU row if it outlasts everything else beyond reason, else -1."""
    longest = int(rows[np.argmax(trace.duration[rows])])
    duration = int(trace.duration[longest])
    frames = trace.rows(RowKind.SPAN)
    if len(frames):
        limit = int(trace.duration[frames].max())
    else:
        others = end[end != trace.end[longest]]
        limit = int(others.max() - start.min()) if len(others) else duration
        limit = max(limit, thresholds.LONG_KERNEL_NS // thresholds.LONGEST_ROW_FACTOR)
    return longest if duration > limit * thresholds.LONGEST_ROW_FACTOR else -1


def _steps(trace: Trace) -> list[Health]:
    steps = [step for step in trace.steps if step.row >= 0]
    if not steps:
        return []
    note = slim_note(trace.meta)
    if note is not None and note.cut:
        return [judged("steps", "ok", f"{counted(len(steps), 'step')} of those of the whole trace", 0)]
    numbers = sorted({n for step in steps if (n := step_number(step.label)) is not None})
    missing = numbers[-1] - numbers[0] + 1 - len(numbers) if numbers else 0
    if missing:
        text = f"{missing} of the steps {numbers[0]} to {numbers[-1]} are missing from the recording"
        return [judged("steps", "suspect", text, missing)]
    return [judged("steps", "ok", f"{counted(len(steps), 'step')}, none missing", 0)]


def _merged(trace: Trace) -> list[Health]:
    """Several recordings in one file: the same ids and step numbers in several processes."""
    calls = np.flatnonzero(trace.links.enqueues & (trace.correlation != 0))
    pid_of_lane = {lane: number for number, lane in enumerate(dict.fromkeys(lane.pid for lane in trace.lanes))}
    pids = np.array([pid_of_lane[lane.pid] for lane in trace.lanes] or [0])
    pairs = np.unique(np.stack((trace.correlation[calls], pids[trace.lane[calls]])), axis=1)
    shared = pairs.shape[1] - len(np.unique(pairs[0]))
    labels = [step.label for step in trace.steps if step.row >= 0]
    repeated = len(labels) - len(set(labels))
    if shared:
        text = f"{shared:,} correlation ids occur in several processes: recordings of several ranks were merged"
        return [judged("merged_recordings", "bad", text, shared)]
    if trace.links.ambiguous:
        text = f"{trace.links.ambiguous:,} GPU rows have several launches of the same id; the nearest one was taken"
        return [judged("merged_recordings", "suspect", text, trace.links.ambiguous)]
    if repeated:
        text = f"{repeated} step numbers occur more than once: recordings were merged or the profiler restarted"
        return [judged("merged_recordings", "suspect", text, repeated)]
    return []


def _nesting(trace: Trace) -> list[Health]:
    rows = len(trace.forest.order)
    if not rows:
        return []
    crossing = trace.forest.crossing
    state = thresholds.CROSSING.state(crossing / rows)
    text = (
        f"{crossing:,} of {rows:,} CPU rows end after the row they start in"
        if crossing
        else "all CPU rows nest properly"
    )
    return [judged("nesting", state, text, crossing)]


def _log(trace: Trace) -> list[Health]:
    """What the profiler said about itself in the file."""
    counts: dict[str, int] = {}
    for level in ("INFO", "WARNING", "ERROR"):
        lines = trace.meta.get(level)
        for line in lines if isinstance(lines, list) else []:
            for what, count in log_counts(str(line)).items():
                counts[what] = counts.get(what, 0) + count
    dropped, outside = counts.get("Dropped", 0), counts.get("Out-of-range", 0)
    said = []
    if counts.get("CUPTI stopped early?"):
        said.append("CUPTI stopped early, so that the end of the GPU work is missing")
    if dropped:
        said.append(f"{dropped:,} records were dropped because its buffers were full")
    state = "bad" if said else "suspect"
    if outside:
        said.append(f"{outside:,} GPU records outside the recorded window were dropped")
    if not said:
        return []
    return [judged("profiler_log", state, "the profiler's log says: " + "; ".join(said), dropped + outside)]
