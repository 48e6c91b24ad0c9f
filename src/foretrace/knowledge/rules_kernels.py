"""Texts of the findings about single kernels and what they hand to one another."""

from __future__ import annotations

from foretrace.knowledge.rule import Rule

__all__ = ["KERNEL_RULES"]

KERNEL_RULES: dict[str, Rule] = {
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
