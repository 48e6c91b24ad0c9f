"""Compare traces of one program: what changed, what stayed the same, what it is worth.

  foretrace compare eager.json.gz compiled.json.gz             the first trace is the baseline
  foretrace compare eager.json.gz compiled.json.gz liger.json.gz
  foretrace compare A B --json                                 schema foretrace.compare/1
  foretrace compare A B -o changes.md                          Markdown (also --markdown)
  foretrace compare A B --fail-on "gpu_time > +3%"             exit code 1 where it holds

--fail-on METRIC OP VALUE: a VALUE with a sign is the change from the baseline ("kernels > +0"), one without is
the number itself ("memcpys > 0", "gpu_time > 300us"); a percentage is always a change. A difference inside the
spread over steps counts as none; between unrelated traces a gate on a change fails. Metrics: gpu_time, gpu_idle,
cpu_time, wall, period, end_to_end, kernels, memcpys, memsets, launches, kernel_launches, occupancy_queries,
synchronizations, operators, bytes, flops, peak_memory, and the kernel kinds (gemm, elementwise, fused, …).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import flags
from foretrace.cli.files import check_sources, deliver, reading, target_of, view_for
from foretrace.cli.streams import say
from foretrace.errors import InputError

if TYPE_CHECKING:
    from foretrace.model.comparison import Comparison

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace compare``."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="two or more traces; the first is the baseline")
    form = flags.add_output(
        parser, json="the whole comparison as one line of JSON", output="write there; .md is Markdown, .json is JSON"
    )
    form.add_argument("--markdown", action="store_true", help="Markdown instead of text for a terminal")
    flags.add(
        parser,
        "fail_on",
        action="append",
        default=[],
        metavar="GATE",
        help="exit with 1 where this holds; may be repeated",
    )
    parser.add_argument("--strict", action="store_true", help="a gate whose numbers are unknown fails as well")
    flags.add_rows(parser, everything="every row")


def run(args: argparse.Namespace) -> int:
    """Compare the traces; the exit code is 1 when a gate fails."""
    from foretrace.comparison import compare
    from foretrace.comparison.gates import parse_condition

    if len(args.traces) < 2:
        raise InputError("a comparison needs at least two traces; the first is the baseline")
    check_sources(args.traces)
    for text in args.fail_on:
        parse_condition(text)  # refused before large traces are read
    target = None if args.output == "-" else target_of(args.output, force=args.force, sources=args.traces)
    with reading(args.traces):
        comparison = compare(args.traces, fail_on=args.fail_on)
    deliver(_rendered(comparison, _form(args, target), args, target), target, force=args.force)
    return _verdict(comparison, strict=args.strict)


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

    view = view_for(target, everything=args.everything, top=args.top)
    return render_comparison(comparison, view).encode("utf-8", "replace")


def _verdict(comparison: Comparison, *, strict: bool) -> int:
    """1 where a gate failed, or is unknown and must not be; each of them is said on standard error as well."""
    bad = ("failed", "unknown") if strict else ("failed",)
    broken = [gate for gate in comparison.gates if gate.state in bad]
    for gate in broken:
        say(f"gate {gate.expression!r} {gate.state} for {comparison.sides[gate.side].label}: {gate.detail}")
    return 1 if broken else 0
