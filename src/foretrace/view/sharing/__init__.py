"""Traces put where others can open them: what of a folder is shared, what of it stays secret, the Hub's buckets.

``collect`` says what would be uploaded, ``redacted`` makes copies without what tells of a person or a machine, and
``Hub`` compares with what a bucket holds, uploads and deletes.
"""

from __future__ import annotations

from foretrace.errors import SharingError
from foretrace.model.share import Shared
from foretrace.view.sharing.copies import redacted
from foretrace.view.sharing.hub import Hub, Remote, RemoteFile, Standing
from foretrace.view.sharing.planning import Item, LeftOut, Plan, Unseen, collect, tidy_prefix
from foretrace.view.sharing.surplus import Surplus, surplus

__all__ = [
    "Hub",
    "Item",
    "LeftOut",
    "Plan",
    "Remote",
    "RemoteFile",
    "Shared",
    "SharingError",
    "Standing",
    "Surplus",
    "Unseen",
    "collect",
    "redacted",
    "surplus",
    "tidy_prefix",
]
