"""What an autotune found, kept on disk: one small file a problem, shared by processes without a lock.

Files lie in ``$FORETRACE_CACHE_DIR/fused``, else in the user's cache folder. The name is a hash of everything the
result depends on, the GPU's name and the versions of torch, Triton and foretrace included. The first process that
measured a problem decides for all, so that every process chooses alike.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from foretrace.errors import InputError
from foretrace.fused.dispatch.choice import parse_choice
from foretrace.fused.dispatch.files import keep_first, write_atomically
from foretrace.fused.plan import Problem
from foretrace.version import __version__

__all__ = ["DIRECTORY_VARIABLE", "Tuned", "bucket", "directory", "key_of", "load", "path_of", "store"]

DIRECTORY_VARIABLE: Final = "FORETRACE_CACHE_DIR"
SCHEMA: Final = 1

# Results that could not be written.
_unwritten: dict[Path, Tuned] = {}
# The same where not even a folder can be named: a user without a home.
_homeless: dict[str, Tuned] = {}


@dataclass(frozen=True, slots=True)
class Tuned:
    """What a measurement found. ``best``: the chosen line, see `foretrace.fused.dispatch.choice`.

    ``costs``: µs of every line that ran and was right, cheapest first. ``refused``: lines that were not, and why.
    """

    best: str
    costs: tuple[tuple[str, float], ...]
    refused: tuple[tuple[str, str], ...] = ()


def bucket(m: int) -> int:
    """Return the row count whose measurement answers for ``m``: itself up to 16, above the next power of two."""
    return m if m <= 16 else 1 << (m - 1).bit_length()


def directory() -> Path:
    """Return the folder of the results; it need not exist."""
    named = os.environ.get(DIRECTORY_VARIABLE)
    if named:
        return Path(named).expanduser() / "fused"
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "foretrace" / "fused"


def key_of(problem: Problem, gpu: str) -> dict[str, Any]:
    """Return everything a result depends on."""
    versions = {name: _version(name) for name in ("torch", "triton")} | {"foretrace": __version__}
    return {
        "schema": SCHEMA,
        "gpu": gpu,
        "versions": versions,
        "problem": asdict(replace(problem, m=bucket(problem.m))),
    }


def path_of(problem: Problem, gpu: str) -> Path:
    """Return the file of a problem on a GPU of that name."""
    text = _key_text(problem, gpu)
    return directory() / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"


def load(problem: Problem, gpu: str) -> Tuned | None:
    """Return what was found for a problem; ``None`` when nothing was, or the file cannot be read or understood."""
    try:
        path = path_of(problem, gpu)
    except RuntimeError:  # nobody has a home here
        return _homeless.get(_key_text(problem, gpu))
    if path in _unwritten:
        return _unwritten[path]
    try:
        document = json.loads(path.read_bytes())
        if document["key"] != key_of(problem, gpu):
            return None
        costs = tuple((str(name), float(cost)) for name, cost in document["costs"].items())
        refused = tuple((str(name), str(reason)) for name, reason in document["refused"].items())
        parse_choice(document["best"])
        return Tuned(document["best"], costs, refused)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError):
        return None


def store(problem: Problem, gpu: str, tuned: Tuned, *, again: bool = False) -> Tuned:
    """Keep a result, and return the one that holds: an earlier one stays unless ``again``.

    Where the folder cannot be written the result holds for this process alone.
    """
    document = {
        "key": key_of(problem, gpu),
        "best": tuned.best,
        "costs": dict(tuned.costs),
        "refused": dict(tuned.refused),
    }
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    try:
        path = path_of(problem, gpu)
    except RuntimeError:
        return _homeless.setdefault(_key_text(problem, gpu), tuned)
    try:
        # a file that cannot be read is replaced
        if again or not (keep_first(path, text) or load(problem, gpu)):
            write_atomically(path, text)
    except OSError:
        _unwritten[path] = tuned
    return load(problem, gpu) or tuned


def _key_text(problem: Problem, gpu: str) -> str:
    return json.dumps(key_of(problem, gpu), sort_keys=True)


@functools.cache
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
