"""Read a profiler trace and say what ran, what bounds it, and what would save time.

  foretrace explain trace.json.gz                 one screen
  foretrace explain trace.json.gz --all           everything, names in full
  foretrace explain trace.json.gz --section chain --section gemms
  foretrace explain trace.json.gz --json          schema foretrace.report/1, one line per trace
  foretrace explain trace.json.gz --html report.html     also one page: timeline, tables, roofline; opens anywhere
  foretrace explain trace.json.gz --expect "gemm == 3"   then hold it against expectations (foretrace check)
  cat trace.json | foretrace explain -            from standard input

--step takes a position (0 is the first step of the trace) or a label ('#3' or ProfilerStep#3). With --json the
check follows its report as a line of its own (schema foretrace.check/1).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import expecting, flags
from foretrace.cli.files import check_sources, deliver, page_target, reading, target_of, view_for, write
from foretrace.cli.streams import say, to_stdout
from foretrace.errors import ForetraceError
from foretrace.report.view import SECTIONS, View

if TYPE_CHECKING:
    from foretrace.analysis.explained import Explained
    from foretrace.model.expectations import Checked, Expectation
    from foretrace.model.report import Report

__all__ = [
    "STEP_FLAG",
    "add_arguments",
    "held_against",
    "page_of",
    "read_and_explain",
    "run",
    "show",
    "show_explained",
]

# Of an unknown step: what was to name it.
STEP_FLAG = "--step takes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace explain``."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="a profiler trace, or - for standard input")
    flags.add_output(parser, json="the whole report as JSON, one line per trace")
    parser.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="N|LABEL",
        help="only this step: its position (0 is the first) or label ('#3'); may be repeated",
    )
    flags.add_rows(parser, everything="every section, every row")
    parser.add_argument(
        "--section",
        action="append",
        default=[],
        choices=list(SECTIONS),
        metavar="NAME",
        help=f"only this section; may be repeated: {', '.join(SECTIONS)}",
    )
    flags.add_html(parser, what="the report, its timeline and its roofline")
    expecting.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    """Explain every trace named; exit code 2 when one of several could not be read, 1 for a broken expectation."""
    sources = [*args.traces, *expecting.files_in(args.expect)]
    target = None if args.output == "-" else target_of(args.output, force=args.force, sources=sources)
    one = None if len(args.traces) == 1 else "trace"
    page = page_target(args.html, force=args.force, sources=sources, beside=target, one=one)
    view = view_for(target, everything=args.everything, sections=tuple(args.section), top=args.top)
    expectation = expecting.expectation_of(args.expect)
    pages: list[Callable[[], bytes]] | None = None if page is None else []
    parts, code = _explain_files(
        args.traces,
        view=view,
        json=args.json,
        steps=args.step,
        expectation=expectation,
        strict=args.strict,
        pages=pages,
    )
    if parts:
        deliver((b"" if args.json else b"\n").join(parts), target, force=args.force)
    if page is not None and pages:
        write(page, pages[0](), force=args.force)
    return code


def show(path: str | Path, *, json: bool = False, brief: bool = False) -> int:
    """Print the report of one trace on standard output.

    ``brief`` leaves out the first screen's footer. Returns the exit code, which is 0; raises
    ``TraceReadError`` when the trace cannot be read.
    """
    parts, code = _explain_files([str(path)], view=view_for(brief=brief), json=json)
    to_stdout(b"".join(parts))
    return code


def show_explained(explained: Explained, *, brief: bool = False) -> None:
    """Print the report of a trace that is explained already, as ``show`` does."""
    to_stdout(_rendered(explained.report, view_for(brief=brief), json=False))


def _explain_files(
    paths: Sequence[str],
    *,
    view: View,
    json: bool = False,
    steps: Sequence[str] = (),
    expectation: Expectation | None = None,
    strict: bool = False,
    pages: list[Callable[[], bytes]] | None = None,
) -> tuple[list[bytes], int]:
    """The rendered reports in UTF-8, each followed by its check where something is expected, and the exit code.

    What makes their HTML pages is added to ``pages``, where they are wanted: what is printed does not wait for them.

    One trace that fails raises its error. Of several, each failure is said on standard error in one sentence
    and the others are explained.
    """
    check_sources(paths)
    parts: list[bytes] = []
    code = 0
    for path in paths:
        try:
            explained = read_and_explain(path, steps)
            checked = None if expectation is None else held_against(explained, expectation)
        except ForetraceError as error:
            if len(paths) == 1:
                raise
            say(str(error))
            code = 2
            continue
        part = _rendered(explained.report, view, json)
        if checked is not None:
            part += _rendered_check(checked, view, json)
            code = max(code, expecting.exit_code(checked, strict=strict))
        parts.append(part)
        if pages is not None:
            pages.append(partial(page_of, explained, checked))
    return parts, code


def read_and_explain(path: str, steps: Sequence[str] = ()) -> Explained:
    """Read one trace (``-``: standard input) and explain it; raises what reading and selecting steps raise."""
    from foretrace.analysis.explained import explained

    check_sources([path])
    with reading([path]):
        return explained(path, steps=steps, what=STEP_FLAG)


def held_against(explained: Explained, expectation: Expectation) -> Checked:
    """The trace held against an expectation, without reading it again."""
    from foretrace.prediction.expect import judge

    return judge(explained.report, expectation, context=explained.context)


def page_of(explained: Explained, checked: Checked | None = None) -> bytes:
    """The report as one HTML page, with the check where there is one."""
    from foretrace.analysis.drawn import drawn_of
    from foretrace.report.html.explain import explain_page

    drawn = drawn_of(explained.trace, explained.report, steps=explained.steps)
    return explain_page(explained.report, drawn, checked=checked)


def _rendered(report: Report, view: View, json: bool) -> bytes:
    # Each renderer is imported only where it is used: start-up time is most of what explaining costs.
    if json:
        from foretrace.report.json import to_json

        return to_json(report)
    from foretrace.report.terminal import render

    return render(report, view).encode("utf-8", "replace")


def _rendered_check(checked: Checked, view: View, json: bool) -> bytes:
    if json:
        from foretrace.report.json import to_json

        return to_json(checked)
    return b"\n" + expecting.rendered(checked, view)
