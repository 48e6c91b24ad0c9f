"""Hold a trace against what you expected of it; every mismatch is explained.

  foretrace check trace.json.gz expected.toml
  foretrace check trace.json.gz --expect "gemm == 3" --expect "mlp_fwd: gpu_busy_us <= 250"
  foretrace predict mlp --gpu H200 --expectation mlp.toml; foretrace check trace.json.gz mlp.toml
  foretrace check trace.json.gz expected.toml --json       schema foretrace.check/1
  foretrace check trace.json.gz expected.toml --html check.html     also one page, with the timeline; opens anywhere

The exit code is 1 when an expectation is broken (with --strict also when one cannot be judged), 2 when a file cannot
be used. The language: docs/concepts/expectations.md. Either file may be - for standard input. A report (explain --json)
is taken too; what it does not hold is unknown.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from foretrace.cli import expecting, flags
from foretrace.cli.explain import held_against, read_and_explain
from foretrace.cli.files import check_sources, deliver, page_target, target_of, view_for, write
from foretrace.errors import InputError

if TYPE_CHECKING:
    from foretrace.model.expectations import Checked, Expectation

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace check``."""
    parser.add_argument("trace", metavar="TRACE", help="a profiler trace, a report in JSON, or - for standard input")
    parser.add_argument("files", nargs="*", metavar="EXPECT.toml", help="expectations in TOML, or - for standard input")
    expecting.add_flags(parser)
    flags.add_output(parser, json="the check as one line of JSON")
    flags.add_html(parser, what="the check, and the trace it is of,")
    parser.add_argument("--all", action="store_true", dest="everything", help="every event of the evidence")


def run(args: argparse.Namespace) -> int:
    """Check one trace; the exit code says how it went."""
    check_sources([args.trace, *args.files])
    sources = [args.trace, *args.files, *expecting.files_in(args.expect)]
    target = None if args.output == "-" else target_of(args.output, force=args.force, sources=sources)
    page = page_target(args.html, force=args.force, sources=sources, beside=target)
    # Expectations first: a mistake in them is said before a large trace is read.
    expectation = expecting.expectation_of(args.expect, *args.files)
    if expectation is None:
        raise InputError("nothing is expected: name a TOML file, or give --expect 'kernels == 5'")
    checked, drawn = _checked(args.trace, expectation, drawn=page is not None)
    if args.json:
        from foretrace.report.json import to_json

        content = to_json(checked)
    else:
        content = expecting.rendered(checked, view_for(target, everything=args.everything))
    deliver(content, target, force=args.force)
    if page is not None and drawn is not None:
        write(page, drawn, force=args.force)
    return expecting.exit_code(checked, strict=args.strict)


def _checked(path: str, expectation: Expectation, *, drawn: bool) -> tuple[Checked, bytes | None]:
    """The check, and its page where that is wanted; the file is read once."""
    from foretrace.model.reportfile import read_report

    if (report := read_report(path)) is not None:
        from foretrace.prediction.expect import judge

        explained, checked = None, judge(report, expectation)
    else:
        explained = read_and_explain(path)
        report, checked = explained.report, held_against(explained, expectation)
    if not drawn:
        return checked, None
    from foretrace.analysis.drawn import drawn_of
    from foretrace.report.html.check import check_page

    page = drawn_of(None if explained is None else explained.trace, report)
    return checked, check_page(checked, report, page, expectation=expectation)
