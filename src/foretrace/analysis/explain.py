"""``explain``: every pass in order, one ``Report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foretrace.analysis.chain import dispatch_chain, representative_step
from foretrace.analysis.context import Context, has_stacks, stacks_recorded, whole
from foretrace.analysis.costs import KernelCosts
from foretrace.analysis.findings import DETECTORS, Detector, find_all
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.health import check_health
from foretrace.analysis.kernels import coverage, elementwise, gemms, groups, kernel_reports, transfer_reports
from foretrace.analysis.memory import trace_memory
from foretrace.analysis.operators import operator_table
from foretrace.analysis.steps import step_reports
from foretrace.analysis.verdict import verdict
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.slimming import LEFT_OUT
from foretrace.model.prediction import read_prediction
from foretrace.model.report import Has, Report, Timing, TraceInfo
from foretrace.model.sidefile import SideFile
from foretrace.model.slim import SlimNote, slim_note
from foretrace.trace.load import load
from foretrace.trace.table import Trace

__all__ = ["explain", "report_from", "report_of"]


def explain(trace: Trace | str | Path, *, steps: Sequence[int] | None = None, side: SideFile | None = None) -> Report:
    """Explain a trace.

    Args:
        trace: a ``Trace``, or the path of one (its side file is then read too, if there is one).
        steps: positions of the steps to speak of (0 is the first); all by default.
        side: what was recorded beside the trace, such as the unprofiled timing.

    Raises:
        TraceReadError: the path holds no readable trace.
        InputError: a step that the trace does not have.
    """
    if not isinstance(trace, Trace):
        if side is None:
            from foretrace.model.sidefile import read_side

            side = read_side(trace)
        trace = load(trace)
    return report_of(trace, steps=steps, side=side)


def report_of(
    trace: Trace,
    *,
    steps: Sequence[int] | None = None,
    side: SideFile | None = None,
    detectors: Sequence[Detector] = DETECTORS,
) -> Report:
    """``explain`` of a loaded trace; ``detectors``: those of its findings that are wanted, which take a third of it."""
    return report_from(Context(trace=trace, side=side, selected=None if steps is None else list(steps)), detectors)


def report_from(context: Context, detectors: Sequence[Detector] = DETECTORS) -> Report:
    """``report_of`` what is shared already, for whoever asks more of it afterwards."""
    trace = context.trace
    costs = KernelCosts(context)
    health = check_health(trace, context.steps)
    step_list, gaps = step_reports(context)
    kernels = kernel_reports(context, costs)
    info = _trace_info(context)
    operators = operator_table(context, costs)
    facts = Facts(context=context, costs=costs, steps=step_list, kernels=kernels, health=health, operators=operators)
    facts.memory = memory = trace_memory(facts)
    return Report(
        trace=info,
        steps=step_list,
        kernels=kernels,
        transfers=transfer_reports(context),
        groups=groups(kernels, len(context.working_steps)),
        operators=operators,
        gemms=gemms(context, kernels, costs),
        elementwise=elementwise(kernels),
        chain=dispatch_chain(context, step_list[representative_step(step_list)].index) if step_list else [],
        gaps=gaps,
        findings=find_all(facts, detectors),
        verdict=verdict(context, step_list, kernels, health, info.unprofiled, stacks_recorded(trace)),
        coverage=coverage(context, kernels),
        health=health,
        prediction=read_prediction(trace.meta),
        memory=memory,
    )


def _trace_info(context: Context) -> TraceInfo:
    trace, side = context.trace, context.side
    note = slim_note(trace.meta)
    timing = None
    if side is not None and side.unprofiled is not None:
        u = side.unprofiled
        timing = Timing(median_us=u.median_us, iqr_us=u.iqr_us, runs=u.runs, method=u.method)
    version = trace.meta.get("pytorch_version") or trace.meta.get("torch_version")
    return TraceInfo(
        path=trace.path,
        format=trace.format,
        events=trace.total_events,
        torch_version=version if isinstance(version, str) else (side.software.torch if side else None),
        gpus=context.gpus,
        repairs=[*(note.repairs if note else []), *trace.repairs],
        warnings=_warnings(context, note),
        has=Has(
            shapes=context.has_shapes,
            stacks=has_stacks(trace),
            gpu=context.has_gpu,
            memory=bool(np.any(trace.kind == RowKind.MEMORY)),
            graphs=bool(trace.links.graph.any()),
        ),
        rank=_rank(trace),
        predicted=trace.predicted,
        unprofiled=timing,
    )


def _rank(trace: Trace) -> int | None:
    info = trace.meta.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return whole(rank)


def _warnings(context: Context, note: SlimNote | None) -> list[str]:
    """Why some numbers of the report are unknown."""
    trace = context.trace
    said: list[str] = []
    if not context.has_gpu:
        said.append("no kernel, copy or memset was recorded: every GPU number is unknown")
    elif not context.datasheets:
        names = ", ".join(g.name or "unnamed" for g in context.gpus) or "no device is named in the trace"
        said.append(f"no datasheet for the GPU ({names}): shares of peak and bounds are unknown")
    said += _left_out(context, note)
    if context.has_gpu and not context.has_shapes and (note is None or "shapes" not in note.dropped):
        said.append("operator shapes were not recorded (record_shapes=True): FLOPs and bytes are unknown")
    if not context.has_calls and context.has_gpu:
        said.append("no API calls were recorded: launches and synchronizations are unknown")
    if len(trace) and trace.steps[0].row < 0:
        said.append("the trace has no profiler steps: the whole of it is reported as one step")
    idle = [span.label for span in context.steps if span.index not in context.working_steps]
    if idle:
        why = "holds no work" if note and note.cut else "holds no work (the loop ended before it)"
        said.append(f"{', '.join(idle[:3])} {why}: per-step numbers leave it out")
    if trace.links.graph.any():
        said.append(
            "kernels replayed by a CUDA graph have no operators or shapes: those ran when the graph was captured"
        )
    return said


def _left_out(context: Context, note: SlimNote | None) -> list[str]:
    """What `foretrace slim` took out, by the option that recorded it: to record it again would be no help."""
    gone = set(note.dropped) if note is not None else set()
    trace = context.trace
    there = {
        "shapes": context.has_shapes,
        "stacks": has_stacks(trace),
        "memory": bool(np.any(trace.kind == RowKind.MEMORY)),
    }
    said = [
        f"{what} were recorded ({option}) and left out by `foretrace slim`{unknown}"
        for part, what, option, unknown in LEFT_OUT
        if part in gone and not there[part]
    ]
    if trace.meta.get("with_stack") and "stacks" not in gone and not there["stacks"]:
        said.append("source lines were asked for (with_stack=True), and none are in the file")
    return said
