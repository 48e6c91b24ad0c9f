"""Findings: one detector a rule, each a pure function from ``Facts`` to findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from foretrace.analysis.findings import (
    allocator,
    attention,
    bias,
    communication,
    compiled,
    copies,
    cpu_work,
    epilogues,
    first_step,
    graphs,
    idle_time,
    launches,
    memory,
    memsets,
    optimizer,
    precision,
    profiler,
    quiet,
    records,
    round_trips,
    small,
    synchronization,
    utilisation,
)
from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import pace
from foretrace.analysis.health import trusted
from foretrace.analysis.pace import NEEDED_CHECKS
from foretrace.knowledge.limits import UPPER_BOUND_WEIGHT
from foretrace.model.report import Finding

__all__ = ["DETECTORS", "Detector", "find_all"]

Detector = Callable[[Facts], Iterable[Finding]]

# A new rule: its text in knowledge/rules.py, its detector in a file here, its entry in this list, its test.
DETECTORS: list[Detector] = [
    round_trips.find,
    epilogues.find,
    bias.find,
    attention.find,
    copies.find,
    optimizer.find,
    precision.find,
    small.find,
    utilisation.find,
    memsets.find,
    quiet.find,
    allocator.find,
    memory.find_retries,
    memory.find_intermediates,
    communication.find,
    compiled.find,
    cpu_work.find,
    first_step.find,
    graphs.find,
    idle_time.find,
    launches.find,
    profiler.find,
    records.find,
    synchronization.find,
]

_ORDER = {"warning": 0, "note": 1, "info": 2}


def find_all(facts: Facts, detectors: Sequence[Detector] = DETECTORS) -> list[Finding]:
    """All findings: what saves time first (most first), then by severity, then by rule.

    An upper bound counts half against a saving that follows from what was measured. Where the CPU sets the pace, what
    holds it up comes first: less GPU time does not shorten such a step. A trace that cannot be trusted gets no savings.
    """
    found = [finding for detector in detectors for finding in detector(facts)]
    if not trusted(facts.health, *NEEDED_CHECKS):
        found = [finding for finding in found if finding.saving_us is None]
    known = facts.once(pace)
    cpu_bound = known is not None and known.setter == "cpu"

    def place(finding: Finding) -> tuple[float | int | str, ...]:
        saving = (finding.saving_us or 0.0) * (UPPER_BOUND_WEIGHT if finding.upper_bound else 1.0)
        held_up = cpu_bound and finding.severity == "warning"
        return (not held_up, -saving, _ORDER[finding.severity], finding.rule, finding.title)

    return sorted(found, key=place)
