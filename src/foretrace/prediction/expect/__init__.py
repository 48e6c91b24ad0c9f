"""Expectations: the language in its three forms, and the check against a trace with every mismatch explained.

``expect`` is the Python form, ``read_toml`` the file, ``parse_line`` one line of the command line; all make an
``Expectation``. ``check`` holds it against a trace. The parts are loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretrace.prediction.expect.checker import check, judge
    from foretrace.prediction.expect.language import clause_text, expect, parse_line
    from foretrace.prediction.expect.toml_reader import parse_toml, read_toml
    from foretrace.prediction.expect.toml_writer import to_toml

__all__ = ["check", "clause_text", "expect", "judge", "parse_line", "parse_toml", "read_toml", "to_toml"]

_HOME = {
    "check": "checker",
    "judge": "checker",
    "clause_text": "language",
    "expect": "language",
    "parse_line": "language",
    "parse_toml": "toml_reader",
    "read_toml": "toml_reader",
    "to_toml": "toml_writer",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foretrace.prediction.expect' has no attribute {name!r}")
    return getattr(import_module(f"foretrace.prediction.expect.{_HOME[name]}"), name)
