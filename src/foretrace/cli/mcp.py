"""Serve foretrace to agents: a Model Context Protocol server on standard input and output.

  foretrace mcp                          the files below the current folder
  foretrace mcp --root ~/traces          the files below another one
  foretrace mcp --root ~/traces --max-bytes 500000000

A client starts it itself; what to write into its configuration: docs/how-to/agents.md. The server only reads, and only
regular files below the root; links that leave it are refused. It ends when the client closes standard input.
"""

from __future__ import annotations

import argparse
import sys

from foretrace.cli import flags
from foretrace.knowledge.agents import MAX_BYTES

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the flags of ``foretrace mcp``."""
    parser.add_argument("--root", default=".", metavar="DIR", help="the folder whose files may be read (this one)")
    flags.add(
        parser,
        "max_bytes",
        type=flags.positive,
        default=MAX_BYTES,
        metavar="N",
        help=f"the largest file that is read, in bytes once unpacked ({MAX_BYTES})",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until the client goes away; exit code 0."""
    from foretrace.integrations.mcp import serve

    if sys.stdin is not None and sys.stdin.isatty():
        print(
            "foretrace mcp speaks the Model Context Protocol with the program that starts it; Ctrl-C ends it",
            file=sys.stderr,
        )
    return serve(args.root, max_bytes=args.max_bytes)
