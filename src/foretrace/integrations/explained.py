"""A trace that was just recorded, explained into files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.model.report import Report
    from foretrace.trace.table import Trace

__all__ = ["write_explained", "write_page"]

_TRACE_ENDINGS = (".gz", ".json", ".trace")


def write_explained(trace: Path, *, html: bool) -> list[Path]:
    """Write ``x.report.json`` beside ``x.trace.json.gz``, with ``html`` also ``x.html``; returns what was written.

    Raises :class:`~foretrace.errors.TraceReadError` and :class:`~foretrace.errors.InputError`, the latter also where
    one of the files exists.
    """
    from foretrace.report.json import to_json
    from foretrace.trace.writer import write_bytes

    stem = trace.name
    for ending in _TRACE_ENDINGS:
        stem = stem.removesuffix(ending)
    loaded, report = _read(trace)
    written = [write_bytes(trace.with_name(f"{stem}.report.json"), [to_json(report)])]
    if html:
        written.append(write_bytes(trace.with_name(f"{stem}.html"), [_page(loaded, report)]))
    return written


def write_page(trace: Path, target: Path) -> Path:
    """Write the HTML report of a trace; raises as `write_explained` does."""
    from foretrace.trace.writer import write_bytes

    return write_bytes(target, [_page(*_read(trace))])


def _read(path: Path) -> tuple[Trace, Report]:
    from foretrace.analysis import explain
    from foretrace.model.sidefile import read_side
    from foretrace.trace import load

    loaded = load(path)
    return loaded, explain(loaded, side=read_side(path))


def _page(trace: Trace, report: Report) -> bytes:
    from foretrace.analysis.timeline import timeline_of
    from foretrace.report.html.explain import explain_page

    return explain_page(report, timeline_of(trace, report))
