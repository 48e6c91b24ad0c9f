"""A trace as six tables that join by event number, and SQL over them; ``knowledge.tables`` documents every column."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from foretrace.errors import InputError
from foretrace.knowledge.tables import ARGS, TABLES
from foretrace.trace.collection import without_collection

if TYPE_CHECKING:
    import polars

    from foretrace.analysis.tables.engine import Answer
    from foretrace.analysis.tables.statement import Statement
    from foretrace.model.report import Report
    from foretrace.model.sidefile import SideFile
    from foretrace.trace.table import Trace

__all__ = ["Tables"]


class Tables:
    """The tables of one trace, each made on first use.

    Args:
        trace: the trace.
        report: its report, where there is one already; the tables then speak of the steps that it speaks of.
        steps: positions of the steps to speak of (0 is the first); all by default, and then also of what belongs to
            no step.
        side: what was recorded beside the trace, as for ``explain``.

    Raises ``InputError`` on first use for a step that the trace does not have, or a report of another trace.
    """

    def __init__(
        self,
        trace: Trace,
        report: Report | None = None,
        *,
        steps: Sequence[int] | None = None,
        side: SideFile | None = None,
    ) -> None:
        from foretrace.analysis.context import Context

        if steps is None and report is not None and len(report.steps) < len(trace.steps):
            steps = [step.index for step in report.steps]
        self.trace = trace
        self._report = report
        self._context = Context(trace=trace, side=side, selected=None if steps is None else list(steps))
        self._kept: dict[str, polars.DataFrame] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tables: events, kernels, transfers, launches, ops, steps."""
        return tuple(table.name for table in TABLES)

    def frame(self, name: str, *, args: bool = False) -> polars.DataFrame:
        """One table, with the columns of ``knowledge.tables``; NULL is what is unknown.

        ``args`` adds a column to ``events``: the arguments of each event as JSON text (costly for a large trace).
        Raises ``InputError`` for a name that is none of ``names``.
        """
        if name not in self.names:
            raise InputError(f"there is no table {name!r}; the tables are {', '.join(self.names)}")
        kept = self._kept.get(name)
        if kept is None:
            kept = self._kept[name] = self._make(name)
        if args and name == "events":
            kept = kept.with_columns(self._args)
        return kept

    def query(self, sql: str, *, limit: int | None = None, timeout: float | None = None) -> polars.DataFrame:
        """What one SELECT (or WITH … SELECT) says of the tables, at most ``limit`` rows of it.

        ``timeout``: seconds after which the query is ended; a minute by default. A query runs in a process of its own
        that can open no file and has bounded memory. Without ORDER BY the rows of a grouped or joined result are in
        order of their columns. Raises ``InputError`` with one sentence for anything that is not such a query, that
        the engine cannot do, or that takes more time or memory than it may.
        """
        return self.ask(sql, limit=limit, timeout=timeout).frame

    def ask(self, sql: str, *, limit: int | None = None, timeout: float | None = None) -> Answer:
        """``query``, with the number of rows that there are without ``limit``."""
        from foretrace.analysis.tables.engine import ask

        return ask(self, sql, limit=limit, timeout=timeout)

    def for_query(self, statement: Statement) -> dict[str, polars.DataFrame]:
        """The tables that a query names, without costly columns that it does not."""
        from foretrace.analysis.tables.gpu import COSTED

        frames = {}
        for name in statement.tables(self.names):
            if name == "kernels" and name not in self._kept and not statement.wants(COSTED):
                kept = self._kept.get("cheap kernels")
                if kept is None:
                    kept = self._kept["cheap kernels"] = self._make("cheap kernels")
                frames[name] = kept
            else:
                frames[name] = self.frame(name, args=ARGS.name in statement.names)
        return frames

    @cached_property
    def _args(self) -> polars.Series:
        from foretrace.analysis.tables.whole import arguments

        with without_collection():
            return arguments(self._context)

    def _make(self, name: str) -> polars.DataFrame:
        from foretrace.analysis.tables import host, whole

        context = self._context
        with without_collection():
            if name in ("kernels", "cheap kernels"):
                return self._kernels(costed=name == "kernels")
            if name == "transfers":
                return self._transfers()
            if name == "launches":
                return host.launch_table(context)
            if name == "ops":
                return host.op_table(context)
            if name == "steps":
                from foretrace.analysis.steps import step_reports

                return whole.step_table(self._report.steps if self._report else step_reports(context)[0])
            return whole.event_table(context)

    def _kernels(self, *, costed: bool) -> polars.DataFrame:
        from foretrace.analysis.costs import KernelCosts
        from foretrace.analysis.kernels import kernel_reports
        from foretrace.analysis.tables.gpu import kernel_table, rows_of

        context = self._context
        if self._report is not None:
            kernels = self._report.kernels
            return kernel_table(context, rows_of(context, [k.event for k in kernels]), kernels)
        reports = kernel_reports(context, KernelCosts(context)) if costed else None
        return kernel_table(context, context.kernel_rows, reports)

    def _transfers(self) -> polars.DataFrame:
        from foretrace.analysis.tables.gpu import rows_of, transfer_table
        from foretrace.knowledge.kineto import RowKind

        context = self._context
        if self._report is not None:
            return transfer_table(context, rows_of(context, [t.event for t in self._report.transfers]))
        return transfer_table(context, context.gpu_rows[context.trace.kind[context.gpu_rows] != RowKind.KERNEL])
