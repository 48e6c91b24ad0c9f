"""What each finding says: the texts, with places for the numbers a trace supplies.

A rule's detector lives in ``analysis/findings/``; it fills the ``{places}`` and adds the events it rests on. The
texts say what was seen, why it is so, and what would change it, in that order.
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["RULES", "Rule"]


Severity = Literal["info", "note", "warning"]


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule of the knowledge base; ``source`` says where the fact comes from."""

    severity: Severity
    title: str
    explanation: str
    suggestion: str | None = None
    source: str | None = None


RULES: dict[str, Rule] = {
    "hbm_round_trip": Rule(
        severity="note",
        title="{chain}: {megabytes} of intermediates go out to memory and back",
        explanation="Each of these kernels reads its inputs from memory and writes its result back, and the next one "
        "reads it again. Run as one kernel the intermediate would stay in registers: {megabytes} less traffic, "
        "which at the {rate} these kernels reach is {saving} a step. That the result of one is the input of the "
        "next is inferred from shapes and order; a trace records no tensor identities.{training}",
        suggestion="torch.compile, or a fused kernel, joins pointwise operators like these into one.",
        source="bytes counted from the recorded shapes, each operand read once and each result written once",
    ),
}
