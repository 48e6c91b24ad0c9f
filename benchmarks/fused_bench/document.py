"""The result file: what was asked, on which machine, and every sample. Written anew after each case."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import foretrace
from foretrace.timing import paired_ratio
from fused_bench.contest import CONFIDENCE

__all__ = ["Document", "measured_version", "ratio", "ratios", "shown_command"]


def ratio(samples: Sequence[float], base: Sequence[float]) -> dict[str, Any] | None:
    """Median of the ratios round by round, with its interval (``None``: too few rounds); below one is faster.

    ``None`` where the two were not measured in the same rounds.
    """
    if not samples or len(samples) != len(base):
        return None
    middle, interval = paired_ratio(samples, base, CONFIDENCE)
    return {"median": round(middle, 4), "interval": None if interval is None else [round(end, 4) for end in interval]}


def ratios(entrants: dict[str, dict[str, Any]], name: str, clocks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The ratio of entrant ``name`` to every other, by clock (``"graph"``, ``"events"``, ``"wall"``, …)."""
    found: dict[str, dict[str, Any]] = {}
    for clock in clocks:
        ours = (entrants.get(name) or {}).get(clock)
        if not ours:
            continue
        for other, result in entrants.items():
            theirs = result.get(clock)
            if other != name and theirs:
                found.setdefault(clock, {})[other] = ratio(ours["samples_us"], theirs["samples_us"])
    return found


def shown_command(arguments: Sequence[str]) -> list[str]:
    """The command without the folders of this machine; ``1/2`` is a share, not a path."""
    share = re.compile(r"\d+/\d+")
    shown = (Path(word).name if os.sep in word and not share.fullmatch(word) else word for word in arguments)
    return ["python", "benchmarks/fused.py", *shown]


def measured_version() -> dict[str, str]:
    """Which foretrace was measured: its version, and a digest of the fused modules' sources and tables."""
    folder = Path(foretrace.__file__).parent / "fused"
    digest = hashlib.sha256()
    for path in sorted(path for kind in ("*.py", "*.json") for path in folder.rglob(kind)):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return {"version": foretrace.__version__, "fused_sha256": digest.hexdigest()[:16]}


class Document:
    """Collects suites and cases, and is on disk after each: a run that is cut short loses one case at most."""

    def __init__(self, path: Path | None, machine: dict[str, Any], settings: dict[str, Any]) -> None:
        self._path = path
        self._lines: dict[str, list[str]] = {}
        self.content: dict[str, Any] = {
            "command": shown_command(sys.argv[1:]),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "foretrace": measured_version(),
            "machine": machine,
            "settings": settings,
            "confidence": CONFIDENCE,
            "suites": {},
            "skipped": [],
        }

    def add(self, suite: str, case: dict[str, Any]) -> None:
        """Append one case to a suite, and write."""
        self.content["suites"].setdefault(suite, []).append(case)
        self._lines.setdefault(suite, []).append(json.dumps(case, allow_nan=False))
        self.write()

    def skip(self, suite: str, what: str, reason: str) -> None:
        """Say what was not measured."""
        self.content["skipped"].append({"suite": suite, "case": what, "reason": reason})
        self.write()

    def write(self) -> None:
        """Replace the file in one step, so that a reader never sees half of it."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        with os.fdopen(handle, "w") as file:
            file.write(self._text())
        Path(name).replace(self._path)
        self._path.chmod(0o644)

    def _text(self) -> str:
        """One line a case, each made into text once: a grid has thousands of samples and is written 150 times."""
        fields = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in self.content.items() if key != "suites"]
        between = ",\n"
        suites = [f"{json.dumps(suite)}: [\n{between.join(lines)}\n]" for suite, lines in self._lines.items()]
        fields.append(f'"suites": {{\n{between.join(suites)}\n}}')
        return f"{{\n{between.join(fields)}\n}}\n"
