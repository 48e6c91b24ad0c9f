"""Where the calls of an operator come from, for an expectation about their number that is broken."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from foretrace.knowledge.baseline import operator_name, taken_apart
from foretrace.knowledge.kineto import RowKind
from foretrace.model.expectations import Checked, Outcome
from foretrace.model.words import listed
from foretrace.prediction.expect.subject import matches

if TYPE_CHECKING:
    from foretrace.integrations.pytest_plugin.measuring import Recorded
    from foretrace.trace import Trace

__all__ = ["places", "places_of"]

_SHOWN = 4


def places(recorded: Recorded, checked: Checked) -> list[str]:
    """One line a broken expectation about the calls of an operator."""
    found = {o.expectation: places_of(o, recorded) for o in checked.outcomes if o.state == "broken"}
    return [f"{expectation}: {'; '.join(said)}" for expectation, said in found.items() if said]


def places_of(outcome: Outcome, recorded: Recorded) -> list[str]:
    """``2 × in aten::linear → aten::addmm``, of the last step that breaks it; empty for other expectations."""
    wanted = outcome.scope.op
    if outcome.quantity != "calls" or wanted is None:
        return []
    trace, context = recorded.trace, recorded.context
    broken = [step.index for step in outcome.steps if step.state == "broken"]
    rows = [
        row
        for row in trace.rows(RowKind.OPERATOR).tolist()
        if broken and int(context.attribution.step[row]) == broken[-1]
    ]
    called = [row for row in rows if matches(trace.name(row), wanted)]
    inside = set(called)
    called = [row for row in called if not any(up in inside for up in trace.forest.ancestors(row))]
    paths = Counter(_path(trace, row) for row in called)
    said = [f"{times} × {path}" if times > 1 else path for path, times in paths.items()]
    if len(said) > _SHOWN:
        said = [*said[:_SHOWN], f"{len(said) - _SHOWN} other places"]
    instead = taken_apart(wanted, {trace.name(row) for row in rows})
    return [*said, f"beside it {listed(instead)}, which do the same in {len(instead)} calls"] if instead else said


def _path(trace: Trace, row: int) -> str:
    """The operators around a row, outermost first, and its own name."""
    around = [up for up in trace.forest.ancestors(row) if trace.kind[up] == RowKind.OPERATOR]
    names = [operator_name(trace.name(up)) for up in (row, *around)]
    return " → ".join(name for name in reversed(names) if name is not None)
