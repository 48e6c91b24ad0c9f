"""Files that were read, kept for the next call: the least recently used go first; one that changed is read anew."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, cast

from foretrace.errors import InputError
from foretrace.integrations.mcp.root import Root, Stamp
from foretrace.report.text import clean

if TYPE_CHECKING:
    from foretrace.analysis.context import Context
    from foretrace.analysis.tables import Tables
    from foretrace.model.report import Report
    from foretrace.model.sidefile import SideFile
    from foretrace.trace.table import Trace

__all__ = ["Library", "Opened"]

Made = TypeVar("Made")
# Bytes a row of a trace takes in its columns, forest and links, besides its arguments and what is reported of it.
_ROW_BYTES = 600


@dataclass(eq=False)
class Opened:
    """A trace, or a report in JSON, that was read."""

    name: str
    trace: Trace | None
    side: SideFile | None
    whole: Report
    bytes: int
    _parts: dict[tuple[int, ...], Report] = field(default_factory=dict)
    _context: Context | None = None
    _tables: Tables | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def need_trace(self, what: str) -> Trace:
        """The trace; raises `InputError` where the file is a report, which does not hold its events."""
        if self.trace is None:
            raise InputError(f"{clean(self.name)} is a report in JSON; {what} needs the trace it was made of")
        return self.trace

    def steps(self, asked: Sequence[str] | None) -> list[int] | None:
        """Positions of the steps asked for, by position or label; None: all. Raises `InputError` with the choices."""
        if not asked:
            return None
        from foretrace.trace.steps import select_steps

        return select_steps(self.need_trace("choosing steps").steps, asked)

    def report(self, steps: Sequence[int] | None = None) -> Report:
        """The report, of all steps or of some."""
        if steps is None or self.trace is None:
            return self.whole
        from foretrace.analysis import explain

        key = tuple(steps)
        with self._lock:
            if key not in self._parts:
                if len(self._parts) >= 4:
                    self._parts.clear()
                self._parts[key] = explain(self.trace, steps=list(steps), side=self.side)
            return self._parts[key]

    def context(self) -> Context:
        """What places the trace's rows: steps, operators, modules."""
        from foretrace.analysis.context import Context

        with self._lock:
            if self._context is None:
                self._context = Context(trace=self.need_trace("this"), side=self.side)
            return self._context

    def tables(self) -> Tables:
        """The tables of the trace, for SQL."""
        from foretrace.analysis.tables import Tables

        with self._lock:
            if self._tables is None:
                self._tables = Tables(self.need_trace("a query"), self.whole)
            return self._tables


@dataclass
class _Kept:
    stamps: tuple[Stamp | None, ...]
    value: Any
    bytes: int


class Library:
    """What was made of files, by what it was made of; ``most_bytes`` bounds what is kept.

    The working folder must be the root: readers are given names relative to it, so that no message names a path
    outside of it.
    """

    def __init__(self, root: Root, *, most_bytes: int) -> None:
        self.root = root
        self.most_bytes = most_bytes
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._reading = threading.Lock()  # one file at a time: each may need most of the machine's memory

    def open(self, path: str) -> Opened:
        """Read and explain a trace, or read a report; raises `InputError` where the path is neither."""
        name = self.root.file(path)
        side = _side_name(name)
        self.root.beside(side)

        def read() -> tuple[Opened, int]:
            opened = _read(name)
            return opened, opened.bytes

        return self.keep(("trace", name), [name, side], read)

    def keep(self, key: Hashable, names: Sequence[str], make: Callable[[], tuple[Made, int]]) -> Made:
        """What ``make`` made of the files of these names (and its bytes in memory), anew where one of them changed."""
        stamps = self._stamps(names)
        if (kept := self._find(key, stamps)) is not None:
            return cast("Made", kept.value)
        with self._reading:
            stamps = self._stamps(names)
            if (kept := self._find(key, stamps)) is not None:
                return cast("Made", kept.value)
            with self._lock:
                self._kept.pop(key, None)  # its memory is needed now
            with self.steady(names, stamps):
                value, size = make()
            with self._lock:
                self._kept[key] = _Kept(stamps, value, size)
                while len(self._kept) > 1 and sum(one.bytes for one in self._kept.values()) > self.most_bytes:
                    self._kept.popitem(last=False)
            return value

    @contextmanager
    def steady(self, names: Sequence[str], stamps: Sequence[Stamp | None] | None = None) -> Iterator[None]:
        """Files of these names may be read inside; what was read is not believed where one of them changed meanwhile.

        ``stamps``: their states, where they were asked for before. Raises `InputError`.
        """
        before = tuple(stamps) if stamps is not None else self._stamps(names)
        for name, stamp in zip(names, before, strict=True):
            if stamp is not None:
                self.root.check_content(name)
        yield
        for name, stamp in zip(names, before, strict=True):
            moved = stamp is not None and self.root.file(name) != name
            if moved or self.root.stamp(name) != stamp:
                raise InputError(f"{clean(name)} changed while it was read; call again when it is complete")

    def _find(self, key: Hashable, stamps: tuple[Stamp | None, ...]) -> _Kept | None:
        with self._lock:
            kept = self._kept.get(key)
            if kept is None or kept.stamps != stamps:
                return None
            self._kept.move_to_end(key)
            return kept

    def _stamps(self, names: Sequence[str]) -> tuple[Stamp | None, ...]:
        return tuple(self.root.stamp(name) for name in names)


def _side_name(name: str) -> str:
    from foretrace.model.sidefile import side_path

    return side_path(name).as_posix()


def _read(name: str) -> Opened:
    from foretrace.analysis.explained import explained
    from foretrace.model.reportfile import read_report

    report = read_report(name)
    if report is not None:
        report.trace.path = name  # it was made somewhere else, and says where
        return Opened(name, None, None, report, 2_000 * (len(report.kernels) + len(report.transfers)) + 100_000)
    read = explained(name)
    trace, whole = read.trace, read.report
    held = sum(len(raw) for raw in trace.arguments if raw) + sum(map(len, trace.names))
    # What the passes shared is large, and few calls ask for it again: it is not kept.
    return Opened(name, trace, read.side, whole, held + _ROW_BYTES * len(trace) + 2_000 * len(whole.kernels))
