"""Compare traces of one program: what changed, what stayed the same, what it is worth.

  foretrace compare eager.json.gz compiled.json.gz             the first trace is the baseline
  foretrace compare eager.json.gz compiled.json.gz liger.json.gz
  foretrace compare A B --json                                 schema foretrace.compare/1
  foretrace compare A B -o changes.md                          Markdown (also --markdown)
  foretrace compare A B --html changes.html                    also one page: the steps side by side; opens anywhere
  foretrace compare A B --fail-on "gpu_time > +3%"             exit code 1 where it holds

--fail-on METRIC OP VALUE: a VALUE with a sign is the change from the baseline ("kernels > +0"), one without is
the number itself ("memcpys > 0", "gpu_time > 300us"); a percentage is always a change. A difference inside the
spread over steps counts as none; between unrelated traces a gate on a change fails. Metrics: gpu_time, gpu_idle,
cpu_time, wall, period, end_to_end, kernels, memcpys, memsets, launches, kernel_launches, occupancy_queries,
synchronizations, operators, bytes, flops, peak_memory, and the kernel kinds (gemm, elementwise, fused, …).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import flags
from foretrace.cli.files import check_sources, deliver, page_target, reading, target_of, view_for, write
from foretrace.cli.streams import say
from foretrace.errors import InputError

if TYPE_CHECKING:
    from foretrace.comparison.subject import Subject
    from foretrace.model.comparison import Comparison
    from foretrace.model.timeline import Timeline

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
    flags.add_html(parser, what="the comparison, with the compared steps under each other,")


def run(args: argparse.Namespace) -> int:
    """Compare the traces; the exit code is 1 when a gate fails."""
    from foretrace.comparison.gates import parse_condition

    if len(args.traces) < 2:
        raise InputError("a comparison needs at least two traces; the first is the baseline")
    check_sources(args.traces)
    for text in args.fail_on:
        parse_condition(text)  # refused before large traces are read
    target = None if args.output == "-" else target_of(args.output, force=args.force, sources=args.traces)
    page = page_target(args.html, force=args.force, sources=args.traces, beside=target)
    comparison, timelines = _compared(args.traces, args.fail_on, drawn=page is not None)
    deliver(_rendered(comparison, _form(args, target), args, target), target, force=args.force)
    if page is not None:
        from foretrace.report.html.compare import compare_page

        write(page, compare_page(comparison, timelines), force=args.force)
    return _verdict(comparison, strict=args.strict)


def _compared(paths: Sequence[str], fail_on: Sequence[str], *, drawn: bool) -> tuple[Comparison, list[Timeline | None]]:
    """The comparison, and each compared step as something to draw where that is wanted; each trace is read once."""
    from foretrace.comparison.compare import compare_subjects, read_with_trace

    subjects: list[Subject] = []
    timelines: list[Timeline | None] = []
    with reading(paths):
        for path in paths:
            subject, trace = read_with_trace(path)
            subjects.append(subject)
            if drawn:
                from foretrace.comparison.drawn import timeline_of_step

                timelines.append(None if trace is None else timeline_of_step(subject, trace))
    return compare_subjects(subjects, fail_on=fail_on), timelines


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
