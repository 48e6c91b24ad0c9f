"""What the trace holds that no clause speaks of: what a guess did not think of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from foretrace.knowledge.differences import DIFFERENCES
from foretrace.model.expectations import EVERYWHERE, Expectation, Surprise
from foretrace.model.report import Evidence, Kernel, Step, Transfer
from foretrace.prediction.expect.account_transfers import memcpy_role, memset_role, told
from foretrace.prediction.expect.observe import distrusted, observe
from foretrace.prediction.expect.quantities import QUANTITIES
from foretrace.prediction.expect.roles import chain
from foretrace.prediction.expect.subject import Subject

__all__ = ["surprises"]

_EVIDENCE = 4
_SHOWN = 3  # causes of one quantity that are told one by one


def surprises(subject: Subject, expectation: Expectation) -> list[Surprise]:
    """At most one for each quantity and cause; none where the trace cannot be trusted or nothing was expected."""
    if distrusted(subject, gpu=False) is not None or not expectation.clauses:
        return []
    spoken = {clause.quantity for clause in expectation.clauses}
    for clause in expectation.clauses:
        spoken |= set(clause.words) if clause.quantity == "order" else set()
        spoken |= {value for field, value in clause.pattern if field == "kind"}
    found: list[Surprise] = []
    if not {"memcpys", "memcpy"} & spoken:
        found += _transfers(subject, "memcpy")
    if not {"memsets", "memset"} & spoken:
        found += _transfers(subject, "memset")
    found += _kinds(subject, spoken)
    for name, fact, one, many in (
        ("synchronizations", "waits", "call waits", "calls wait"),
        ("recompiles", "compilation", "compilation", "compilations"),
        ("graph_breaks", "frames", "graph break", "graph breaks"),
    ):
        if name not in spoken:
            found += _calls(subject, name, fact, one, many)
    return found


def _transfers(subject: Subject, kind: str) -> Iterator[Surprise]:
    groups: dict[tuple[str, str | None, str | None], dict[int, list[Transfer]]] = {}
    for step in subject.active:
        for transfer in subject.transfers_by_step.get(step.index, []):
            if transfer.kind == kind:
                role = memcpy_role(subject, transfer) if kind == "memcpy" else memset_role(subject, transfer)
                key = (role, transfer.op, transfer.direction)
                groups.setdefault(key, {}).setdefault(step.index, []).append(transfer)
    ranked = sorted(groups.items(), key=lambda item: -max(map(len, item[1].values())))
    # A line that says "1 more" would take the place of what it hides.
    shown = ranked if len(ranked) <= _SHOWN + 1 else ranked[:_SHOWN]
    for (fact, _, _), by_step in shown:
        first = next(iter(by_step.values()))
        text = told(first) + _often(subject, {index: len(found) for index, found in by_step.items()})
        yield _surprise(subject, f"{kind}s", fact, text, first)
    rest = ranked[len(shown) :]
    if rest:
        first = [transfer for _, by_step in rest for transfer in next(iter(by_step.values()))]
        text = f"{len(first)} more {kind}s by {len(rest)} other operators"
        yield Surprise(quantity=f"{kind}s", text=text, why=None, rule=None, evidence=_shown(first))


def _kinds(subject: Subject, spoken: set[str]) -> Iterator[Surprise]:
    """Kinds of kernels nobody named, where some kinds were named but not how many kernels there are in all."""
    named = {name for name in spoken if name in QUANTITIES}
    if "kernels" in named or not any(kernel.kind in named for kernel in subject.report.kernels):
        return
    counts: dict[str, dict[int, int]] = {}
    for step in subject.active:
        kinds = Counter(kernel.kind for kernel in subject.kernels_by_step.get(step.index, []))
        for kind, times in kinds.items():
            if kind not in named:
                counts.setdefault(kind, {})[step.index] = times
    for kind, by_step in counts.items():
        index = next(iter(by_step))
        first = [kernel for kernel in subject.kernels_by_step[index] if kernel.kind == kind]
        places = ", ".join(list(dict.fromkeys(chain(kernel) for kernel in first))[:2])
        names = ", ".join(list(dict.fromkeys(kernel.short_name for kernel in first))[:2])
        plural = "" if by_step[index] == 1 else "s"
        text = f"{by_step[index]} {kind} kernel{plural} ({names}) by {places}{_often(subject, by_step)}"
        yield Surprise(quantity=kind, text=text, why=None, rule=None, evidence=_shown(first))


def _calls(subject: Subject, name: str, fact: str, one: str, many: str) -> Iterator[Surprise]:
    by_step: dict[int, int] = {}
    rows: tuple[int, ...] = ()
    for step in subject.active:
        seen = observe(subject, subject.view(EVERYWHERE, step), name)
        if seen.value:
            by_step[step.index] = int(seen.value)
            rows = rows or seen.rows
    if not by_step:
        return
    number = next(iter(by_step.values()))
    text = f"{number} {one if number == 1 else many}"
    if fact == "waits":
        calls = Counter(evidence.name for evidence in subject.evidence(rows))
        text += f" for the GPU ({', '.join(calls)})" if calls else " for the GPU"
    surprise = _surprise(subject, name, fact, text + _often(subject, by_step), [])
    surprise.evidence = subject.evidence(rows[:_EVIDENCE])
    yield surprise


def _surprise(subject: Subject, quantity: str, fact: str, text: str, work: list[Transfer]) -> Surprise:
    known = DIFFERENCES[fact]
    there = {finding.rule for finding in subject.report.findings}
    return Surprise(
        quantity=quantity,
        text=text,
        why=known.why,
        rule=fact,
        finding=next((name for name in known.findings if name in there), None),
        evidence=_shown(work),
    )


def _shown(work: Sequence[Kernel | Transfer]) -> list[Evidence]:
    return [Evidence(event=item.event, name=item.name, start_us=item.start_us) for item in work[:_EVIDENCE]]


def _often(subject: Subject, by_step: dict[int, int]) -> str:
    """`` in every step``, or in which steps."""
    steps: list[Step] = subject.active
    if len(steps) == 1:
        return ""
    if len(by_step) == len(steps) and len(set(by_step.values())) == 1:
        return " in every step"
    if len(by_step) == len(steps):
        return f" in the first step, {min(by_step.values())} to {max(by_step.values())} in all"
    return f" in {len(by_step)} of {len(steps)} steps"
