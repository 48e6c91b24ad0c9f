"""Texts of the findings about the timeline: idle time, synchronization, steps, streams."""

from __future__ import annotations

from foretrace.knowledge.rule import Rule

__all__ = ["TIMELINE_RULES"]

TIMELINE_RULES: dict[str, Rule] = {}
