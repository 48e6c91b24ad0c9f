"""What a file of JSON holds, packed or not, read without foretrace."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

__all__ = ["document", "events", "text_of"]


def text_of(path: str | Path) -> bytes:
    data = Path(path).read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def document(path: str | Path, **options: Any) -> dict[str, Any]:
    """The JSON; ``options`` as ``json.loads`` has them (``parse_float=str`` keeps every digit)."""
    return json.loads(text_of(path), **options)


def events(path: str | Path) -> list[dict[str, Any]]:
    return document(path)["traceEvents"]
