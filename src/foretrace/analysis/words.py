"""Numbers in the sentences of findings and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.knowledge.limits import SHOWN_KINDS

__all__ = ["breakdown", "gigabytes_per_second", "megabytes", "microseconds", "percent"]


def breakdown(parts: Sequence[tuple[str, float]]) -> str:
    """``a 24 µs, b 14 µs, the other 3 together 2.1 µs``: named times (µs), most first."""
    shown = [f"{name} {microseconds(us)}" for name, us in parts[:SHOWN_KINDS]]
    rest = parts[SHOWN_KINDS:]
    if len(rest) == 1:
        shown.append(f"{rest[0][0]} {microseconds(rest[0][1])}")
    elif rest:
        shown.append(f"the other {len(rest)} together {microseconds(sum(us for _, us in rest))}")
    return ", ".join(shown)


def megabytes(size: float) -> str:
    """Bytes in words: ``101 MB``, ``1.51 GB``, ``4 B`` (powers of ten)."""
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= factor:
            return f"{size / factor:.3g} {unit}"
    return f"{size:.0f} B"


def microseconds(value: float) -> str:
    """Microseconds in words: ``27.6 µs``, ``1.2 ms``, ``13.3 s``."""
    if value >= 1e6:
        return f"{value / 1e6:.3g} s"
    return f"{value / 1000:.3g} ms" if value >= 1000 else f"{value:.3g} µs"


def percent(share: float) -> str:
    """A share 0..1 in words; small ones keep a digit that is not zero: ``53%``, ``2.3%``, ``0.2%``."""
    return f"{share:.0%}" if share >= 0.1 or not share else f"{100 * share:.2g}%"


def gigabytes_per_second(rate: float) -> str:
    """GB/s in words: ``3.65 TB/s``, ``812 GB/s``."""
    return f"{rate / 1000:.3g} TB/s" if rate >= 1000 else f"{rate:.3g} GB/s"
