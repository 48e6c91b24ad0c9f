"""What was made of a slimmed trace, as data (schema ``foretrace.slim/1``), and what the slim trace says itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from foretrace.knowledge.slimming import SLIM_KEY
from foretrace.model.report import Health

__all__ = ["SCHEMA", "SlimNote", "Slimmed", "StepName", "slim_note"]

SCHEMA: Literal["foretrace.slim/1"] = "foretrace.slim/1"


class Slimmed(msgspec.Struct, kw_only=True):
    """The slim trace ``path``, and what of the whole one is in it.

    Sizes are bytes of the two files, ``*_events`` entries of ``traceEvents``. ``kept`` and ``dropped`` are events by
    kind: "kernel", "operator", …, or "arrow", "name", "own" (foretrace's tracks), "mark", "unread". ``steps`` are the
    labels of the steps it was cut to, empty where it was not; ``cut_steps`` those of which it holds a part only;
    ``repairs`` say what was mended; ``moved`` counts the overlapping rows that were put on lanes of their own. ``side``
    is the side file beside it, null where there is none.
    """

    schema: Literal["foretrace.slim/1"] = SCHEMA
    path: str
    before_bytes: int
    after_bytes: int
    before_events: int
    after_events: int
    kept: dict[str, int]
    dropped: dict[str, int]
    steps: list[str] = []
    repairs: list[str] = []
    moved: int = 0
    side: str | None = None
    cut_steps: list[str] = []


class StepName(msgspec.Struct, kw_only=True, frozen=True):
    """A step as a trace tells it from others: merged ranks repeat labels, but not in one process."""

    label: str
    process: int | str | None = None


class SlimNote(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a slim trace says under ``SLIM_KEY`` of the trace that it was made of.

    Attributes:
        dropped: parts, of ``knowledge.slimming.DROPPABLE``, that were there and were left out.
        steps: labels of the steps that it was cut to; none where it was not cut to steps.
        range_us: the range that it was cut to, µs since the first CPU or GPU row of the trace; None: to none.
        marks: steps of which only the start is there, since the period of the one before ends at it.
        cut_steps: steps that the range cut through, so that a part of them is missing. None: not known.
        repairs: what was mended when it was read to be slimmed.
        recorded: "gpu" and "calls": that GPU work and API calls were recorded, of which a kept step may hold none.
        health: the checks that were not ``ok`` then. A cut can take away what showed the damage, and not the damage.
    """

    dropped: list[str]
    steps: list[str] = []
    range_us: tuple[float, float] | None = None
    marks: list[StepName] = []
    cut_steps: list[StepName] | None = None
    repairs: list[str] = []
    recorded: list[str] = []
    health: list[Health] = []

    @property
    def cut(self) -> bool:
        """Whether it was cut to steps or to a range, and not only that parts went."""
        return bool(self.steps) or self.range_us is not None


def slim_note(meta: Mapping[str, Any]) -> SlimNote | None:
    """What a trace's top-level keys say of its slimming; None: nothing. A field that cannot be read is left out."""
    said = meta.get(SLIM_KEY)
    if not isinstance(said, Mapping):
        return None
    found: dict[str, Any] = {"dropped": []}
    for field in msgspec.structs.fields(SlimNote):
        if field.name in said:
            try:
                found[field.name] = msgspec.convert(said[field.name], field.type)
            except msgspec.ValidationError:
                continue
    return SlimNote(**found)
