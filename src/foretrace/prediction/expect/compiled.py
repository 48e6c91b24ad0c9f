"""Where compiled code ran and where it was compiled, step by step; worked out once a trace."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foretrace.analysis.context import Context
from foretrace.knowledge.kineto import RowKind, compiled_region, is_compiling

__all__ = ["Compiled", "compiled_of"]


@dataclass(frozen=True)
class Compiled:
    """Rows by the step they ran in, in order of start.

    ``compiling``: outermost rows of the compiler. ``regions``: calls of compiled code with their frame (``?`` where
    torch wrote no id). ``renewed``: those of a frame that ran as another compilation before.
    """

    compiling: dict[int, list[int]] = field(default_factory=dict)
    regions: dict[int, list[tuple[int, str]]] = field(default_factory=dict)
    renewed: dict[int, list[int]] = field(default_factory=dict)


def compiled_of(context: Context) -> Compiled:
    """What a trace says of its compiler; time linear in its rows."""
    found = Compiled()
    trace, step = context.trace, context.attribution.step
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    rows = rows[np.argsort(trace.start[rows], kind="stable")]
    compiling = np.array([is_compiling(name) for name in trace.names] or [False])
    for row in rows[compiling[trace.name_id[rows]]].tolist():
        if not any(compiling[trace.name_id[up]] for up in trace.forest.ancestors(row)):
            found.compiling.setdefault(int(step[row]), []).append(row)
    ids = [compiled_region(name) for name in trace.names]
    named = np.array([i is not None for i in ids] or [False])
    seen: dict[str, set[str]] = {}
    for row in rows[named[trace.name_id[rows]]].tolist():
        frame, _, number = (ids[trace.name_id[row]] or "?").partition("/")
        found.regions.setdefault(int(step[row]), []).append((row, frame))
        known = seen.setdefault(frame, set())
        if known and number not in known:
            found.renewed.setdefault(int(step[row]), []).append(row)
        known.add(number)
    return found
