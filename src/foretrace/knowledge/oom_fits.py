"""What a known remedy is: the shape of the tables of `oom_remedies`, `oom_settings` and `oom_serving`."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

__all__ = ["ALLOCATOR", "NOTES", "Fit", "KnownRemedy", "same"]

Stance = Literal["helps", "may", "cannot"]

ALLOCATOR: Final = "c10/cuda/CUDACachingAllocator.cpp"
NOTES: Final = "PyTorch, CUDA semantics: memory management"


class Fit(NamedTuple):
    """How a remedy fits a case, and why. The first sentence stands alone on the first screen."""

    stance: Stance
    because: str


class KnownRemedy(NamedTuple):
    """One remedy. ``fits``: by verdict, or by a case that overrides it (`memory.oom.remedies` says which)."""

    title: str
    fits: dict[str, Fit]
    preconditions: tuple[str, ...] = ()
    source: str | None = None


def same(verdicts: str, fit: Fit) -> dict[str, Fit]:
    """One fit for several verdicts, whose names are given with spaces between them."""
    return dict.fromkeys(verdicts.split(), fit)
