"""The file form: an expectation in TOML, with every error at its line.

::

    kernels = 5
    gemm = 3

    [[kernel]]
    tile = "256x128"
    count = 2

    [region.mlp_fwd]
    gpu_busy_us = "<= 250"
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foretrace.errors import InputError
from foretrace.model.expectations import EVERYWHERE, Clause, Expectation, Scope
from foretrace.prediction.expect.language import clauses_of, pattern_of
from foretrace.prediction.expect.quantities import SCOPES
from foretrace.prediction.expect.sense import problems
from foretrace.prediction.expect.toml_lines import Lines, line_of_error

__all__ = ["parse_toml", "read_toml"]

_LARGEST_FILE = 4_000_000  # bytes; an expectation of this size was not meant


def read_toml(path: str | Path) -> Expectation:
    """Read an expectation file; ``-`` is standard input.

    A relative path in ``same_kernels_as`` is relative to the file.

    Raises:
        InputError: the file cannot be read, is no TOML, or says something that is no expectation or cannot hold;
            the sentence begins with ``FILE:LINE``.
    """
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; pipe expectations into it, or name a file")
        raw = sys.stdin.buffer.read() if hasattr(sys.stdin, "buffer") else sys.stdin.read().encode()
        return parse_toml(_text(raw, "standard input"), name="standard input")
    file = Path(path)
    try:
        if file.is_dir():
            raise InputError(f"{file} is a directory; name a TOML file of expectations")
        if file.stat().st_size > _LARGEST_FILE:
            raise InputError(f"{file} is too large to be a file of expectations; is it a trace?")
        raw = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{file} does not exist; name a TOML file of expectations") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return parse_toml(_text(raw, str(file)), name=str(file), folder=file.parent)


def parse_toml(text: str, *, name: str = "expectations", folder: Path | None = None) -> Expectation:
    """The expectation a TOML text says; ``name`` stands in front of errors, ``folder`` is where paths begin."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line, said = line_of_error(error, text)
        raise InputError(f"{name}:{line}: this is no TOML: {said}") from None
    except (RecursionError, ValueError) as error:
        raise InputError(f"{name}: this is no TOML that can be read: {error}") from None
    try:
        reader = _Reader(name, Lines(text), folder)
        reader.table(document, EVERYWHERE, ())
    except RecursionError:
        raise InputError(f"{name} nests its tables deeper than an expectation can mean") from None
    if not reader.clauses:
        raise InputError(f"{name} holds no expectation; write one, such as kernels = 5")
    for position, sentence in problems(reader.clauses):
        raise reader.error(reader.paths[position], sentence)
    return Expectation() & Expectation(tuple(reader.clauses))


def _text(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{name} is no text in UTF-8; expectations are written in TOML") from None


class _Reader:
    """Collects clauses, and beside each the path of the key it was written under."""

    def __init__(self, name: str, lines: Lines, folder: Path | None) -> None:
        self.clauses: list[Clause] = []
        self.paths: list[tuple[str | int, ...]] = []
        self._name = name
        self._lines = lines
        self._folder = folder

    def error(self, path: tuple[str | int, ...], sentence: str) -> InputError:
        """An error at the line of a key."""
        line = self._lines.of(path)
        return InputError(f"{self._name}:{line}: {sentence}" if line else f"{self._name}: {sentence}")

    def table(self, table: Mapping[str, Any], scope: Scope, path: tuple[str | int, ...]) -> None:
        """Read the keys of one scope, in the file's order."""
        for key, value in table.items():
            here = (*path, key)
            if key in SCOPES:
                self._scopes(key, value, scope, here)
            elif key == "kernel":
                self._patterns(value, scope, here)
            else:
                self._add(here, lambda key=key, value=value: clauses_of(key, value, scope))

    def _scopes(self, kind: str, named: Any, scope: Scope, path: tuple[str | int, ...]) -> None:
        example = {"step": '"#3"', "region": "mlp_fwd", "module": '"Linear_0"', "op": '"aten::linear"'}[kind]
        if not isinstance(named, dict) or not named:
            raise self.error(path, f"{kind} is a place: write a table [{kind}.{example}] and quantities under it")
        if getattr(scope, kind) is not None:
            raise self.error(path, f"one {kind} inside another is not understood; name the inner one only")
        for name, table in named.items():
            here = (*path, name)
            if not isinstance(table, dict):
                # [region] with quantities right under it: the name of the region is missing.
                raise self.error(here, f"{name} stands in no named {kind}: write [{kind}.{example}]")
            if not name.strip():
                raise self.error(here, f"the name of the {kind} is empty")
            fields = {one: getattr(scope, one) for one in SCOPES} | {kind: name}
            self.table(table, Scope(**fields), here)

    def _patterns(self, value: Any, scope: Scope, path: tuple[str | int, ...]) -> None:
        patterns = value if isinstance(value, list) else [value]
        for number, pattern in enumerate(patterns):
            here = (*path, number) if isinstance(value, list) else path
            if not isinstance(pattern, dict):
                raise self.error(path, 'kernel is a pattern: write [[kernel]], with fields such as tile = "256x128"')
            for field in pattern:
                if field == "count":
                    continue
                self._checked((*here, field), lambda field=field, p=pattern: pattern_of({field: p[field]}))
            self._add(here, lambda pattern=pattern: [pattern_of(pattern, scope)])

    def _add(self, path: tuple[str | int, ...], make: Any) -> None:
        for clause in self._checked(path, make):
            self.clauses.append(self._placed(clause))
            self.paths.append(path)

    def _checked(self, path: tuple[str | int, ...], make: Any) -> Any:
        try:
            return make()
        except InputError as error:
            raise self.error(path, str(error)) from None

    def _placed(self, clause: Clause) -> Clause:
        """The clause with a path that is relative to the file made one from here."""
        if clause.quantity != "same_kernels_as" or self._folder is None:
            return clause
        path, *kind = clause.words
        return Clause(quantity=clause.quantity, scope=clause.scope, words=(str(self._folder / path), *kind))
