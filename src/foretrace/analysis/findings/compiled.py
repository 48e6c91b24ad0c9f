"""What torch.compile left in the trace: compiled regions, what stands between them, compilation while recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import numpy as np

from foretrace.analysis.findings.facts import Facts, microseconds
from foretrace.analysis.findings.host import often, per, selected, times
from foretrace.knowledge.kineto import COMPILE_WRAPPERS, RowKind, compiled_region, fx_graph, is_compiling
from foretrace.model.report import Finding

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
    """Calls of compiled code that stand in no other one, in order of start."""
    trace = facts.context.trace
    ids = [compiled_region(name) for name in trace.names]
    named = np.array([i is not None for i in ids] or [False])
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    rows = selected(facts, rows[named[trace.name_id[rows]]])
    found = []
    for row in rows[np.argsort(trace.start[rows], kind="stable")].tolist():
        if not any(named[trace.name_id[up]] for up in trace.forest.ancestors(row)):
            found.append(_Region(row, ids[trace.name_id[row]] or "?", int(facts.context.attribution.step[row])))
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
        code = ", ".join(h if len(h) <= 12 else h[:12] + "…" for h in hashes[:_NAMED])
        more = f" and {len(hashes) - _NAMED} more" if len(hashes) > _NAMED else ""
        code = f" Generated code by its hash: {code}{more}; the same hash in another trace is the same code."
    else:
        code = ""
    late = {r.id for r in regions if r.compilation}
    again = (
        f" Region {', '.join(sorted(late))} is not its frame's first compilation: it was compiled again before."
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
    """CPU time of a call of compiled code outside the generated code, and how it is made up."""
    trace = facts.context.trace
    parts: dict[str, list[float]] = {}
    for row in selected(facts, trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)).tolist():
        name = trace.name(row)
        if name in COMPILE_WRAPPERS:
            parts.setdefault(name, []).append(int(trace.duration[row]) / 1000)
    medians = {name: median(found) for name, found in parts.items()}
    inside: dict[int, int] = {}
    tops = {region.row for region in regions}
    for row in graphs:
        for up in trace.forest.ancestors(row):
            if up in tops:
                inside[up] = inside.get(up, 0) + int(trace.duration[row])
                break
    said = ", ".join(f"{name} {microseconds(us)}" for name, us in medians.items())
    if inside:
        rest = median((int(trace.duration[row]) - ns) / 1000 for row, ns in inside.items())
        total = rest + medians.get(_LOOKUP, 0.0)
        return microseconds(total), f" ({said})" if said else ""
    if medians:
        return microseconds(sum(medians.values())), f" ({said})"
    return "an unknown time", ""


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
    evidence = []
    for found in broken.values():
        evidence += [region.row for region in found]
        for one, following in pairwise(found):
            if one.frame == following.frame or trace.lane[one.row] != trace.lane[following.row]:
                continue
            starts, rows = eager.get(int(trace.lane[one.row]), (np.zeros(0, np.int64), []))
            low = int(np.searchsorted(starts, trace.end[one.row]))
            high = int(np.searchsorted(starts, trace.start[following.row]))
            for row in rows[low:high]:
                between[trace.name(row)] = between.get(trace.name(row), 0) + 1
    frames = sorted({r.frame for found in broken.values() for r in found})
    total = sum(between.values())
    if between:
        top = sorted(between.items(), key=lambda item: (-item[1], item[0]))
        said = f"{times(total, 'operator')} between them run eagerly (" + ", ".join(n for n, _ in top[:_NAMED])
        said += ", …)" if len(top) > _NAMED else ")"
    else:
        said = "no operator runs between them, only Python"
    yield facts.finding(
        "graph_break",
        evidence,
        count=len(broken),
        frames=len(frames),
        ids=", ".join(frames[:8]) + (", …" if len(frames) > 8 else ""),
        between=said,
        per=per(facts),
    )


def _eager_operators(facts: Facts) -> dict[int, tuple[np.ndarray, list[int]]]:
    """Thread → operators that stand in no other operator and are not torch.compile's own, by start."""
    trace = facts.context.trace
    table: dict[int, list[int]] = {}
    for row in selected(facts, trace.rows(RowKind.OPERATOR)).tolist():
        name = trace.name(row)
        if name.startswith(COMPILE_WRAPPERS) or trace.forest.enclosing(row, RowKind.OPERATOR) >= 0:
            continue
        table.setdefault(int(trace.lane[row]), []).append(row)
    sorted_table = {}
    for lane, rows in table.items():
        rows.sort(key=lambda r: int(trace.start[r]))
        sorted_table[lane] = (trace.start[rows], rows)
    return sorted_table


def _recompiles(facts: Facts, regions: list[_Region]) -> Iterable[Finding]:
    """Compilation in the recorded time: rows of the compiler, or a frame whose compilation changes."""
    trace = facts.context.trace
    named = np.array([is_compiling(name) for name in trace.names] or [False])
    rows = trace.rows(RowKind.OPERATOR, RowKind.ANNOTATION)
    rows = selected(facts, rows[named[trace.name_id[rows]]])
    outer = [r for r in rows.tolist() if not any(named[trace.name_id[up]] for up in trace.forest.ancestors(r))]
    versions: dict[str, set[int]] = {}
    for region in regions:
        if region.compilation is not None:
            versions.setdefault(region.frame, set()).add(region.compilation)
    several = {frame: found for frame, found in versions.items() if len(found) > 1}
    if not outer and not several:
        return
    reasons = []
    if outer:
        reasons.append(f"compilation took {microseconds(int(trace.duration[outer].sum()) / 1000)} inside the steps")
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
