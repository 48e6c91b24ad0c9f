"""What changed on the CPU side: operators, rows of torch.compile, modules, copies that appear."""

from __future__ import annotations

from collections import Counter

from foretrace.comparison.places import Alignment, total
from foretrace.comparison.subject import Item, Subject
from foretrace.knowledge.comparing import copy_reason
from foretrace.knowledge.compiled import compile_row_label, is_compile_row
from foretrace.knowledge.views import effect
from foretrace.model.comparison import Copy, Module, OperatorChange

__all__ = ["copies_that_appear", "module_times", "operator_changes"]


def operator_changes(a: Subject, b: Subject) -> list[OperatorChange]:
    """Operators whose number of calls differs, largest difference first; empty where one side recorded none."""
    if a.host.calls is None or b.host.calls is None:
        return []
    calls_a, calls_b = _labelled(a.host.calls), _labelled(b.host.calls)
    times_a, times_b = _labelled(a.host.self_us), _labelled(b.host.self_us)
    changes = [
        OperatorChange(
            name=name,
            role=_role(name),
            a_calls=int(calls_a.get(name, 0)),
            b_calls=int(calls_b.get(name, 0)),
            a_self_us=times_a.get(name),
            b_self_us=times_b.get(name),
        )
        for name in {**calls_a, **calls_b}
        if calls_a.get(name, 0) != calls_b.get(name, 0)
    ]
    return sorted(changes, key=lambda change: (-abs(change.b_calls - change.a_calls), change.name))


def _labelled(found: dict[str, int] | dict[str, float]) -> dict[str, float]:
    table: dict[str, float] = {}
    for name, value in found.items():
        label = compile_row_label(name)
        table[label] = table.get(label, 0) + value
    return table


def _role(name: str) -> str:
    if is_compile_row(name):
        return "compile"
    kind = effect(name)
    return "compute" if kind is None else "view" if kind == "maybe" else kind


def module_times(a: Subject, b: Subject) -> list[Module]:
    """GPU time of the modules both traces name, most first; empty where one of them names none."""
    one, other = _by_module(a.items), _by_module(b.items)
    if not one or not other:
        return []
    names = sorted({**one, **other}, key=lambda name: -max(one.get(name, 0.0), other.get(name, 0.0)))
    return [Module(name=name, a_us=one.get(name), b_us=other.get(name)) for name in names]


def _by_module(items: list[Item]) -> dict[str, float]:
    found: dict[str, list[Item]] = {}
    for item in items:
        if item.module is not None:
            found.setdefault(item.module, []).append(item)
    return {name: total(members) for name, members in found.items()}


def copies_that_appear(b: Subject, alignment: Alignment) -> list[Copy]:
    """Copies only the other step makes, folded by name and operator, most time first."""
    graphs = b.report.trace.has.graphs
    found: dict[tuple[str, str | None], list[Item]] = {}
    for spot in alignment.spots:
        for j in spot.b if spot.category == "added" else ():
            item = alignment.b[j]
            if item.kind in ("memcpy", "copy"):
                found.setdefault((item.short_name, item.op), []).append(item)
    copies = []
    for (name, op), members in found.items():
        sizes = Counter(item.bytes is None for item in members)
        copies.append(
            Copy(
                name=name,
                op=op,
                count=len(members),
                us=total(members),
                bytes=None if sizes[True] else sum(item.bytes or 0 for item in members),
                why=copy_reason(op, memcpy=members[0].kind == "memcpy", graphs=graphs),
            )
        )
    return sorted(copies, key=lambda copy: -copy.us)
