"""The one way in: clean a name, demangle it if need be, and ask the families in order."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from . import copies, demangle, nvjet, predicted
from ._base import Decoded, Found, shorten
from ._fallback import fill
from .cpp import CppName, parse
from .operators import kind_of_operator
from .words import kind_by_words

__all__ = ["decode"]

_Family = Callable[[CppName], Found | None]
# An identifier longer than this is no kernel's: Tensile's and Inductor's longest stay below 1500 letters.
_LONGEST_IDENTIFIER = 2_000

# Families that read every part of their names: types in PyTorch's templates, operators in Inductor's names.
_SPELLED_OUT = frozenset({"aten", "cub", "foretrace", "inductor", "nccl", "predicted", "rccl", "tensile", "xmma"})

# A name is read up to here: longer ones are template expansions that repeat themselves.
_LONGEST = 16_384


@lru_cache(maxsize=65_536)
def decode(name: str, *, op: str | None = None) -> Decoded:
    """Decode a kernel, memcpy or memset name as the profiler wrote it.

    ``op`` is the operator that launched it, if known; it decides the kind only where the name cannot. Never raises,
    runs in time linear in the length of the name, and is deterministic.
    """
    found = _find(name)
    kind = found.kind
    if op and (found.weak or kind == "other"):
        kind = kind_of_operator(op) or kind
    return Decoded(name, shorten(found.short) or "(empty)", kind, found.family, found.decoded, found.unknown)


def _find(name: str) -> Found:
    text = name[:_LONGEST].strip().removesuffix(".kd")
    if found := copies.match(text) or nvjet.match(text) or predicted.match(text):
        return found
    if demangle.is_mangled(text):
        text = (demangle.demangle(text) or demangle.spelled_out(text) or text)[:_LONGEST]
    parsed = parse(text)
    if len(parsed.base) <= _LONGEST_IDENTIFIER:
        for family in _families(parsed.qualified.startswith("at::native::")):
            if found := family(parsed):
                if found.family not in _SPELLED_OUT:
                    fill(parsed, found)
                return found
    kind = kind_by_words(parsed.base)
    label = parsed.base or text
    found = Found(kind or "other", "unknown", label, {}, [] if kind or not label else [label[:200]], weak=True)
    fill(parsed, found)
    return found


@lru_cache(maxsize=2)
def _families(of_pytorch: bool) -> tuple[_Family, ...]:
    """The families in the order in which they are asked; imported on the first name, for a quick start.

    The order matters: a family would take names of one later in the list if it were asked after it.
    """
    from . import (
        amd,
        aten,
        attention,
        communication,
        cub,
        cublas,
        cudnn,
        cutlass,
        foretrace,
        libraries,
        liger,
        triton,
        xmma,
    )

    first = (aten.match,) if of_pytorch else ()
    return (
        *first,
        lambda parsed: xmma.match(parsed.text),
        triton.match,
        foretrace.match,
        communication.match,
        cublas.match,
        attention.match,
        aten.match,
        cub.match,
        amd.match,
        cutlass.match,
        cudnn.match,
        liger.match,
        libraries.match,
        triton.hand_written,
    )
