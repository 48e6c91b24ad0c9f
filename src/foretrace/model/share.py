"""What became of a folder that was shared, as data: schema ``foretrace.share/1``.

Sizes are bytes. ``state`` of a file: "uploaded", "replaced", "unchanged" (there already with this content), "conflict"
(there with another content, left as it was), or in a dry run and after a failure "waiting".
"""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["SCHEMA", "LeftOutFile", "Shared", "SharedFile"]

SCHEMA: Literal["foretrace.share/1"] = "foretrace.share/1"

State = Literal["uploaded", "replaced", "unchanged", "conflict", "waiting"]


class SharedFile(msgspec.Struct, kw_only=True):
    """One file: its path in the bucket, where it is fetched, and for a trace the link that opens it in Perfetto.

    ``perfetto`` is None for what is no trace, and in a private bucket, where the UI could not fetch it.
    """

    path: str
    kind: str
    bytes: int
    state: State
    url: str
    perfetto: str | None = None


class LeftOutFile(msgspec.Struct, kw_only=True):
    """One file of the folder that was not taken, and why."""

    path: str
    reason: str


class Shared(msgspec.Struct, kw_only=True):
    """The whole: where to, what, what not.

    ``private`` is None where the bucket was not looked at; ``error`` says why, or why the upload ended early.
    """

    schema: Literal["foretrace.share/1"] = SCHEMA
    folder: str
    bucket: str
    page: str
    private: bool | None
    created: bool = False
    dry_run: bool = False
    files: list[SharedFile] = []
    left_out: list[LeftOutFile] = []
    deleted: list[str] = []
    redacted: dict[str, int] | None = None  # pieces replaced by category; None: nothing was to be redacted
    error: str | None = None
