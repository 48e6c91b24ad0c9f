"""The tables of the whole trace: its events as they are, and its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.analysis.tables.frames import labels_of, shaped, shared_texts
from foretrace.knowledge.tables import STEP_LABEL

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.context import Context
    from foretrace.model.report import Step

__all__ = ["arguments", "event_table", "step_table"]

_PHASES = ("forward", "backward", "optimizer", "other")


def event_table(context: Context) -> polars.DataFrame:
    """The table ``events``: ``Trace.events`` with the labels of steps, of the selected steps."""
    events = context.trace.events
    columns = {name: events[name] for name in events.columns}
    frame = shaped("events", columns | {STEP_LABEL.name: labels_of(context.trace, events["step"])})
    return frame if context.selected is None else frame.filter(_of_steps(context))


def arguments(context: Context) -> polars.Series:
    """The arguments of each row of ``event_table`` as JSON text, mended where the file's are damaged."""
    trace = context.trace
    rows = range(len(trace)) if context.selected is None else np.flatnonzero(_of_steps(context)).tolist()
    encode = msgspec.json.Encoder().encode
    return shared_texts(_text(encode(trace.args(row))) if trace.arguments[row] else None for row in rows).alias("args")


def _text(encoded: bytes) -> str:
    return encoded.decode("utf-8", "replace")


def step_table(steps: Sequence[Step]) -> polars.DataFrame:
    """The table ``steps``, one row a step of the report."""
    data: dict[str, object] = {
        "step": [step.index for step in steps],
        "label": shared_texts(step.label for step in steps),
        "idle_cause": shared_texts(step.idle[0].cause if step.idle else None for step in steps),
        "idle_cause_us": [step.idle[0].us if step.idle else None for step in steps],
    }
    for name in (
        *("start_us", "wall_us", "period_us", "gpu_busy_us", "gpu_idle_us", "kernels", "memcpys", "memsets"),
        *("launches", "kernel_launches", "occupancy_queries", "synchronizations"),
    ):
        data[name] = [getattr(step, name) for step in steps]
    for phase in _PHASES:
        data[f"{phase}_us"] = [
            next((part.gpu_us for part in step.phases or [] if part.phase == phase), None) for step in steps
        ]
    return shaped("steps", data)


def _of_steps(context: Context) -> NDArray[np.bool_]:
    from foretrace.trace.steps import steps_of_rows

    return np.isin(steps_of_rows(context.trace), [span.index for span in context.steps])
