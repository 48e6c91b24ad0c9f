"""Where a CPU row was called: the operators around it, the region, module and line, and the calls beside it."""

from __future__ import annotations

from foretrace.analysis.context import Context
from foretrace.knowledge.baseline import operator_name
from foretrace.knowledge.kineto import RowKind, module_name, source_line, step_number
from foretrace.trace.table import Trace

__all__ = ["beside", "called_in", "labels_around", "module_around", "site", "source_around"]

_MOST = 4


def called_in(context: Context, row: int) -> str:
    """``aten::layer_norm → aten::contiguous``: the operators around a row, outermost first, and its own name."""
    trace = context.trace
    around = [up for up in trace.forest.ancestors(row) if trace.kind[up] == RowKind.OPERATOR]
    names = [name for up in reversed(around) if (name := operator_name(trace.name(up))) is not None]
    names = names if len(names) < _MOST else [names[0], "…", *names[-2:]]
    own = trace.name(row)
    return " → ".join([*names, module_name(own) or operator_name(own) or own])


def labels_around(context: Context, row: int) -> list[str]:
    """The program's own regions around a row, outermost first; its steps are none."""
    trace = context.trace
    steps = {span.row for span in trace.steps}
    names = [
        trace.name(up) for up in trace.forest.ancestors(row) if trace.kind[up] == RowKind.ANNOTATION and up not in steps
    ]
    return [name for name in reversed(names) if step_number(name) is None]


def module_around(context: Context, row: int) -> str | None:
    """The innermost ``nn.Module`` around a row; None without recorded stacks."""
    trace = context.trace
    return next((name for up in trace.forest.ancestors(row) if (name := module_name(trace.name(up))) is not None), None)


def source_around(trace: Trace, row: int) -> str | None:
    """``file.py:12 in function``: the innermost Python line around a CPU row that is the user's own.

    The lines of torch itself and of installed packages are passed over; None without recorded stacks.
    """
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


def _is_library(file: str) -> bool:
    return (
        file.startswith(("torch/", "<")) or "site-packages" in file or "dist-packages" in file or "/lib/python" in file
    )


def site(context: Context, row: int) -> str:
    """Where a call is made: its line and module where stacks were recorded, its region, else the calls beside it."""
    line, module = source_around(context.trace, row), module_around(context, row)
    parts = [line] if line is not None else []
    parts += [f"in module {module}"] if module is not None else []
    parts += [f"in region {label}" for label in labels_around(context, row)[-1:]]
    if line is None:
        before, after = beside(context, row)
        parts += [f"after {before}"] if before is not None else []
        parts += [f"before {after}"] if after is not None else []
    return ", ".join(parts)


def beside(context: Context, row: int) -> tuple[str | None, str | None]:
    """The operators of the same step that ran before and after a row in the same place; None where it has none."""
    trace, step = context.trace, context.attribution.step

    def outer(up: int) -> int:
        return next((one for one in trace.forest.ancestors(up) if trace.kind[one] == RowKind.OPERATOR), -1)

    place, lane = outer(row), int(trace.lane[row])
    siblings = sorted(
        (
            one
            for one in context.operator_rows.tolist()
            if int(step[one]) == int(step[row])
            and int(trace.lane[one]) == lane
            and outer(one) == place
            and operator_name(trace.name(one)) is not None
        ),
        key=lambda one: int(trace.start[one]),
    )
    at = siblings.index(row) if row in siblings else -1
    if at < 0:
        return None, None
    before = trace.name(siblings[at - 1]) if at else None
    return before, trace.name(siblings[at + 1]) if at + 1 < len(siblings) else None
