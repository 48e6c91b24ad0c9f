"""Files that commands are given: those they read, and the one they may write.

A command that writes looks at the name before it does any work. What it writes replaces a file only with ``--force``,
whole or not at all, and never a file that the same call reads.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from foretrace.cli.streams import say, standard_input, to_stdout
from foretrace.errors import InputError
from foretrace.report.text import clean, columns_of, wants_color
from foretrace.report.view import View

__all__ = [
    "check_sources",
    "deliver",
    "output_of",
    "page_target",
    "progress_of",
    "reading",
    "target_of",
    "view_for",
    "write",
]

_LARGE_BYTES = 50_000_000  # from here on reading takes long enough to say so
_BAR = 30


def check_sources(paths: Sequence[str]) -> None:
    """Raise :class:`InputError` for an empty path, and where standard input (``-``) cannot be what is asked of it."""
    if "" in paths:
        raise InputError("an empty path was given; name a file, or - for standard input")
    if list(paths).count("-") > 1:
        raise InputError("standard input (-) can be read only once")
    if "-" in paths:
        standard_input()


@contextmanager
def reading(paths: Sequence[str]) -> Iterator[None]:
    """Say on a terminal that large traces are being read, for as long as they are."""
    size = sum(map(_size, paths))
    told = size >= _LARGE_BYTES and sys.stderr.isatty()
    if told:
        what = clean(paths[0]) if len(paths) == 1 else f"{len(paths)} traces"
        print(f"reading {what} ({size / 1e6:.0f} MB) …", end="", file=sys.stderr, flush=True)
    try:
        yield
    finally:
        if told:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def progress_of(path: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar on the terminal that what reads the file moves, ``(bytes done, bytes in all)``; None where none is due."""
    if _size(path) < _LARGE_BYTES or not sys.stderr.isatty():
        yield None
        return
    name, drawn = clean(Path(path).name), -1

    def move(done: int, whole: int) -> None:
        nonlocal drawn
        part = 100 * done // whole if whole else 0
        if part == drawn:
            return
        drawn = part
        cells = part * _BAR // 100
        bar = f"{'█' * cells}{'·' * (_BAR - cells)}"
        print(f"\rreading {name}  {bar} {part:3} % of {whole / 1e6:.0f} MB", end="", file=sys.stderr, flush=True)

    try:
        yield move
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _size(path: str) -> int:
    """Bytes of the file, 0 where that is not known; why it cannot be read is said by what reads it."""
    try:
        return Path(path).stat().st_size if path != "-" and Path(path).is_file() else 0
    except (OSError, ValueError):
        return 0


def output_of(args: argparse.Namespace, sources: Sequence[str] = ()) -> Path | None:
    """The file that ``--output`` names (see `flags.add_output`); None for standard output, which ``-`` is as well.

    ``sources``: what the command reads. Raises as `target_of`.
    """
    return None if args.output == "-" else target_of(args.output, force=args.force, sources=sources)


def target_of(name: str | None, *, force: bool, sources: Sequence[str] = (), flag: str = "--output") -> Path | None:
    """The file a flag names; None where none was named. ``sources``: what the command reads.

    Raises :class:`InputError` where the file must not or cannot be written.
    """
    from foretrace.trace.writer import refuse_taken

    if name is None:
        return None
    if not name:
        raise InputError(f"{flag} is empty; it names a file")
    if name == "-":
        raise InputError(f"{flag} - names no file; it goes beside what is printed, so give it a name")
    target = Path(name)
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; create it first")
    if target.is_file() and any(Path(path).is_file() and target.samefile(path) for path in sources if path != "-"):
        raise InputError(f"{target} is a file that is read here; {flag} never replaces it")
    refuse_taken(target, force=force)
    return target


def page_target(
    name: str | None, *, force: bool, sources: Sequence[str], beside: Path | None = None, one: str | None = None
) -> Path | None:
    """The file that ``--html`` names; None where none was named.

    ``sources``: what the command reads. ``beside``: the file that ``--output`` names. ``one``: what a page is of
    ("trace"), where the command read several of them in one call and a page holds only one.

    Raises:
        InputError: it must not or cannot be written, or is one with the output.
    """
    if name is None:
        return None
    if one is not None:
        raise InputError(f"--html makes the page of one {one}; write a page for each with a call of its own")
    target = target_of(name, force=force, sources=sources, flag="--html")
    if name.lower().endswith(".gz"):
        raise InputError(f"--html {name}: a browser opens no packed page from disk; give it a name that ends in .html")
    if target is not None and beside is not None and target.resolve() == beside.resolve():
        raise InputError(f"--html and --output both name {target}; give each a file of its own")
    return target


def write(target: Path, content: bytes, *, force: bool) -> None:
    """Write the file whole, packed where its name ends in ``.gz``, and say so."""
    from foretrace.trace.writer import write_bytes

    write_bytes(target, [content], force=force)
    say(f"wrote {target}")


def deliver(content: bytes, target: Path | None, *, force: bool) -> None:
    """Write the file, or without one print to standard output."""
    if target is None:
        to_stdout(content)
    else:
        write(target, content, force=force)


def view_for(target: Path | None = None, **choices: Any) -> View:
    """The view that suits standard output, or a file; ``choices`` are other attributes of ``View``."""
    if target is not None:
        return View(**choices)
    return View(width=columns_of(sys.stdout, os.environ), color=wants_color(sys.stdout, os.environ), **choices)
