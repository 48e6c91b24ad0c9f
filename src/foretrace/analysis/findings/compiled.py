"""What torch.compile left in the trace: compiled regions, what stands between them, compilation while recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

import numpy as np

from foretrace.analysis.findings.facts import Facts
from foretrace.analysis.findings.host import often, per, selected, times
from foretrace.knowledge.kineto import COMPILE_WRAPPERS, RowKind, compiled_region, fx_graph, is_compiling
from foretrace.model.report import Finding
from foretrace.model.words import first_of, time

__all__ = ["find"]

_LOOKUP = COMPILE_WRAPPERS[0]
_NAMED = 3


@dataclass(frozen=True)
class _Region:
    row: int
    id: str  # "frame/compilation", "?" where torch did not write one
    step: int

    @property
    def frame(self) -> str:
        return self.id.partition("/")[0]

    @property
    def compilation(self) -> int | None:
        """0 for a frame's first compilation, 1 for the next, …; None where torch did not write it."""
        number = self.id.partition("/")[2].partition("_")[0]
        return int(number) if number.isdigit() else None


def find(facts: Facts) -> Iterable[Finding]:
    """Findings about torch.compile; none where the trace has neither compiled code nor compilation."""
    regions = _regions(facts)
    if regions:
        yield _seen(facts, regions)
        yield from _breaks(facts, regions)
    yield from _recompiles(facts, regions)


def _regions(facts: Facts) -> list[_Region]:
    """Calls of compiled code in order of start.

    After a graph break the rest of the function is called from inside the first region, so regions may stand in one
    another. ``CompiledFunction``, which only wraps the region it stands in, is none of its own.
    """
    trace = facts.context.trace
    ids = [compiled_region(name) for name in trace.names]
    named = np.array([i is not None for i in ids] or [False])
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    rows = selected(facts, rows[named[trace.name_id[rows]]])
    found = []
    for row in rows[np.argsort(trace.start[rows], kind="stable")].tolist():
        name = ids[trace.name_id[row]] or "?"
        if name != "?" or not any(named[trace.name_id[up]] for up in trace.forest.ancestors(row)):
            found.append(_Region(row, name, int(facts.context.attribution.step[row])))
    return found


def _seen(facts: Facts, regions: list[_Region]) -> Finding:
    trace = facts.context.trace
    calls: dict[str, int] = {}
    for region in regions:
        calls[region.id] = calls.get(region.id, 0) + 1
    graphs = _graph_rows(facts)
    hashes = sorted({fx_graph(trace.name(row)) or "?" for row in graphs})
    around, measured = _around(facts, regions, graphs)
    named = ", ".join(f"{name} {often(facts, count)}" for name, count in list(calls.items())[:_NAMED])
    if len(calls) > _NAMED:
        named += f", {len(calls) - _NAMED} more"
    if hashes:
        code = first_of([h if len(h) <= 12 else h[:12] + "…" for h in hashes], _NAMED)
        code = f" Generated code by its hash: {code}; the same hash in another trace is the same code."
    else:
        code = ""
    versions = _versions(regions)
    late = sorted({r.id for r in regions if r.compilation and len(versions[r.frame]) == 1})
    again = (
        f" {', '.join(late)}: not the first compilation of its frame, which was compiled again before the recording."
        if late
        else ""
    )
    return facts.finding(
        "compiled_regions",
        [region.row for region in regions],
        regions=times(len(calls), "compiled region"),
        named=named,
        around=around,
        measured=measured,
        code=code,
        again=again,
    )


def _graph_rows(facts: Facts) -> list[int]:
    """Rows of ``## Call CompiledFxGraph … ##`` in the steps."""
    trace = facts.context.trace
    named = np.array([fx_graph(name) is not None for name in trace.names] or [False])
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    found: list[int] = selected(facts, rows[named[trace.name_id[rows]]]).tolist()
    return found


def _around(facts: Facts, regions: list[_Region], graphs: list[int]) -> tuple[str, str]:
    """CPU time of a call of compiled code outside the generated code, and how it is made up.

    That is the region's own time and its wrappers', and the lookup before it; what else runs inside (generated code,
    operators after a graph break, further regions, compilation) is not the call's cost.
    """
    trace = facts.context.trace
    parts: dict[str, list[float]] = {}
    inside = {region.row: 0 for region in regions}  # ns of what runs directly inside and is no wrapper
    for row in selected(facts, trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)).tolist():
        name = trace.name(row)
        if name in COMPILE_WRAPPERS:
            parts.setdefault(name, []).append(int(trace.duration[row]) / 1000)
            if name != _LOOKUP:
                continue
        if compiled_region(name) != "?":
            up = _around_row(facts, row)
            if up in inside:
                inside[up] += int(trace.duration[row])
    medians = {name: median(found) for name, found in parts.items()}
    said = ", ".join(f"{name} {time(us)}" for name, us in medians.items())
    measured = f" ({said})" if said else ""
    if graphs:
        own = median((int(trace.duration[row]) - ns) / 1000 for row, ns in inside.items())
        return time(own + medians.get(_LOOKUP, 0.0)), measured
    # Without rows for the generated code the region's own time may be that code's.
    return (time(sum(medians.values())), measured) if medians else ("an unknown time", "")


