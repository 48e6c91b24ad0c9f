"""Which files of a bucket the folder has not: only what the folder was seen not to have may be deleted there."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from foretrace.knowledge.sharing import PLACEHOLDERS
from foretrace.view.sharing.planning import Plan

__all__ = ["Surplus", "surplus"]

_BELOW = "they are below a folder that was not looked into"
_ODD = "a file here, or a folder of theirs, has a name that is not valid UTF-8 and may be the same"
_RENAMED = "redaction may have given them the names that they have"
_PLACEHOLDER = re.compile(rf"(?<![A-Za-z0-9])(?:{PLACEHOLDERS['user']}|{PLACEHOLDERS['host']})(?![A-Za-z0-9])")


@dataclass(frozen=True)
class Surplus:
    """Paths in the bucket that may be deleted; ``spared``: how many more could be the folder's, by the reason why."""

    paths: list[str]
    spared: Counter[str] = field(default_factory=Counter)


def surplus(plan: Plan, remote: Iterable[str]) -> Surplus:
    """Sort out the paths of a bucket that the folder has not.

    What the folder holds stays, taken or not. So does whatever could be in a place of it that was not looked into (a
    cache, a link to a folder, what may not be read) or under a name here that cannot be told.
    """
    here = {_composed(path) for path in plan.local} | {_composed(item.path) for item in plan.items}
    places = [(_pattern(place.path), place) for place in plan.unseen]
    paths: list[str] = []
    spared: Counter[str] = Counter()
    for path in sorted(remote):
        if _composed(path) in here:
            continue
        place = next((place for pattern, place in places if pattern.match(_composed(path))), None)
        if place is not None:
            spared[_ODD if place.odd else f"{_BELOW} ({place.reason})"] += 1
        elif plan.renamed and plan.left_out and _PLACEHOLDER.search(path):
            spared[_RENAMED] += 1
        else:
            paths.append(path)
    return Surplus(paths, spared)


def _composed(path: str) -> str:
    """The path with letters and their accents in one piece: systems differ in how they write the same name."""
    return unicodedata.normalize("NFC", path)


def _pattern(path: str) -> re.Pattern[str]:
    """What could be the path, or below it; bytes that are no text could be any characters."""
    if not path:
        return re.compile("")
    parts = re.split("[\ud800-\udfff\ufffd]+", _composed(path))
    return re.compile("[^/]*".join(map(re.escape, parts)) + r"(?:/|\Z)", re.DOTALL)
