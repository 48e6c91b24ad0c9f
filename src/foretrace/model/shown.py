"""What a notebook shows of our objects."""

from __future__ import annotations

from importlib import import_module

__all__ = ["Shown"]


class Shown:
    """Gives a class the HTML form by which notebooks show the last value of a cell.

    How it looks is the renderers' matter, which stand further down the house; the arrow back to them is taken by name
    and only when a notebook asks.
    """

    __slots__ = ()

    def _repr_html_(self) -> str:
        shown: str = import_module("foretrace.report.notebook").html_of(self)
        return shown
