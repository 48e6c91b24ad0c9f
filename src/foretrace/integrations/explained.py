"""A trace that was just recorded, explained into files beside it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretrace.analysis.explained import Explained

__all__ = ["write_explained", "write_page"]


def write_explained(trace: Path, *, html: bool) -> list[Path]:
    """Write ``x.report.json`` beside ``x.trace.json.gz``, with ``html`` also ``x.html``; returns what was written.

    Raises :class:`~foretrace.errors.TraceReadError` and :class:`~foretrace.errors.InputError`, the latter also where
    one of the files exists.
    """
    from foretrace.analysis.explained import explained
    from foretrace.model.sidefile import stem_of
    from foretrace.report.json import to_json
    from foretrace.trace.writer import write_bytes

    stem = stem_of(trace)
    read = explained(trace)
    written = [write_bytes(trace.with_name(f"{stem}.report.json"), [to_json(read.report)])]
    if html:
        written.append(write_bytes(trace.with_name(f"{stem}.html"), [_page(read)]))
    return written


def write_page(trace: Path, target: Path) -> Path:
    """Write the HTML report of a trace; raises as `write_explained` does."""
    from foretrace.analysis.explained import explained
    from foretrace.trace.writer import write_bytes

    return write_bytes(target, [_page(explained(trace))])


def _page(read: Explained) -> bytes:
    from foretrace.analysis.drawn import drawn_of
    from foretrace.report.html.explain import explain_page

    return explain_page(read.report, drawn_of(read.trace, read.report))
