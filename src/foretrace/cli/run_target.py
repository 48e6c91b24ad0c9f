"""What ``foretrace run`` is asked to run: a workload, a factory, or what follows ``--``, a script."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from foretrace.errors import InputError

__all__ = ["keep_script_apart", "what_to_run"]


def keep_script_apart(parse: Any) -> Any:
    """Wrap a parser's ``parse_known_args``: what follows ``--`` is the script's, which argparse would not tell.

    Flags we do not know are left for :func:`what_to_run` where a script was given without ``--``: they are its own.
    """

    def parse_known_args(args: Sequence[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        words = list(sys.argv[1:] if args is None else args)
        at = words.index("--") if "--" in words else len(words)
        found, unknown = parse(words[:at], namespace)
        if at < len(words):
            found.script = words[at + 1 :]
        if unknown and found.script is None and ("-m" in unknown or any(map(_is_script, found.target))):
            found.unknown, unknown = unknown, []
        return found, unknown

    return parse_known_args


def what_to_run(args: argparse.Namespace) -> tuple[str, list[str]]:
    """What to run: a workload or factory, or else the words of a script.

    Raises :class:`InputError` when it is not exactly one of them, saying what to write.
    """
    words: list[str] = args.target
    script: list[str] | None = args.script
    if script is None:
        if "-m" in args.unknown:
            raise InputError(f"a module goes after two dashes: foretrace run -- -m {' '.join(words) or 'MODULE'}")
        rest = words[1:] if words and _is_interpreter(words[0]) else words
        if rest and _is_script(rest[0]):
            _no_dashes(rest[0], several=len(rest) > 1 or bool(args.unknown))
        if len(words) > 1:
            raise InputError(f"one thing at a time: {' and '.join(words)} were given; record one after the other")
        if words:
            return words[0], []
        raise InputError("nothing to run was given: a workload, as in foretrace run mlp, FILE.py:FACTORY, or -- SCRIPT")
    if words:
        raise InputError(f"one thing at a time: {words[0]} and, after --, {' '.join(script) or 'nothing'} were given")
    if not script:
        raise InputError("after -- goes a script, as in foretrace run -- train.py, or -m and a module")
    if _is_interpreter(script[0]):
        script = script[1:]  # it is started with the Python that runs foretrace in any case
        if not script or (script[0].startswith("-") and script[0] != "-m"):
            given = f"its flag {script[0]} cannot be passed on" if script else "it needs a script to run"
            raise InputError(f"foretrace starts Python itself, and {given}; write foretrace run -- train.py ARGS")
    if _is_script(script[0]):
        return "", script
    if len(script) == 1 and not Path(script[0]).exists():
        return script[0], []  # a workload or a factory, though no dashes are needed before it
    raise InputError(f"{script[0]} is no Python script: after -- goes a file that ends in .py, or -m and a module")


def _no_dashes(file: str, *, several: bool) -> None:
    """Raise for a Python file that was given like a workload: a factory or a whole script may be meant."""
    if not Path(file).exists():
        raise InputError(f"{file} does not exist")
    more = " ARGS" if several else ""
    raise InputError(
        f"{file} can be recorded in two ways: a function in it that returns (module, inputs), "
        f"as in foretrace run {file}:make, or the whole script: foretrace run -- {file}{more}"
    )


def _is_interpreter(word: str) -> bool:
    """Whether a word is Python's plain name; a path may be another Python, and is not dropped."""
    return re.fullmatch(rf"(python(3(\.{sys.version_info.minor})?)?|py)(\.exe)?", word) is not None


def _is_script(word: str) -> bool:
    return word == "-m" or word.endswith((".py", ".pyw"))
