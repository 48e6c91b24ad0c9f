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
from collections.abc import Sequence
from pathlib import Path

from foretrace.cli import flags
from foretrace.cli.explain import STEP_FLAG
from foretrace.cli.files import check_sources, reading, target_of, view_for
from foretrace.cli.streams import standard_input, to_stdout
from foretrace.errors import InputError
from foretrace.knowledge.slimming import DROPPABLE
from foretrace.report.text import clean

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace slim``."""
    parser.add_argument("trace", metavar="TRACE", help="a profiler trace, or - for standard input")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="the slim trace; .gz is packed")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    parser.add_argument("--json", action="store_true", help="what became of it as one line of JSON, foretrace.slim/1")
    flags.add_steps(parser)
    flags.add_range(parser, what="only this range")
    parts = "; ".join(f"{name}: {what}" for name, what in DROPPABLE.items())
    parser.add_argument(
        "--drop",
        action="append",
        default=[],
        metavar="PART[,PART]",
        help=f"leave out more; may be repeated. {parts}",
    )
    flags.add(parser, "keep_stacks", action="store_true", help="keep the Python stacks, which are left out otherwise")
    flags.add(
        parser,
        "fix_overlaps",
        action="store_true",
        help="put rows that overlap another one of their lane on a lane of their own: Perfetto would drop them",
    )


def run(args: argparse.Namespace) -> int:
    """Write the slim trace and say what became of the events; exit code 0."""
    from foretrace.view.slim import slim

    check_sources([args.trace])
    target = target_of(args.output, force=args.force, sources=[args.trace])
    assert target is not None
    if args.step and args.range is not None:
        raise InputError("--step and --range both say what to keep; give one of them")
    drop = _parts(args.drop, keep_stacks=args.keep_stacks)
    with tempfile.TemporaryDirectory() as folder:
        source = _on_disk(args.trace, Path(folder))
        with reading([str(source)]):
            made = slim(
                source,
                target,
                steps=args.step or None,
                what=STEP_FLAG,
                span=args.range,
                drop=drop,
                fix_overlaps=args.fix_overlaps,
                force=args.force,
            )
    if args.json:
        from foretrace.report.json import to_json

        to_stdout(to_json(made))
    else:
        from foretrace.report.slim import render_slim

        to_stdout(render_slim(made, view_for()).encode("utf-8", "replace"))
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
