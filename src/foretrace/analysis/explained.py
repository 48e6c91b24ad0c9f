"""A trace read and explained, with what that was made of, for what is asked of it next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foretrace.analysis.context import Context
from foretrace.analysis.explain import report_from
from foretrace.analysis.findings import DETECTORS, Detector
from foretrace.model.report import Report
from foretrace.model.sidefile import SideFile, read_side
from foretrace.trace.load import load
from foretrace.trace.steps import select_steps
from foretrace.trace.table import Trace

__all__ = ["Explained", "explained"]


@dataclass(frozen=True)
class Explained:
    """A report and what it was made of.

    Attributes:
        trace: the trace.
        side: what lies beside it; None where there is none, or none that can be used.
        report: what is said of it.
        steps: positions of the steps the report speaks of; None: all.
        context: what the passes shared; later ones take it, so that nothing is worked out twice.
    """

    trace: Trace
    side: SideFile | None
    report: Report
    steps: list[int] | None
    context: Context


def explained(
    path: str | Path,
    *,
    steps: Sequence[int | str] = (),
    what: str = "a step is",
    detectors: Sequence[Detector] = DETECTORS,
) -> Explained:
    """Read a trace (``-``: standard input) and its side file, and explain it.

    Args:
        path: the trace.
        steps: the steps to speak of, by position or label; none: all.
        what: what names a step, for the error (see `select_steps`).
        detectors: those of the findings that are wanted.

    Raises:
        TraceReadError: the path holds no readable trace.
        InputError: a step that the trace does not have.
    """
    trace = load(path)
    side = None if str(path) == "-" else read_side(path)
    selected = select_steps(trace.steps, steps, what=what) if steps else None
    context = Context(trace=trace, side=side, selected=selected)
    return Explained(trace, side, report_from(context, detectors), selected, context)
