"""On which line of a TOML text each key stands: the standard library's reader does not say."""

from __future__ import annotations

import re
import tomllib
from typing import Any

__all__ = ["Lines", "line_of_error"]

Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[|\[)")
_ERROR_LINE = re.compile(r"\(at line (\d+), column \d+\)|\(at end of document\)")


class Lines:
    """The lines of the keys of one valid TOML text."""

    def __init__(self, text: str) -> None:
        self._line: dict[Path, int] = {}
        self._tables: dict[Path, int] = {}  # array of tables → how many so far
        prefix: Path = ()
        lines = text.replace("\r\n", "\n").split("\n")
        number = 0
        while number < len(lines):
            start = number
            statement = lines[number]
            number += 1
            # A statement that goes on over several lines (an array, a long string) is not valid before its end.
            while (parsed := _parsed(statement)) is None and number < len(lines):
                statement += "\n" + lines[number]
                number += 1
            header = _HEADER.match(statement)
            if header:
                prefix = self._entered(_only_path(parsed or {}), array=header[1] == "[[")
                self._keep(prefix, start + 1)
            else:
                for path in _paths(parsed or {}):
                    self._keep((*prefix, *path), start + 1)

    def of(self, path: Path) -> int | None:
        """The line of a key; that of the innermost table around it where the key itself was not found."""
        while path:
            if path in self._line:
                return self._line[path]
            path = path[:-1]
        return None

    def _keep(self, path: Path, line: int) -> None:
        # [a.b] is where a begins too, if nothing earlier is.
        for length in range(1, len(path) + 1):
            self._line.setdefault(path[:length], line)

    def _entered(self, names: tuple[str, ...], *, array: bool) -> Path:
        path: Path = ()
        for place, name in enumerate(names):
            path = (*path, name)
            if place == len(names) - 1 and array:
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path


def line_of_error(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """The line a reader's error speaks of, and its sentence without the place."""
    said = str(error)
    match = _ERROR_LINE.search(said)
    line = int(match[1]) if match and match[1] else len(text.rstrip().split("\n"))
    return line, _ERROR_LINE.sub("", said).strip()


def _parsed(statement: str) -> dict[str, Any] | None:
    try:
        return tomllib.loads(statement)
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _only_path(nested: dict[str, Any]) -> tuple[str, ...]:
    """``{"a": {"b": {}}}`` → ``("a", "b")``: the path a header names."""
    path: list[str] = []
    current: Any = nested
    while isinstance(current, dict) and current:
        name = next(iter(current))
        path.append(name)
        current = current[name]
        if isinstance(current, list):
            current = current[0]
    return tuple(path)


def _paths(nested: Any, path: Path = ()) -> list[Path]:
    """Every path in what one statement says; inline tables are on its line as well."""
    found: list[Path] = [path] if path else []
    items = nested.items() if isinstance(nested, dict) else enumerate(nested) if isinstance(nested, list) else ()
    for name, value in items:
        found += _paths(value, (*path, name))
    return found
