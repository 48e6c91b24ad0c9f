"""Compare traces of one program: what changed, what stayed the same, what it is worth.

  foretrace compare eager.json.gz compiled.json.gz             the first trace is the baseline
  foretrace compare eager.json.gz compiled.json.gz liger.json.gz
  foretrace compare A B --json                                 schema foretrace.compare/1
  foretrace compare A B -o changes.md                          Markdown (also --markdown)
  foretrace compare A B --fail-on "gpu_time > +3%"             exit code 1 where it holds

--fail-on METRIC OP VALUE: a VALUE with a sign is the change from the baseline ("kernels > +0"), one without is
the number itself ("memcpys > 0", "gpu_time > 300us"); a percentage is always a change. A difference inside the
spread over steps counts as none. Metrics: gpu_time, gpu_idle, cpu_time, wall, period, end_to_end, kernels,
memcpys, memsets, launches, kernel_launches, occupancy_queries, synchronizations, operators, bytes, flops,
peak_memory, and the kernel kinds (gemm, elementwise, fused, …).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli.explain import LARGE_BYTES
from foretrace.cli.streams import say, standard_input, to_stdout
from foretrace.errors import InputError
from foretrace.report.text import columns_of, wants_color
from foretrace.report.view import View

if TYPE_CHECKING:
    from foretrace.model.comparison import Comparison

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace compare``."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="two or more traces; the first is the baseline")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="the whole comparison as one line of JSON")
    form.add_argument("--markdown", action="store_true", help="Markdown instead of text for a terminal")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there; .md is Markdown, .json is JSON")
    parser.add_argument("--force", action="store_true", help="let --output replace an existing file")
    parser.add_argument(
        "--fail-on", action="append", default=[], metavar="GATE", help="exit with 1 where this holds; may be repeated"
    )
    parser.add_argument("--strict", action="store_true", help="a gate whose numbers are unknown fails as well")
    parser.add_argument("--top", type=_positive, metavar="N", help="rows a table shows at most")
    parser.add_argument("--all", action="store_true", dest="everything", help="every row")


def run(args: argparse.Namespace) -> int:
    """Compare the traces; the exit code is 1 when a gate fails."""
    from foretrace.comparison import compare
    from foretrace.comparison.gates import parse_condition

    _check_sources(args.traces)
    for text in args.fail_on:
        parse_condition(text)  # refused before large traces are read
    if args.output == "":
        raise InputError("--output is empty; it names a file")
    target = None if args.output in (None, "-") else Path(args.output)
    if target is not None:
        _check_target(target, args)
    with _told(args.traces):
        comparison = compare(args.traces, fail_on=args.fail_on)
    content = _rendered(comparison, _form(args, target), args, target)
    if target is None:
        to_stdout(content)
    else:
        from foretrace.trace.writer import write_bytes

        write_bytes(target, [content], force=args.force)
        say(f"wrote {target}")
    return _verdict(comparison, strict=args.strict)


@contextmanager
def _told(paths: list[str]) -> Iterator[None]:
    """Say on a terminal that large traces are being read, for as long as they are."""
    size = sum(Path(path).stat().st_size for path in paths if path != "-" and Path(path).is_file())
    told = size >= LARGE_BYTES and sys.stderr.isatty()
    if told:
        print(f"reading {len(paths)} traces ({size / 1e6:.0f} MB) …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _check_sources(paths: list[str]) -> None:
    if len(paths) < 2:
        raise InputError("a comparison needs at least two traces; the first is the baseline")
    if "" in paths:
        raise InputError("an empty path was given; name a trace, or - for standard input")
    if paths.count("-") > 1:
        raise InputError("standard input (-) can be read only once")
    if "-" in paths:
        standard_input()


def _check_target(target: Path, args: argparse.Namespace) -> None:
    """Refuse before reading large traces, not after."""
    if target.is_dir():
        raise InputError(f"{target} is a directory; --output names a file")
    if target.exists():
        if any(path != "-" and Path(path).exists() and target.samefile(path) for path in args.traces):
            raise InputError(f"{target} is one of the traces; --output never replaces it")
        if not args.force:
            raise InputError(f"{target} exists; give --force to replace it, or another name")


def _form(args: argparse.Namespace, target: Path | None) -> str:
    """What was asked for; without a flag the name of the file says it."""
    if args.json or args.markdown:
        return "json" if args.json else "markdown"
    suffix = "" if target is None else target.suffix.lower()
    return {".json": "json", ".md": "markdown", ".markdown": "markdown"}.get(suffix, "text")


def _rendered(comparison: Comparison, form: str, args: argparse.Namespace, target: Path | None) -> bytes:
    if form == "json":
        from foretrace.report.json import to_json

        return to_json(comparison)
    if form == "markdown":
        from foretrace.report.compare_markdown import comparison_markdown

        return comparison_markdown(comparison, everything=args.everything).encode("utf-8", "replace")
    from foretrace.report.compare_terminal import render_comparison

    view = View(
        everything=args.everything,
        top=args.top,
        width=columns_of(sys.stdout, os.environ) if target is None else View().width,
        color=target is None and wants_color(sys.stdout, os.environ),
    )
    return render_comparison(comparison, view).encode("utf-8", "replace")


def _verdict(comparison: Comparison, *, strict: bool) -> int:
    """1 where a gate failed, or is unknown and must not be; each of them is said on standard error as well."""
    bad = ("failed", "unknown") if strict else ("failed",)
    broken = [gate for gate in comparison.gates if gate.state in bad]
    for gate in broken:
        say(f"gate {gate.expression!r} {gate.state} for {comparison.sides[gate.side].label}: {gate.detail}")
    return 1 if broken else 0


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
