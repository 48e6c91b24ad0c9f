"""What was made of a trace that was slimmed, as data: schema ``foretrace.slim/1``."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["SCHEMA", "Slimmed"]

SCHEMA: Literal["foretrace.slim/1"] = "foretrace.slim/1"


class Slimmed(msgspec.Struct, kw_only=True):
    """The slim trace ``path``, and what of the whole one is in it.

    Sizes are bytes of the two files, ``*_events`` entries of ``traceEvents``. ``kept`` and ``dropped`` are events by
    kind: "kernel", "operator", …, or "arrow", "name", "own" (foretrace's tracks), "mark", "unread". ``steps`` are the
    labels of the steps it was cut to, empty where it was not; ``repairs`` say what was mended; ``moved`` counts the
    overlapping rows that were put on lanes of their own. ``side`` is the side file beside it, null where there is none.
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
