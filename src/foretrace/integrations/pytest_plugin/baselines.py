"""The files of baselines: one a test, in ``__foretrace__/`` beside the test's file."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

from foretrace.errors import InputError
from foretrace.model.baseline import Baseline, read_baseline, write_baseline

if TYPE_CHECKING:
    from foretrace.integrations.pytest_plugin.measuring import Recorded

__all__ = ["FOLDER", "accept", "file_stem", "path_of", "read", "shown", "summary"]

FOLDER = "__foretrace__"
State = Literal["written", "same", "kept"]

_LONGEST = 120
_HASH = 8


def _name(item: pytest.Item) -> str:
    """``test_mlp.py::TestForward::test_step[bf16]``: the test's name, wherever the project lies."""
    inner = item.nodeid.partition("::")[2]
    return f"{item.path.name}::{inner}"


def file_stem(item: pytest.Item) -> str:
    """A file name for a test, without a suffix, that no other test of the folder has.

    What stands in brackets may be anything: where it is not plain, or differs from another in capitals alone, a short
    hash of the whole name tells it apart.
    """
    name = _name(item)
    where, bracket, choice = name.partition("[")
    stem = where.replace(".py::", ".").replace("::", ".")
    plain = re.sub(r"[^\w.-]", "_", stem, flags=re.ASCII)
    choice = choice.removesuffix("]")
    chosen = re.sub(r"[^\w.-]+", "_", choice, flags=re.ASCII)
    text = plain + (f"-{chosen}" if bracket else "")
    if plain != stem or chosen != choice or chosen != chosen.lower() or len(text) > _LONGEST:
        text = f"{text[: _LONGEST - _HASH - 1]}-{hashlib.sha256(name.encode()).hexdigest()[:_HASH]}"
    return text


def path_of(item: pytest.Item) -> Path:
    """Where the baseline of a test lies."""
    return item.path.parent / FOLDER / f"{file_stem(item)}.json"


def shown(path: Path, config: pytest.Config) -> str:
    """The path as a message shows it: from the project's root where it lies there."""
    return str(path.relative_to(config.rootpath)) if path.is_relative_to(config.rootpath) else str(path)


def summary(item: pytest.Item, records: Sequence[Recorded]) -> Baseline:
    """What a test ran, as its baseline says it."""
    from foretrace.analysis.baseline import made_on, part_of

    on = [made_on(one.report, one.context) for one in records]
    # Of recordings on a GPU and without one, in one test, the first on a GPU says where the test ran.
    return Baseline(
        test=_name(item),
        made_on=next((made for made in on if made.gpu is not None), on[0]),
        parts=[part_of(one.report, one.context, one.label) for one in records],
    )


def read(path: Path, test: str) -> Baseline | None:
    """The baseline of ``test``; None where there is none. Raises ``InputError`` for one that cannot be used."""
    found = read_baseline(path)
    if found is not None and found.test != test:
        raise InputError(
            f"the baseline {path} is of {found.test}, not of {test}: rename one of the tests, or make it anew with "
            "pytest --foretrace-update"
        )
    return found


def accept(path: Path, new: Baseline) -> tuple[State, str | None]:
    """Write a baseline; what became of it, and of one that was kept why.

    Raises ``InputError`` where it cannot be written.
    """
    try:
        old = read_baseline(path)
    except InputError:
        old = None  # it is to be replaced anyway
    if old is not None and old.made_on.gpu is not None and new.made_on.gpu is None:
        return "kept", (
            f"the baseline, which was kept: it was made on {old.made_on.gpu}, and one made here would hold no kernels "
            "(delete the file to have one without)"
        )
    return "written" if write_baseline(path, new) else "same", None
