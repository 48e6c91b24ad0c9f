"""Which pointwise works a finding of its own accounts for, so that no saving is promised twice."""

from __future__ import annotations

from foretrace.analysis.findings.attention import inner_works
from foretrace.analysis.findings.bias import lost_biases
from foretrace.analysis.findings.facts import Facts

__all__ = ["claimed", "lost"]


def lost(facts: Facts) -> set[int]:
    """``id`` of the works that add a bias which an epilogue could have taken."""
    return {id(bias.work) for bias in lost_biases(facts) if bias.work.kind != "gemm"}


def claimed(facts: Facts) -> set[int]:
    """``id`` of the works of lost biases and of unfused attention."""
    return facts.once(lost) | {id(work) for work in inner_works(facts)}
