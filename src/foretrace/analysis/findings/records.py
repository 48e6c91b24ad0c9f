"""What was not recorded although the report could have used it, and the option that records it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import selected, steps_annotated
from foretrace.knowledge.blocking import is_communication_owner
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.rules_timeline import RECORD_OPTIONS
from foretrace.model.report import Finding

__all__ = ["find"]


def find(facts: Facts) -> Iterable[Finding]:
    """At most one finding.

    Missing shapes, steps, GPU rows and API calls are warnings of the trace already and not repeated here.
    """
    context = facts.context
    trace = context.trace
    if not context.has_gpu or trace.predicted:
        return
    missing = []
    if not len(trace.rows(RowKind.OPERATOR)):
        missing.append("operators")
    elif not np.any(trace.kind == RowKind.PYTHON) and _has_line_to_name(facts):
        missing.append("stacks")
    if len(trace.steps) == 1 and steps_annotated(facts):
        missing.append("steps")
    if not missing:
        return
    yield facts.finding(
        "missing_records",
        [],
        count=len(missing),
        what=" and ".join(RECORD_OPTIONS[name][0] for name in missing),
        why=" ".join(RECORD_OPTIONS[name][1] for name in missing),
        how="; ".join(RECORD_OPTIONS[name][2] for name in missing),
    )


def _has_line_to_name(facts: Facts) -> bool:
    """Whether the user's own code waits for the GPU inside the steps."""
    trace = facts.context.trace
    rows = selected(facts, facts.context.blocking).tolist()
    return any(
        row not in facts.context.profiler_syncs
        and not any(is_communication_owner(trace.name(up)) for up in trace.forest.ancestors(row))
        for row in rows
    )
