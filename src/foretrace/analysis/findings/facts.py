"""What detectors work from, and the pieces most of them need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from foretrace.analysis.context import Context
from foretrace.analysis.costs import KernelCosts
from foretrace.knowledge.kineto import RowKind, source_line
from foretrace.knowledge.rules import RULES
from foretrace.model.report import Evidence, Finding, Kernel, Step

__all__ = ["Facts", "gigabytes_per_second", "megabytes", "microseconds"]

_SHOWN_EVIDENCE = 8


@dataclass(eq=False)
class Facts:
    """The passes' results a detector may use; rows are row numbers of ``context.trace``."""

    context: Context
    costs: KernelCosts
    steps: list[Step]
    kernels: list[Kernel]

    @cached_property
    def kernel_at(self) -> dict[int, Kernel]:
        """Kernel row → its report entry, in order of start."""
        return dict(zip(self.context.kernel_rows.tolist(), self.kernels, strict=True))

    def per_step(self, total: float) -> float:
        """A total over the selected steps as a mean over them."""
        return total / len(self.steps)

    def evidence(self, rows: Iterable[int]) -> list[Evidence]:
        """The first few of the rows a finding rests on."""
        trace = self.context.trace
        return [
            Evidence(event=int(trace.event[r]), name=trace.name(r), start_us=trace.start_us(r))
            for r in list(rows)[:_SHOWN_EVIDENCE]
        ]

    def source(self, row: int) -> str | None:
        """``file.py:12 in function``: the innermost Python line around a CPU row that is the user's own.

        The lines of torch itself and of installed packages are passed over; None without recorded stacks.
        """
        trace = self.context.trace
        first: tuple[str, int, str] | None = None
        for up in trace.forest.ancestors(row):
            if trace.kind[up] != RowKind.PYTHON:
                continue
            line = source_line(trace.name(up))
            if line is None:
                continue
            first = first or line
            if not _is_library(line[0]):
                return f"{line[0]}:{line[1]} in {line[2]}"
        return f"{first[0]}:{first[1]} in {first[2]}" if first else None

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
        )


def _is_library(file: str) -> bool:
    return (
        file.startswith(("torch/", "<"))
        or "site-packages" in file
        or "dist-packages" in file
        or "/lib/python" in file
    )


def megabytes(size: float) -> str:
    """Bytes in words: ``101 MB``, ``1.51 GB``, ``4 B`` (powers of ten)."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


def microseconds(value: float) -> str:
    """Microseconds in words: ``27.6 µs``, ``1.2 ms``."""
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"


def gigabytes_per_second(rate: float) -> str:
    """GB/s in words: ``3.65 TB/s``, ``812 GB/s``."""
    return f"{rate / 1000:.3g} TB/s" if rate >= 1000 else f"{rate:.3g} GB/s"
