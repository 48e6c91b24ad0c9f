"""Docstrings as Markdown: what is written for a terminal and an editor reads as well on the site.

A role such as ``:class:`Name``` becomes the name alone, and the ``::`` before an indented example a colon, since
Markdown takes the indentation for a block of code by itself.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|attr|mod):(?=`)")
_ALONE = re.compile(r"^[ \t]*::[ \t]*$", re.MULTILINE)
_BEFORE_A_BLOCK = re.compile(r"(?<=\S)::(?=\n[ \t]*\n[ \t]{4})")


class Docstrings(griffe.Extension):
    """Rewrites every docstring that is loaded."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite the docstring of the package itself, which is no member of anything."""
        self.on_object(obj=pkg, **kwargs)

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:  # noqa: ARG002 - griffe's own signature
        """Rewrite the docstring of a module, a class, a function or an attribute."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """A docstring without roles and without ``::``."""
    return _BEFORE_A_BLOCK.sub(":", _ALONE.sub("", _ROLE.sub("", text)))
