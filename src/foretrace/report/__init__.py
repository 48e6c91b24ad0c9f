"""Renderers of a ``Report``: text for a terminal, JSON. They lay out and select; they compute nothing."""

from foretrace.report.json import to_json
from foretrace.report.terminal import render
from foretrace.report.view import SECTIONS, View

__all__ = ["SECTIONS", "View", "render", "to_json"]
