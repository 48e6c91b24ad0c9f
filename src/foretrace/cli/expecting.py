"""What ``run``, ``explain`` and ``check`` share: expectations from flags and files, guesses, and exit codes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from foretrace.cli.files import view_for
from foretrace.cli.streams import to_stdout
from foretrace.errors import InputError

if TYPE_CHECKING:
    from foretrace.model.expectations import Checked, Expectation
    from foretrace.report.view import View

__all__ = ["add_flags", "ask_guesses", "exit_code", "expectation_of", "files_in", "rendered", "show"]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Declare ``--expect`` and ``--strict``."""
    parser.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="EXPECTATION",
        help="what the trace should hold, as in 'gemm == 3' or 'mlp_fwd: gpu_busy_us <= 250'; also a TOML file; "
        "may be repeated; exit code 1 when one is broken",
    )
    parser.add_argument("--strict", action="store_true", help="an expectation that cannot be judged fails as well")


def expectation_of(texts: list[str], *files: str) -> Expectation | None:
    """All expectations of the command line together; None where there are none.

    Raises:
        InputError: one cannot be read, or they cannot hold together.
    """
    if not texts and not files:
        return None
    from foretrace.prediction.expect import expect, read_toml

    parts = [read_toml(file) for file in files]
    for text in texts:
        parts.append(read_toml(text) if _is_file(text) else expect(text))
    return expect(*parts)


def files_in(texts: Iterable[str]) -> list[str]:
    """Those values of ``--expect`` that name a file."""
    return [text for text in texts if _is_file(text)]


def _is_file(text: str) -> bool:
    return text.endswith(".toml")


def ask_guesses() -> Expectation | None:
    """Ask a person at the terminal; None when nothing was guessed.

    Raises:
        InputError: standard input is no terminal.
    """
    if sys.stdin is None or not sys.stdin.isatty():
        raise InputError(
            "--guess asks for your guesses at the terminal, and standard input is none; "
            "write them as expectations: --expect 'kernels == 5'"
        )
    from foretrace.prediction.expect.guess import ask

    print("Guess first, then look. Enter alone is no guess.", file=sys.stderr)
    guessed = ask(_read, lambda sentence: print(f"  {sentence}", file=sys.stderr))
    print(file=sys.stderr, flush=True)
    return guessed if len(guessed) else None


def _read(prompt: str) -> str | None:
    # The prompt goes to standard error: standard output is for results.
    print(f"  {prompt}", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    return line if line else None


def rendered(checked: Checked, view: View, *, guess: bool = False) -> bytes:
    """The check as text for below the explained trace, or on its own."""
    from foretrace.report.check import render_check

    return render_check(checked, view, guess=guess).encode("utf-8", "replace")


def show(checked: Checked, *, guess: bool = False) -> None:
    """Print a check on standard output, under what is there already."""
    to_stdout(b"\n" + rendered(checked, view_for(), guess=guess))


def exit_code(checked: Checked, *, strict: bool) -> int:
    """1 when an expectation is broken, with ``strict`` also when one is unknown; else 0."""
    return int(checked.state == "broken" or (strict and checked.unknown > 0))
