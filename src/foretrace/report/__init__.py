"""Renderers of a ``Report``: text for a terminal, JSON. They lay out and select; they compute nothing.

The renderers are loaded on first use: the command line's help needs neither.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from foretrace.report.view import SECTIONS, View

if TYPE_CHECKING:
    from foretrace.report.json import to_json
    from foretrace.report.terminal import render

__all__ = ["SECTIONS", "View", "render", "to_json"]

_HOME = {"render": "foretrace.report.terminal", "to_json": "foretrace.report.json"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foretrace.report' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
