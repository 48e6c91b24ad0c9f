"""Health checks of a slim trace: what was wrong before it was slimmed, and which of its steps it holds in part only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from foretrace.analysis.health_parts import ORDER, judged
from foretrace.model.report import WHOLE_TRACE, Health
from foretrace.model.slim import SlimNote, StepName, slim_note
from foretrace.model.words import listed, time
from foretrace.trace.steps import StepSpan
from foretrace.trace.table import Trace

__all__ = ["before_slimming", "cut_checks", "with_earlier"]

_BEFORE = "before it was slimmed: "
# Checks that a slim trace makes anew of what it says of itself.
_OWN = ("repaired", "cut_steps", "empty")
_NAMED = 3


def cut_checks(trace: Trace, steps: Sequence[StepSpan]) -> list[Health]:
    """Whether the steps are there from their start to their end; nothing of a trace that no range was cut out of."""
    note = slim_note(trace.meta)
    if note is None or note.range_us is None:
        return []
    range_ = _words(note)
    parts = [span.label for span in steps if _in_part(note, span)]
    if not parts:
        return [judged("cut_steps", "ok", f"the trace was cut to {range_}: its steps are whole", 0)]
    if parts == [WHOLE_TRACE]:
        text = f"the trace was cut to {range_}: it holds no whole step, and its numbers are those of a part"
        return [judged("cut_steps", "bad", text, 1)]
    is_not = "is not whole and its numbers are those of a part" if len(parts) == 1 else "are not whole"
    text = f"the trace was cut to {range_}: {_listed(parts)} {is_not}"
    whole = [span.label for span in trace.steps if span.row >= 0 and not _in_part(note, span)]
    if whole:
        text += f" (whole: {_listed(whole)})"
    return [judged("cut_steps", "bad", text, len(parts))]


def _in_part(note: SlimNote, span: StepSpan) -> bool:
    return note.cut_steps is None or StepName(label=span.label, process=span.pid) in note.cut_steps


def _words(note: SlimNote) -> str:
    assert note.range_us is not None
    low, high = note.range_us
    return f"the range from {time(low)} to {time(high)}"


def _listed(labels: Sequence[str]) -> str:
    rest = len(labels) - _NAMED
    return listed([*labels[:_NAMED], *([f"{rest} more"] if rest > 0 else [])])


def before_slimming(checks: Iterable[Health]) -> list[Health]:
    """Those that a slim copy must pass on, in words of the trace that it was made of."""
    return [
        Health(check=one.check, state=one.state, detail=_BEFORE + one.detail.removeprefix(_BEFORE), count=one.count)
        for one in checks
        if one.state != "ok" and one.check not in _OWN
    ]


def with_earlier(trace: Trace, checks: Sequence[Health]) -> list[Health]:
    """The checks of a slim trace, and those that were worse before it was slimmed: damage that a cut hides is there."""
    note = slim_note(trace.meta)
    now = {one.check: one.state for one in checks}
    earlier = [
        one
        for one in (note.health if note is not None else [])
        if one.check not in now or ORDER[one.state] < ORDER[now[one.check]]
    ]
    replaced = {one.check for one in earlier}
    return [*(one for one in checks if one.check not in replaced), *earlier]
