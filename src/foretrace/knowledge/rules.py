"""What each finding says: the texts, with places for the numbers a trace supplies.

A rule's detector lives in ``analysis/findings/``; it fills the ``{places}`` and adds the events it rests on.
The texts stand in one file a topic and are joined here.
"""

from __future__ import annotations

from foretrace.knowledge.rule import Rule, Severity
from foretrace.knowledge.rules_kernels import KERNEL_RULES
from foretrace.knowledge.rules_memory import MEMORY_RULES
from foretrace.knowledge.rules_timeline import TIMELINE_RULES

__all__ = ["RULES", "Rule", "Severity"]

RULES: dict[str, Rule] = {**KERNEL_RULES, **TIMELINE_RULES, **MEMORY_RULES}