def _around_row(facts: Facts, row: int) -> int:
    """The row around another one, Python frames and ``CompiledFunction`` passed over (-1: none)."""
    trace = facts.context.trace
    for up in trace.forest.ancestors(row):
        if trace.kind[up] != RowKind.PYTHON and compiled_region(trace.name(up)) != "?":
            return up
    return -1


def _breaks(facts: Facts, regions: list[_Region]) -> Iterable[Finding]:
    """Steps that run compiled code of several frames."""
    trace = facts.context.trace
    by_step: dict[int, list[_Region]] = {}
    for region in regions:
        if region.id != "?":
            by_step.setdefault(region.step, []).append(region)
    broken = {step: found for step, found in by_step.items() if len({r.frame for r in found}) > 1}
    if not broken:
        return
    eager = _eager_operators(facts)
    between: dict[str, int] = {}
    for found in broken.values():
        low, high = int(trace.start[found[0].row]), int(trace.start[found[-1].row])
        lane = int(trace.lane[found[0].row])
        for row in eager:
            if trace.lane[row] == lane and low <= trace.start[row] < high:
                between[trace.name(row)] = between.get(trace.name(row), 0) + 1
    frames = sorted({r.frame for found in broken.values() for r in found})
    if between:
        top = sorted(between.items(), key=lambda item: (-item[1], item[0]))
        said = f"between them {', '.join(name for name, _ in top[:_NAMED])}{', …' if len(top) > _NAMED else ''} "
        said += f"ran eagerly ({times(sum(between.values()), 'call')})"
    else:
        said = "no operator runs between them, only Python"
    yield facts.finding(
        "graph_break",
        [region.row for found in broken.values() for region in found],
        count=len(broken),
        source_row=next(iter(broken.values()))[-1].row,
        frames=len(frames),
        ids=", ".join(frames[:8]) + (", …" if len(frames) > 8 else ""),
        between=said,
        per=per(facts),
    )


def _eager_operators(facts: Facts) -> list[int]:
    """Operators outside generated code that stand in no other operator than a compiled region."""
    trace = facts.context.trace
    generated = bool(_graph_rows(facts))
    found = []
    for row in selected(facts, trace.rows(RowKind.OPERATOR)).tolist():
        if "::" not in trace.name(row):  # the rows of torch.compile itself carry no namespace
            continue
        for up in trace.forest.ancestors(row):
            name = trace.name(up)
            if trace.kind[up] == RowKind.OPERATOR and (compiled_region(name) is None or not generated):
                break
            if fx_graph(name) is not None or is_compiling(name):
                break
        else:
            found.append(row)
    return found


def _recompiles(facts: Facts, regions: list[_Region]) -> Iterable[Finding]:
    """Compilation in the recorded time: rows of the compiler, or a frame whose compilation changes."""
    trace = facts.context.trace
    named = np.array([is_compiling(name) for name in trace.names] or [False])
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    rows = selected(facts, rows[named[trace.name_id[rows]]])
    outer = [r for r in rows.tolist() if not any(named[trace.name_id[up]] for up in trace.forest.ancestors(r))]
    several = {frame: found for frame, found in _versions(regions).items() if len(found) > 1}
    if not outer and not several:
        return
    reasons = []
    if outer:
        reasons.append(f"compilation took {time(int(trace.duration[outer].sum()) / 1000)}")
    if several:
        ids = ", ".join(f"{frame}/{n}" for frame, found in sorted(several.items()) for n in sorted(found))
        reasons.append(f"the same frame ran as different compilations ({ids})")
    changed = [r.row for r in regions if r.frame in several]
    yield facts.finding(
        "recompile",
        [*outer, *changed],
        count=len(outer) or sum(len(found) - 1 for found in several.values()),
        source_row=outer[0] if outer else changed[0],
        reasons=" and ".join(reasons),
    )


def _versions(regions: list[_Region]) -> dict[str, set[int]]:
    """Frame → the numbers of its compilations that ran."""
    versions: dict[str, set[int]] = {}
    for region in regions:
        if region.compilation is not None:
            versions.setdefault(region.frame, set()).add(region.compilation)
    return versions
