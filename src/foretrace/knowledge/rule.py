"""The shape of one rule of the knowledge base; the rules themselves are in ``rules.py`` and its parts."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Rule", "Severity"]

Severity = Literal["info", "note", "warning"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the knowledge base; ``source`` says where the fact comes from.

    The texts hold ``{places}`` for the numbers a trace supplies. They say what was seen, why it is so, and
    what would change it, in that order.
    """

    severity: Severity
    title: str
    explanation: str
    suggestion: str | None = None
    source: str | None = None
    upper_bound: bool = False  # the saving is the time of what vanishes, all else as it is: the most it can be
