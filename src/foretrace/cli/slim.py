"""Make a smaller trace: some steps of a large one, without Python stacks; a damaged one is mended.

What is kept keeps its numbers: `foretrace explain` of the slim trace says the same of a kept step.

examples:
  foretrace slim trace.json.gz -o small.json.gz --step 2
  foretrace slim trace.json.gz -o small.json.gz --step '#12' --drop shapes
  foretrace slim trace.json.gz -o part.json.gz --range 20ms:35ms
  foretrace slim broken.json -o mended.json.gz --keep-stacks
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.explain import select_steps
from foretrace.cli.files import check_sources, reading, target_of
from foretrace.cli.streams import standard_input, to_stdout
from foretrace.errors import InputError
from foretrace.knowledge.kineto import RowKind
from foretrace.knowledge.slimming import DROPPABLE, KIND_WORDS, MARK_WORDS
from foretrace.model.words import bytes_of, listed, share_of
from foretrace.report.text import clean

if TYPE_CHECKING:
    from foretrace.view.slim import Slimmed

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace slim``."""
    parser.add_argument("trace", metavar="TRACE", help="a profiler trace, or - for standard input")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the slim trace; .gz is packed")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    parser.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="N|LABEL",
        help="only this step: its position (0 is the first) or label ('#3'); may be repeated",
    )
    parser.add_argument(
        "--range",
        metavar="FROM:TO",
        help="only this range, in µs since the first row or with a unit (1.5ms:3ms); either end may be left out",
    )
    parts = "; ".join(f"{name}: {what}" for name, what in DROPPABLE.items())
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="PART[,PART]",
        help=f"leave out more; may be repeated. {parts}",
    )
    parser.add_argument(
        "--keep-stacks", action="store_true", help="keep the Python stacks, which are left out otherwise"
    )
    parser.add_argument(
        "--fix-overlaps",
        action="store_true",
        help="put rows that overlap another one of their lane on a lane of their own: Perfetto would drop them",
    )


def run(args: argparse.Namespace) -> int:
    """Write the slim trace and say what became of the events; exit code 0."""
    from foretrace.view.slim import parse_range, slim

    check_sources([args.trace])
    target = target_of(args.output, force=args.force, sources=[args.trace])
    assert target is not None
    if args.step and args.range is not None:
        raise InputError("--step and --range both say what to keep; give one of them")
    drop = _parts(args.drop, keep_stacks=args.keep_stacks)
    steps = args.step
    span = None if args.range is None else parse_range(args.range)
    with tempfile.TemporaryDirectory() as folder:
        source = _on_disk(args.trace, Path(folder))
        with reading([str(source)]):
            made = slim(
                source,
                target,
                steps=(lambda spans: select_steps(spans, steps)) if steps else None,
                span=span,
                drop=drop,
                fix_overlaps=args.fix_overlaps,
                force=args.force,
            )
    to_stdout(_said(made).encode())
    return 0


def _parts(given: Sequence[str], *, keep_stacks: bool) -> list[str]:
    parts = [part.strip() for words in given for part in words.split(",") if part.strip()]
    for part in parts:
        if part not in DROPPABLE:
            raise InputError(f"--drop has no part {clean(part)!r}; choose from {', '.join(DROPPABLE)}")
    if keep_stacks and "stacks" in parts:
        raise InputError("--keep-stacks and --drop stacks contradict each other; give one of them")
    return parts if keep_stacks else ["stacks", *parts]


def _on_disk(name: str, folder: Path) -> Path:
    """The file to read; what comes from standard input is put into ``folder``, since it is read more than once."""
    if name != "-":
        return Path(name)
    path = folder / "standard-input.json"
    path.write_bytes(getattr(standard_input(), "buffer", sys.stdin.buffer).read())
    return path


def _said(made: Slimmed) -> str:
    share = made.after_bytes / made.before_bytes if made.before_bytes else None
    lines = [
        f"{clean(str(made.path))}: {bytes_of(made.after_bytes)} of {bytes_of(made.before_bytes)} ({share_of(share)}), "
        f"{made.after_events:,} of {made.before_events:,} events"
    ]
    if made.steps:
        lines.append(f"  steps    {', '.join(map(clean, made.steps))}")
    lines += [
        f"  {word:8} {_counts(found)}" for word, found in (("kept", made.kept), ("dropped", made.dropped)) if found
    ]
    if made.moved:
        lines.append(
            f"  moved    {_counted('row', 'rows', made.moved)} onto a lane of its own, where it overlapped another"
        )
    lines += [f"  mended   {clean(repair)}" for repair in made.repairs]
    if made.side is not None:
        lines.append(f"  beside   {clean(str(made.side))} (timing without the profiler, machine, command)")
    return "\n".join(lines) + "\n"


def _counts(found: Mapping[str, int]) -> str:
    ranked = sorted(found.items(), key=lambda item: (item[0] in MARK_WORDS, -item[1], item[0]))
    return listed(_counted(*_words(kind), count) for kind, count in ranked)


def _words(kind: str) -> tuple[str, str]:
    return MARK_WORDS[kind] if kind in MARK_WORDS else KIND_WORDS[RowKind[kind.upper()]]


def _counted(one: str, many: str, count: int) -> str:
    return f"{count:,} {one if count == 1 else many}"
