"""Hold a trace against what you expected of it; every mismatch is explained.

  foretrace check trace.json.gz expected.toml
  foretrace check trace.json.gz --expect "gemm == 3" --expect "mlp_fwd: gpu_busy_us <= 250"
  foretrace predict mlp --gpu H200 --expectation mlp.toml; foretrace check trace.json.gz mlp.toml
  foretrace check trace.json.gz expected.toml --json       schema foretrace.check/1

The exit code is 1 when an expectation is broken (with --strict also when one cannot be judged), 2 when a file cannot
be used. The language: docs/concepts/expectations.md. Either file may be - for standard input.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from foretrace.cli import expecting
from foretrace.cli.streams import say, standard_input, to_stdout
from foretrace.errors import InputError
from foretrace.report.text import columns_of, wants_color
from foretrace.report.view import View

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace check``."""
    parser.add_argument("trace", metavar="TRACE", help="a profiler trace, or - for standard input")
    parser.add_argument("files", nargs="*", metavar="EXPECT.toml", help="expectations in TOML, or - for standard input")
    expecting.add_flags(parser)
    parser.add_argument("--json", action="store_true", help="the check as one line of JSON")
    parser.add_argument("-o", "--output", metavar="FILE", help="write there instead of to standard output")
    parser.add_argument("--force", action="store_true", help="let --output replace an existing file")
    parser.add_argument("--all", action="store_true", dest="everything", help="every event of the evidence")


def run(args: argparse.Namespace) -> int:
    """Check one trace; the exit code says how it went."""
    sources = [args.trace, *args.files]
    if "" in sources:
        raise InputError("an empty path was given; name a file, or - for standard input")
    if sources.count("-") > 1:
        raise InputError("standard input (-) can be read only once")
    if args.output == "":
        raise InputError("--output is empty; it names a file")
    target = None if args.output in (None, "-") else Path(args.output)
    if target is not None and target.is_dir():
        raise InputError(f"{target} is a folder; --output names a file")
    if target is not None and not args.force and target.exists():
        raise InputError(f"{target} exists; give --force to replace it, or another name")
    if target is not None and any(
        s != "-" and Path(s).exists() and target.exists() and target.samefile(s) for s in sources
    ):
        raise InputError(f"{target} is one of the files that are read; --output never replaces it")
    # Expectations first: a mistake in them is said before a large trace is read.
    expectation = expecting.expectation_of(args.expect, *args.files)
    if expectation is None:
        raise InputError("nothing is expected: name a TOML file, or give --expect 'kernels == 5'")
    from foretrace.prediction.expect import check

    if args.trace == "-":
        standard_input()
    checked = check(args.trace, expectation)
    if args.json:
        from foretrace.report.json import to_json

        content = to_json(checked)
    else:
        view = View(
            everything=args.everything,
            width=columns_of(sys.stdout, os.environ) if target is None else View().width,
            color=target is None and wants_color(sys.stdout, os.environ),
        )
        content = expecting.rendered(checked, view)
    if target is None:
        to_stdout(content)
    else:
        from foretrace.trace.writer import write_bytes

        write_bytes(target, [content], force=args.force)
        say(f"wrote {target}")
    return expecting.exit_code(checked, strict=args.strict)
