"""What detectors work from, and the pieces most of them need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from foretrace.analysis.callsites import source_around
from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.knowledge.limits import LEAST_SAVING_US, WORTH_SAVING
from foretrace.knowledge.rules import RULES
from foretrace.model.report import Evidence, Finding, Health, Kernel, Operator, Step
from foretrace.model.trace_memory import TraceMemory
from foretrace.model.words import time

__all__ = ["Facts"]

T = TypeVar("T")

_SHOWN_EVIDENCE = 8


@dataclass(eq=False)
class Facts:
    """The passes' results a detector may use; rows are row numbers of ``context.trace``."""

    context: Context
    costs: KernelCosts
    steps: list[Step]
    kernels: list[Kernel]
    health: Sequence[Health] = ()
    operators: Sequence[Operator] = ()
    memory: TraceMemory | None = None
    _kept: dict[Any, Any] = field(default_factory=dict)

    @cached_property
    def kernel_at(self) -> dict[int, Kernel]:
        """Kernel row → its report entry, in order of start."""
        return dict(zip(self.context.kernel_rows.tolist(), self.kernels, strict=True))

    def per_step(self, total: float) -> float:
        """A total over the selected steps as a mean over those that hold work."""
        return total / len(self.context.working_steps)

    @cached_property
    def each(self) -> str:
        """`` a step``, to be put behind a number that is a mean over steps; empty where the trace has none."""
        return "" if self.context.trace.steps[0].row < 0 else " a step"

    def tally(self, number: int) -> tuple[str, str]:
        """A count over all steps in words, around its noun: ``("3", " a step")``, ``("1", " in 2 steps")``."""
        steps = len(self.context.working_steps)
        if not self.each:
            return str(number), ""
        if number % steps == 0 or number >= 10 * steps:
            return str(round(number / steps)), self.each
        return str(number), f" in {steps} steps"

    def spent(self, total_us: float, beside: str = "") -> str:
        """A time over all steps in words, as a mean over them: ``3.4 µs a step``.

        ``beside``: the unit that stands next to it (``tally``'s second part); it is not said twice.
        """
        return time(self.per_step(total_us)) + ("" if beside == self.each else self.each)

    def worth(self, total_us: float) -> bool:
        """Whether a saving over all steps is more than noise and more than a trifle of the kernel time."""
        return self.per_step(total_us) >= LEAST_SAVING_US and total_us >= WORTH_SAVING * self.kernel_us

    @cached_property
    def in_steps(self) -> list[int]:
        """Kernel rows that a selected step launched, in order of start."""
        return [row for row, kernel in self.kernel_at.items() if kernel.step is not None]

    @cached_property
    def kernel_us(self) -> float:
        """Kernel time of the selected steps, µs, all steps together."""
        return sum(self.kernel_at[row].duration_us for row in self.in_steps)

    def once(self, make: Callable[[Facts], T]) -> T:
        """``make(self)``, computed by the first detector that asks and kept for the others."""
        if make not in self._kept:
            self._kept[make] = make(self)
        kept: T = self._kept[make]
        return kept

    def evidence(self, rows: Iterable[int]) -> list[Evidence]:
        """The first few of the rows a finding rests on."""
        trace = self.context.trace
        return [
            Evidence(event=int(trace.event[r]), name=trace.name(r), start_us=trace.start_us(r))
            for r in list(dict.fromkeys(rows))[:_SHOWN_EVIDENCE]
        ]

    def source(self, row: int) -> str | None:
        """``file.py:12 in function``: the innermost Python line around a CPU row that is the user's own.

        The lines of torch itself and of installed packages are passed over; None without recorded stacks.
        """
        return source_around(self.context.trace, row)

    def anchor(self, gpu_row: int) -> int:
        """The CPU row a GPU row hangs on: its operator, else its launch, else -1."""
        op = int(self.context.attribution.op[gpu_row])
        return op if op >= 0 else int(self.context.trace.links.launch[gpu_row])

    def finding(
        self,
        rule: str,
        rows: Sequence[int],
        *,
        saving_us: float | None = None,
        source_row: int | None = None,
        count: int | None = None,
        **places: Any,
    ) -> Finding:
        """Fill a rule's text; ``rows`` are the evidence, ``source_row`` a CPU row to look for a code line at."""
        text = RULES[rule]
        return Finding(
            rule=rule,
            severity=text.severity,
            title=text.title.format(**places),
            explanation=text.explanation.format(**places),
            evidence=self.evidence(rows),
            source=self.source(source_row) if source_row is not None and source_row >= 0 else None,
            saving_us=saving_us,
            suggestion=text.suggestion.format(**places) if text.suggestion else None,
            count=len(rows) if count is None else count,
            upper_bound=text.upper_bound and saving_us is not None,
        )
