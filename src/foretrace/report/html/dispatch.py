"""The dispatch chain as a tree of lines that fold: operator, launch, work on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrace.model.report import ON_GPU, Launcher, Report
from foretrace.model.words import time
from foretrace.report.html.page import Section, section
from foretrace.report.work import short_names

__all__ = ["chain"]

# Lines that are printed at most: as many levels as fit.
_PAPER = 100
# Levels that are open when the page is; a tree that a screen holds is open down to its leaves.
_OPEN_LEVELS, _SMALL = 3, 80


@dataclass(frozen=True)
class _Line:
    """One node; the tree is a list of lines with their levels, so that no depth is too deep to lay out."""

    at: int  # reading order, as in the list of events
    level: int
    name: str
    full: str
    kind: str
    count: int
    us: str
    parent: bool
    open: bool
    event: int | None
    on_gpu: bool


def chain(report: Report, events: Sequence[Sequence[int]]) -> Section:
    """The tree of the representative step; ``events`` are those of its nodes in reading order, of `Drawn`."""
    names = short_names(report)
    lines: list[_Line] = []
    waiting: list[tuple[Launcher, int]] = [(node, 0) for node in report.chain[::-1]]
    while waiting:
        node, level = waiting.pop()
        on_gpu = node.kind in ON_GPU
        mine = events[len(lines)] if len(lines) < len(events) else ()
        lines.append(
            _Line(
                at=len(lines),
                level=level,
                name=names.get(node.name, node.name) if on_gpu else node.name,
                full=node.name,
                kind=node.kind,
                count=node.count,
                us=time(node.us) if node.us is not None else "",
                parent=bool(node.children),
                open=level < _OPEN_LEVELS,
                event=mine[0] if mine else None,
                on_gpu=on_gpu,
            )
        )
        waiting += [(child, level + 1) for child in node.children[::-1]]
    if len(lines) <= _SMALL:
        lines = [replace(line, open=True) for line in lines]
    printed, level = _printed(lines)
    return section(
        "chain",
        "Dispatch chain",
        "chain.html.j2",
        needs=("chain",),
        lines=lines,
        open_levels=_OPEN_LEVELS,
        paper=printed,
        paper_level=level,
    )


def _printed(lines: Sequence[_Line]) -> tuple[set[int], int]:
    """Which lines go on paper, and of how many levels: all of those levels, or where that is few, the first lines."""
    levels = 0
    chosen: list[int] = []
    while True:
        more = [line.at for line in lines if line.level <= levels]
        if len(more) > _PAPER:
            return (set(chosen), levels) if len(chosen) >= _PAPER // 2 else (set(more[:_PAPER]), levels + 1)
        chosen, levels = more, levels + 1
        if len(more) == len(lines):
            return set(chosen), levels
