"""The command line: one small file a command, loaded only when that command is asked for.

A command module has a docstring (its help text) and two functions::

    def add_arguments(parser: argparse.ArgumentParser) -> None: ...
    def run(args: argparse.Namespace) -> int: ...      # the exit code

Exit codes: 0 fine, 1 a check failed, 2 the command could not do its work.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from foretrace import __version__
from foretrace.cli import signals, streams
from foretrace.errors import ForetraceError, sentence_of

__all__ = ["COMMANDS", "main"]

# name → what it does, in the order of the loop the product serves
COMMANDS = {
    "predict": "say what a program would run on a GPU that is not here, and for how long",
    "run": "profile a built-in workload, your own module, or a script",
    "explain": "read a trace: what ran, what bounds it, what would save time",
    "check": "hold a trace against what you expected of it, and have every mismatch explained",
    "compare": "say what differs between traces of one program, and what stayed the same",
    "explain-kernel": "decode kernel names in words or as JSON lines",
    "sql": "ask a trace in SQL: events, kernels, launches, operators, steps, transfers",
    "slim": "make a smaller trace: some steps, without Python stacks; mends a damaged one",
    "view": "open traces in the Perfetto UI from this machine, at a step, a finding or an event",
    "bench": "time variants against each other, check their results, hold them against the limits",
    "memory": "read an allocator snapshot: where memory is, what pins it, would a request succeed",
    "oom": "explain an out-of-memory message: what it was, what helps and what cannot",
    "mcp": "serve traces below a folder to agents (Model Context Protocol, stdio)",
    "share": "upload a folder of traces to a bucket of the Hugging Face Hub, with Perfetto links",
    "demo": "profile an MLP on this machine and explain it, then one recorded on an H200",
    "doctor": "check whether this machine can record GPU traces, and say how to mend it",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code. No error leaves it as a traceback, unless with ``--debug``."""
    with signals.heard() as came:
        code = _main(argv)
    # A command may clear away after Ctrl-C by itself, and says so by its exit code.
    return 128 + came[0] if came and code == 130 else code


def _main(argv: Sequence[str] | None) -> int:
    argv = list(sys.argv[1:] if argv is None else argv)
    streams.prepare()
    # What follows two dashes is a script's. Known before parsing, which may fail as well.
    debug = "--debug" in argv[: argv.index("--") if "--" in argv else len(argv)]
    try:
        parser = _parser(argv)
        args = parser.parse_args(argv)
        if args.command is None:
            parser.print_help()
            code = 2
        else:
            code = int(import_module(_module(args.command)).run(args))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output (`| head`) went away: not an error, but Python would report one at exit.
        streams.silence_output()
        return 0
    except signals.Ended as end:
        streams.say("ended by a signal")
        return end.exit_code
    except KeyboardInterrupt:
        streams.say("interrupted")
        return 130
    except Exception as error:
        if isinstance(error, OSError) and streams.is_output_failure(error):
            streams.silence_output()
        if debug:
            raise
        streams.say(_sentence(error))
        return error.exit_code if isinstance(error, ForetraceError) else 2


def _sentence(error: Exception) -> str:
    if isinstance(error, OSError) and streams.is_output_failure(error):
        return f"standard output cannot be written: {error.strerror}"
    return sentence_of(error, defect="run again with --debug for the traceback and report it")


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
