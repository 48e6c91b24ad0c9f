"""Read a profiler trace and say what ran, what bounds it, and what would save time.

  foretrace explain trace.json.gz                 one screen
  foretrace explain trace.json.gz --all           everything, names in full
  foretrace explain trace.json.gz --section chain --section gemms
  foretrace explain trace.json.gz --json          schema foretrace.report/1, one line per trace
  foretrace explain trace.json.gz --expect "gemm == 3"   then hold it against expectations (foretrace check)
  cat trace.json | foretrace explain -            from standard input

--step takes a position (0 is the first step of the trace) or a label ('#3' or ProfilerStep#3). With --json the
check follows its report as a line of its own (schema foretrace.check/1).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.cli import expecting
from foretrace.cli.streams import say, standard_input, to_stdout
from foretrace.errors import ForetraceError, InputError
from foretrace.report.text import clean, columns_of, wants_color
from foretrace.report.view import SECTIONS, View

if TYPE_CHECKING:
    from foretrace.model.expectations import Checked, Expectation
    from foretrace.model.report import Report
    from foretrace.model.sidefile import SideFile
    from foretrace.trace.steps import StepSpan
    from foretrace.trace.table import Trace

__all__ = [
    "Explained",
    "add_arguments",
    "explain_files",
    "read_and_explain",
    "run",
    "select_steps",
    "show",
    "show_explained",
]

LARGE_BYTES = 50_000_000  # from here on reading takes long enough to say so
LISTED_STEPS = 8


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace explain``."""
    parser.add_argument("traces", nargs="+", metavar="TRACE", help="a profiler trace, or - for standard input")
    parser.add_argument("--json", action="store_true", help="the whole report as JSON, one line per trace")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")
    parser.add_argument("--force", action="store_true", help="let --output replace an existing file")
    parser.add_argument(
        "--step",
        action="append",
        default=[],
        metavar="N|LABEL",
        help="only this step: its position (0 is the first) or label ('#3'); may be repeated",
    )
    parser.add_argument("--top", type=_positive, metavar="N", help="rows a table shows at most")
    parser.add_argument("--all", action="store_true", dest="everything", help="every section, every row")
    parser.add_argument(
        "--section",
        action="append",
        default=[],
        choices=list(SECTIONS),
        metavar="NAME",
        help=f"only this section; may be repeated: {', '.join(SECTIONS)}",
    )
    expecting.add_flags(parser)


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Explain every trace named; exit code 2 when one of several could not be read, 1 for a broken expectation."""
    if args.output == "":
        raise InputError("--output is empty; it names a file")
    target = None if args.output in (None, "-") else Path(args.output)
    if target is not None:
        _check_target(target, args)
    view = View(
        everything=args.everything,
        sections=tuple(args.section),
        top=args.top,
        width=columns_of(sys.stdout, os.environ) if target is None else View().width,
        color=target is None and wants_color(sys.stdout, os.environ),
    )
    expectation = expecting.expectation_of(args.expect)
    parts, code = explain_files(
        args.traces, view=view, json=args.json, steps=args.step, expectation=expectation, strict=args.strict
    )
    if parts:
        content = b"".join(parts) if args.json else b"\n".join(parts)
        if target is None:
            to_stdout(content)
        else:
            _write(target, content, force=args.force)
    return code


def show(path: str | Path, *, json: bool = False, brief: bool = False) -> int:
    """Print the report of one trace on standard output.

    ``brief`` leaves out the first screen's footer. Returns the exit code, which is 0; raises
    ``TraceReadError`` when the trace cannot be read.
    """
    parts, code = explain_files([str(path)], view=_screen(brief), json=json)
    to_stdout(b"".join(parts))
    return code


def show_explained(explained: Explained, *, brief: bool = False) -> None:
    """Print the report of a trace that is explained already, as ``show`` does."""
    to_stdout(_rendered(explained.report, _screen(brief), json=False))


def _screen(brief: bool) -> View:
    return View(width=columns_of(sys.stdout, os.environ), color=wants_color(sys.stdout, os.environ), brief=brief)


def explain_files(
    paths: Sequence[str],
    *,
    view: View,
    json: bool = False,
    steps: Sequence[str] = (),
    expectation: Expectation | None = None,
    strict: bool = False,
) -> tuple[list[bytes], int]:
    """The rendered reports in UTF-8, each followed by its check where something is expected, and the exit code.

    One trace that fails raises its error. Of several, each failure is said on standard error in one sentence
    and the others are explained.
    """
    if list(paths).count("-") > 1:
        raise InputError("standard input (-) can be read only once")
    parts: list[bytes] = []
    code = 0
    for path in paths:
        try:
            explained = read_and_explain(path, steps)
            checked = None if expectation is None else explained.checked(expectation)
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
    return parts, code


@dataclass(frozen=True)
class Explained:
    """A report and what it was made of, for what is asked of it next."""

    report: Report
    trace: Trace
    side: SideFile | None
    steps: list[int] | None  # positions of the steps it speaks of; None: all

    def checked(self, expectation: Expectation) -> Checked:
        """The trace held against an expectation, without reading it again."""
        from foretrace.prediction.expect import judge

        return judge(self.report, expectation, trace=self.trace, side=self.side, steps=self.steps)


def read_and_explain(path: str, steps: Sequence[str] = ()) -> Explained:
    """Read one trace (``-``: standard input) and explain it; raises what reading and selecting steps raise."""
    from foretrace.analysis import explain
    from foretrace.model.sidefile import read_side
    from foretrace.trace import load

    if not path:
        raise InputError("an empty path was given; name a trace, or - for standard input")
    if path == "-":
        standard_input()
    size = _size(path)
    told = size >= LARGE_BYTES and sys.stderr.isatty()
    if told:
        print(f"reading {clean(path)} ({size / 1e6:.0f} MB) …", end="", file=sys.stderr, flush=True)
    try:
        trace = load(path)
    finally:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    selected = select_steps(trace.steps, steps) if steps else None
    side = None if path == "-" else read_side(path)
    return Explained(explain(trace, steps=selected, side=side), trace, side, selected)


def _size(path: str) -> int:
    """Bytes of the file, 0 where that is not known; why it cannot be read is said by what reads it."""
    try:
        return Path(path).stat().st_size if path != "-" and Path(path).is_file() else 0
    except (OSError, ValueError):
        return 0


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


def select_steps(spans: Sequence[StepSpan], asked: Sequence[str]) -> list[int]:
    """Positions of the steps that were asked for, in the trace's order and each once.

    A number is a position; ``#3`` stands for every label that ends so (merged ranks repeat them); anything
    else is a whole label. Raises ``InputError`` that lists the choices.
    """
    chosen: set[int] = set()
    for word in asked:
        if word.isdecimal():
            found = [position for position in range(len(spans)) if position == int(word)]
        else:
            found = [
                position
                for position, span in enumerate(spans)
                if span.label == word or (word.startswith("#") and span.label.endswith(word))
            ]
        if not found:
            raise InputError(
                f"there is no step {clean(word)!r}; --step takes a position or a label, of: {_choices(spans)}"
            )
        chosen.update(found)
    return sorted(chosen)


def _choices(spans: Sequence[StepSpan]) -> str:
    named = [f"{position} ({clean(span.label)})" for position, span in enumerate(spans)]
    if len(named) > LISTED_STEPS:
        named = [*named[: LISTED_STEPS - 2], "…", named[-1]]
    return ", ".join(named)


def _check_target(target: Path, args: argparse.Namespace) -> None:
    """Refuse before reading a large trace, not after."""
    if target.is_dir():
        raise InputError(f"{target} is a directory; --output names a file")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; create it first")
    if target.exists():
        if any(path != "-" and Path(path).exists() and target.samefile(path) for path in args.traces):
            raise InputError(f"{target} is the trace itself; --output never replaces it")
        if not args.force:
            raise InputError(f"{target} exists; give --force to replace it, or another name")


def _write(target: Path, content: bytes, *, force: bool) -> None:
    """Write the file; what was there before stays until the new content is complete."""
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if force:
            temporary.write_bytes(content)
            temporary.replace(target)
        else:
            # "x" fails where a file appeared since the check.
            with target.open("xb") as file:
                file.write(content)
    except FileExistsError:
        raise InputError(f"{target} exists; give --force to replace it, or another name") from None
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
    print(f"wrote {clean(str(target))}", file=sys.stderr)
