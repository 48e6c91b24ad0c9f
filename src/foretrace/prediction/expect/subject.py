"""What is held against the expectations: a report, and the trace behind it where there is one.

A ``View`` is the part of one step that a scope names: its kernels, copies and memsets, API calls and CPU rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from foretrace.analysis.context import Context
from foretrace.knowledge.expectations import unknown_because
from foretrace.knowledge.kineto import RowKind, module_name
from foretrace.model.expectations import Scope
from foretrace.model.report import Evidence, Kernel, Report, Step, Transfer
from foretrace.prediction.expect.absence import absence_of
from foretrace.prediction.expect.compiled import Compiled, compiled_of
from foretrace.trace.steps import select_steps

__all__ = ["Subject", "View", "matches"]


def matches(name: str | None, wanted: str) -> bool:
    """Whether a name is the wanted one, or fits it as a glob (capitals matter)."""
    return name is not None and (name == wanted or fnmatchcase(name, wanted))


@dataclass(eq=False)
class View:
    """The part of ``step`` that a scope names.

    Attributes:
        rows: trace rows of the scope itself (the outermost annotation, module or operator rows); empty for a whole
            step and where only a report is at hand.
        calls: trace rows of the API calls inside; None where the trace recorded none, or is not at hand.
        absent: why the scope is not in this step, None where it is.
        missing: whether its name occurs nowhere in a trace that records such rows.
        uncounted: why not even how often it ran is known, None where that is 0 or more.
        note: what is to be said beside the 0 of a place that never ran.
        outside: whether it is asked for inside of a place that does not run in this step.
        hidden: why GPU work of the scope may be missing from it (graph replays), None where nothing is.
    """

    step: Step
    scope: Scope
    kernels: list[Kernel]
    transfers: list[Transfer]
    rows: list[int] = field(default_factory=list)
    calls: list[int] | None = None
    absent: str | None = None
    hidden: str | None = None
    missing: bool = False
    uncounted: str | None = None
    note: str | None = None
    outside: bool = False


@dataclass(eq=False)
class Subject:
    """A report and, where it is at hand, the trace it was made of."""

    report: Report
    context: Context | None = None
    _views: dict[tuple[Scope, int], View] = field(default_factory=dict, init=False)
    _marks: dict[tuple[str, str], dict[int, bool]] = field(default_factory=dict, init=False)

    @cached_property
    def active(self) -> list[Step]:
        """Steps that hold work; all of them where none does."""
        if self.context is not None:
            chosen = set(self.context.working_steps)
            return [step for step in self.report.steps if step.index in chosen]
        return [step for step in self.report.steps if step.launches or step.kernels] or list(self.report.steps)

    def steps(self, scope: Scope) -> list[Step]:
        """The steps a scope speaks of; ``InputError`` that lists the choices for a step the trace does not have."""
        wanted = scope.step
        if wanted is None:
            return self.active
        chosen = select_steps(self.report.steps, [wanted], what="the step of an expectation is")
        return [step for step in self.report.steps if step.index in chosen]

    def view(self, scope: Scope, step: Step) -> View:
        """The part of a step that a scope names."""
        key = (scope, step.index)
        if key not in self._views:
            self._views[key] = self._whole(scope, step) if not scope.inner else self._part(scope, step)
        return self._views[key]

    def evidence(self, rows: Iterable[int]) -> list[Evidence]:
        """Trace rows as evidence; none without the trace."""
        if self.context is None:
            return []
        trace = self.context.trace
        return [Evidence(event=int(trace.event[r]), name=trace.name(r), start_us=trace.start_us(r)) for r in rows]

    @cached_property
    def row_of_event(self) -> dict[int, int]:
        """Event number of a GPU row → its row in the trace; empty without the trace."""
        if self.context is None:
            return {}
        rows = self.context.trace.gpu_rows
        return dict(zip(self.context.trace.event[rows].tolist(), rows.tolist(), strict=True))

    def launch_of(self, work: Kernel | Transfer) -> int:
        """The row of the API call that launched GPU work; -1 where it is not known."""
        row = self.row_of_event.get(work.event)
        return -1 if row is None or self.context is None else int(self.context.trace.links.launch[row])

    @cached_property
    def kernels_by_step(self) -> dict[int | None, list[Kernel]]:
        """Kernels by the step that launched them, in order of start."""
        table: dict[int | None, list[Kernel]] = {}
        for kernel in self.report.kernels:
            table.setdefault(kernel.step, []).append(kernel)
        return table

    @cached_property
    def transfers_by_step(self) -> dict[int | None, list[Transfer]]:
        """Copies and memsets by the step that launched them, in order of start."""
        table: dict[int | None, list[Transfer]] = {}
        for transfer in self.report.transfers:
            table.setdefault(transfer.step, []).append(transfer)
        return table

    @cached_property
    def compiled(self) -> Compiled:
        """Where the trace shows compiled code and its compiler; nothing without the trace."""
        return compiled_of(self.context) if self.context is not None else Compiled()

    @cached_property
    def launching(self) -> set[int]:
        """CPU rows with GPU work somewhere below them; empty without the trace."""
        return self.context.launching if self.context is not None else set()

    # ---- scopes ----

    def _whole(self, scope: Scope, step: Step) -> View:
        calls = None
        if self.context is not None and self.context.calls_by_step is not None:
            calls = list(self.context.calls_by_step.get(step.index, np.zeros(0, dtype=np.int64)).tolist())
        return View(
            step=step,
            scope=scope,
            kernels=self.kernels_by_step.get(step.index, []),
            transfers=self.transfers_by_step.get(step.index, []),
            calls=calls,
        )

    def _part(self, scope: Scope, step: Step) -> View:
        if self.context is None:
            return self._part_of_report(scope, step)
        parts = [(kind, name) for kind in ("region", "module", "op") if (name := getattr(scope, kind)) is not None]
        trace, attribution = self.context.trace, self.context.attribution
        whole = self._whole(scope, step)

        def inside(row: int) -> bool:
            return row >= 0 and all(self._inside(kind, name, row) for kind, name in parts)

        # A backward kernel belongs to the module whose forward operator made its node, and to those around it.
        within = self._modules_within(parts[0][1]) if [kind for kind, _ in parts] == ["module"] else set()

        def holds(work: Kernel | Transfer) -> bool:
            row = self.row_of_event[work.event]
            launch = int(trace.links.launch[row])
            if inside(launch if launch >= 0 else int(trace.links.op[row])):
                return True
            return attribution.phase.get(row) == "backward" and attribution.module.get(row) in within

        view = View(
            step=step,
            scope=scope,
            kernels=[kernel for kernel in whole.kernels if holds(kernel)],
            transfers=[transfer for transfer in whole.transfers if holds(transfer)],
            calls=None if whole.calls is None else [row for row in whole.calls if inside(row)],
            rows=self._outermost(parts, step),
        )
        if not view.rows:
            around = len(parts) == 1 or bool(self._outermost(parts[:-1], step))
            absence = absence_of(trace, parts, self._named, around=around)
            view.absent, view.missing, view.note = absence.reason, absence.missing, absence.note
            view.uncounted, view.outside = absence.uncounted, absence.outside
        replayed = sum(kernel.graph for kernel in whole.kernels) - sum(kernel.graph for kernel in view.kernels)
        if replayed and scope.region is None:
            view.hidden = unknown_because("graph_hides_scope", count=replayed)
            if view.absent is not None and scope.module is not None:
                view.uncounted = view.hidden
            view.absent, view.missing = view.hidden if view.absent is not None else None, False
        return view

    def _outermost(self, parts: list[tuple[str, str]], step: Step) -> list[int]:
        """Rows that lie in every part of the scope and are not inside another such row."""
        assert self.context is not None
        trace = self.context.trace
        inmost = max(parts, key=lambda part: ("region", "module", "op").index(part[0]))
        of_step = self.context.attribution.step
        candidates = [row for row in self._named(*inmost) if int(of_step[row]) == step.index]
        others = [part for part in parts if part != inmost]
        found = [row for row in candidates if all(self._inside(kind, name, row) for kind, name in others)]
        kept = set(found)
        return [row for row in found if not any(up in kept for up in trace.forest.ancestors(row))]

    def _named(self, kind: str, wanted: str) -> list[int]:
        """Trace rows that a scope's name fits, in order of start."""
        assert self.context is not None
        trace = self.context.trace
        of_name: Callable[[str], str | None] = module_name if kind == "module" else lambda name: name
        fits = np.array([matches(of_name(name), wanted) for name in trace.names] or [False])
        kinds = {
            "op": (RowKind.OPERATOR,),
            "region": (RowKind.ANNOTATION, RowKind.OPERATOR),
            "module": (RowKind.PYTHON, RowKind.ANNOTATION),
        }[kind]
        rows = trace.rows(*kinds)
        rows = rows[fits[trace.name_id[rows]]]
        if kind == "region":
            # torch has written its own labels as annotations and as operators; ATen's operators are no labels.
            operator = (trace.kind[rows] == RowKind.OPERATOR).tolist()
            rows = rows[[not (is_op and "::" in trace.name(r)) for is_op, r in zip(operator, rows, strict=True)]]
            steps = {span.row for span in (*trace.steps, *trace.marks)}
            rows = rows[[row not in steps for row in rows.tolist()]]
        ordered: list[int] = rows[np.argsort(trace.start[rows], kind="stable")].tolist()
        return ordered

    def _modules_within(self, wanted: str) -> set[str]:
        """Names of the modules that a name fits, and of those that run inside them."""
        assert self.context is not None
        trace = self.context.trace
        rows = [row for row in self._named("module", "*") if self._inside("module", wanted, row)]
        return {name for row in rows if (name := module_name(trace.name(row))) is not None}

    def _inside(self, kind: str, wanted: str, row: int) -> bool:
        """Whether a CPU row is one that the name fits, or stands inside one."""
        assert self.context is not None
        key = (kind, wanted)
        if key not in self._marks:
            self._marks[key] = dict.fromkeys(self._named(kind, wanted), True)
        known = self._marks[key]
        parent = self.context.trace.forest.parent
        passed = []
        while row >= 0 and row not in known:
            passed.append(row)
            row = int(parent[row])
        answer = row >= 0 and known[row]
        known.update(dict.fromkeys(passed, answer))
        return answer

    def _part_of_report(self, scope: Scope, step: Step) -> View:
        """Without the trace: what the kernels' own paths tell."""

        def holds(work: Kernel | Transfer) -> bool:
            path = work.op_path if isinstance(work, Kernel) else [work.op] if work.op else []
            module = work.module if isinstance(work, Kernel) else None
            return all(
                wanted is None or any(matches(name, wanted) for name in path) for wanted in (scope.region, scope.op)
            ) and (scope.module is None or matches(module, scope.module))

        kernels = [kernel for kernel in self.kernels_by_step.get(step.index, []) if holds(kernel)]
        view = View(step=step, scope=scope, kernels=kernels, transfers=[])
        view.transfers = [t for t in self.transfers_by_step.get(step.index, []) if scope.region is None and holds(t)]
        if not kernels:
            view.absent = unknown_because("absent_in_report")
        elif any(kernel.graph for kernel in self.kernels_by_step.get(step.index, [])) and scope.region is None:
            view.hidden = unknown_because("graph_hides_scope", count=sum(k.graph for k in self.report.kernels))
        return view
