"""The command line: one small file a command, loaded only when that command is asked for.

A command module has a docstring (its help text) and two functions::

    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(args: argparse.Namespace) -> int: ...      # the exit code

Exit codes: 0 fine, 1 a check failed, 2 the command could not do its work.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from foretrace import __version__
from foretrace.errors import ForetraceError

__all__ = ["COMMANDS", "main"]

# name → what it does, in the order of the loop the product serves
COMMANDS = {
    "run": "profile a built-in workload, your own module, or a script",
    "explain": "read a trace: what ran, what bounds it, what would save time",
    "explain-kernel": "decode kernel names in words or as JSON lines",
    "demo": "profile an MLP on this machine and explain it, then one recorded on an H200",
    "doctor": "check whether this machine can record GPU traces, and say how to mend it",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code and never lets an expected error out as a traceback."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(argv)
    args = parser.parse_args(argv)
    if args.command is None:
        parser.print_help()
        return 2
    debug = bool(getattr(args, "debug", False))
    try:
        code = int(import_module(_module(args.command)).run(args))
        sys.stdout.flush()
        return code
    except ForetraceError as error:
        if debug:
            raise
        from foretrace.report.text import clean

        # A message may quote a file's content, and a terminal obeys escape sequences.
        print(f"foretrace: {clean(str(error))}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output (`| head`) went away: not an error, but Python would report one at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("foretrace: interrupted", file=sys.stderr)
        return 130


def _module(command: str) -> str:
    return "foretrace.cli." + command.replace("-", "_")


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """Build the parser; only the module of the command that was asked for is imported."""
    parser = argparse.ArgumentParser(
        prog="foretrace",
        description="Say what a PyTorch program should do on the hardware, look at what it did, "
        "and have every difference explained.",
    )
    parser.add_argument("--version", action="version", version=f"foretrace {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    asked = next((word for word in argv if not word.startswith("-")), None)
    for name, help_text in COMMANDS.items():
        if name != asked:
            commands.add_parser(name, help=help_text)
            continue
        module = import_module(_module(name))
        command = commands.add_parser(
            name,
            help=help_text,
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--debug", action="store_true", help="show the full traceback of an error")
        module.add_arguments(command)
    return parser
