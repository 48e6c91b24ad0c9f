"""What the GPU tests share: how to read what was recorded, independently of foretrace."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def recorded(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    """The recordings of ``foretrace run --json``."""
    assert done.returncode == 0, done.stderr
    recordings: list[dict[str, Any]] = json.loads(done.stdout)["recordings"]
    return recordings


def rows(trace: Path, category: str) -> list[dict[str, Any]]:
    """All rows of one category, counted independently of foretrace."""
    events = json.loads(gzip.decompress(trace.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("cat") == category]
