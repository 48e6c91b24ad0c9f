"""One finding about memory: a rule's text with its places filled, and from where on a size is worth one."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.knowledge.fragmentation import LEAST_BYTES, LEAST_SHARE
from foretrace.knowledge.rule import Rule
from foretrace.model.memory import MemoryFinding

__all__ = ["finding", "much"]


def finding(rules: Mapping[str, Rule], rule: str, size: int | None, **places: object) -> MemoryFinding:
    """What the rule says of ``size`` bytes (None: it is not about a size), with ``places`` filled in."""
    text = rules[rule]
    return MemoryFinding(
        rule=rule,
        severity=text.severity,
        title=text.title.format(**places),
        explanation=text.explanation.format(**places),
        suggestion=None if text.suggestion is None else text.suggestion.format(**places),
        bytes=size,
        source=text.source,
    )


def much(size: int | None, reserved: int | None) -> bool:
    """Whether so many bytes of what is reserved are worth a word."""
    return size is not None and size >= LEAST_BYTES and size >= LEAST_SHARE * (reserved or 0)
