"""Where the calls are made that a test makes more than its baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.integrations.pytest_plugin.measuring import Recorded
    from foretrace.model.baseline import Change

__all__ = ["places_of_change"]

_SHOWN = 3


def places_of_change(change: Change, records: Sequence[Recorded]) -> list[str]:
    """``after aten::gelu, before aten::linear``, or with stacks ``model.py:12 in forward``; one line a place."""
    from foretrace.analysis.baseline import rows_at
    from foretrace.analysis.callsites import site

    recorded = next((one for one in records if one.label == change.part), records[0])
    context = recorded.context
    found = [(path, row) for path in change.paths for row in rows_at(context, path)]
    said: dict[str, None] = {}
    for path, row in found:
        if place := site(context, row):
            said[f"{path[-1]}: {place}" if len(change.paths) > 1 else place] = None
    lines = list(said)
    if change.times and len(found) > change.times:
        lines = [f"{change.times} of these {len(found)} calls: {'; '.join(lines[:_SHOWN])}"] if lines else []
    if len(lines) > _SHOWN:
        lines = [*lines[:_SHOWN], f"{len(lines) - _SHOWN} other places"]
    return lines
