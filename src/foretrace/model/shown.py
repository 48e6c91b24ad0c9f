"""What a notebook or IPython's shell shows of our objects; a class names it before its other bases."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Shown"]


class Shown:
    """Gives a class the two forms in which IPython shows the last value of a cell: HTML, and text.

    Without the text it would be the ``repr``, megabytes for a report, and stand in the notebook's file as well. How it
    looks is the renderers' matter, which stand further down the house; the arrow back to them is taken by name and only
    when it is asked for.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        shown: str = import_module("foretrace.report.notebook").html_of(self)
        return shown

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text("…" if cycle else import_module("foretrace.report.notebook").text_of(self))
