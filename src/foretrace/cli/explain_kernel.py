"""Say what GPU kernel names mean: kind, library, tile, layout, types, fused operators.

Names are given as arguments, or one a line on standard input (`-`, or no argument when input is piped):

    foretrace explain-kernel nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT
    foretrace explain-kernel --json - < names.txt
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Iterable, Iterator

import msgspec

from foretrace.cli.streams import standard_input, to_stdout
from foretrace.errors import InputError
from foretrace.knowledge.kernels import Decoded, decode, describe
from foretrace.report.text import clean

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments of ``foretrace explain-kernel``."""
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a kernel name; - reads one a line from standard input"
    )
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line: name, kind, family, decoded, unknown"
    )
    parser.add_argument("--op", metavar="OPERATOR", help="the operator that launched it, such as aten::mm, if known")


def run(args: argparse.Namespace) -> int:
    """Decode the names and print them in order; exit code 0."""
    printed = 0
    for name in _names(args.names):
        decoded = decode(name, op=None if args.op is None else _text(args.op))
        if args.json:
            to_stdout(_json(decoded))
        else:
            sys.stdout.write(_words(decoded))
        printed += 1
    if not printed:
        raise InputError(
            "No kernel name was given: pass names as arguments, or one a line on standard input"
            " with `foretrace explain-kernel -`."
        )
    return 0


def _names(arguments: list[str]) -> Iterator[str]:
    if not arguments and sys.stdin is not None and not sys.stdin.isatty():
        arguments = ["-"]
    for argument in arguments:
        if argument == "-":
            stream = standard_input()
            if isinstance(stream, io.TextIOWrapper):
                # A profiler may have written bytes that are no text; a name with a hole still decodes.
                stream.reconfigure(errors="replace")
            yield from _lines(stream)
        elif argument.strip():
            yield _text(argument)


def _text(argument: str) -> str:
    """An argument with U+FFFD for every byte that is no text (Python has a lone surrogate there)."""
    return re.sub("[\ud800-\udfff]", "\ufffd", argument)


def _lines(stream: Iterable[str]) -> Iterator[str]:
    for line in stream:
        name = line.strip("\r\n")
        if name.strip():
            yield name


def _json(decoded: Decoded) -> bytes:
    document = {
        "name": decoded.name,
        "kind": decoded.kind,
        "family": decoded.family,
        "decoded": decoded.decoded,
        "unknown": decoded.unknown,
    }
    return msgspec.json.encode(document) + b"\n"


def _words(decoded: Decoded) -> str:
    name = decoded.name if len(decoded.name) <= 100 else decoded.name[:99] + "…"
    return f"{clean(name)}\n  {clean(describe(decoded))}\n"
