"""The one way in: clean a name, demangle it if need be, and ask the families in order."""

from __future__ import annotations

from functools import lru_cache

from . import copies, demangle, nvjet
from ._base import Decoded, Found, shorten
from .cpp import parse
from .operators import kind_of_operator
from .words import kind_by_words

__all__ = ["decode"]

# A name is read up to here: longer ones are template expansions that repeat themselves.
_LONGEST = 16_384


@lru_cache(maxsize=65_536)
def decode(name: str, *, op: str | None = None) -> Decoded:
    """Decode a kernel, memcpy or memset name as the profiler wrote it.

    ``op`` is the operator that launched it, if known; it decides the kind only where the name cannot. Never raises, runs
    in time linear in the length of the name, and is deterministic.
    """
    found = _find(name)
    kind = found.kind
    if op and (found.weak or kind == "other"):
        kind = kind_of_operator(op) or kind
    return Decoded(name, shorten(found.short) or "(empty)", kind, found.family, found.decoded, found.unknown)


def _find(name: str) -> Found:
    text = name[:_LONGEST].strip().removesuffix(".kd")
    if found := copies.match(text) or nvjet.match(text):
        return found
    if demangle.is_mangled(text):
        text = demangle.demangle(text) or "::".join(demangle.identifiers(text)) or text
    parsed = parse(text)
    kind = kind_by_words(parsed.base)
    return Found(kind or "other", "unknown", parsed.base, {}, [] if kind else [parsed.base], weak=True)
