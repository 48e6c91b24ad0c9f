"""Traces that are served to the Perfetto UI, as data: schema ``foretrace.view/1``."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["SCHEMA", "Viewed", "ViewedTrace"]

SCHEMA: Literal["foretrace.view/1"] = "foretrace.view/1"


class ViewedTrace(msgspec.Struct, kw_only=True):
    """One trace: where it is served, and the link that opens it in the UI.

    ``copy`` is the file that is served instead of it, with tracks added; null where it is served itself.
    """

    path: str
    copy: str | None
    bytes: int
    url: str
    link: str


class Viewed(msgspec.Struct, kw_only=True):
    """What is served while the command runs.

    ``ssh`` is the line to run on the user's machine so that the UI there reaches ``port`` here; null where there is a
    display here.
    """

    schema: Literal["foretrace.view/1"] = SCHEMA
    port: int
    ssh: str | None
    traces: list[ViewedTrace]
