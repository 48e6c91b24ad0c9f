"""What became of a trace that was slimmed, on a screen."""

from __future__ import annotations

from collections.abc import Mapping

from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.slimming import KIND_WORDS, MARK_WORDS
from foretrace.model.slim import Slimmed
from foretrace.model.words import bytes_of, count, listed, share_of
from foretrace.report.text import Line, Span, line, paint, plain
from foretrace.report.view import View

__all__ = ["render_slim"]


def render_slim(made: Slimmed, view: View | None = None) -> str:
    """Both sizes, what was kept and dropped by kind, what was mended, as text that ends in a newline."""
    view = view or View()
    share = made.after_bytes / made.before_bytes if made.before_bytes else None
    sizes = f"{bytes_of(made.after_bytes)} of {bytes_of(made.before_bytes)} ({share_of(share)})"
    events = f"{made.after_events} of {count(made.before_events, 'event')}"
    content: list[Line] = [line(Span(made.path, "title"), f": {sizes}, {events}")]
    if made.steps:
        content.append(line(f"  steps    {', '.join(made.steps)}"))
    if made.cut_steps:
        content.append(line(f"  cut      {', '.join(made.cut_steps)}: not whole, so that no verdict is given on it"))
    for word, found in (("kept", made.kept), ("dropped", made.dropped)):
        if found:
            content.append(line(f"  {word:8} {_counts(found)}"))
    if made.moved:
        content.append(
            line(f"  moved    {count(made.moved, 'row')} onto a lane of its own, where it overlapped another")
        )
    content += [line(f"  mended   {repair}") for repair in made.repairs]
    if made.side is not None:
        content.append(line(f"  beside   {made.side} (timing without the profiler, machine, command)"))
    return paint(content) if view.color else plain(content)


def _counts(found: Mapping[str, int]) -> str:
    ranked = sorted(found.items(), key=lambda item: (item[0] in MARK_WORDS, -item[1], item[0]))
    return listed(count(how_many, *_words(kind)) for kind, how_many in ranked)


def _words(kind: str) -> tuple[str, str]:
    return MARK_WORDS[kind] if kind in MARK_WORDS else KIND_WORDS[RowKind[kind.upper()]]
